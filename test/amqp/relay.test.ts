/**
 * `relay.amqp` against a real broker: what arrives is what the row says, or what it was drained from, byte for byte; done
 * means confirmed and in a queue; and a lost connection, a full queue, a missing exchange cost no message.
 */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Broker, connectBroker } from '../../adapters/rabbitmq/broker.js';
import { type RawDelivery, readProperties } from '../../adapters/rabbitmq/delivery.js';
import { createAmqpRelay, type RelayOptions } from '../../adapters/rabbitmq/relay.js';
import { startCli } from '../support/cli.js';
import { type FaultProxy, startFaultProxy } from '../support/fault-proxy.js';
import { until } from '../support/until.js';
import { startWorker, type TestWorker } from '../support/workers.js';
import { long, propertyBytes, text } from '../unit/delivery-builder.js';
import { type DrainWorld, drainWorld } from './drain-world.js';

const AGAIN_SOON = { type: 'fixed', delayMs: 20 } as const;
let world: DrainWorld;
let broker: Broker;
let proxy: FaultProxy;
let worker: TestWorker | undefined;
let closeRelay = async (): Promise<void> => undefined;

beforeAll(async () => {
  world = await drainWorld();
  proxy = await startFaultProxy(world.vhost.url);
  broker = await connectBroker(world.vhost.url);
});
beforeEach(async () => {
  await world.database.pool.query('truncate unbroker.jobs');
});
afterEach(async () => {
  proxy.heal();
  await worker?.close();
  worker = undefined;
  await closeRelay();
});
afterAll(async () => {
  await broker?.close();
  await proxy?.close();
  await world?.close();
});

function relay(options: Partial<RelayOptions> = {}): TestWorker {
  const made = createAmqpRelay({ connect: () => connectBroker(proxy.url), ...options });
  closeRelay = () => made.close();
  worker = startWorker({ url: world.database.url, handlers: made.handlers });
  return worker;
}

async function queue(name: string, options: object = {}): Promise<string> {
  await world.channel.assertQueue(name, { durable: true, ...options });
  return name;
}

/** Everything in the queue, taken; bytes as they came. */
async function taken(name: string, count: number): Promise<RawDelivery[]> {
  const seen: RawDelivery[] = [];
  const onDelivery = (delivery: RawDelivery): void => void seen.push(delivery);
  const reader = await connectBroker(world.vhost.url);
  try {
    const source = await reader.consume(name, {
      ...{ prefetch: 100, exclusive: true, onDelivery, onEnd: () => undefined },
    });
    await until(`${count} messages have come`, () => seen.length >= count);
    source.ackThrough(seen.at(-1)?.deliveryTag ?? 0);
    expect(await source.fence()).toBe(0);
  } finally {
    await reader.close();
  }
  expect(seen).toHaveLength(count);
  return seen;
}

const put = (payload: object, options: object = {}): Promise<string[]> =>
  world.database.put('relay.amqp', [payload], options);

describe('a payload', () => {
  test('its exact text, properties and typed headers', async () => {
    const name = await queue('explicit');
    await world.database.pool.query(
      `insert into unbroker.jobs (kind, payload) values ('relay.amqp', $1::jsonb)`,
      [
        `{"exchange": "", "routingKey": "explicit", "body": {"exact": 9007199254740993},
          "properties": {"type": "receipt", "priority": 3, "timestamp": 1700000000, "correlationId": "c-1"},
          "headers": {"tenant": "a", "n": 7, "big": {"!": "int64", "value": "9007199254740993"}, "on": true, "none": null}}`,
      ],
    );
    await relay().untilEnded(1);
    const [message] = await taken(name, 1);
    expect(message?.body.toString()).toBe('{"exact": 9007199254740993}');
    const { rows } = await world.database.pool.query<{ id: string; state: string }>(
      'select id::text, state from unbroker.jobs',
    );
    expect(rows[0]?.state).toBe('done');
    const expected = propertyBytes({
      properties: {
        ...{ contentType: 'application/json', deliveryMode: 2, priority: 3, correlationId: 'c-1' },
        ...{ messageId: rows[0]?.id ?? '', timestamp: 1_700_000_000n, type: 'receipt' },
      },
      headers: {
        // As jsonb orders its keys.
        ...{ n: { tag: 'I', value: 7 }, on: { tag: 't', value: true } },
        ...{ big: long(9_007_199_254_740_993n), none: { tag: 'V' }, tenant: text('a') },
      },
    });
    expect(message?.propertyBytes.toString('hex')).toBe(expected.toString('hex'));
  });

  test('that is no message: dead at once, the place named', async () => {
    const [id = ''] = await put({ exchange: '', routingKey: 'a', secret: 'hunter2' });
    await relay().untilEnded(1);
    expect(await world.database.job(id)).toMatchObject({
      ...{ state: 'dead', attempts: 1 },
      errors: [{ name: 'payload-invalid', message: 'the payload is not a message: secret is not known' }],
    });
  });
});

