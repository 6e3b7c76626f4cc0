/**
 * Schedules and retries whose consumers are still on the broker: `serve.targets` names `relay.amqp`, and what the old
 * services published comes out of the table, on a real RabbitMQ, when it is due and where it was meant to go.
 */
import type { GetMessage } from 'amqplib';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { connectBroker } from '../../adapters/rabbitmq/broker.js';
import { createAmqpRelay } from '../../adapters/rabbitmq/relay.js';
import { type ShimWorld, startShimWorld } from '../http/shim-world.js';
import { until } from '../support/until.js';
import { startWorker, type TestWorker } from '../support/workers.js';
import { type DrainWorld, drainWorld } from './drain-world.js';

let world: DrainWorld;
let shims: ShimWorld;
let worker: TestWorker | undefined;
let closeRelay = async (): Promise<void> => undefined;

beforeAll(async () => {
  [world, shims] = await Promise.all([
    drainWorld(),
    startShimWorld({
      serve: {
        targets: {
          'exchange:schedule.events': 'relay.amqp',
          'exchange:shop': 'relay.amqp',
          'queue:orders.work': 'relay.amqp',
          'queue:gone': 'relay.amqp',
          'queue:manual-review': 'relay.amqp',
          'queue:other': 'other.kind',
        },
      },
    }),
  ]);
  const { channel } = world;
  for (const name of ['orders.work', 'manual-review', 'events'])
    await channel.assertQueue(name, { durable: true });
  for (const name of ['schedule.events', 'shop']) {
    await channel.assertExchange(name, 'topic', { durable: true });
    await channel.bindQueue('events', name, '#');
  }
});
beforeEach(async () => {
  await shims.database.pool.query('truncate unbroker.jobs');
});
afterEach(async () => {
  await worker?.close();
  worker = undefined;
  await closeRelay();
});
afterAll(() => Promise.all([shims?.close(), world?.close()]));

function startRelay(): void {
  const relay = createAmqpRelay({ connect: () => connectBroker(world.vhost.url), onUnroutable: 'retry' });
  closeRelay = () => relay.close();
  worker = startWorker({ url: shims.database.url, handlers: relay.handlers, upkeepMs: 50 });
}

interface Answer {
  readonly status: number;
  readonly body: Record<string, unknown>;
}

