/**
 * Real producers against the drain: each library publishes with its own code to a real broker, and kind, payload, attempts,
 * due time and priority of the rows are what its own consumer would have seen.
 */
import { spawnSync } from 'node:child_process';
import { type EventEmitter, once } from 'node:events';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { ClientProxyFactory, Transport } from '@nestjs/microservices';
import { connect as connectManaged } from 'amqp-connection-manager';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { bridge } from '../../adapters/rabbitmq/bridge.js';
import { compileRules } from '../../adapters/rabbitmq/drain-config.js';
import { asQueue } from '../../adapters/rabbitmq/drain-plan.js';
import { SILENT } from '../../src/log.js';
import { needDebianPackage, succeeds } from '../support/debian.js';
import { startProcess } from '../support/processes.js';
import { until } from '../support/until.js';
import { type DrainWorld, drainWorld, untilReady } from './drain-world.js';

// On a fresh machine packages are installed.
vi.setConfig({ hookTimeout: 240_000 });

/** What of Rascal, which brings no types, the test calls. */
interface Rascal {
  readonly BrokerAsPromised: {
    create(config: object): Promise<
      EventEmitter & {
        publish(name: string, content: object, overrides: object): Promise<EventEmitter>;
        subscribe(name: string): Promise<EventEmitter>;
        shutdown(): Promise<void>;
      }
    >;
  };
}
const { BrokerAsPromised } = createRequire(import.meta.url)('rascal') as Rascal;

let world: DrainWorld;
beforeAll(async () => {
  world = await drainWorld();
});
afterAll(() => world.close());

interface Row {
  readonly kind: string;
  readonly state: string;
  readonly attempts: number;
  readonly priority: number;
  readonly payload: unknown;
  readonly text: string | null;
  readonly dueInS: number;
  readonly error: string | null;
  readonly id: string | null;
  readonly notes: string | null;
}

/** Drains the queue's group and answers its rows by their id at their library. */
async function drained(queue: string, config = {}): Promise<Row[]> {
  const results = await world.drain({ config, groups: [queue] });
  expect(results.map(({ books }) => [books.balanced, books.remaining])).toEqual([[true, 0]]);
  return world.rows<Row>(
    `select j.kind, j.state, j.attempts, j.priority, j.payload, j.payload::text as text,
            extract(epoch from j.run_at - now())::float8 as "dueInS", j.errors -> 0 ->> 'name' as error,
            coalesce(j.headers -> 'origin' ->> 'id', j.headers -> 'amqp' ->> 'messageId') as id, l.note as notes
     from unbroker.drain_ledger l left join unbroker.jobs j on j.id = l.job
     where l.queue = '${queue}' order by l.batch, l.position`,
  );
}

describe('Nest', () => {
  test('an event and a request: kind from the pattern, payload from data; a request that waits is no job', async () => {
    const queue = 'nest';
    const client = ClientProxyFactory.create({
      transport: Transport.RMQ,
      options: { urls: [world.vhost.url], queue, queueOptions: { durable: true }, persistent: true },
    });
    await client.connect();
    await Promise.all(
      ['order.placed', { cmd: 'sum', area: 'maths' }].map(
        (pattern) =>
          new Promise<void>((resolve, reject) =>
            client.emit(pattern, { n: 1 }).subscribe({ complete: resolve, error: reject }),
          ),
      ),
    );
    const asking = client.send('order.total', { n: 2 }).subscribe({ error: () => {} });
    await untilReady(world.channel, queue, 3);
    asking.unsubscribe();
    await client.close();
    const rows = await drained(queue);
    expect(rows.slice(0, 2).map(({ kind, payload }) => [kind, payload])).toEqual([
      ['order.placed', { n: 1 }],
      ['{"area":"maths","cmd":"sum"}', { n: 1 }],
    ]);
    expect(rows[2]).toMatchObject({ kind: null, notes: expect.stringContaining('rpc') });
  });
});

