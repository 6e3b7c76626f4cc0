/**
 * Publishes messages whose property bytes are given, byte for byte: the client's own encoder rounds, reorders and refuses
 * header tables over 64 KiB. Every message is mandatory and confirmed; what is unknown when the channel ends stays
 * unknown here. It knows the client's channel by the few parts that it uses.
 */

/** taken: confirmed and not returned. returned: no queue behind the exchange. refused: the queue said no. */
export type PublishOutcome = 'taken' | 'returned' | 'refused';

export interface RawMessage {
  readonly exchange: string;
  readonly routingKey: string;
  /** Flags and property list, as in a content header. */
  readonly propertyBytes: Buffer;
  readonly body: Buffer;
}

export interface Publisher {
  /** In the order of the calls. Rejects when the channel ends before the answer: nobody knows then. */
  publish(message: RawMessage): Promise<PublishOutcome>;
  /** An exchange that leads to this queue alone and vanishes with the broker or by `release`. */
  lead(exchange: string, queue: string): Promise<void>;
  release(exchange: string): Promise<void>;
}

/** What a confirm channel of the client has. */
export interface ConfirmingChannel {
  readonly ch: number;
  readonly connection: {
    readonly frameMax: number;
    readonly channels: readonly ({ readonly buffer: { write(bytes: Buffer): unknown } } | null)[];
    sentSinceLastCheck: boolean;
  };
  pushConfirmCallback(callback: (error: Error | null) => void): void;
  assertExchange(name: string, type: string, options: object): Promise<unknown>;
  bindQueue(queue: string, exchange: string, key: string): Promise<unknown>;
  deleteExchange(name: string): Promise<unknown>;
  on(event: 'close', listener: () => void): unknown;
  on(event: 'error', listener: (error: Error) => void): unknown;
  on(event: 'return', listener: (message: ReturnedMessage) => void): unknown;
}

interface ReturnedMessage {
  readonly content: Buffer;
  readonly properties: unknown;
}

interface Outstanding {
  readonly message: RawMessage;
  returned: boolean;
}

/** Class, weight and body size. */
export const CONTENT_HEAD_BYTES = 12;
/** What waits to be written at most: a batch goes out in a few writes, not three for each message. */
const MAX_WAITING_BYTES = 262_144;

interface PublisherParts {
  /** Reads what the frame hook left in a message (broker.ts). */
  propertiesOf(message: ReturnedMessage): Buffer;
  /** Limits the wait for an answer. A confirm is not one: whoever publishes knows how long it may take. */
  answered<T>(asked: Promise<T>): Promise<T>;
}

export function openPublisher(
  channel: ConfirmingChannel,
  { propertiesOf, answered }: PublisherParts,
): Publisher {
  const outstanding = new Set<Outstanding>();
  const wire = new Wire(channel);
  let failure: Error | undefined;
  let ended = false;
  channel.on('close', () => {
    ended = true;
  });
  channel.on('error', (error) => {
    failure = error;
  });
  // A return comes before its confirm and has no number: alike messages are interchangeable.
  channel.on('return', (back) => {
    const properties = propertiesOf(back);
    for (const each of outstanding) {
      const { message, returned } = each;
      if (returned || !message.body.equals(back.content) || !message.propertyBytes.equals(properties))
        continue;
      each.returned = true;
      return;
    }
  });
  return {
    publish(message) {
      // Its confirm would never come, nor would anybody say so.
      if (ended) return Promise.reject(failure ?? new Error('the channel is closed'));
      const entry: Outstanding = { message, returned: false };
      return new Promise((resolve, reject) => {
        wire.send(message);
        outstanding.add(entry);
        channel.pushConfirmCallback((error) => {
          outstanding.delete(entry);
          if (error === null) resolve(entry.returned ? 'returned' : 'taken');
          else if (/nack/.test(error.message)) resolve('refused');
          else reject(failure ?? error);
        });
      });
    },
    async lead(exchange, queue) {
      await answered(channel.assertExchange(exchange, 'fanout', { durable: false, autoDelete: true }));
      await answered(channel.bindQueue(queue, exchange, ''));
    },
    async release(exchange) {
      await answered(channel.deleteExchange(exchange));
    },
  };
}

const METHOD_FRAME = 1;
const HEADER_FRAME = 2;
const BODY_FRAME = 3;
const FRAME_END = 0xce;
const FRAME_HEAD_BYTES = 7;
const FRAME_BYTES = FRAME_HEAD_BYTES + 1;
const BASIC_CLASS = 60;
const PUBLISH_METHOD = 40;
const MANDATORY = 1;
const MAX_SHORT_BYTES = 255;

/** Frames of one channel in the order of the calls; what one turn of the loop sends is written together. */
class Wire {
  #waiting: Buffer[] = [];
  #bytes = 0;

  constructor(private readonly channel: ConfirmingChannel) {}

  send({ exchange, routingKey, propertyBytes, body }: RawMessage): void {
    const { frameMax } = this.channel.connection;
    this.#add(METHOD_FRAME, publishMethod(exchange, routingKey));
    this.#add(HEADER_FRAME, contentHead(body.length), propertyBytes);
    for (let at = 0; at < body.length; at += frameMax - FRAME_BYTES) {
      this.#add(BODY_FRAME, body.subarray(at, at + frameMax - FRAME_BYTES));
    }
    if (this.#bytes > MAX_WAITING_BYTES) this.#write();
  }

  #add(type: number, ...payload: readonly Buffer[]): void {
    const bytes = payload.reduce((sum, part) => sum + part.length, 0);
    const head = Buffer.allocUnsafe(FRAME_HEAD_BYTES);
    head[0] = type;
    head.writeUInt16BE(this.channel.ch, 1);
    head.writeUInt32BE(bytes, 3);
    if (this.#waiting.length === 0) queueMicrotask(() => this.#write());
    this.#waiting.push(head, ...payload, END);
    this.#bytes += bytes + FRAME_BYTES;
  }

  #write(): void {
    if (this.#waiting.length === 0) return;
    const { ch, connection } = this.channel;
    connection.channels[ch]?.buffer.write(Buffer.concat(this.#waiting));
    connection.sentSinceLastCheck = true;
    this.#waiting = [];
    this.#bytes = 0;
  }
}

const END = Buffer.of(FRAME_END);

/** basic.publish: class, method, a ticket of 0, exchange, routing key, flags. */
function publishMethod(exchange: string, routingKey: string): Buffer {
  const parts = [exchange, routingKey].map((text) => Buffer.from(text));
  if (parts.some(({ length }) => length > MAX_SHORT_BYTES))
    throw new RangeError('an exchange or a routing key is longer than 255 bytes');
  const head = Buffer.alloc(6);
  head.writeUInt16BE(BASIC_CLASS, 0);
  head.writeUInt16BE(PUBLISH_METHOD, 2);
  const texts = parts.flatMap((part) => [Buffer.of(part.length), part]);
  return Buffer.concat([head, ...texts, Buffer.of(MANDATORY)]);
}

function contentHead(bodyBytes: number): Buffer {
  const head = Buffer.alloc(CONTENT_HEAD_BYTES);
  head.writeUInt16BE(BASIC_CLASS, 0);
  head.writeBigUInt64BE(BigInt(bodyBytes), 4);
  return head;
}