async function ask(method: string, path: string, body?: object): Promise<Answer> {
  const response = await fetch(`${shims.url}${path}`, {
    method,
    ...(body === undefined
      ? {}
      : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
  });
  const text = await response.text();
  return { status: response.status, body: text === '' ? {} : (JSON.parse(text) as Record<string, unknown>) };
}

const take = (queue: string): Promise<GetMessage> =>
  until(`${queue} has a message`, () => world.channel.get(queue, { noAck: true }), { withinMs: 60_000 });
const json = (message: GetMessage): unknown => JSON.parse(message.content.toString('utf8'));
const isEmpty = async (queue: string): Promise<boolean> =>
  (await world.channel.checkQueue(queue)).messageCount === 0;
/** As if its time had come. */
const bringForward = (id: unknown) =>
  shims.database.pool.query(`update unbroker.jobs set run_at = now() where id = $1 and state = 'ready'`, [
    id,
  ]);

test('a schedule for a queue: there at its time and not before, as the old service wrote it', async () => {
  startRelay();
  const payload = { orderId: 17 };
  const far = await ask('POST', '/schedules', {
    name: 'reminder-17',
    delayMs: 3_600_000,
    target: { queue: 'orders.work' },
    payload,
  });
  expect(far.status).toBe(201);
  const startedAt = Date.now();
  const near = await ask('POST', '/schedules', {
    delayMs: 1_000,
    target: { queue: 'orders.work' },
    payload: [1],
  });
  const first = await take('orders.work');
  expect(Date.now() - startedAt).toBeGreaterThanOrEqual(990);
  expect(json(first)).toMatchObject({ id: near.body['id'], key: near.body['id'], data: [1], attempt: 1 });
  expect(await isEmpty('orders.work')).toBe(true);
  await bringForward(far.body['id']);
  const { fields, properties, ...message } = await take('orders.work');
  expect(fields).toMatchObject({ exchange: '', routingKey: 'orders.work' });
  expect(properties).toMatchObject({
    messageId: far.body['id'],
    type: 'reminder-17',
    appId: 'scheduling',
    contentType: 'application/json',
    deliveryMode: 2,
    headers: { 'x-schedule-id': far.body['id'] },
  });
  const body = JSON.parse(message.content.toString('utf8')) as { triggerTime: string };
  expect(body).toEqual({
    id: far.body['id'],
    key: 'reminder-17',
    data: payload,
    triggerTime: body.triggerTime,
    attempt: 1,
  });
  expect(Math.abs(Date.parse(body.triggerTime) - Date.now())).toBeLessThan(60_000);
  await until('it is fired', async () => {
    const { body: now } = await ask('GET', `/schedules/${far.body['id']}`);
    return now['status'] === 'fired' && JSON.stringify(now['payload']) === JSON.stringify(payload);
  });
});

test('for an exchange: under its routing key, or the schedule’s name, or its id; numbers digit by digit', async () => {
  startRelay();
  const send = (target: object | null, name: string | null) =>
    fetch(`${shims.url}/schedules`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: `{"delayMs":0,"payload":{"n":9007199254740993},"target":${JSON.stringify(target)},"name":${JSON.stringify(name)}}`,
    }).then((response) => response.json() as Promise<{ id: string }>);
  const cases: [object | null, string | null, string | null, string][] = [
    [{ exchange: 'shop', routingKey: 'order.due' }, 'n1', 'order.due', 'shop'],
    [{ exchange: 'shop' }, 'n2', 'n2', 'shop'],
    [{ exchange: 'shop' }, null, null, 'shop'],
    [null, 'n4', 'n4', 'schedule.events'],
  ];
  for (const [target, name, key, exchange] of cases) {
    const { id } = await send(target, name);
    const message = await take('events');
    expect(message.fields).toMatchObject({ exchange, routingKey: key ?? id });
    expect(message.content.toString('utf8')).toContain('"data":{"n": 9007199254740993}');
  }
});

test('a cron publishes at each slot; one that expired publishes nothing', async () => {
  await ask('PUT', '/schedules/nightly', {
    cron: '0 3 * * *',
    target: { queue: 'orders.work' },
    payload: { run: 1 },
  });
  const late = await ask('POST', '/schedules', {
    delayMs: 0,
    expiresAt: '2020-01-01T00:00:00Z',
    target: { queue: 'orders.work' },
  });
  expect(late.status).toBe(201);
  startRelay();
  await until('it has expired', async () => {
    const { body } = await ask('GET', `/schedules/${late.body['id']}`);
    return body['status'] === 'failed';
  });
  await ask('POST', '/schedules/nightly/trigger');
  const message = await take('orders.work');
  expect(json(message)).toMatchObject({ key: 'nightly', data: { run: 1 } });
  expect(await isEmpty('orders.work')).toBe(true);
});

