/** The bridge while publishers live: each message with an id one row, the others never lost, and every late one is a finding. */
import { randomUUID } from 'node:crypto';
import amqp from 'amqplib';
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import type { DrainStep } from '../../adapters/rabbitmq/batch-writer.js';
import { type BridgeOptions, type BridgeResult, bridge } from '../../adapters/rabbitmq/bridge.js';
import { compileRules, type DrainConfig } from '../../adapters/rabbitmq/drain-config.js';
import { asQueue } from '../../adapters/rabbitmq/drain-plan.js';
import type { QueueStanding } from '../../adapters/rabbitmq/intake.js';
import { SILENT } from '../../src/log.js';
import { startFaultProxy } from '../support/fault-proxy.js';
import { until } from '../support/until.js';
import { type DrainWorld, drainWorld } from './drain-world.js';

// Reconnecting waits half a second and more each time.
vi.setConfig({ testTimeout: 180_000 });

let world: DrainWorld;
beforeAll(async () => {
  world = await drainWorld();
});
afterAll(() => world.close());

const QUEUE = 'work';
const CONFIG: DrainConfig = { rules: [{ match: { queue: '*' }, kind: 'k' }] };

beforeEach(async () => {
  await world.channel.assertQueue(QUEUE, { durable: true });
  await world.channel.purgeQueue(QUEUE);
  await world.database.pool.query(
    `truncate unbroker.jobs, unbroker.drain_ledger, unbroker.drain_batches, unbroker.drain_keys,
              unbroker.drain_publishers, unbroker.drain_offsets, unbroker.drain_runs cascade`,
  );
});

async function run(options: Partial<BridgeOptions> & { config?: DrainConfig } = {}): Promise<BridgeResult> {
  const { config = CONFIG, ...more } = options;
  const seen = await world.look(config);
  return bridge({
    ...{ amqpUrl: world.vhost.url, pool: world.database.pool, store: world.database.store, log: SILENT },
    groups: seen.groups.map(({ name, queues }) => ({ name, queues: queues.map(asQueue) })),
    ...{ rules: compileRules(config.rules), idleExitMs: 200, maxBatch: 20, ...more },
  });
}

/** Each twice, as two messages: with ids of their own, or without any. */
const fill = (messages: number, ids: boolean, queue = QUEUE) =>
  Promise.all(
    Array.from({ length: messages }, (_, n) =>
      world.publish('', queue, { n: Math.floor(n / 2) }, ids ? { messageId: randomUUID() } : {}),
    ),
  );

function dieAt(step: DrainStep, nth: number): (now: DrainStep) => void {
  let seen = 0;
  return (now) => {
    if (now === step && ++seen === nth) throw new TypeError(`died at ${step}`);
  };
}

/** How many bodies have fewer rows than messages, and rows beyond the messages. */
async function compare(messages: number, queue = '') {
  const rows = await world.rows<{ n: number; count: number }>(
    `select (payload ->> 'n')::int as n, count(*)::int as count from unbroker.jobs
     where source like '%/${queue}%' group by 1`,
  );
  const count = new Map(rows.map((row) => [row.n, row.count]));
  let lost = 0;
  let extra = 0;
  for (let n = 0; n < messages / 2; n += 1) {
    const difference = (count.get(n) ?? 0) - 2;
    if (difference < 0) lost -= difference;
    else extra += difference;
  }
  return { lost, extra };
}

const STEPS: readonly DrainStep[] = ['prepared', 'imported', 'recorded', 'committed', 'acked', 'fenced'];

describe('cut short and started again', () => {
  test.each(STEPS)(
    'at "%s": with ids one row each; without none lost, doubles no more than it says',
    async (step) => {
      await world.channel.assertQueue('bare', { durable: true });
      await Promise.all([fill(120, true), fill(120, false, 'bare')]);
      for (const nth of [4, 3]) await expect(run({ onStep: dieAt(step, nth) })).rejects.toThrow('died at');
      const { groups } = await run();
      await world.channel.deleteQueue('bare');
      const [bare, named] = groups;
      expect(await compare(120, QUEUE)).toEqual({ lost: 0, extra: 0 });
      expect(named?.counts).toMatchObject({ messages: 120, repeats: 0, possibleDoubles: 0 });
      const { lost, extra } = await compare(120, 'bare');
      const possibleDoubles = bare?.counts.possibleDoubles ?? -1;
      expect(lost).toBe(0);
      expect(extra).toBeLessThanOrEqual(possibleDoubles);
      // Otherwise the test tests nothing: this is the window in which messages come back.
      if (step === 'committed') {
        expect((named?.counts.again ?? 0) + extra).toBeGreaterThan(0);
        const remark = `${possibleDoubles} rows could be doubles`;
        if (extra > 0) expect(bare?.books.remarks.join()).toContain(remark);
      }
    },
  );

  test('between commit and ack of a wait queue, which then expires into the main queue', async () => {
    const { channel } = world;
    const toMain = { 'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': QUEUE };
    await channel.assertQueue('wait', { durable: true, arguments: { 'x-message-ttl': 1_500, ...toMain } });
    await fill(100, true, 'wait');
    await expect(run({ onStep: dieAt('committed', 2) })).rejects.toThrow('died at');
    // Acked: the first batch of 16 to 20. The others come again, now without the redelivered flag and with x-death.
    await until(
      'all that is left has expired',
      async () => (await channel.checkQueue('wait')).messageCount === 0,
      {
        withinMs: 60_000,
      },
    );
    const { groups } = await run();
    await channel.deleteQueue('wait');
    expect(await compare(100)).toEqual({ lost: 0, extra: 0 });
    expect(groups.flatMap(({ counts }) => counts.again).reduce((a, b) => a + b)).toBeGreaterThan(0);
  });
});

