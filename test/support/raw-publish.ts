/** Publishes a message whose property bytes no client would write. It leans on the client's insides, like the drain itself. */
import type { ConfirmChannel } from 'amqplib';

/** The parts of the client that hand-made frames need. */
interface Internals {
  readonly ch: number;
  readonly connection: {
    readonly channels: readonly { readonly buffer: { write(bytes: Buffer): void } }[];
  };
  pushConfirmCallback(callback: (error: Error | null) => void): void;
}

const METHOD = 1;
const HEADER = 2;
const BODY = 3;
const BASIC = 60;
const PUBLISH = 40;
/** Below the frame size that the client agrees on with any broker. */
const MAX_BODY_FRAME = 100_000;

/** To a queue, with exactly these property bytes (flags and list); resolves when confirmed. */
export function publishRaw(
  channel: ConfirmChannel,
  queue: string,
  propertyBytes: Buffer,
  body: Buffer,
): Promise<void> {
  const { ch, connection: wire } = channel as unknown as Internals;
  const frames = [
    frame(METHOD, ch, publishMethod(queue)),
    frame(HEADER, ch, contentHeader(propertyBytes, body)),
  ];
  for (let at = 0; at < body.length; at += MAX_BODY_FRAME) {
    frames.push(frame(BODY, ch, body.subarray(at, at + MAX_BODY_FRAME)));
  }
  return new Promise((resolve, reject) => {
    (channel as unknown as Internals).pushConfirmCallback((error) => (error ? reject(error) : resolve()));
    // In one piece: nothing else may come between them.
    wire.channels[ch]?.buffer.write(Buffer.concat(frames));
  });
}

function publishMethod(queue: string): Buffer {
  const key = Buffer.from(queue);
  const head = Buffer.alloc(7);
  head.writeUInt16BE(BASIC, 0);
  head.writeUInt16BE(PUBLISH, 2);
  // What remains of it is zero: no ticket, the default exchange.
  return Buffer.concat([head, Buffer.of(key.length), key, Buffer.of(0)]);
}

function contentHeader(propertyBytes: Buffer, body: Buffer): Buffer {
  const head = Buffer.alloc(12);
  head.writeUInt16BE(BASIC, 0);
  head.writeBigUInt64BE(BigInt(body.length), 4);
  return Buffer.concat([head, propertyBytes]);
}

function frame(type: number, channel: number, payload: Buffer): Buffer {
  const head = Buffer.alloc(7);
  head[0] = type;
  head.writeUInt16BE(channel, 1);
  head.writeUInt32BE(payload.length, 3);
  return Buffer.concat([head, payload, Buffer.of(0xce)]);
}