test('Rascal: the route of the first publish and the recoveries so far, after a real republish', async () => {
  const broker = await BrokerAsPromised.create({
    vhosts: {
      [world.vhost.vhost]: {
        connection: { url: world.vhost.url },
        exchanges: { shop: { type: 'topic' } },
        queues: { rascal: {} },
        bindings: ['shop[order.*] -> rascal'],
        publications: { placed: { exchange: 'shop', routingKey: 'order.placed' } },
        subscriptions: { placed: { queue: 'rascal', prefetch: 1, closeTimeout: 300 } },
      },
    },
  });
  broker.on('error', () => {});
  const publish = async (n: number): Promise<void> => {
    const publication = await broker.publish('placed', { n }, { options: { messageId: `r${n}` } });
    await once(publication, 'success');
  };
  await publish(1);
  const subscription = await broker.subscribe('placed');
  let deliveries = 0;
  await new Promise<void>((resolve, reject) => {
    subscription.on('error', reject);
    subscription.on(
      'message',
      (_message: unknown, _content: unknown, ackOrNack: (...how: unknown[]) => void) => {
        deliveries += 1;
        // Twice put back by its own strategy; the third time it stays unacknowledged until we are gone.
        if (deliveries <= 2) ackOrNack(new Error('card declined'), [{ strategy: 'republish' }]);
        else resolve();
      },
    );
  });
  await broker.shutdown();
  await untilReady(world.channel, 'rascal', 1);
  const [row] = await drained('rascal');
  expect(row).toMatchObject({
    kind: 'order.placed',
    attempts: 2,
    payload: { n: 1 },
    id: 'r1',
    state: 'ready',
  });
});

test('amqp-connection-manager: what it held in memory while it was not connected comes, too', async () => {
  const queue = 'managed';
  await world.channel.assertQueue(queue, { durable: true });
  const connection = connectManaged([world.vhost.url]);
  const channel = connection.createChannel({ json: true });
  // Not connected yet: these wait in the publisher's memory.
  const sent = [1, 2].map((n) =>
    channel.sendToQueue(
      queue,
      { n },
      { persistent: true, type: 'order.placed', priority: 3, messageId: `m${n}` },
    ),
  );
  await Promise.all(sent);
  await channel.close();
  await connection.close();
  expect(await drained(queue)).toMatchObject([
    { kind: 'order.placed', payload: { n: 1 }, priority: 3, id: 'm1' },
    { kind: 'order.placed', payload: { n: 2 }, priority: 3, id: 'm2' },
  ]);
});