describe('ids', () => {
  test('the same with other contents are two jobs and a warning', async () => {
    await world.publish('', QUEUE, { n: 1 }, { messageId: 'a' });
    await world.publish('', QUEUE, { n: 2 }, { messageId: 'a' });
    const { groups } = await run();
    expect(groups[0]).toMatchObject({
      totals: { rows: 2 },
      counts: { otherContents: 1, repeats: 0 },
      books: { remarks: expect.arrayContaining([expect.stringContaining('other contents: both are kept')]) },
    });
  });

  test('the same with the same contents are one job, and the second is in the ledger; later runs know it', async () => {
    for (const round of [1, 2]) {
      await world.publish('', QUEUE, { n: 1 }, { messageId: 'a' });
      const { groups } = await run();
      expect(groups[0]?.counts).toMatchObject({ messages: 1, repeats: round - 1 });
    }
    expect(await world.rows('select 1 from unbroker.jobs')).toHaveLength(1);
    expect(await world.rows('select outcome, note from unbroker.drain_ledger order by batch')).toEqual([
      { outcome: 'row', note: null },
      { outcome: 'excluded', note: 'same-id-again' },
    ]);
  });

  test('that publishers use again on purpose name nothing', async () => {
    for (let n = 0; n < 3; n += 1) await world.publish('', QUEUE, { n: 1 }, { messageId: 'tick' });
    const config: DrainConfig = { rules: [{ match: { queue: '*' }, kind: 'k', ids: 'reused' }] };
    const { groups } = await run({ config });
    expect(groups[0]).toMatchObject({ totals: { rows: 3 }, counts: { repeats: 0 } });
  });

  test('of one publish that went to two queues are two jobs', async () => {
    await world.channel.assertExchange('all', 'fanout');
    await world.channel.assertQueue('second', { durable: true });
    for (const queue of [QUEUE, 'second']) await world.channel.bindQueue(queue, 'all', '');
    await world.publish('all', '', { n: 1 }, { messageId: 'a' });
    const { groups } = await run();
    await world.channel.deleteQueue('second');
    expect(groups.map(({ totals }) => totals.rows)).toEqual([1, 1]);
  });
});

test('every late message is a finding: who, through what, how many, when', async () => {
  const user = decodeURIComponent(new URL(world.vhost.url).username);
  await world.channel.assertExchange('orders', 'topic');
  await world.channel.bindQueue(QUEUE, 'orders', '#');
  const seen: string[] = [];
  const bridging = run({
    idleExitMs: 1_000,
    onPublisher: (who) => void seen.push(`${who.exchange} ${who.routingKey} ${who.userId} ${who.appId}`),
  });
  for (let n = 0; n < 3; n += 1)
    await world.publish('orders', 'order.placed', { n }, { appId: 'shop', userId: user });
  await world.publish('', QUEUE, { n: 9 });
  const { groups, end } = await bridging;
  expect(end).toBe('idle');
  expect(seen).toEqual([`orders order.placed ${user} shop`, ` ${QUEUE} null null`]);
  expect(groups[0]?.findings).toMatchObject([
    {
      queue: QUEUE,
      exchange: 'orders',
      routingKey: 'order.placed',
      userId: user,
      appId: 'shop',
      messages: 3,
    },
    { queue: QUEUE, exchange: '', messages: 1 },
  ]);
  expect(groups[0]?.books).toMatchObject({ arrived: 4, rows: 4, remaining: 0, balanced: true });
});

describe('it outlives', () => {
  test.each<DrainStep>(['committed', 'acked'])(
    'a cut connection at "%s", three times, and says that it connects again',
    async (step) => {
      await fill(300, true);
      const proxy = await startFaultProxy(world.vhost.url);
      let cuts = 0;
      let seen = 0;
      let connections = 0;
      const { groups } = await run({
        amqpUrl: proxy.url,
        idleExitMs: 1_500,
        onProgress: (now) => {
          connections = now.connections;
        },
        onStep: (now) => {
          if (now !== step || cuts === 3 || ++seen % 3 !== 0) return;
          cuts += 1;
          proxy.cut();
        },
      });
      await proxy.close();
      expect({ cuts, connections }).toEqual({ cuts: 3, connections: 4 });
      expect(await compare(300)).toEqual({ lost: 0, extra: 0 });
      expect(groups[0]?.counts.messages).toBe(300);
    },
  );

  test('a database that ends its session', async () => {
    await fill(300, true);
    let ended: Promise<unknown> | undefined;
    await run({
      idleExitMs: 1_500,
      onStep: (step) => {
        if (step === 'recorded')
          ended ??= world.database.pool.query(
            `select pg_terminate_backend(pid) from pg_stat_activity where state = 'idle in transaction' and datname = current_database()`,
          );
      },
    });
    await ended;
    expect(await compare(300)).toEqual({ lost: 0, extra: 0 });
  });
});

