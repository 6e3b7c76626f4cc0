/**
 * Rows in the binary format of COPY, written one value after the other into a few large buffers. Thousands of rows that
 * wait for their transaction are then bytes and not objects: as objects they cost more to keep, for the garbage
 * collector, than to make. Pure; it knows no table.
 */

import type { Json } from './job.js';

/** Where a row lies. It is never written to again but by who puts late values into it, until it is handed to `reuse`. */
export interface WrittenRow {
  readonly bytes: Buffer;
  readonly start: number;
  readonly end: number;
}

const [QUOTE, BACKSLASH, COMMA, COLON] = [0x22, 0x5c, 0x2c, 0x3a];
const [OPEN, CLOSE, OPEN_LIST, CLOSE_LIST] = [0x7b, 0x7d, 0x5b, 0x5d];
const SEGMENT_BYTES = 1_048_576;
/** Up to this length a loop over ASCII characters is cheaper than a call out of JavaScript. */
const SHORT = 48;
/** 2000-01-01, where the clock of the server begins, in epoch ms. */
const SERVER_EPOCH_MS = 946_684_800_000;
/** Below this length room is made for three bytes a character; above it they are counted. */
const LONG = 16_384;
/** What usually comes after a large value in its row. */
const AND_THE_REST = 4_096;
/** Buffers that wait to be written again: more than a thousand rows of a kilobyte fill. */
const MAX_FREE = 4;

/** `PGCOPY`, its marks against mangled line ends, no flags, no extension. */
export const COPY_HEADER = Buffer.from('5047434f50590aff0d0a000000000000000000', 'hex');
export const COPY_TRAILER = Buffer.from('ffff', 'hex');
/** Within a row: the number of its fields, two bytes. */
export const FIELDS_BYTES = 2;
/** Before each value. */
export const LENGTH_BYTES = 4;

export class CopyRows {
  #bytes: Buffer;
  #at = 0;
  #start = 0;
  /** Where the last row lies that was handed back. */
  #done: Buffer | undefined;
  readonly #free: Buffer[] = [];

  constructor(private readonly segmentBytes = SEGMENT_BYTES) {
    this.#bytes = Buffer.allocUnsafeSlow(segmentBytes);
  }

  begin(fields: number): void {
    this.#start = this.#at;
    this.#need(FIELDS_BYTES);
    this.#at = this.#bytes.writeInt16BE(fields, this.#at);
  }

  end(): WrittenRow {
    return { bytes: this.#bytes, start: this.#start, end: this.#at };
  }

  /**
   * Nobody looks at these rows any more. All rows come here, in the order in which they were written: a buffer is written again
   * once a row behind it comes. Left to the garbage collector, buffers call it: of 100,000 messages of 1 KB a drain
   * had 14 to 23 full collections instead of 5 to 8, and held 30 MB more.
   */
  reuse(rows: readonly WrittenRow[]): void {
    for (const { bytes } of rows) {
      if (bytes === this.#done) continue;
      const free = this.#done;
      this.#done = bytes;
      if (free?.length === this.segmentBytes && this.#free.length < MAX_FREE) this.#free.push(free);
    }
  }

  none(): void {
    this.#need(LENGTH_BYTES);
    this.#int32(-1);
  }

  boolean(value: boolean): void {
    this.#value(1);
    this.#bytes[this.#at++] = value ? 1 : 0;
  }

  int2(value: number): void {
    this.#value(2);
    this.#at = this.#bytes.writeInt16BE(value, this.#at);
  }

  int4(value: number): void {
    this.#value(4);
    this.#int32(value);
  }

  /** Eight bytes that must be put in before the row is sent: an id, a time of the server's. */
  later(): void {
    this.#value(8);
    this.#at += 8;
  }

  /** A timestamptz; `ms` since 1970. */
  time(ms: number): void {
    this.#value(8);
    const us = BigInt(Math.round(ms) - SERVER_EPOCH_MS) * 1_000n;
    this.#at = this.#bytes.writeBigInt64BE(us, this.#at);
  }

  bytes(value: Buffer | null): void {
    if (value === null) {
      this.none();
      return;
    }
    this.#value(value.length);
    this.#bytes.set(value, this.#at);
    this.#at += value.length;
  }

  /** Text of one character a byte, as bytes. */
  latin1(value: string): void {
    this.#value(value.length);
    this.#at += this.#bytes.write(value, this.#at, 'latin1');
  }

  text(value: string | null): void {
    if (value === null) this.none();
    else this.#lengthed(value);
  }

  /** JSON text as jsonb takes it: the version of the format before it. */
  json(text: string | null): void {
    if (text === null) {
      this.none();
      return;
    }
    this.#need(LENGTH_BYTES + 1 + mostBytes(text));
    const lengthAt = this.#at;
    this.#at += LENGTH_BYTES;
    this.#bytes[this.#at++] = 1;
    this.#at += this.#bytes.write(text, this.#at);
    putInt32(this.#bytes, lengthAt, this.#at - lengthAt - LENGTH_BYTES);
  }

  /** A value as jsonb takes it, the text that JSON.stringify makes of it written byte by byte. */
  jsonValue(value: Json): void {
    this.#need(LENGTH_BYTES + 1);
    // From the start of the row, which may move to another buffer.
    const lengthAt = this.#at - this.#start;
    this.#at += LENGTH_BYTES;
    this.#bytes[this.#at++] = 1;
    this.#json(value);
    const from = this.#start + lengthAt;
    putInt32(this.#bytes, from, this.#at - from - LENGTH_BYTES);
  }

  #json(value: Json): void {
    if (typeof value === 'string') this.#quoted(value);
    else if (typeof value !== 'object' || value === null) this.#raw(JSON.stringify(value));
    else if (Array.isArray(value)) {
      this.#byte(OPEN_LIST);
      for (let index = 0; index < value.length; index += 1) {
        if (index > 0) this.#byte(COMMA);
        this.#json(value[index] ?? null);
      }
      this.#byte(CLOSE_LIST);
    } else this.#members(value as Readonly<Record<string, Json | undefined>>);
  }

  #members(value: Readonly<Record<string, Json | undefined>>): void {
    this.#byte(OPEN);
    let first = true;
    for (const name of Object.keys(value)) {
      const member = value[name];
      if (member === undefined) continue;
      if (!first) this.#byte(COMMA);
      first = false;
      this.#quoted(name);
      this.#byte(COLON);
      this.#json(member);
    }
    this.#byte(CLOSE);
  }

  /** Nearly all of it is plain ASCII; whatever needs an escape is left to JSON.stringify. */
  #quoted(text: string): void {
    const { length } = text;
    this.#need(length + 2);
    const bytes = this.#bytes;
    let at = this.#at;
    bytes[at++] = QUOTE;
    for (let index = 0; index < length; index += 1) {
      const code = text.charCodeAt(index);
      if (code < 0x20 || code > 0x7e || code === QUOTE || code === BACKSLASH) {
        this.#raw(JSON.stringify(text));
        return;
      }
      bytes[at++] = code;
    }
    bytes[at++] = QUOTE;
    this.#at = at;
  }

  #raw(text: string): void {
    this.#need(mostBytes(text));
    this.#at += this.#bytes.write(text, this.#at);
  }

  #byte(byte: number): void {
    this.#need(1);
    this.#bytes[this.#at++] = byte;
  }

