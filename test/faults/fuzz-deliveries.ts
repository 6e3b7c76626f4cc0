/** Deliveries that nobody sane would publish, from a seed: any bytes in any field, every tag, tables in tables, marks of libraries. */
import { gzipSync } from 'node:zlib';
import type { Field } from '../../adapters/rabbitmq/headers.js';
import { type Parts, propertyBytes, READ_BY_THE_BROKER } from '../unit/delivery-builder.js';

/** `wire`: only what RabbitMQ takes from a publisher; the rest closes its connection. */
export type Audience = 'reader' | 'wire';

export interface FuzzedDelivery {
  readonly propertyBytes: Buffer;
  readonly body: Buffer;
}

/** What dialects, broker and mapping look for. */
const NAMES = [
  ...['x-death', 'x-delay', 'x-delivery-count', 'timestamp_in_ms', 'task', 'id', 'eta', 'retries', 'expires'],
  ...[
    'timelimit',
    'MT-Redelivery-Count',
    'MT-Fault-Message',
    'NServiceBus.EnclosedMessageTypes',
    '__TypeId__',
  ],
  ...['NServiceBus.TimeSent', 'rbs2-msg-type', 'cap-msg-name', 'cap-delaytime', 'message-type', 'attempts'],
  ...['time-to-send', 'cloudEvents:type', 'laravel', 'type', 'X-Message-Stamp-X', 'rascal', 'retry_info'],
  ...['_watermill_message_uuid', 'sequence_end', 'x-retry-count', 'x-original-queue', 'x-schedule-id'],
  ...['traceparent', 'baggage', '__proto__', 'constructor', '', 'x-first-death-queue', 'x-retry-due'],
];
const TEXTS = [
  '{"task":"t","id":"i","args":[],"kwargs":{}}',
  '{"actor_name":"a","message_id":"m","args":[],"kwargs":{},"options":{"eta":1e300}}',
  '{"UUID":"u","Name":"n","Args":[],"RetryCount":-1,"OnSuccess":null}',
  '{"pattern":{"b":1,"a":{}},"data":null}',
  '{"messageType":["urn:message:N:T"],"message":{},"messageId":0}',
  '{"Message":"{}","Exception":"e","BasicProperties":{}}',
  '{"displayName":"j","job":"x","data":{}}',
  '{"payload":"e30=","num_attempts":3}',
  '[[],{},{"chord":{}}]',
  '{"a":"x\\u0000y"}',
  '{"a":"\\ud800"}',
  '{"n":1e140000}',
  '{"n":NaN}',
  'null',
  '"',
  '',
];

export class DeliveryFuzz {
  constructor(
    /** In [0, 1). */
    private readonly random: () => number,
    private readonly audience: Audience,
  ) {}