test('a failed message goes back to its own queue after its wait, again and again, then to manual-review', async () => {
  startRelay();
  const policy = { type: 'fixed', delayMs: 3_600_000, maxAttempts: 3 };
  const target = { queue: 'orders.work' };
  const submit = (attempt: number) =>
    ask('POST', '/retries', { payload: { orderId: 17 }, target, policy, attempt, error: 'card declined' });
  for (const attempt of [1, 2]) {
    const { status, body } = await submit(attempt);
    expect([status, body['status']]).toEqual([202, 'waiting']);
    const { body: waiting } = await ask('GET', `/retries/${body['id']}`);
    expect(waiting).toMatchObject({ status: 'waiting', attempt, payload: { orderId: 17 }, target });
    expect(Date.parse(String(waiting['nextAttemptAt'])) - Date.now()).toBeGreaterThan(3_000_000);
    expect(await isEmpty('orders.work')).toBe(true);
    await bringForward(body['id']);
    const message = await take('orders.work');
    expect(message.fields).toMatchObject({ exchange: '', routingKey: 'orders.work' });
    expect(json(message)).toEqual({ orderId: 17 });
    expect(message.properties).toMatchObject({
      messageId: body['id'],
      appId: 'retry',
      headers: { 'x-retry-count': attempt },
    });
  }
  const { status, body } = await submit(3);
  expect(status).toBe(202);
  const parked = await take('manual-review');
  expect(json(parked)).toEqual({
    payload: { orderId: 17 },
    ...{ target, policy, attempt: 3, error: 'card declined' },
  });
  expect(parked.properties.headers).toMatchObject({
    ...{ 'x-original-queue': 'retry.scheduled', 'x-original-exchange': '' },
    ...{ 'x-retry-count': 3, 'x-error': 'card declined' },
  });
  expect(parked.properties.messageId).toBe(body['id']);
  const view = await ask('GET', `/retries/${body['id']}`);
  expect(view.body).toMatchObject({
    status: 'dead',
    attempt: 3,
    payload: { orderId: 17 },
    nextAttemptAt: null,
  });
  // One place, not two: people find it on the broker.
  expect((await ask('GET', '/dead-letters')).body).toMatchObject({ items: [], total: 0 });
  await until('both were given back and one was parked', async () => {
    const { body: ended } = await ask('GET', '/retries?status=succeeded');
    return (ended['items'] as unknown[]).length === 2;
  });
  expect(await isEmpty('orders.work')).toBe(true);
});

test('a queue that is gone: tried again, then dead and listed here; edited, it goes to the other', async () => {
  const { body } = await ask('POST', '/retries', {
    payload: { orderId: 18 },
    target: { queue: 'gone' },
    policy: { type: 'fixed', delayMs: 0, maxAttempts: 3 },
  });
  startRelay();
  const dead = await until('it is dead', async () => {
    const { body: listed } = await ask('GET', '/dead-letters');
    return (listed['items'] as { id: string; attempts: number; payload: unknown; error: string }[])[0];
  });
  expect(dead).toMatchObject({ id: body['id'], attempts: 3, payload: { orderId: 18 } });
  expect(dead.error).toContain('no queue behind the exchange takes it');
  const payload = { orderId: 19 };
  expect((await ask('PATCH', `/dead-letters/${dead.id}`, { payload })).status).toBe(200);
  expect((await ask('PATCH', `/dead-letters/${dead.id}`, { target: { queue: 'orders.work' } })).status).toBe(
    200,
  );
  expect((await ask('POST', `/dead-letters/${dead.id}/replay`)).status).toBe(202);
  expect(json(await take('orders.work'))).toEqual(payload);
});

test('nobody publishes where the config does not say so: 422, nothing stored', async () => {
  const payload = { exchange: 'amq.topic', routingKey: 'x', body: 1 };
  for (const target of [
    { kind: 'relay.amqp' },
    { queue: 'payments' },
    { queue: '' },
    { exchange: 'amq.topic', routingKey: 'x' },
    { queue: 'orders.work2' },
    { queue: 'ORDERS.WORK' },
    { exchange: 'shop', routingKey: '\u00e9'.repeat(128) },
  ]) {
    for (const [path, body] of [
      ['/schedules', { delayMs: 1, target, payload }],
      ['/retries', { target, payload }],
    ] as const)
      expect([target, (await ask('POST', path, body)).status]).toEqual([
        target,
        'queue' in target && target.queue === '' ? 400 : 422,
      ]);
  }
  const name = '\u00e9'.repeat(128);
  expect((await ask('POST', '/schedules', { delayMs: 1, name, target: { exchange: 'shop' } })).status).toBe(
    422,
  );
  const { rows } = await shims.database.pool.query('select from unbroker.jobs');
  expect(rows).toHaveLength(0);
});
