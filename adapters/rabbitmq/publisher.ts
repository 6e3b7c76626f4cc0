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
    readonly channels: readonly { readonly buffer: { write(bytes: Buffer): unknown } }[];
    sentSinceLastCheck: boolean;
    sendContent(channel: number, body: Buffer): unknown;
  };
  sendImmediately(method: number, fields: object): void;
  pushConfirmCallback(callback: (error: Error | null) => void): void;
  assertExchange(name: string, type: string, options: object): Promise<unknown>;
  bindQueue(queue: string, exchange: string, key: string): Promise<unknown>;
  deleteExchange(name: string): Promise<unknown>;
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

/** Of basic.publish, class and method. */
const BASIC_PUBLISH = 0x003c_0028;
const HEADER_FRAME = 2;
const BASIC_CLASS = 60;
const FRAME_END = 0xce;
/** Class, weight and body size. */
export const CONTENT_HEAD_BYTES = 12;
const FRAME_HEAD_BYTES = 7;

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
  let failure: Error | undefined;
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
      const entry: Outstanding = { message, returned: false };
      outstanding.add(entry);
      return new Promise((resolve, reject) => {
        send(channel, message);
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

function send(channel: ConfirmingChannel, { exchange, routingKey, propertyBytes, body }: RawMessage): void {
  const { ch, connection } = channel;
  channel.sendImmediately(BASIC_PUBLISH, {
    ticket: 0,
    exchange,
    routingKey,
    mandatory: true,
    immediate: false,
  });
  connection.channels[ch]?.buffer.write(headerFrame(ch, propertyBytes, body.length));
  connection.sendContent(ch, body);
}

function headerFrame(channel: number, propertyBytes: Buffer, bodyBytes: number): Buffer {
  const payloadBytes = CONTENT_HEAD_BYTES + propertyBytes.length;
  const frame = Buffer.alloc(FRAME_HEAD_BYTES + payloadBytes + 1);
  frame[0] = HEADER_FRAME;
  frame.writeUInt16BE(channel, 1);
  frame.writeUInt32BE(payloadBytes, 3);
  frame.writeUInt16BE(BASIC_CLASS, FRAME_HEAD_BYTES);
  frame.writeBigUInt64BE(BigInt(bodyBytes), FRAME_HEAD_BYTES + 4);
  propertyBytes.copy(frame, FRAME_HEAD_BYTES + CONTENT_HEAD_BYTES);
  frame[frame.length - 1] = FRAME_END;
  return frame;
}
