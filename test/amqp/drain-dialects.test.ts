/**
 * The queues of several libraries side by side on one broker, with the names and arguments that each declares: the survey finds
 * their roles without a rule, and one drain makes the right row of each message.
 */
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Field } from '../../adapters/rabbitmq/headers.js';
import { array, fields, int, type Parts, propertyBytes, text } from '../unit/delivery-builder.js';
import { type DrainWorld, drainWorld } from './drain-world.js';

let world: DrainWorld;
beforeAll(async () => {
  world = await drainWorld();
});
afterAll(() => world.close());

interface Row {
  readonly queue: string;
  readonly kind: string | null;
  readonly state: string | null;
  readonly attempts: number | null;
  readonly payload: string | null;
  readonly error: string | null;
  readonly note: string | null;
  readonly runAt: Date | null;
  /** Seconds from the import to run_at, where that is what a library means. */
  readonly dueIn: number;
}

/** When the application says so itself, to the millisecond. */
const ETA = new Date(Date.now() + 3_600_123);
/** Seconds, give or take 2.5. */
const near = (seconds: number) => expect.closeTo(seconds, -0.7) as number;
const NONE: Field = { tag: 'V' };
const inSeconds = (seconds: number) => new Date(Date.now() + seconds * 1_000).toISOString();
const nsbTime = (seconds: number) =>
  inSeconds(seconds).replace('T', ' ').replace('.', ':').replace('Z', '000 Z');
const bits = (seconds: number) => seconds.toString(2).padStart(28, '0').split('').join('.');

/** Queue arguments as each library declares them. */
const QUEUES: Readonly<Record<string, object>> = {
  celery: {},
  default: { deadLetterExchange: '', deadLetterRoutingKey: 'default.XQ' },
  'default.DQ': { deadLetterExchange: '', deadLetterRoutingKey: 'default.XQ' },
  'default.XQ': { arguments: { 'x-message-ttl': 604_800_000 } },
  orders: {},
  orders_error: {},
  orders_skipped: {},
  'nsb.v2.delay-level-06': { messageTtl: 64_000, deadLetterExchange: 'nsb.v2.delay-level-05' },
  'nsb.v2.delay-level-05': { messageTtl: 32_000, deadLetterExchange: 'nsb.v2.delay-delivery' },
  sales: {},
  error: {},
  EasyNetQ_Default_Error_Queue: {},
  mail: { deadLetterExchange: '', deadLetterRoutingKey: 'mail-retry' },
  'mail-retry': { messageTtl: 60_000, deadLetterExchange: '', deadLetterRoutingKey: 'mail' },
  'mail-error': {},
  q: {},
  'q.delay.30000': { messageTtl: 30_000, expires: 60_000, deadLetterExchange: '', deadLetterRoutingKey: 'q' },
};

const envelope =
  '{"messageId":"01","messageType":["urn:message:Acme:Submit"],"message":{"n":9007199254740993},"headers":{}}';
const nsb = (more: Readonly<Record<string, Field>> = {}) => ({
  'NServiceBus.MessageId': text('n1'),
  'NServiceBus.EnclosedMessageTypes': text('Acme.Place, Acme, Version=1.0.0.0'),
  'NServiceBus.TimeSent': text(nsbTime(-10)),
  ...more,
});
const task = (more: Readonly<Record<string, Field>> = {}): Parts => ({
  headers: {
    ...{ task: text('proj.add'), id: text('c1'), eta: NONE, expires: NONE, retries: int(1) },
    timelimit: array(int(300), int(240)),
    ...more,
  },
  body: '[[2], {}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]',
  properties: { contentType: 'application/json', replyTo: 'amq.gen-results' },
});
const dramatiq = (queue: string, options: string) =>
  `{"queue_name":"${queue}","actor_name":"count","args":[1],"kwargs":{},"options":${options},"message_id":"d1","message_timestamp":${Date.now()}}`;

const MESSAGES: readonly (readonly [string, Parts])[] = [
  ['celery', task()],
  ['celery', task({ eta: text(ETA.toISOString().replace('Z', '000+00:00')) })],
  ['celery', task({ expires: text(inSeconds(-1)) })],
  [
    'celery',
    {
      ...task(),
      body: Buffer.from('8004950a', 'hex'),
      properties: { contentType: 'application/x-python-serialize' },
    },
  ],
  ['default.DQ', { body: dramatiq('default.DQ', `{"eta":${ETA.getTime()},"retries":2}`) }],
  ['default.XQ', { body: dramatiq('default', '{"retries":20,"traceback":"KeyError: 1\\n"}') }],
  ['orders', { body: envelope }],
  [
    'orders_error',
    { body: envelope, headers: { 'MT-Reason': text('fault'), 'MT-Fault-Message': text('no') } },
  ],
  ['orders_skipped', { body: envelope, headers: { 'MT-Reason': text('dead-letter') } }],
  ['sales', { headers: nsb() }],
  ['error', { headers: nsb({ 'NServiceBus.FailedQ': text('sales') }) }],
  [
    'EasyNetQ_Default_Error_Queue',
    {
      body: '{"RoutingKey":"rk","Exchange":"ex","Queue":"w","Exception":"System.Exception: no","Message":"{\\"n\\": 9007199254740993}","DateTime":"2026-01-01T00:00:00Z","BasicProperties":{"Type":"Acme.Paid, Acme"}}',
    },
  ],
  [
    'mail-error',
    {
      body: `{"error":"boom","num_attempts":6,"failed_at":"2026-01-01","payload":${JSON.stringify(`${Buffer.from('{"to":"a"}').toString('base64')}\n`)}}`,
    },
  ],
  ['mail-retry', { body: '{"to":"b"}', properties: { type: 'Mail' } }],
  [
    'q.delay.30000',
    {
      body: '{"displayName":"App\\\\Jobs\\\\Send","job":"Call@call","maxTries":3,"data":{"commandName":"x"},"id":"l1"}',
      headers: { laravel: fields({ attempts: int(0) }) },
    },
  ],
  ['q', { body: '{"pattern":"user.created","data":{"id": 1}}' }],
];