describe('from Debian', () => {
  let noTools: string | null = null;
  let noCelery: string | null = null;
  const python = '/usr/bin/python3';
  beforeAll(() => {
    noTools = needDebianPackage('amqp-tools', () => succeeds('sh', ['-c', 'command -v amqp-publish']));
    noCelery = needDebianPackage('python3-celery', () => succeeds(python, ['-c', 'import celery']));
  });

  test('amqp-tools: a body from the command line', async ({ skip }) => {
    if (noTools !== null) skip(noTools);
    const queue = 'tools';
    await world.channel.assertQueue(queue, { durable: true });
    for (const body of ['{"n":1e400}', 'plain words']) {
      const args = ['-u', world.vhost.url, '-r', queue, '-p', '-C', 'application/json', '-b', body];
      expect(spawnSync('amqp-publish', args, { encoding: 'utf8', timeout: 20_000 }).stderr).toBe('');
    }
    await untilReady(world.channel, queue, 2);
    const config = { rules: [{ match: { queue }, kind: 'shell' }] };
    const rows = await drained(queue, config);
    expect(rows).toMatchObject([
      { kind: 'shell', state: 'ready' },
      { kind: 'shell', state: 'dead', error: 'body-not-json' },
    ]);
    expect(rows[0]?.text).toMatch(/^\{"n": 10{400}\}$/);
  });

  test('Celery 5: eta, expires, retries, priority, limits, compression, a chain, a worker’s retries, protocol 1', {
    timeout: 180_000,
  }, async ({ skip }) => {
    if (noCelery !== null) skip(noCelery);
    const script = fileURLToPath(new URL('celery_publisher.py', import.meta.url));
    const celery = startProcess(python, [script], { env: { AMQP_URL: world.vhost.url } });
    const { code } = await celery.waitForExit(90_000);
    expect([code, celery.stderr]).toEqual([0, '']);
    await untilReady(world.channel, 'celery', 12);
    // Celery gives `expires` to the broker, too, which drops the message as soon as somebody would get it.
    const [gone] = await world.drain({ groups: ['gone'] });
    expect(gone?.books).toMatchObject({ rows: 0, remaining: 0 });
    expect((gone?.books.initial ?? 0) + (gone?.books.difference ?? 0)).toBe(0);
    const rows = await drained('celery');
    const of = (id: string) => rows.filter((row) => row.id === id);
    const near = (hours: number) => expect.closeTo(hours * 3_600, -2.3) as number;

    expect(of('t-plain')).toMatchObject([{ kind: 'shop.plain', attempts: 0, state: 'ready', priority: 0 }]);
    expect(of('t-plain')[0]?.text).toBe('{"args": [1], "kwargs": {"a": 9007199254740993}}');
    for (const id of ['t-later', 't-offset', 't-first']) expect(of(id)).toMatchObject([{ dueInS: near(2) }]);
    expect(of('t-fresh')).toMatchObject([{ kind: 'shop.fresh', state: 'ready' }]);
    expect(of('t-urgent')).toMatchObject([{ priority: 9 }]);
    // By priority: what is urgent was given first.
    expect(rows[0]?.id).toBe('t-urgent');
    expect(of('t-packed')).toMatchObject([{ kind: 'shop.packed', payload: { args: [8], kwargs: {} } }]);
    expect(of('t-pickled')).toMatchObject([
      { kind: 'shop.pickled', state: 'dead', payload: null, error: 'pickle' },
    ]);
    expect(of('t-chained')).toMatchObject([
      { kind: 'shop.charge', notes: expect.stringContaining('celery-chain') },
    ]);
    expect(of('t-retried')).toMatchObject([
      { kind: 'shop.charge', attempts: 1, dueInS: near(1), payload: { args: [12] } },
      { kind: 'shop.charge', attempts: 2, dueInS: near(1) },
    ]);
    expect(of('t-first')).toMatchObject([
      { kind: 'shop.first', attempts: 2, payload: { args: [13], kwargs: { a: 1 } } },
    ]);
    const [limits] = await world.rows<{ limits: unknown }>(
      `select headers -> 'origin' -> 'timeLimitSeconds' as limits from unbroker.jobs where kind = 'shop.limited'`,
    );
    expect(limits).toEqual({ limits: { hard: 300, soft: 240 } });
  });

  test('Celery 5 through the bridge while it runs: calls, chains, groups, answers that are waited for', {
    timeout: 180_000,
  }, async ({ skip }) => {
    if (noCelery !== null) skip(noCelery);
    const queue = 'bridged';
    await world.channel.assertQueue(queue, { durable: true, maxPriority: 10 });
    const seen = await world.look();
    const stop = new AbortController();
    const bridging = bridge({
      ...{ amqpUrl: world.vhost.url, pool: world.database.pool, store: world.database.store, log: SILENT },
      groups: seen.groups
        .filter(({ queues }) => queues.some(({ name }) => name === queue))
        .map(({ name, queues }) => ({ name, queues: queues.map(asQueue) })),
      ...{ rules: compileRules([]), signal: stop.signal, maxBatch: 20 },
    });
    const startedAt = Date.now();
    try {
      const script = fileURLToPath(new URL('celery_bridge_publisher.py', import.meta.url));
      const celery = startProcess(python, [script], { env: { AMQP_URL: world.vhost.url } });
      const { code } = await celery.waitForExit(90_000);
      expect([code, celery.stderr]).toEqual([0, '']);
      await until('all have come', async () => (await bridged()).length === 17, { withinMs: 60_000 });
    } finally {
      stop.abort();
      await bridging;
    }
    const rows = await bridged();
    const of = (id: string) => rows.find((row) => row.id === id);
    const aheadS = (id: string): number =>
      ((of(id)?.runAt.getTime() ?? 0) - (of(id)?.createdAt.getTime() ?? 0)) / 1_000;
    // It may have taken as long as the publisher ran.
    const slackS = (Date.now() - startedAt) / 1_000 + 5;
    const about = (id: string, seconds: number) =>
      expect([id, Math.abs(aheadS(id) - seconds) < slackS]).toEqual([id, true]);

    expect(new Set(rows.map(({ kind, state }) => `${kind} ${state}`))).toEqual(
      new Set(['shop.charge ready']),
    );
    expect(of('b-plain')).toMatchObject({ attempts: 0, priority: 0, origin: { rootId: 'b-plain' } });
    expect(of('b-plain')?.text).toBe('{"args": [1], "kwargs": {"currency": "CHF"}}');
    expect(of('b-exact')?.text).toBe(
      '{"args": [9007199254740993], "kwargs": {"currency": "caf\u00e9 \u65e5\u672c"}}',
    );
    about('b-plain', 0);
    about('b-eta', 7_200);
    about('b-countdown', 1_800);
    about('b-both', 1_800);
    about('b-first', 7_200);
    about('b-retried', 600);
    const lastsS = (id: string): number => (Date.parse(of(id)?.origin.expiresAt ?? '') - startedAt) / 1_000;
    for (const id of ['b-expires', 'b-both']) expect(Math.abs(lastsS(id) - 3_600)).toBeLessThan(slackS);
    expect(of('b-plain')?.origin.expiresAt).toBeUndefined();
    expect([of('b-urgent')?.priority, of('b-idle')?.priority]).toEqual([9, 0]);
    expect(['b-retries', 'b-retried', 'b-first', 'b-plain'].map((id) => of(id)?.attempts)).toEqual([
      3, 2, 2, 0,
    ]);
    expect(of('b-limited')?.origin.timeLimitSeconds).toEqual({ hard: 300, soft: 240 });
    // What leans on Celery's own workers is marked and kept, never imitated.
    expect(of('b-linked')?.text).toContain('"callbacks"');
    expect(of('b-chain')).toMatchObject({ notes: expect.stringContaining('celery-chain') });
    for (const id of ['b-group-30', 'b-group-31'])
      expect(of(id)).toMatchObject({ notes: expect.stringContaining('celery-group') });
    expect(new Set(rows.map(({ id }) => id)).size).toBe(17);
    // All but the one that ignores its result named a queue for the answer: jobs all the same.
    expect(rows.filter(({ replyTo }) => replyTo !== null).length).toBeGreaterThanOrEqual(16);
  });
});

interface BridgedRow extends Row {
  readonly runAt: Date;
  readonly createdAt: Date;
  readonly origin: {
    readonly rootId?: string;
    readonly expiresAt?: string;
    readonly timeLimitSeconds?: object;
  };
  readonly replyTo: string | null;
}

const bridged = (): Promise<BridgedRow[]> =>
  world.rows<BridgedRow>(
    `select j.kind, j.state, j.attempts, j.priority, j.payload::text as text, j.run_at as "runAt",
            j.created_at as "createdAt", j.headers -> 'origin' as origin, j.headers -> 'origin' ->> 'id' as id,
            j.headers -> 'amqp' ->> 'replyTo' as "replyTo", l.note as notes
     from unbroker.jobs j left join unbroker.drain_ledger l on l.job = j.id where j.source like '%bridged%' order by j.id`,
  );
