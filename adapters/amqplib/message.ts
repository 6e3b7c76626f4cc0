/**
 * A message as amqplib has it, as a job, and back. The content is the job's body, byte for byte; properties and headers
 * stand in the job's headers. Pure. A queue is the kind `amqp.<queue>`, so any worker can take one over.
 */

import type { BodyJob } from '../../src/jobs/enqueue-store.js';
import type { ClaimedJob, Json } from '../../src/jobs/job.js';

/** As amqplib's Options.Publish, as far as it is kept. */
export interface PublishOptions {
  readonly expiration?: string | number;
  readonly userId?: string;
  readonly CC?: string | readonly string[];
  readonly BCC?: string | readonly string[];
  readonly mandatory?: boolean;
  readonly persistent?: boolean;
  readonly deliveryMode?: boolean | number;
  readonly contentType?: string;
  readonly contentEncoding?: string;
  readonly headers?: Readonly<Record<string, unknown>>;
  readonly priority?: number;
  readonly correlationId?: string;
  readonly replyTo?: string;
  readonly messageId?: string;
  readonly timestamp?: number;
  readonly type?: string;
  readonly appId?: string;
}

export interface Fields {
  readonly exchange: string;
  readonly routingKey: string;
}

export interface Message {
  readonly content: Buffer;
  readonly fields: Fields & {
    readonly deliveryTag: number;
    readonly redelivered: boolean;
    readonly consumerTag?: string;
    readonly messageCount?: number;
  };
  readonly properties: Readonly<Record<string, unknown>> & { readonly headers: Record<string, unknown> };
}

const PROPERTIES = [
  'contentType',
  'contentEncoding',
  'deliveryMode',
  'priority',
  'correlationId',
  'replyTo',
  'expiration',
  'messageId',
  'timestamp',
  'type',
  'userId',
  'appId',
  'clusterId',
] as const;

/** Starts of a message before it is given up: the table's most. RabbitMQ knows no such limit for classic queues. */
export const MAX_ATTEMPTS = 1_000;
const MAX_PRIORITY = 255;

export const kindOf = (queue: string): string => `amqp.${queue}`;

/** Throws TypeError for what cannot be kept. */
export function propertiesOf(options: PublishOptions): Record<string, unknown> {
  const { persistent, deliveryMode, expiration, headers = {}, ...rest } = options;
  const isPersistent = persistent === true || deliveryMode === true || deliveryMode === 2;
  const given: Record<string, unknown> = {
    ...rest,
    deliveryMode: isPersistent ? 2 : persistent === false || deliveryMode === 1 ? 1 : undefined,
    expiration: expiration === undefined ? undefined : String(expiration),
    headers: encoded(headers, 0),
  };
  return Object.fromEntries(
    [...PROPERTIES, 'headers' as const].flatMap((name) => {
      const value = given[name];
      return value === undefined ? [] : [[name, value]];
    }),
  );
}

const MAX_DEPTH = 32;

/** JSON has neither bytes nor dates; headers have both. */
function encoded(value: unknown, depth: number): Json {
  if (depth > MAX_DEPTH) throw new TypeError('headers are nested too deeply');
  if (value === null || typeof value === 'boolean' || typeof value === 'string') return value;
  if (typeof value === 'number' && Number.isFinite(value)) return value;
  if (typeof value === 'bigint') return { '!': 'bigint', value: String(value) };
  if (Buffer.isBuffer(value)) return { '!': 'bytes', value: value.toString('base64') };
  if (value instanceof Date) return { '!': 'date', value: value.toISOString() };
  if (Array.isArray(value)) return value.map((item) => encoded(item, depth + 1));
  if (typeof value !== 'object') throw new TypeError('headers hold what AMQP cannot');
  const entries = Object.entries(value).filter(([, item]) => item !== undefined);
  return Object.fromEntries(entries.map(([name, item]) => [name, encoded(item, depth + 1)]));
}

