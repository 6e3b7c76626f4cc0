/**
 * Reads frames off the client's connection where they lie, and leaves the property bytes of content headers alone: the
 * client's own decoder loses what a header table may hold and dies on some of it. Three frames make a message, so this is
 * also where most of the client's work was. It refuses to know what a message means.
 */
import { isText } from './headers.js';

/** The parts of the client's connection that the reader touches. */
export interface FramedConnection {
  readonly rest: Buffer;
  readonly maxFrameSize: number;
  recvSinceLastCheck: boolean;
  readonly stream: { read(): Buffer | null; destroy(): unknown };
  recvFrame(): unknown;
}

/** What stands in for decoded properties in the client's messages. */
export interface KeptProperties {
  readonly propertyBytes: Buffer;
}

/** A frame as the client cuts it out. */
export interface CutFrame {
  readonly type: number;
  readonly channel: number;
  readonly payload: Buffer;
}

const HEAD_BYTES = 7;
const FRAME_END = 0xce;
const [METHOD, HEADER, BODY] = [1, 2, 3];
/** Class and method of basic.deliver. */
const DELIVER = 0x3c_003c;
/** Class, weight and body size come before flags and property list. */
export const PROPERTIES_AT = 12;

/**
 * Replaces the connection's frame reader. Per connection rather than in the codec: it then works whoever loaded the client
 * first, and changes nothing for others in the process. `decode` is the client's own, for frames that are not a message's.
 */
export function readFramesInPlace(connection: FramedConnection, decode: (frame: CutFrame) => unknown): void {
  const deliveries = new DeliverDecoder();
  let bytes = connection.rest;
  let at = 0;
  const next = (): unknown => {
    if (bytes.length - at <= HEAD_BYTES) return undefined;
    const size = bytes.readUInt32BE(at + 3);
    const { maxFrameSize } = connection;
    if (maxFrameSize > 0 && size > maxFrameSize) {
      throw new Error(`Frame size ${size} exceeds maxFrameSize ${maxFrameSize}`);
    }
    const start = at + HEAD_BYTES;
    const end = start + size;
    if (end >= bytes.length) return undefined;
    if (bytes[end] !== FRAME_END) throw new Error('Invalid frame');
    const type = bytes[at] as number;
    const channel = bytes.readUInt16BE(at + 1);
    at = end + 1;
    if (type === BODY) return { channel, content: bytes.subarray(start, end) };
    if (type === HEADER) return contentHeader(bytes, start, end, channel);
    if (type === METHOD && bytes.readUInt32BE(start) === DELIVER) {
      return { id: DELIVER, channel, fields: deliveries.read(bytes, start + 4) };
    }
    return decode({ type, channel, payload: bytes.subarray(start, end) });
  };
  connection.recvFrame = () => {
    for (;;) {
      const frame = next();
      if (frame !== undefined) return frame;
      const incoming = connection.stream.read();
      if (incoming === null) return false;
      connection.recvSinceLastCheck = true;
      bytes = at === bytes.length ? incoming : Buffer.concat([bytes.subarray(at), incoming]);
      at = 0;
    }
  };
}

function contentHeader(bytes: Buffer, start: number, end: number, channel: number) {
  const fields: KeptProperties = { propertyBytes: bytes.subarray(start + PROPERTIES_AT, end) };
  const size = bytes.readUInt32BE(start + 4) * 2 ** 32 + bytes.readUInt32BE(start + 8);
  return { id: bytes.readUInt16BE(start), channel, size, fields };
}

/** As the client has them. */
export interface DeliverFields {
  readonly consumerTag: string;
  readonly deliveryTag: number;
  readonly redelivered: boolean;
  readonly exchange: string;
  readonly routingKey: string;
}

class DeliverDecoder {
  /** Consumer, exchange and routing key of the message before: nearly always the same, and comparing costs less than decoding. */
  readonly #last = ['', '', ''];

  /** `at`: behind class and method. */
  read(bytes: Buffer, at: number): DeliverFields {
    const tagAt = at + 1 + (bytes[at] as number);
    const exchangeAt = tagAt + 10;
    const keyAt = exchangeAt + (bytes[exchangeAt - 1] as number) + 1;
    return {
      consumerTag: this.#text(0, bytes, at + 1, tagAt),
      deliveryTag: bytes.readUInt32BE(tagAt) * 2 ** 32 + bytes.readUInt32BE(tagAt + 4),
      redelivered: ((bytes[tagAt + 8] as number) & 1) === 1,
      exchange: this.#text(1, bytes, exchangeAt, keyAt - 1),
      routingKey: this.#text(2, bytes, keyAt, keyAt + (bytes[keyAt - 1] as number)),
    };
  }

  #text(which: number, bytes: Buffer, start: number, end: number): string {
    const last = this.#last[which] as string;
    if (isText(bytes, start, end, last)) return last;
    const text = bytes.toString('utf8', start, end);
    // Others have more bytes than characters, and cannot be compared like that.
    this.#last[which] = /^[ -~]*$/.test(text) ? text : '';
    return text;
  }
}