  /** `id` as message id, when there is to be one. */
  next(id: string | undefined): FuzzedDelivery {
    const { audience } = this;
    const maybe = <T>(make: () => T): T | undefined => (this.#below(3) === 0 ? make() : undefined);
    const properties: Record<string, string | number | bigint | undefined> = {
      contentType: maybe(() => this.#word()),
      contentEncoding: maybe(() => this.#one(['gzip', 'utf8', 'br', 'gzip:UTF-8', this.#word()])),
      deliveryMode: audience === 'wire' ? 2 : maybe(() => this.#below(256)),
      priority: maybe(() => this.#below(256)),
      correlationId: maybe(() => this.#word()),
      replyTo: maybe(() => this.#one(['amq.rabbitmq.reply-to.x', 'amq.gen-x', this.#word()])),
      expiration:
        audience === 'wire' ? undefined : maybe(() => this.#one(['60s', '-1', '1e9', this.#word()])),
      messageId: id ?? maybe(() => this.#word()),
      timestamp: maybe(() => BigInt(this.#below(2 ** 31)) ** BigInt(1 + this.#below(2))),
      type: maybe(() => this.#word()),
      userId: audience === 'wire' ? undefined : maybe(() => this.#word()),
      appId: maybe(() => this.#word()),
      clusterId: maybe(() => this.#word()),
    };
    const present = Object.fromEntries(Object.entries(properties).filter(([, value]) => value !== undefined));
    const headers = this.#below(4) === 0 ? undefined : this.#table(2);
    const bytes = propertyBytes({
      properties: present as NonNullable<Parts['properties']>,
      ...(headers === undefined ? {} : { headers }),
    });
    return { propertyBytes: audience === 'reader' ? this.#mangled(bytes) : bytes, body: this.#body() };
  }

  #below(limit: number): number {
    return Math.floor(this.random() * limit);
  }

  #one<T>(items: readonly T[]): T {
    return items[this.#below(items.length)] as T;
  }

  #bytes(most: number): Buffer {
    return Buffer.from(Array.from({ length: this.#below(most + 1) }, () => this.#below(256)));
  }

  #word(): string {
    return this.#one([
      '',
      'application/json',
      'Ns.Type, Assembly',
      'é\u0000x',
      '\ud83d',
      this.#bytes(60).toString('latin1'),
    ]);
  }

  #body(): Buffer {
    const text = Buffer.from(this.#one(TEXTS));
    switch (this.#below(5)) {
      case 0:
        return this.#bytes(200);
      case 1:
        return gzipSync(text);
      case 2:
        // JSON with a byte of it changed.
        if (text.length > 0) text[this.#below(text.length)] = this.#below(256);
        return text;
      case 3:
        return Buffer.from(JSON.stringify({ n: this.random(), s: this.#word(), deep: [[[{}]]] }));
      default:
        return text;
    }
  }

  /** The fields of a table; names repeat and need not be text. */
  #table(depth: number): Buffer {
    const entries = Array.from({ length: this.#below(5) }, () => {
      const named = this.#below(3) > 0 ? Buffer.from(this.#one(NAMES)) : this.#bytes(20);
      const read = this.audience === 'wire' && READ_BY_THE_BROKER.has(named.toString('latin1'));
      const key = read ? Buffer.from('k') : named;
      return Buffer.concat([Buffer.of(key.length), key, this.#field(depth)]);
    });
    return Buffer.concat(entries);
  }

  #field(depth: number): Buffer {
    const tags: readonly Field['tag'][] = [
      'S',
      'x',
      'I',
      'i',
      's',
      'u',
      'b',
      'B',
      'd',
      'f',
      'l',
      'L',
      'T',
      'D',
      't',
      'V',
    ];
    const tag = depth > 0 && this.#below(4) === 0 ? this.#one(['A', 'F'] as const) : this.#one(tags);
    const width = { I: 4, i: 4, s: 2, u: 2, b: 1, B: 1, l: 8, L: 8, T: 8, D: 5, t: 1, V: 0 };
    const head = Buffer.from(tag);
    const sized = (content: Buffer): Buffer => {
      const length = Buffer.alloc(4);
      length.writeUInt32BE(content.length);
      return Buffer.concat([head, length, content]);
    };
    switch (tag) {
      case 'S':
      case 'x':
        return sized(
          this.#below(2) === 0 ? this.#bytes(30) : Buffer.from(this.#one([...TEXTS, this.#word()])),
        );
      case 'A':
        return sized(Buffer.concat(Array.from({ length: this.#below(4) }, () => this.#field(depth - 1))));
      case 'F':
        return sized(this.#table(depth - 1));
      case 'd':
      case 'f':
        return Buffer.concat([head, this.#float(tag)]);
      default: {
        const content = Buffer.from(
          Array.from({ length: width[tag as keyof typeof width] }, () => this.#below(256)),
        );
        return Buffer.concat([head, content]);
      }
    }
  }

  /** RabbitMQ closes the connection of who publishes a NaN or an infinity: only our reader gets them. */
  #float(tag: 'd' | 'f'): Buffer {
    const bytes = Buffer.alloc(tag === 'd' ? 8 : 4);
    const odd = [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
    const plain = [0, -0, 1.1, 5e-324, 1e30, this.random()];
    const value = this.#one(this.audience === 'wire' ? plain : [...plain, ...odd]);
    if (tag === 'd') bytes.writeDoubleBE(value);
    else bytes.writeFloatBE(value);
    return bytes;
  }

  /** One in four is cut, or has bytes changed. */
  #mangled(bytes: Buffer): Buffer {
    switch (this.#below(8)) {
      case 0:
        return bytes.subarray(0, this.#below(bytes.length + 1));
      case 1: {
        const changed = Buffer.from(bytes);
        for (let times = 0; times <= this.#below(4); times += 1) {
          if (changed.length > 0) changed[this.#below(changed.length)] = this.#below(256);
        }
        return changed;
      }
      default:
        return bytes;
    }
  }
}