function decoded(value: Json): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(decoded);
  const { '!': mark, value: text } = value as Readonly<Record<string, Json>>;
  if (mark === 'bytes') return Buffer.from(String(text), 'base64');
  if (mark === 'date') return new Date(String(text));
  if (mark === 'bigint') return BigInt(String(text));
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, decoded(item)]));
}

/** A message for one queue. `runAtMs` null: now. */
export function jobOf(
  queue: string,
  { exchange, routingKey }: Fields,
  properties: Readonly<Record<string, unknown>>,
  content: Buffer,
  runAtMs: number | null = null,
): BodyJob {
  const priority = properties['priority'];
  const contentType = properties['contentType'];
  return {
    kind: kindOf(queue),
    body: content,
    contentType: typeof contentType === 'string' ? contentType.slice(0, 255) : null,
    priority: typeof priority === 'number' ? Math.max(0, Math.min(Math.trunc(priority), MAX_PRIORITY)) : 0,
    runAtMs,
    headers: { amqp: { exchange, routingKey, properties: properties as Json } },
    source: `amqplib:${exchange}`.slice(0, 1_000),
  };
}

interface Kept extends Fields {
  readonly properties: Readonly<Record<string, Json>>;
}

/** A job of another door (an enqueue of kind `amqp.<queue>`) has only a payload: that is its content then. */
export function keptOf({ headers }: Pick<ClaimedJob, 'headers'>): Kept {
  const { amqp } = (headers ?? {}) as { amqp?: Partial<Kept> };
  return {
    exchange: amqp?.exchange ?? '',
    routingKey: amqp?.routingKey ?? '',
    properties: amqp?.properties ?? {},
  };
}

export function contentOf({ body, payloadText }: Pick<ClaimedJob, 'body' | 'payloadText'>): Buffer {
  return body ?? Buffer.from(payloadText ?? '');
}

export function messageOf(job: ClaimedJob, deliveryTag: number, consumerTag: string | null): Message {
  const { exchange, routingKey, properties } = keptOf(job);
  const all = Object.fromEntries(PROPERTIES.map((name) => [name, properties[name]]));
  return {
    content: contentOf(job),
    fields: {
      ...(consumerTag === null ? {} : { consumerTag }),
      deliveryTag,
      redelivered: wasDelivered(job),
      exchange,
      routingKey,
    },
    properties: { ...all, headers: decoded(properties['headers'] ?? {}) as Record<string, unknown> },
  };
}

/** Started before, or given back after it was delivered. */
function wasDelivered({ attempt, progress }: ClaimedJob): boolean {
  return attempt > 1 || (progress as { delivered?: unknown } | null)?.delivered === true;
}

/** The `x-death` header with one more death at its head, as RabbitMQ counts them: by queue and reason. */
export function withDeath(
  properties: Readonly<Record<string, Json>>,
  death: { readonly queue: string; readonly reason: string } & Fields,
  nowMs: number,
): Record<string, Json> {
  const headers = (properties['headers'] ?? {}) as Readonly<Record<string, Json>>;
  const { queue, reason, exchange, routingKey } = death;
  const deaths = (Array.isArray(headers['x-death']) ? headers['x-death'] : []) as Readonly<
    Record<string, Json>
  >[];
  const same = deaths.find((one) => one['queue'] === queue && one['reason'] === reason);
  const counted = {
    count: Number(same?.['count'] ?? 0) + 1,
    reason,
    queue,
    time: { '!': 'date', value: new Date(nowMs).toISOString() },
    exchange,
    'routing-keys': [routingKey],
  };
  const first = {
    'x-first-death-queue': queue,
    'x-first-death-reason': reason,
    'x-first-death-exchange': exchange,
  };
  const { expiration: _expiration, ...rest } = properties;
  return {
    ...rest,
    headers: { ...first, ...headers, 'x-death': [counted, ...deaths.filter((one) => one !== same)] },
  };
}
