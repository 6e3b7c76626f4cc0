/** The frame reader beside the client's own: the same frames out of any cuts, and property bytes as they came. */
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { expect, test } from 'vitest';
import {
  type CutFrame,
  type FramedConnection,
  readFramesInPlace,
} from '../../adapters/rabbitmq/frame-reader.js';

interface ClientFrames {
  parseFrame(bytes: Buffer, max: number): (CutFrame & { readonly rest: Buffer }) | false;
  decodeFrame(frame: CutFrame): unknown;
  makeBodyFrame(channel: number, payload: Buffer): Buffer;
  readonly HEARTBEAT_BUF: Buffer;
}

interface ClientMethods {
  readonly BasicDeliver: number;
  readonly BasicProperties: number;
  readonly QueueDeclareOk: number;
  encodeMethod(id: number, channel: number, fields: object): Buffer;
  encodeProperties(id: number, channel: number, size: number, fields: object): Buffer;
}

const requireFrom = createRequire(import.meta.url);
const folder = join(dirname(requireFrom.resolve('amqplib')), 'lib');
const frames = requireFrom(join(folder, 'frame.js')) as ClientFrames;
const methods = requireFrom(join(folder, 'defs.js')) as ClientMethods;

function read(bytes: Buffer, cut: number, maxFrameSize = 131_072): unknown[] {
  let at = 0;
  const connection: FramedConnection = {
    ...{ rest: Buffer.alloc(0), maxFrameSize, recvSinceLastCheck: false, recvFrame: () => undefined },
    stream: {
      destroy: () => undefined,
      read() {
        const piece = bytes.subarray(at, at + cut);
        at += cut;
        return piece.length === 0 ? null : piece;
      },
    },
  };
  readFramesInPlace(connection, frames.decodeFrame);
  const found: unknown[] = [];
  for (let frame = connection.recvFrame(); frame !== false; frame = connection.recvFrame()) found.push(frame);
  return found;
}

/** By the client, but for the properties. */
function readByClient(bytes: Buffer): unknown[] {
  const found: unknown[] = [];
  for (let rest = bytes; ; ) {
    const frame = frames.parseFrame(rest, 0);
    if (frame === false) return found;
    rest = frame.rest;
    const { type, channel, payload } = frame;
    found.push(
      type === 2
        ? {
            id: 60,
            channel,
            size: Number(payload.readBigUInt64BE(4)),
            fields: { propertyBytes: payload.subarray(12) },
          }
        : frames.decodeFrame(frame),
    );
  }
}

const message = (n: number, fields: object = {}): Buffer[] => [
  methods.encodeMethod(methods.BasicDeliver, 1 + (n % 3), {
    ...{ consumerTag: 'tag', deliveryTag: 1 + n * 2 ** 31, redelivered: n % 2 === 0 },
    ...{ exchange: '', routingKey: 'key', ...fields },
  }),
  methods.encodeProperties(methods.BasicProperties, 1 + (n % 3), n, { contentType: 'a/b', headers: { n } }),
  frames.makeBodyFrame(1 + (n % 3), Buffer.alloc(n * 7, n)),
];

const STREAM = Buffer.concat([
  ...message(0),
  ...message(1, { exchange: 'é', routingKey: 'k\u00e9y' }),
  ...message(1, { exchange: 'é', routingKey: 'k\u00e9y' }),
  // As many bytes as the two before have, and not the same texts.
  ...message(2, { exchange: 'xy', routingKey: 'k\u00e8y' }),
  frames.HEARTBEAT_BUF,
  ...message(3, { consumerTag: 'other', exchange: 'e'.repeat(255) }),
  methods.encodeMethod(methods.QueueDeclareOk, 2, { queue: 'q', messageCount: 7, consumerCount: 1 }),
  ...Array.from({ length: 60 }, (_, n) => message(n)).flat(),
]);

test.each([1, 5, 64, 4_096, STREAM.length])(
  'pieces of %i bytes give the frames that the client reads',
  (cut) => {
    expect(read(STREAM, cut)).toEqual(readByClient(STREAM));
  },
);

test('a frame that is too large or does not end is refused', () => {
  expect(() => read(STREAM, STREAM.length, 16)).toThrow('exceeds maxFrameSize 16');
  const broken = Buffer.from(STREAM);
  const [deliver] = message(0) as [Buffer];
  broken[deliver.length - 1] = 0;
  expect(() => read(broken, STREAM.length)).toThrow('Invalid frame');
});
