/**
 * Asking a pool with a limit, against a few bytes of a server: what real ones do once in ten thousand times comes here
 * each time.
 */
import { createServer, type Socket } from 'node:net';
import pg from 'pg';
import { afterEach, expect, test } from 'vitest';
import { hearErrors, patient } from '../../src/jobs/patience.js';

const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

const message = (type: string, body: Buffer): Buffer => {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(body.length + 4);
  return Buffer.concat([Buffer.from(type), length, body]);
};
const AUTHENTICATED = message('R', Buffer.from([0, 0, 0, 0]));
const READY = message('Z', Buffer.from('I'));
const FAREWELL = message(
  'E',
  Buffer.from('SFATAL\0C57P01\0Mterminating connection due to administrator command\0\0'),
);
const COMPLETE = message('C', Buffer.from('SELECT 0\0'));

/** A pool on a server that answers the n-th chunk of a connection with the n-th answer. */
async function poolOn(answers: readonly Buffer[], max = 2): Promise<pg.Pool> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    let n = 0;
    socket.on('error', () => {});
    socket.on('data', () => {
      const answer = answers[n++];
      if (answer !== undefined) socket.write(answer);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const pool = new pg.Pool({
    host: '127.0.0.1',
    port: (server.address() as { port: number }).port,
    user: 'u',
    max,
  });
  closers.push(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return pool;
}

test('a farewell in the same packet as the welcome fails the question, not the process', async () => {
  const pool = await poolOn([Buffer.concat([AUTHENTICATED, READY, FAREWELL])]);
  const heard: unknown[] = [];
  hearErrors(pool, (error) => heard.push(error));
  await expect(patient(pool, 1_000).query('select')).rejects.toThrow();
});

test('a farewell in the same packet as an answer, while another question waits for the connection', async () => {
  const answer = Buffer.concat([COMPLETE, READY, FAREWELL]);
  const pool = await poolOn([Buffer.concat([AUTHENTICATED, READY]), answer], 1);
  hearErrors(pool, () => {});
  const db = patient(pool, 1_000);
  const both = await Promise.allSettled([pool.query('select'), db.query('select')]);
  expect(both.map(({ status }) => status)).toEqual(['fulfilled', 'rejected']);
});

test('a question without an answer is given up, its connection thrown away', async () => {
  const pool = await poolOn([Buffer.concat([AUTHENTICATED, READY])]);
  hearErrors(pool, () => {});
  await expect(patient(pool, 100).query('select')).rejects.toMatchObject({ code: 'database-slow' });
  expect(pool.totalCount).toBe(0);
});

test('a pool that gives no connection is given up, too; one that comes late goes back', async () => {
  let give = (_client: object): void => {};
  const released: unknown[] = [];
  const client = {
    query: async () => ({ rows: [], rowCount: 0 }),
    release: (destroy?: boolean) => released.push(destroy),
  };
  const pool = {
    query: client.query,
    totalCount: 0,
    connect: () =>
      new Promise((resolve) => {
        give = resolve;
      }),
  };
  await expect(patient(pool as never, 50).query('select')).rejects.toMatchObject({ code: 'database-slow' });
  give(client);
  await new Promise((resolve) => setImmediate(resolve));
  expect(released).toEqual([undefined]);
});

test('anything with `query` is asked with the same limit', async () => {
  const silent = { query: () => new Promise<never>(() => {}) };
  await expect(patient(silent, 50).query('select')).rejects.toMatchObject({ code: 'database-slow' });
  const answering = { query: async () => ({ rows: [1], rowCount: 1 }) };
  expect(await patient(answering, 50).query('select')).toEqual({ rows: [1], rowCount: 1 });
});
