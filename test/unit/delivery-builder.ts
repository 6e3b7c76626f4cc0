/** Builds deliveries from their wire form, for tests of what reads them. */
import { FLAG, type RawDelivery, readDelivery } from '../../adapters/rabbitmq/delivery.js';
import { compileRules, type DrainRule } from '../../adapters/rabbitmq/drain-config.js';
import { type Field, writeTable } from '../../adapters/rabbitmq/headers.js';
import { type Mapped, mapDelivery, type QueueFacts, sourceOf } from '../../adapters/rabbitmq/mapping.js';

export const text = (value: string): Field => ({ tag: 'S', bytes: Buffer.from(value) });
export const int = (value: number): Field => ({ tag: 'I', value });
export const long = (value: bigint): Field => ({ tag: 'l', value });
export const seconds = (value: number): Field => ({ tag: 'T', value: BigInt(value) });
export const array = (...items: Field[]): Field => ({ tag: 'A', items });
export const fields = (members: Readonly<Record<string, Field>>): Field => ({
  tag: 'F',
  entries: Object.entries(members).map(([key, value]) => ({
    key: Buffer.from(key),
    value,
    raw: Buffer.alloc(0),
  })),
});

export interface DeathParts {
  readonly queue: string;
  readonly reason: string;
  readonly count?: number;
  readonly at?: number;
  readonly exchange?: string;
  readonly keys?: readonly string[];
}

export const death = ({ queue, reason, count, at, exchange = '', keys = [queue] }: DeathParts): Field =>
  fields({
    queue: text(queue),
    reason: text(reason),
    ...(count === undefined ? {} : { count: long(BigInt(count)) }),
    ...(at === undefined ? {} : { time: seconds(at) }),
    exchange: text(exchange),
    'routing-keys': array(...keys.map(text)),
  });

/**
 * Headers that RabbitMQ reads itself, for routing (sender-selected distribution, the delayed exchange): a publish in which
 * CC or BCC is no list of texts gets 406 and closes the channel, so that no queue can hold one.
 */
export const READ_BY_THE_BROKER: ReadonlySet<string> = new Set(['CC', 'BCC', 'x-delay']);

export interface Parts {
  readonly queue?: string;
  readonly exchange?: string;
  readonly routingKey?: string;
  readonly redelivered?: boolean;
  readonly body?: string | Buffer;
  readonly headers?: Readonly<Record<string, Field>> | Buffer;
  readonly properties?: Readonly<Partial<Record<keyof typeof FLAG, string | number | bigint>>>;
}

/** Flags and property list as a broker sends them. */
export function propertyBytes({ headers, properties = {} }: Pick<Parts, 'headers' | 'properties'>): Buffer {
  let flags = 0;
  const list: Buffer[] = [];
  for (const [name, flag] of Object.entries(FLAG)) {
    const value = name === 'headers' ? headers : properties[name as keyof typeof FLAG];
    if (value === undefined) continue;
    flags |= flag;
    list.push(propertyValue(name, value));
  }
  const head = Buffer.alloc(2);
  head.writeUInt16BE(flags);
  return Buffer.concat([head, ...list]);
}

function propertyValue(
  name: string,
  value: NonNullable<Parts['headers']> | string | number | bigint,
): Buffer {
  if (name === 'headers') {
    const table = Buffer.isBuffer(value)
      ? value
      : writeTable(
          Object.entries(value as Record<string, Field>).map(([key, field]) => ({ key, value: field })),
        );
    const length = Buffer.alloc(4);
    length.writeUInt32BE(table.length);
    return Buffer.concat([length, table]);
  }
  if (name === 'deliveryMode' || name === 'priority') return Buffer.of(Number(value));
  if (name === 'timestamp') {
    const bytes = Buffer.alloc(8);
    bytes.writeBigUInt64BE(BigInt(value as number));
    return bytes;
  }
  const bytes = Buffer.from(String(value));
  return Buffer.concat([Buffer.of(bytes.length), bytes]);
}

export function rawDelivery(parts: Parts = {}): RawDelivery {
  const { queue = 'work', exchange = '', routingKey = queue, redelivered = false, body = '{}' } = parts;
  return {
    ...{ queue, exchange, routingKey, redelivered, deliveryTag: 1, propertyBytes: propertyBytes(parts) },
    body: Buffer.isBuffer(body) ? body : Buffer.from(body),
  };
}

export const delivery = (parts: Parts = {}) => readDelivery(rawDelivery(parts));

export const NOW_MS = Date.parse('2026-03-01T12:00:00Z');

export interface MapOptions {
  readonly facts?: Partial<QueueFacts>;
  readonly rules?: readonly DrainRule[];
  readonly trustDeliveryCount?: boolean;
  readonly careful?: boolean;
}

/** Maps one delivery; a rule gives every queue the kind `k` unless rules are given. */
export function map(parts: Parts, options: MapOptions = {}): Mapped & { job: NonNullable<Mapped['job']> } {
  const {
    facts,
    rules = [{ match: { queue: '*' }, kind: 'k' }],
    trustDeliveryCount = true,
    careful = true,
  } = options;
  const queue = { name: parts.queue ?? 'work', role: 'main' as const, ttlMs: null, feeders: [], ...facts };
  const mapped = mapDelivery(delivery(parts), queue, {
    ...{ source: sourceOf('/', '7'), rules: compileRules(rules), nowMs: NOW_MS, trustDeliveryCount, careful },
  });
  return mapped as Mapped & { job: NonNullable<Mapped['job']> };
}