test('told to stop, it ends at a batch end with nothing unproved, and goes on as a new run', async () => {
  await fill(200, false);
  const stop = new AbortController();
  const first = await run({
    signal: stop.signal,
    rate: 400,
    onProgress: ({ messages }) => void (messages >= 60 && stop.abort()),
  });
  expect(first).toMatchObject({ end: 'stopped', finished: true });
  expect(await world.rows(`select 1 from unbroker.drain_batches where state <> 'acked'`)).toEqual([]);
  const second = await run();
  expect(second.groups[0]?.counts.possibleDoubles).toBe(0);
  expect(await compare(200)).toEqual({ lost: 0, extra: 0 });
});

test('a bridge and a drain of one group exclude each other, running or interrupted', async () => {
  await fill(40, true);
  await expect(run({ onStep: dieAt('committed', 1) })).rejects.toThrow('died');
  await expect(world.drain({ config: CONFIG })).rejects.toMatchObject({ code: 'bridge-unfinished' });
  const stop = new AbortController();
  const bridging = run({ signal: stop.signal, idleExitMs: undefined });
  await until('it has begun', async () => (await world.rows('select 1 from unbroker.jobs')).length === 40);
  await expect(run()).rejects.toMatchObject({ code: 'drain-busy' });
  stop.abort();
  await bridging;
  await fill(40, true);
  await expect(world.drain({ config: CONFIG, onStep: dieAt('committed', 1) })).rejects.toThrow('died');
  await expect(run()).rejects.toMatchObject({ code: 'drain-unfinished' });
});

describe('where nothing comes it says why', () => {
  test('single active consumer: waiting is not empty, and it takes over', async () => {
    const queue = 'single';
    await world.channel.assertQueue(queue, {
      durable: true,
      arguments: { 'x-single-active-consumer': true },
    });
    const other = await amqp.connect(world.vhost.url);
    other.on('error', () => {});
    const channel = await other.createChannel();
    channel.on('error', () => {});
    await channel.prefetch(1);
    await channel.consume(queue, () => {});
    await fill(10, true, queue);
    const said: QueueStanding[] = [];
    const bridging = run({ onStanding: (now) => void said.push(now) });
    await until('it says that it waits', async () => said.some(({ standing }) => standing === 'waiting'), {
      withinMs: 60_000,
    });
    expect(said.find(({ standing }) => standing === 'waiting')).toMatchObject({ queue, ready: 9 });
    await other.close();
    await bridging;
    await world.channel.deleteQueue(queue);
    expect(await compare(10)).toEqual({ lost: 0, extra: 0 });
  });

  test('an exclusive queue is blocked, and does not keep the bridge from ending', async () => {
    const other = await amqp.connect(world.vhost.url);
    other.on('error', () => {});
    const channel = await other.createChannel();
    await channel.assertQueue('theirs', { exclusive: true });
    await world.publish('', 'theirs', { n: 1 });
    const queue = {
      ...{ name: 'theirs', role: 'main' as const, ttlMs: null, feeders: [] },
      ...{ singleActive: false, autoDelete: false, stream: false },
    };
    const { standings } = await run({ groups: [{ name: 'theirs', queues: [queue] }] });
    await other.close();
    expect(standings).toEqual([{ queue: 'theirs', standing: 'blocked', ready: null }]);
  });

  test('a queue that somebody consumes', async () => {
    const other = await amqp.connect(world.vhost.url);
    other.on('error', () => {});
    const channel = await other.createChannel();
    await channel.consume(QUEUE, () => {}, { exclusive: true });
    const said: string[] = [];
    const bridging = run({ onStanding: ({ standing }) => void said.push(standing) });
    await until('it says so', async () => said.includes('in-use'), { withinMs: 60_000 });
    await other.close();
    await bridging;
    expect(said).toContain('consumed');
  });
});

test('an auto-delete queue outlives a bridge that dies in the middle of it', async () => {
  const queue = 'fleeting';
  await world.channel.assertQueue(queue, { durable: true, autoDelete: true });
  await fill(100, true, queue);
  await expect(run({ onStep: dieAt('committed', 2) })).rejects.toThrow('died');
  expect((await world.channel.checkQueue(queue)).messageCount).toBeGreaterThan(0);
  await run();
  expect(await compare(100)).toEqual({ lost: 0, extra: 0 });
  expect((await world.channel.checkQueue(queue)).messageCount).toBe(0);
  await world.channel.deleteQueue(queue);
});
