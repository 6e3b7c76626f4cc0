/** A drain that is cut short anywhere goes on where it was; what it cannot know it refuses to guess. */
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import amqp from 'amqplib';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { DrainStep } from '../../adapters/rabbitmq/batch-writer.js';
import type { DrainResult } from '../../adapters/rabbitmq/drain.js';
import { SILENT } from '../../src/log.js';
import { until } from '../support/until.js';
import { type DrainWorld, drainWorld, untilReady } from './drain-world.js';

let world: DrainWorld;
beforeAll(async () => {
  world = await drainWorld();
});
afterAll(() => world.close());

const CONFIG = { rules: [{ match: { queue: '*' }, kind: 'k' }] };
const QUEUE = 'work';

beforeEach(async () => {
  await world.channel.assertQueue(QUEUE, { durable: true });
  await world.channel.purgeQueue(QUEUE);
  await world.database.pool.query(
    'truncate unbroker.jobs, unbroker.drain_ledger, unbroker.drain_batches, unbroker.drain_runs cascade',
  );
});

async function fill(messages: number): Promise<void> {
  await Promise.all(
    Array.from({ length: messages }, (_, n) => world.publish('', QUEUE, { n: Math.floor(n / 2) })),
  );
}

const drain = async (options: Parameters<DrainWorld['drain']>[0] = {}): Promise<DrainResult> =>
  (await world.drain({ config: CONFIG, maxBatch: 50, ...options }))[0] as DrainResult;

/** As a crash right there would leave it: nothing more is sent, the connection goes. */
function dieAt(step: DrainStep, nth = 1): (now: DrainStep) => void {
  let seen = 0;
  return (now) => {
    if (now === step && ++seen === nth) throw new TypeError(`died at ${step}`);
  };
}

/** Each body twice, nothing else. */
async function expectTwins(messages: number): Promise<void> {
  const rows = await world.rows<{ n: number; count: number }>(
    `select (payload ->> 'n')::int as n, count(*)::int as count from unbroker.jobs group by 1 order by 1`,
  );
  expect(rows).toEqual(Array.from({ length: messages / 2 }, (_, n) => ({ n, count: 2 })));
}

/** Messages whose ack the drain had proved before it died, plus those of the one ack that may have gone out. */
async function ackedSoFar(): Promise<number> {
  const { messageCount: main } = await world.channel.checkQueue(QUEUE);
  const { messageCount: waiting } = await world.channel.checkQueue('wait');
  return 200 - main - waiting;
}

describe('cut short', () => {
  test.each<DrainStep>(['imported', 'recorded', 'committed', 'acked', 'fenced'])(
    'at "%s" and run again',
    async (step) => {
      await fill(400);
      await expect(drain({ onStep: dieAt(step, 3) })).rejects.toThrow(`died at ${step}`);
      expect((await drain()).books).toMatchObject({ initial: 400, rows: 400, difference: 0, balanced: true });
      await expectTwins(400);
    },
  );

  test('while what came back is being taken, and again', async () => {
    await fill(400);
    for (const nth of [4, 1, 2, 1])
      await expect(drain({ onStep: dieAt('committed', nth) })).rejects.toThrow('died');
    const { books } = await drain();
    expect(books).toMatchObject({ initial: 400, rows: 400, balanced: true });
    expect(books.absorbed).toBeGreaterThan(0);
    await expectTwins(400);
  });

  test('between commit and ack of a wait queue, which then expires into the main queue', async () => {
    const { channel } = world;
    const toMain = { 'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': QUEUE };
    await channel.assertQueue('wait', { durable: true, arguments: { 'x-message-ttl': 2_000, ...toMain } });
    const send = (n: number) =>
      world.publish('', 'wait', { n: Math.floor(n / 2) }, { headers: { z: 1, a: 'x' } });
    await Promise.all(Array.from({ length: 200 }, (_, n) => send(n)));
    await expect(drain({ onStep: dieAt('committed', 3) })).rejects.toThrow('died');
    // All of them, the committed ones too, now without the redelivered flag and with x-death.
    await untilReady(channel, QUEUE, 200 - (await ackedSoFar()));
    const { books } = await drain();
    await channel.deleteQueue('wait');
    expect(books).toMatchObject({ initial: 200, rows: 200, balanced: true });
    expect(books.absorbed).toBeGreaterThan(0);
    await expectTwins(200);
  });

  test('by Ctrl-C: stops at a batch end, nothing comes back, and goes on', async () => {
    await fill(400);
    const stop = new AbortController();
    const first = await drain({
      signal: stop.signal,
      rate: 400,
      onProgress: ({ taken }) => void (taken >= 100 && stop.abort()),
    });
    expect(first.interrupted).toBe(true);
    const [open] = await world.rows<{ open: number }>(
      `select count(*)::int as open from unbroker.drain_batches where state <> 'acked'`,
    );
    expect(open).toEqual({ open: 0 });
    expect((await drain()).books).toMatchObject({ rows: 400, absorbed: 0, balanced: true });
    await expectTwins(400);
  });

  test.each<DrainStep>(['committing', 'committed', 'acked', 'fenced'])(
    'by the network, at "%s", three times: goes on by itself',
    async (step) => {
      await fill(600);
      const line = await cuttableLine(world.vhost.url);
      let cuts = 0;
      let seen = 0;
      const result = await drain({
        amqpUrl: line.url,
        onStep: (now) => {
          if (now !== step || cuts === 3 || ++seen % 3 !== 0) return;
          cuts += 1;
          line.cut();
        },
      });
      await line.close();
      expect(cuts).toBe(3);
      expect(result.books).toMatchObject({ rows: 600, balanced: true });
      await expectTwins(600);
    },
  );

  test('by the database, which ends the session: goes on by itself', async () => {
    await fill(600);
    let ended: Promise<unknown> | undefined;
    const result = await drain({
      rate: 1_000,
      onStep: (step) => {
        if (step === 'recorded')
          ended ??= world.database.pool.query(
            `select pg_terminate_backend(pid) from pg_stat_activity where state = 'idle in transaction' and datname = current_database()`,
          );
      },
    });
    await ended;
    expect(result.books).toMatchObject({ rows: 600, balanced: true });
    await expectTwins(600);
  });
});

