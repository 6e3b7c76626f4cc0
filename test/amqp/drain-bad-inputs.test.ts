/** What a queue may hold although nobody meant it to: one drain of all of it from a real broker, each with the right row. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectBroker } from '../../adapters/rabbitmq/broker.js';
import type { DrainResult } from '../../adapters/rabbitmq/drain.js';
import type { Field } from '../../adapters/rabbitmq/headers.js';
import {
  array,
  death,
  fields,
  int,
  long,
  type Parts,
  propertyBytes,
  seconds,
  text,
} from '../unit/delivery-builder.js';
import { type DrainWorld, drainWorld } from './drain-world.js';

let world: DrainWorld;
let result: DrainResult;
let rows: Map<string, Row>;

interface Row {
  readonly name: string;
  readonly outcome: string;
  readonly note: string | null;
  readonly routingKey: string;
  readonly redelivered: boolean;
  readonly kind: string | null;
  readonly state: string | null;
  readonly payload: unknown;
  readonly body: Buffer | null;
  readonly attempts: number | null;
  readonly dueNow: boolean | null;
  readonly headers: {
    readonly amqp: { readonly headers?: Record<string, unknown>; readonly timestamp?: unknown };
  } | null;
}

const deep = (levels: number): Field => {
  let table = fields({ end: int(1) });
  for (let level = 0; level < levels; level += 1) table = fields({ d: table });
  return table;
};
const KEYS = { long: 'k'.repeat(255), wild: 'a.*.#', emoji: 'bestellt.📦.jetzt' };

/** By name, which is the message id, except where there must be none. */
const MESSAGES: Readonly<Record<string, Pick<Parts, 'headers' | 'properties' | 'body'>>> = {
  'not json': { body: 'not json' },
  empty: { body: '' },
  'no type': { body: '{"n":1}' },
  'type lies, binary': { body: Buffer.of(0, 255), properties: { contentType: 'application/json' } },
  'type lies, json': { body: '{"n":2}', properties: { contentType: 'application/octet-stream' } },
  'nested 1000': { headers: { deep: deep(1_000), after: int(7) } },
  mixed: {
    headers: {
      list: array(
        int(1),
        text('a'),
        { tag: 'V' },
        { tag: 'D', scale: 2, digits: -1 },
        seconds(1_764_428_400),
      ),
    },
  },
  'timestamp in s': { properties: { timestamp: 1_764_428_400 } },
  'timestamp in ms': { properties: { timestamp: 1_764_428_400_123 } },
  'timestamp out of range': { properties: { timestamp: 2n ** 63n } },
  'not utf-8': { headers: { s: { tag: 'S', bytes: Buffer.of(0x61, 0xff) } } },
  'x-delay negative': { headers: { 'x-delay': long(-60_000n) } },
  'x-delay past 2^31': { headers: { 'x-delay': long(2n ** 40n) } },
  'x-death 500 long': {
    headers: {
      'x-death': array(
        ...Array.from({ length: 500 }, (_, n) => death({ queue: `q${n}`, reason: 'rejected', count: 1 })),
      ),
    },
  },
  rpc: { properties: { replyTo: 'amq.gen-Xa2' } },
  'rpc direct': { properties: { replyTo: 'amq.rabbitmq.reply-to.g1h2' } },
  'celery with a reply-to': {
    body: '[[2],{},{}]',
    headers: { task: text('shop.charge'), id: text('celery-1'), retries: int(0) },
    properties: { replyTo: 'amq.gen-celery', contentType: 'application/json' },
  },
};

