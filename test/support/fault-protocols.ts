/** How the fault proxy reads the two protocols: a stream cut into messages, each with where it began. It changes no byte. */

export interface WireMessage {
  /** Where it began in the chunk that completed it; negative: in an earlier one. */
  readonly at: number;
  /** Postgres: the type letter ('' for the first). AMQP: class and method, `60.80`; '' for other frames. */
  readonly type: string;
  readonly body: Buffer;
}

export interface Reader {
  push(chunk: Buffer): WireMessage[];
}

export function readerFor(protocol: string, fromClient: boolean): Reader {
  return /^amqp/.test(protocol) ? new AmqpFrames(fromClient) : new PostgresMessages(fromClient);
}

interface Cut {
  readonly length: number;
  readonly type: string;
  readonly body: Buffer;
}

abstract class Cutter implements Reader {
  #rest: Buffer = Buffer.alloc(0);

  push(chunk: Buffer): WireMessage[] {
    let at = -this.#rest.length;
    this.#rest = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    const messages: WireMessage[] = [];
    for (;;) {
      const next = this.cut(this.#rest);
      if (next === undefined) return messages;
      messages.push({ at, type: next.type, body: next.body });
      at += next.length;
      this.#rest = this.#rest.subarray(next.length);
    }
  }

  /** The message at the beginning; undefined while it is not complete. */
  protected abstract cut(bytes: Buffer): Cut | undefined;
}

/** A type byte and a length; the client's first message has no type. */
class PostgresMessages extends Cutter {
  constructor(private startup: boolean) {
    super();
  }

  protected cut(bytes: Buffer): Cut | undefined {
    const header = this.startup ? 0 : 1;
    if (bytes.length < header + 4) return undefined;
    const length = header + bytes.readUInt32BE(header);
    if (bytes.length < length) return undefined;
    const type = this.startup ? '' : String.fromCharCode(bytes[0] as number);
    this.startup = false;
    return { length, type, body: bytes.subarray(header + 4, length) };
  }
}

const METHOD = 1;
const PROTOCOL_HEADER_BYTES = 8;
const FRAME_HEAD_BYTES = 7;

/** Type, channel, length, payload, end; the client's first eight bytes name the protocol. */
class AmqpFrames extends Cutter {
  constructor(private startup: boolean) {
    super();
  }

  protected cut(bytes: Buffer): Cut | undefined {
    if (this.startup) {
      if (bytes.length < PROTOCOL_HEADER_BYTES) return undefined;
      this.startup = false;
      return { length: PROTOCOL_HEADER_BYTES, type: '', body: bytes.subarray(0, 0) };
    }
    if (bytes.length < FRAME_HEAD_BYTES) return undefined;
    const length = FRAME_HEAD_BYTES + bytes.readUInt32BE(3) + 1;
    if (bytes.length < length) return undefined;
    const body = bytes.subarray(FRAME_HEAD_BYTES, length - 1);
    const type = bytes[0] === METHOD ? `${body.readUInt16BE(0)}.${body.readUInt16BE(2)}` : '';
    return { length, type, body };
  }
}