/** A way to the broker that can be cut without a word, as a network does. */
async function cuttableLine(brokerUrl: string) {
  const target = new URL(brokerUrl);
  const sockets = new Set<Socket>();
  const server = createServer((near) => {
    const far = connect(Number(target.port), target.hostname);
    for (const socket of [near, far]) {
      sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => sockets.delete(socket));
    }
    near.pipe(far).pipe(near);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = new URL(brokerUrl);
  url.port = String((server.address() as AddressInfo).port);
  const cut = (): void => {
    for (const socket of sockets) socket.resetAndDestroy();
  };
  return {
    ...{ url: url.href, cut },
    close: () =>
      new Promise((resolve) => {
        server.close(resolve);
        cut();
      }),
  };
}

describe('what it refuses', () => {
  test('a count that fits nothing: AMBIGUOUS, exit 3, nothing changed, and both ways on', async () => {
    await fill(400);
    await expect(drain({ onStep: dieAt('committed', 3) })).rejects.toThrow('died');
    const stolen = await world.channel.get(QUEUE);
    if (stolen !== false) world.channel.ack(stolen);
    const before = await world.rows(
      'select state, count(*) from unbroker.drain_batches group by 1 order by 1',
    );
    await expect(drain()).rejects.toMatchObject({ code: 'drain-ambiguous', exitStatus: 3 });
    expect(
      await world.rows('select state, count(*) from unbroker.drain_batches group by 1 order by 1'),
    ).toEqual(before);

    const kept = await drain({ whenAmbiguous: 'keep' });
    expect(kept.books.balanced).toBe(false);
    expect(kept.books.difference).toBeGreaterThan(0);
    const [lost] = await world.rows<{ distinct: number }>(
      'select count(distinct payload)::int as distinct from unbroker.jobs',
    );
    expect(lost).toEqual({ distinct: 200 });
  });

  test('absorbing instead makes no double', async () => {
    await fill(400);
    await expect(drain({ onStep: dieAt('committed', 3) })).rejects.toThrow('died');
    const stolen = await world.channel.get(QUEUE);
    if (stolen !== false) world.channel.ack(stolen);
    const { books } = await drain({ whenAmbiguous: 'absorb' });
    expect(books.rows).toBeLessThanOrEqual(400);
    const [most] = await world.rows<{ most: number }>(
      'select max(count)::int as most from (select count(*) from unbroker.jobs group by payload) x',
    );
    expect(most?.most).toBeLessThanOrEqual(2);
  });

  test('a group that somebody consumes', async () => {
    await fill(10);
    const other = await amqp.connect(world.vhost.url);
    const channel = await other.createChannel();
    await channel.prefetch(1);
    await channel.consume(QUEUE, () => {});
    await expect(drain({ maxConsumerWaitMs: 500 })).rejects.toMatchObject({ code: 'drain-not-frozen' });
    await other.close();
    expect(await world.rows('select 1 from unbroker.jobs')).toEqual([]);
  });

  test('messages that somebody holds unacked, as far as the management API says', async () => {
    await fill(10);
    const refusal = drain({ unacked: async () => 5, maxConsumerWaitMs: 300 });
    await expect(refusal).rejects.toMatchObject({
      code: 'drain-not-frozen',
      message: expect.stringContaining('5 messages'),
    });
    expect(await world.rows('select 1 from unbroker.jobs')).toEqual([]);
    // Null is unknown, not zero; a number that goes away was only late.
    const lagging = [3, 3, 0];
    const result = await drain({ unacked: async () => lagging.shift() ?? null });
    expect(result.books).toMatchObject({ rows: 10, balanced: true });
  });

  test('a second drainer, while the first renews its lease', async () => {
    await fill(300);
    const stop = new AbortController();
    const first = drain({ rate: 20, leaseMs: 4_000, signal: stop.signal });
    await until(
      'the first has begun',
      async () => (await world.rows('select 1 from unbroker.drain_batches')).length > 0,
    );
    await expect(drain({ leaseMs: 4_000 })).rejects.toMatchObject({ code: 'drain-busy' });
    stop.abort();
    expect(await first).toMatchObject({ interrupted: true });
    expect((await drain()).books).toMatchObject({ rows: 300, balanced: true });
  });

  test('to write once its lease is another’s: the batch is rolled back', async () => {
    await fill(300);
    let stolen: Promise<unknown> | undefined;
    const losing = drain({
      rate: 200,
      onStep: (step) => {
        if (step === 'fenced')
          stolen ??= world.database.pool.query(
            `update unbroker.drain_runs set holder = 'somebody else', lease_expires_at = now() + interval '1 hour'`,
          );
      },
    });
    await expect(losing).rejects.toMatchObject({ code: 'drain-lease-lost' });
    await stolen;
    const [counts] = await world.rows<{ jobs: number; ledger: number; ready: number }>(
      'select (select count(*)::int from unbroker.jobs) as jobs, (select count(*)::int from unbroker.drain_ledger) as ledger',
    );
    expect(counts?.jobs).toBe(counts?.ledger);
    await until(
      'the rest is back',
      async () => (await world.channel.checkQueue(QUEUE)).messageCount + (counts?.jobs ?? 0) === 300,
    );
  });
});

test('what arrives meanwhile is imported and counted apart', async () => {
  await fill(200);
  let counted = (): void => undefined;
  const begun = new Promise<void>((resolve) => {
    counted = resolve;
  });
  const draining = drain({ rate: 100, onStep: () => counted() });
  await begun;
  await fill(10);
  expect((await draining).books).toMatchObject({ initial: 200, arrived: 10, rows: 210, balanced: true });
});

test('one id with two contents: both are rows, and the books and the log say how many', async () => {
  const warnings: object[] = [];
  const log = { ...SILENT, warn: (fields: object) => warnings.push(fields) };
  await world.publish('', QUEUE, { n: 1 }, { messageId: 'order-1' });
  await world.publish('', QUEUE, { n: 2 }, { messageId: 'order-1' });
  // The same contents on another attempt are a retry, and without an id nothing is said.
  for (const attempt of [1, 2])
    await world.publish('', QUEUE, { n: 3 }, { messageId: 'order-3', headers: { attempt } });
  for (const n of [4, 5]) await world.publish('', QUEUE, { n });
  const { runId, books } = await drain({ log });
  expect(books).toMatchObject({ rows: 6, balanced: true });
  expect(books.remarks).toContainEqual(expect.stringMatching(/^1 message ids came with different contents/));
  expect(warnings).toEqual([{ group: QUEUE, run: runId, ids: 1 }]);
});

test('the pool’s clients go back as they came, however many groups there are', async () => {
  const most = async (): Promise<number> => {
    const clients = await Promise.all(Array.from({ length: 4 }, () => world.database.pool.connect()));
    const counts = clients.map((client) => client.listenerCount('error'));
    for (const client of clients) client.release();
    return Math.max(...counts);
  };
  // The pool listens to a client from its first return on, and makes a new one when it likes.
  await most();
  const before = await most();
  for (let group = 0; group < 2; group += 1) {
    await fill(2);
    await drain();
  }
  expect(await most()).toBeLessThanOrEqual(before);
});