beforeAll(async () => {
  world = await drainWorld();
  const { channel } = world;
  await channel.assertQueue('odd', { durable: true });
  await channel.assertExchange('odd', 'topic', { durable: true });
  await channel.bindQueue('odd', 'odd', '#');
  for (const [name, parts] of Object.entries(MESSAGES)) {
    const properties = { deliveryMode: 2, messageId: name, ...parts.properties };
    await world.publishRaw('odd', propertyBytes({ ...parts, properties }), Buffer.from(parts.body ?? '{}'));
  }
  for (const [name, key] of Object.entries(KEYS))
    await world.publish('odd', key, {}, { messageId: `key ${name}` });
  await world.publish('', 'odd', { same: 1 }, { messageId: 'twice' });
  await world.publish('', 'odd', { same: 2 }, { messageId: 'twice' });
  await world.publish('', 'odd', { no: 'id' });
  await world.publish('', 'odd', { no: 'id' });
  // All of them have been seen by somebody before.
  const broker = await connectBroker(world.vhost.url);
  await broker.look('odd', 100);
  await broker.close();
  const rules = [{ match: { queue: '*' }, kind: 'odd' }];
  [result] = (await world.drain({ config: { rules }, groups: ['odd'] })) as [DrainResult];
  const found = await world.rows<Row>(
    `select coalesce(l.message_id, 'no id') as name, l.outcome, l.note, l.routing_key as "routingKey", l.redelivered, j.kind,
            j.state, j.payload, j.body, j.attempts, j.run_at <= now() as "dueNow", j.headers
     from unbroker.drain_ledger l left join unbroker.jobs j on j.id = l.job order by l.batch, l.position`,
  );
  rows = new Map(found.map((row) => [row.name, row]));
  expect(found).toHaveLength(Object.keys(MESSAGES).length + Object.keys(KEYS).length + 4);
});
afterAll(() => world.close());

const row = (name: string): Row => rows.get(name) as Row;
const header = (name: string, key: string): unknown => row(name).headers?.amqp.headers?.[key];

test('each message has one row, and the books balance', () => {
  expect(result.books).toMatchObject({ initial: rows.size + 2, excluded: 2, balanced: true });
});

test.each<[string, Partial<Row>]>([
  ['not json', { state: 'dead', payload: null, body: Buffer.from('not json'), note: 'body-not-json' }],
  ['empty', { state: 'ready', payload: null, body: null, note: null }],
  ['no type', { state: 'ready', payload: { n: 1 } }],
  ['type lies, binary', { state: 'dead', body: Buffer.of(0, 255), note: 'body-binary' }],
  ['type lies, json', { state: 'ready', payload: { n: 2 } }],
  ['x-delay negative', { state: 'ready', dueNow: true }],
  ['x-delay past 2^31', { state: 'ready', dueNow: true }],
  ['rpc', { outcome: 'excluded', kind: null }],
  ['rpc direct', { outcome: 'excluded', kind: null }],
  ['celery with a reply-to', { outcome: 'row', state: 'ready' }],
  ['no id', { outcome: 'row', state: 'ready', payload: { no: 'id' } }],
])('%s', (name, expected) => {
  expect(row(name)).toMatchObject(expected);
});

test('the same id with another body: both are kept, and the books say so', async () => {
  const found = await world.rows<{ payload: unknown }>(
    `select j.payload from unbroker.drain_ledger l join unbroker.jobs j on j.id = l.job where l.message_id = 'twice' order by 1`,
  );
  expect(found.map(({ payload }) => payload)).toEqual([{ same: 1 }, { same: 2 }]);
  expect(result.books.remarks.join()).toMatch(/1 message ids came with different contents/);
});

test('the same body twice without an id: two jobs', async () => {
  expect(await world.rows(`select 1 from unbroker.jobs where payload = '{"no": "id"}'`)).toHaveLength(2);
});

test('headers keep their types, down to a limit', () => {
  expect(header('nested 1000', 'after')).toBe(7);
  expect(JSON.stringify(header('nested 1000', 'deep'))).toContain('"unreadable"');
  expect(header('mixed', 'list')).toEqual([
    ...[1, 'a', null, { '!': 'decimal', value: '-0.01' }],
    { '!': 'timestamp', value: 1_764_428_400 },
  ]);
  expect(header('not utf-8', 's')).toEqual({ '!': 'bytes', base64: 'Yf8=' });
});

test('an x-death of 500 entries is cut, with its count; attempts go by the home queue alone', () => {
  expect(header('x-death 500 long', 'x-death')).toMatchObject({ '!': 'cut', count: 500 });
  expect(row('x-death 500 long').attempts).toBe(0);
});

test('a message that was delivered before is a message like any other', () => {
  expect([...rows.values()].every(({ redelivered }) => redelivered)).toBe(true);
  expect(result.books).toMatchObject({ absorbed: 0 });
  expect(row('no type').attempts).toBe(0);
});

test.each(Object.entries(KEYS))('a routing key stays as it is: %s', (name, key) => {
  expect(row(`key ${name}`).routingKey).toBe(key);
});

test('timestamps are taken as they come, in whatever unit', () => {
  for (const name of ['timestamp in s', 'timestamp in ms', 'timestamp out of range']) {
    expect(row(name)).toMatchObject({ state: 'ready', dueNow: true });
  }
});