test('each message becomes the row that its library would have meant', async () => {
  const { channel } = world;
  await channel.assertExchange('nsb.v2.delay-delivery', 'topic', { durable: true });
  await channel.assertExchange('nsb.v2.delay-level-05', 'topic', { durable: true });
  for (const [queue, options] of Object.entries(QUEUES))
    await channel.assertQueue(queue, { durable: true, ...options });
  await channel.bindQueue('nsb.v2.delay-level-05', 'nsb.v2.delay-level-05', '#');
  await channel.bindQueue('sales', 'nsb.v2.delay-delivery', '#.sales');
  for (const [queue, parts] of MESSAGES) {
    const bytes = propertyBytes({ ...parts, properties: { deliveryMode: 2, ...parts.properties } });
    await world.publishRaw(queue, bytes, Buffer.from(parts.body ?? '{}'));
  }
  // Into the topic exchange of the level, since the routing key holds the bits.
  const delayed = { 'NServiceBus.MessageId': 'n2', 'NServiceBus.EnclosedMessageTypes': 'Acme.Later, Acme' };
  await world.publish('nsb.v2.delay-level-05', `${bits(45)}.sales`, {}, { headers: delayed });

  const results = await world.drain();
  expect(results.every(({ books }) => books.balanced)).toBe(true);
  const rows = await world.rows<Row>(
    `select l.queue, j.kind, j.state, j.attempts, j.payload::text as payload, j.errors -> 0 ->> 'name' as error, l.note,
            j.run_at as "runAt", extract(epoch from j.run_at - j.created_at)::float as "dueIn"
     from unbroker.drain_ledger l left join unbroker.jobs j on j.id = l.job order by l.queue, l.batch, l.position`,
  );
  expect(rows).toHaveLength(MESSAGES.length + 1);
  const of = (queue: string) => rows.filter((row) => row.queue === queue);
  expect(of('celery')).toMatchObject([
    {
      kind: 'proj.add',
      state: 'ready',
      attempts: 1,
      payload: '{"args": [2], "kwargs": {}}',
      dueIn: near(0),
    },
    { kind: 'proj.add', state: 'ready', runAt: ETA },
    { kind: 'proj.add', state: 'cancelled', error: 'expired' },
    { kind: 'proj.add', state: 'dead', payload: null, error: 'pickle' },
  ]);
  expect(of('default.DQ')).toMatchObject([{ kind: 'count', attempts: 2, runAt: ETA }]);
  expect(of('default.XQ')).toMatchObject([{ kind: 'count', state: 'dead', attempts: 20, error: 'KeyError' }]);
  expect(of('orders')).toMatchObject([{ state: 'ready', payload: '{"n": 9007199254740993}' }]);
  expect(of('orders_error')).toMatchObject([{ state: 'dead', attempts: 1, error: 'fault' }]);
  expect(of('orders_skipped')).toMatchObject([{ state: 'dead', error: 'unhandled' }]);
  expect(of('sales')).toMatchObject([{ kind: 'Acme.Place, Acme', state: 'ready' }]);
  expect(of('error')).toMatchObject([{ kind: 'Acme.Place, Acme', state: 'dead' }]);
  expect(of('nsb.v2.delay-level-05')).toMatchObject([
    { kind: 'Acme.Later, Acme', state: 'ready', dueIn: near(45) },
  ]);
  expect(of('EasyNetQ_Default_Error_Queue')).toMatchObject([
    { kind: 'Acme.Paid, Acme', state: 'dead', payload: '{"n": 9007199254740993}', error: 'System.Exception' },
  ]);
  expect(of('mail-error')).toMatchObject([
    { kind: 'mail-error', state: 'dead', attempts: 6, payload: '{"to": "a"}', error: 'error' },
  ]);
  expect(of('mail-retry')).toMatchObject([{ kind: 'Mail', state: 'ready', dueIn: near(60) }]);
  expect(of('q.delay.30000')).toMatchObject([{ kind: 'App\\Jobs\\Send', attempts: 0, dueIn: near(30) }]);
  expect(of('q')).toMatchObject([{ kind: 'user.created', payload: '{"id": 1}' }]);
});