describe('a drained message', () => {
  test('goes back to its one queue with its bytes, its routing key and its raw headers, though its exchange fans out', async () => {
    await world.channel.assertExchange('fan', 'fanout', { durable: true });
    for (const name of ['fan-a', 'fan-b']) await world.channel.bindQueue(await queue(name), 'fan', '');
    await world.publish('fan', 'original.key', '{"spaces":   1,"a":1,"a":2}', {
      headers: { keep: 'me', big: Number.MAX_SAFE_INTEGER },
      type: 'receipt',
    });
    const config = { rules: [{ match: { queue: 'fan-a' }, kind: 'relay.amqp' }] };
    await world.drain({ config, groups: ['fan-a'] });
    expect(await world.database.states()).toEqual({ ready: 1 });
    const [original] = await taken('fan-b', 1);
    await relay().untilEnded(1);
    expect(await world.database.states()).toEqual({ done: 1 });
    const [back] = await taken('fan-a', 1);
    expect(back?.body.equals(original?.body ?? Buffer.of())).toBe(true);
    expect(back?.propertyBytes.toString('hex')).toBe(original?.propertyBytes.toString('hex'));
    expect(back?.routingKey).toBe('original.key');
    expect((await broker.count('fan-b'))?.ready).toBe(0);
  });

  test('that waited is let go when its time has come, through the wait queue that it lay in', async () => {
    await queue('work');
    const toWork = { deadLetterExchange: '', deadLetterRoutingKey: 'work' };
    await queue('wait', { ...toWork, messageTtl: 3_600_000 });
    await world.publish('', 'wait', '{"n":1}', { messageId: 'w1' });
    const config = { rules: [{ match: { queue: 'wait' }, kind: 'relay.amqp' }] };
    const seen = await world.look(config);
    const group = seen.groups.find(({ queues }) => queues.some(({ info }) => info.name === 'wait'));
    await world.drain({ config, groups: [group?.name ?? ''] });
    await world.database.pool.query('update unbroker.jobs set run_at = now()');
    await relay().untilEnded(1);
    const [message] = await taken('work', 1);
    expect(message?.body.toString()).toBe('{"n":1}');
    expect((await broker.count('wait'))?.ready).toBe(0);
  });
});

describe('what no queue takes', () => {
  test('is tried again, until there is a queue', async () => {
    const [id = ''] = await put(
      { exchange: '', routingKey: 'later', text: 'x' },
      { retryPolicy: AGAIN_SOON, maxAttempts: 1_000 },
    );
    await relay().untilEnded(2);
    expect((await world.database.job(id)).errors[0]).toMatchObject({
      ...{ name: 'Unroutable', message: 'no queue behind the exchange takes it: (default)' },
    });
    await queue('later');
    await taken('later', 1);
    await until('it is done', async () => (await world.database.job(id)).state === 'done');
  });

  test('is dead by choice; a missing exchange too, and no other message suffers for it', async () => {
    await queue('busy');
    const busy = Array.from({ length: 40 }, (_, n) => ({ exchange: '', routingKey: 'busy', body: n }));
    const lost = { exchange: 'no.such', routingKey: 'x', body: 1 };
    const ids = await world.database.put('relay.amqp', [...busy, lost, { ...lost, exchange: '' }], {
      maxAttempts: 1,
    });
    await relay({ onUnroutable: 'dead' }).untilEnded(42);
    expect(await world.database.states()).toEqual({ done: 40, dead: 2 });
    for (const id of ids.slice(-2))
      expect(await world.database.job(id)).toMatchObject({ state: 'dead', errors: [{ name: 'unroutable' }] });
    await taken('busy', 40);
  });
});