  #lengthed(value: string): void {
    this.#need(LENGTH_BYTES + mostBytes(value));
    const lengthAt = this.#at;
    let at = lengthAt + LENGTH_BYTES;
    const bytes = this.#bytes;
    let ascii = value.length <= SHORT;
    for (let index = 0; ascii && index < value.length; index += 1) {
      const code = value.charCodeAt(index);
      ascii = code < 0x80;
      bytes[at++] = code;
    }
    if (!ascii) at = lengthAt + LENGTH_BYTES + this.#bytes.write(value, lengthAt + LENGTH_BYTES);
    putInt32(this.#bytes, lengthAt, at - lengthAt - LENGTH_BYTES);
    this.#at = at;
  }

  #value(bytes: number): void {
    this.#need(LENGTH_BYTES + bytes);
    this.#int32(bytes);
  }

  #int32(value: number): void {
    putInt32(this.#bytes, this.#at, value);
    this.#at += 4;
  }

  /** A row lies in one piece: what there is of it moves along when a new buffer begins. */
  #need(bytes: number): void {
    if (this.#at + bytes <= this.#bytes.length) return;
    const begun = this.#at - this.#start;
    const length = Math.max(this.segmentBytes, begun + bytes + AND_THE_REST);
    const free = length === this.segmentBytes ? this.#free.pop() : undefined;
    const next = free ?? Buffer.allocUnsafeSlow(length);
    this.#bytes.copy(next, 0, this.#start, this.#at);
    this.#bytes = next;
    this.#start = 0;
    this.#at = begun;
  }
}

/** Cheaper by hand than by the checked method, and called twenty times a message. */
export function putInt32(bytes: Buffer, at: number, value: number): void {
  bytes[at] = value >>> 24;
  bytes[at + 1] = value >>> 16;
  bytes[at + 2] = value >>> 8;
  bytes[at + 3] = value;
}

/** Eight bytes from one place to the other. */
export function putEight(bytes: Buffer, at: number, from: Buffer, fromAt: number): void {
  for (let index = 0; index < 8; index += 1) bytes[at + index] = from[fromAt + index] as number;
}

const mostBytes = (text: string): number => (text.length < LONG ? text.length * 3 : Buffer.byteLength(text));

/** What to send for these rows: rows that lie side by side in one piece. */
export function copyData(rows: readonly WrittenRow[]): Buffer[] {
  const parts: Buffer[] = [COPY_HEADER];
  let first: WrittenRow | undefined;
  let end = 0;
  for (const row of rows) {
    if (first !== undefined && row.bytes === first.bytes && row.start === end) end = row.end;
    else {
      if (first !== undefined) parts.push(first.bytes.subarray(first.start, end));
      first = row;
      end = row.end;
    }
  }
  if (first !== undefined) parts.push(first.bytes.subarray(first.start, end));
  parts.push(COPY_TRAILER);
  return parts;
}

/** The values of a row as they were written; null where there is none. */
export function fieldsOf(row: WrittenRow): (Buffer | null)[] {
  const fields: (Buffer | null)[] = [];
  const count = row.bytes.readInt16BE(row.start);
  let at = row.start + FIELDS_BYTES;
  for (let index = 0; index < count; index += 1) {
    const length = row.bytes.readInt32BE(at);
    at += LENGTH_BYTES;
    fields.push(length < 0 ? null : row.bytes.subarray(at, at + length));
    at += Math.max(length, 0);
  }
  return fields;
}
