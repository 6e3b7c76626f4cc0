/** An Idempotency-Key makes a repeat harmless, whatever became of the connection that carried the first. */
import pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createStore } from '../../src/jobs/store.js';
import { SILENT } from '../../src/log.js';
import { createShims } from '../../src/shims/index.js';
import { startCuttingProxy } from './cutting-proxy.js';
import { rawPost, type ShimWorld, sendRaw, startShimWorld } from './shim-world.js';

let world: ShimWorld;
beforeAll(async () => {
  world = await startShimWorld({
    serve: {
      keys: [
        { name: 'orders', env: 'A' },
        { name: 'billing', env: 'B' },
      ],
    },
    environment: { A: 'a'.repeat(32), B: 'b'.repeat(32) },
  });
});
afterAll(() => world.close());

const BODY = JSON.stringify({
  to: 'ann@example.org',
  template: 'order-paid',
  data: { orderId: 1, total: '1' },
});
const SCHEDULE = JSON.stringify({ delayMs: 60_000, target: { url: 'http://127.0.0.1:9/' } });

interface Sent {
  readonly key: string;
  readonly body?: string;
  readonly path?: string;
  readonly as?: 'a' | 'b';
  readonly port?: number;
}

function send({ key, body = BODY, path = '/notifications', as = 'a', port = world.port }: Sent) {
  return sendRaw(port, [rawPost(path, body, { 'idempotency-key': key, 'x-api-key': as.repeat(32) })]);
}

/** What a client sees of an answer, the date aside. */
const seen = ({
  status,
  headers,
  body,
}: {
  status: number;
  headers: Readonly<Record<string, string>>;
  body: string;
}) => {
  const { date: _date, ...kept } = headers;
  return JSON.stringify({ status, kept, body });
};

async function jobsSince(before: number): Promise<number> {
  return (await world.jobCount()) - before;
}

it('200 duplicates, 8 at once, every third answer lost on the way: one row, identical answers', async () => {
  const before = await world.jobCount();
  let sent = 0;
  const proxy = await startCuttingProxy({ host: '127.0.0.1', port: world.port }, () => {
    sent += 1;
    return sent % 3 === 1;
  });
  const answers = new Set<string>();
  let lost = 0;
  let left = 200;
  const client = async (): Promise<void> => {
    while (left > 0) {
      left -= 1;
      const answer = await send({ key: 'dup-1', port: proxy.port });
      if (answer.status === 0) lost += 1;
      else answers.add(seen(answer));
    }
  };
  await Promise.all(Array.from({ length: 8 }, client));
  await proxy.close();
  expect(lost).toBeGreaterThan(50);
  expect(lost).toBe(proxy.cuts);
  expect([...answers]).toHaveLength(1);
  expect([...answers][0]).toContain('"status":202');
  expect(await jobsSince(before)).toBe(1);
});

it('the reply to COMMIT lost: the repeat finds the first answer, still one row', async () => {
  const before = await world.jobCount();
  const database = new URL(world.database.url);
  let armed = true;
  const proxy = await startCuttingProxy(
    { host: database.hostname, port: Number(database.port || 5432) },
    (bytes) => armed && bytes.includes('commit\0'),
  );
  database.port = String(proxy.port);
  database.hostname = '127.0.0.1';
  const pool = new pg.Pool({ connectionString: database.href, max: 4 });
  pool.on('error', () => undefined);
  const server = createShims(
    { pool, store: createStore(), serve: {}, notify: undefined, directory: '/', log: SILENT },
    '127.0.0.1',
  );
  try {
    const port = Number(new URL(await server.listen({ host: '127.0.0.1', port: 0 })).port);
    const first = await send({ key: 'lost-reply', port });
    expect(first.status).toBe(503);
    expect(first.headers['retry-after']).toBe('1');
    expect(proxy.cuts).toBe(1);
    expect(await jobsSince(before)).toBe(1);
    armed = false;
    const second = await send({ key: 'lost-reply', port });
    const third = await send({ key: 'lost-reply', port });
    expect(second.status).toBe(202);
    expect(seen(third)).toBe(seen(second));
    expect(await jobsSince(before)).toBe(1);
  } finally {
    await server.close({ deadlineMs: 500 });
    await pool.end();
    await proxy.close();
  }
});