test('a queue that is full says no: tried again until it takes it', async () => {
  await queue('full', { maxLength: 1, arguments: { 'x-overflow': 'reject-publish' } });
  await world.publish('', 'full', 'first');
  const [id = ''] = await put(
    { exchange: '', routingKey: 'full', text: 'second' },
    { retryPolicy: AGAIN_SOON, maxAttempts: 1_000 },
  );
  await relay().untilEnded(2);
  expect((await world.database.job(id)).errors[0]?.message).toContain('nack');
  // This one and no more: a consumer would be handed the second, too, as soon as there is room.
  expect(await world.channel.get('full', { noAck: true })).toMatchObject({ content: Buffer.from('first') });
  await until('it is done', async () => (await world.database.job(id)).state === 'done');
  expect((await taken('full', 1))[0]?.body.toString()).toBe('second');
});

test('a broker that hangs, then is cut off, then comes back: every message arrives, and one connection serves all', async () => {
  await queue('cut');
  const before = proxy.accepted;
  const options = { retryPolicy: AGAIN_SOON, maxAttempts: 1_000 };
  const putAll = (from: number) =>
    world.database.put(
      'relay.amqp',
      Array.from({ length: 20 }, (_, n) => ({ exchange: '', routingKey: 'cut', body: from + n })),
      options,
    );
  await putAll(0);
  const running = relay({ confirmWithinMs: 300 });
  await running.untilEnded(20);
  expect(proxy.accepted - before).toBe(1);
  proxy.blackHole({ onlyOpen: true });
  await putAll(20);
  await until('a confirm is given up', () =>
    running.settled().some(({ outcome }) => outcome.type === 'retry'),
  );
  proxy.cut();
  await until('all are done', async () => (await world.database.states())['done'] === 40);
  const reader = await connectBroker(world.vhost.url);
  const ready = (await reader.count('cut'))?.ready ?? 0;
  await reader.close();
  const bodies = (await taken('cut', ready)).map(({ body }) => Number(body));
  expect([...new Set(bodies)].sort((a, b) => a - b)).toEqual(Array.from({ length: 40 }, (_, n) => n));
});

test('a confirm that is lost: not done, sent again under the same message id, so that a consumer can tell', async () => {
  await queue('unheard');
  const dropped = proxy.dropConfirm();
  const [id = ''] = await put(
    { exchange: '', routingKey: 'unheard', text: 'x' },
    { retryPolicy: AGAIN_SOON, maxAttempts: 100 },
  );
  const running = relay();
  await dropped;
  await until('it is done', async () => (await world.database.job(id)).state === 'done');
  expect(running.settled()[0]?.outcome.type).toBe('retry');
  expect((await world.database.job(id)).attempts).toBeGreaterThan(1);
  // The broker had it the first time: at least once, and never a job that is done without a message.
  const ids = (await taken('unheard', 2)).map(
    ({ propertyBytes }) => readProperties(propertyBytes).properties.messageId,
  );
  expect(ids).toEqual([id, id]);
});

test('unbroker work serves it as soon as AMQP_URL is set', async () => {
  await queue('by-cli');
  await put({ exchange: '', routingKey: 'by-cli', body: { by: 'cli' } });
  const cli = startCli(['work', '--until-idle', '--json'], {
    env: { DATABASE_URL: world.database.url, AMQP_URL: world.vhost.url, UNBROKER_LOG_LEVEL: 'silent' },
  });
  expect((await cli.exit).code).toBe(0);
  expect(JSON.parse(cli.stdout.trim().split('\n').at(-1) ?? '')).toMatchObject({ done: 1 });
  expect((await taken('by-cli', 1))[0]?.body.toString()).toBe('{"by": "cli"}');
});