it('the same key with another request: 422, whichever comes second', async () => {
  const before = await world.jobCount();
  expect((await send({ key: 'k-422' })).status).toBe(202);
  expect((await send({ key: 'k-422', body: BODY.replace('ann@', 'eve@') })).status).toBe(422);
  expect((await send({ key: 'k-422', body: SCHEDULE, path: '/schedules' })).status).toBe(422);
  const racing = await Promise.all(
    ['ann@', 'bo@', 'cy@', 'di@'].map((name) => send({ key: 'k-race', body: BODY.replace('ann@', name) })),
  );
  expect(racing.map(({ status }) => status).sort()).toEqual([202, 422, 422, 422]);
  expect(await jobsSince(before)).toBe(2);
});

it('the same key with the same body at another address: 422', async () => {
  const later = BODY.replace('{', '{"delayMs":600000,');
  const [one, two] = [await send({ key: 'k-one', body: later }), await send({ key: 'k-two', body: later })];
  const cancel = (location = '') => send({ key: 'k-cancel', body: '', path: `${location}/cancel` });
  expect((await cancel(one.headers['location'])).status).toBe(202);
  expect((await cancel(two.headers['location'])).status).toBe(422);
  expect((await cancel(one.headers['location'])).status).toBe(202);
  const { rows } = await world.database.pool.query(
    "select from unbroker.jobs where state = 'ready' and id = $1",
    [JSON.parse(two.body).id],
  );
  expect(rows).toHaveLength(1);
});

it('a job whose answer cannot be kept is not kept either', async () => {
  const before = await world.jobCount();
  const { pool } = world.database;
  await pool.query('alter table unbroker.requests add constraint none check (status is null) not valid');
  expect((await send({ key: 'k-unkept' })).status).toBe(500);
  await pool.query('alter table unbroker.requests drop constraint none');
  expect(await jobsSince(before)).toBe(0);
  expect((await send({ key: 'k-unkept' })).status).toBe(202);
  expect(await jobsSince(before)).toBe(1);
});

it('keys belong to their principal', async () => {
  const before = await world.jobCount();
  const [mine, theirs] = [await send({ key: 'same' }), await send({ key: 'same', as: 'b' })];
  expect([mine.status, theirs.status]).toEqual([202, 202]);
  expect(mine.body).not.toBe(theirs.body);
  expect(await jobsSince(before)).toBe(2);
});

it('a refused request leaves its key free', async () => {
  expect((await send({ key: 'fixed', body: '{"to":""}' })).status).toBe(400);
  expect((await send({ key: 'fixed' })).status).toBe(202);
});

it('other doors keep to it, too: schedules, retries, batches', async () => {
  const before = await world.jobCount();
  const retry = JSON.stringify({ payload: 1, target: { url: 'http://127.0.0.1:9/' }, error: 'x' });
  for (const [path, body, rows] of [
    ['/schedules', SCHEDULE, 1],
    ['/retries', retry, 1],
    ['/notifications/batch', `{"notifications":[${BODY},${BODY}]}`, 2],
  ] as const) {
    const start = await world.jobCount();
    const answers = [];
    for (let n = 0; n < 3; n += 1) answers.push(seen(await send({ key: `k${path}`, path, body })));
    expect(new Set(answers).size).toBe(1);
    expect((await world.jobCount()) - start).toBe(rows);
  }
  expect(await jobsSince(before)).toBe(4);
});

it('an answer is kept for a day, then the key is free and the row goes', async () => {
  const before = await world.jobCount();
  const first = await send({ key: 'old' });
  const { rows } = await world.database.pool.query<{ hours: number }>(
    "select extract(epoch from expires_at - now()) / 3600 as hours from unbroker.requests where key = 'old'",
  );
  expect(Number(rows[0]?.hours)).toBeGreaterThan(23.9);
  await world.database.pool.query(
    "update unbroker.requests set expires_at = now() - interval '1 second' where key = 'old'",
  );
  const second = await send({ key: 'old' });
  expect(second.status).toBe(202);
  expect(second.body).not.toBe(first.body);
  expect(seen(await send({ key: 'old' }))).toBe(seen(second));
  expect(await jobsSince(before)).toBe(2);
});

it('a dedupe key in the body is the same job for ever, with its own answer', async () => {
  const before = await world.jobCount();
  const body = BODY.replace('{', '{"dedupeKey":"receipt-17",');
  const answers = await Promise.all(Array.from({ length: 8 }, (_, n) => send({ key: `d-${n}`, body })));
  expect(new Set(answers.map((answer) => answer.body)).size).toBe(1);
  expect(await jobsSince(before)).toBe(1);
});
