/**
 * The lossless reader and writer of an AMQP header table: every type tag that RabbitMQ accepts, in order, with repeated
 * keys and keys that are not UTF-8. It never throws on what a broker may hold and knows nothing of what a header
 * means. The client library rounds 64-bit integers, loses `__proto__` and dies on the tag `L`; hence this file.
 */
import { isUtf8 } from 'node:buffer';
import type { Json } from '../../src/jobs/job.js';

export type Field =
  /** Long string: bytes, customarily UTF-8. */
  | { readonly tag: 'S'; readonly bytes: Buffer }
  | { readonly tag: 'x'; readonly bytes: Buffer }
  /** int32, uint32, int16, uint16, int8, uint8. */
  | { readonly tag: 'I' | 'i' | 's' | 'u' | 'b' | 'B'; readonly value: number }
  /** double, float. */
  | { readonly tag: 'd' | 'f'; readonly value: number }
  /** int64; `L` is another client family's tag for the same. */
  | { readonly tag: 'l' | 'L'; readonly value: bigint }
  /** Timestamp, by the specification seconds. */
  | { readonly tag: 'T'; readonly value: bigint }
  /** digits / 10^scale; digits is signed (one client library reads it unsigned). */
  | { readonly tag: 'D'; readonly scale: number; readonly digits: number }
  | { readonly tag: 't'; readonly value: boolean }
  | { readonly tag: 'V' }
  | { readonly tag: 'A'; readonly items: readonly Field[] }
  | { readonly tag: 'F'; readonly entries: Table }
  /** What could not be read: an unknown tag, a cut table, or nesting past MAX_DEPTH. */
  | { readonly tag: '?'; readonly bytes: Buffer };

export interface Entry {
  readonly key: Buffer;
  /** Of an entry that was read: its key, one character a byte. */
  readonly name?: string;
  readonly value: Field;
  /** Key length, key, tag and value as they lay in the table: copying these is the lossless writer. */
  readonly raw: Buffer;
}

export type Table = readonly Entry[];

/** Tables within tables beyond this are kept as bytes: a hostile message must not exhaust the stack. */
export const MAX_DEPTH = 64;

const EMPTY: Table = [];

/**
 * An entry where it lies: key, value and raw bytes are cut out when somebody asks. Most headers of most messages are only
 * compared and copied, and a buffer object costs more than all the bytes of a header.
 */
class EntryInPlace implements Entry {
  #value: Field | undefined;

  constructor(
    readonly name: string,
    readonly bytes: Buffer,
    readonly start: number,
    /** Where the tag is; -1: the table ends within the key. */
    readonly tagAt: number,
    readonly end: number,
    private readonly depth: number,
  ) {}

  get key(): Buffer {
    return this.bytes.subarray(this.start + 1, this.start + 1 + this.name.length);
  }

  get raw(): Buffer {
    return this.bytes.subarray(this.start, this.end);
  }

  get value(): Field {
    this.#value ??= this.tagAt < 0 ? { tag: '?', bytes: this.raw } : this.#read();
    return this.#value;
  }

  #read(): Field {
    return readField(this.bytes, this.tagAt, this.depth).value;
  }
}

/** Names by their place in the table: message after message has the same, and comparing costs less than decoding. */
const lastNames: string[] = [];
const MAX_LAST_NAMES = 64;

function nameAt(bytes: Buffer, start: number, end: number, place: number): string {
  const last = lastNames[place];
  if (last !== undefined && isText(bytes, start, end, last)) return last;
  const name = bytes.toString('latin1', start, end);
  if (place < MAX_LAST_NAMES) lastNames[place] = name;
  return name;
}

/** True when these bytes are this text of one character a byte. */
export function isText(bytes: Buffer, start: number, end: number, text: string): boolean {
  if (end - start !== text.length) return false;
  for (let index = 0; index < text.length; index += 1) {
    if (text.charCodeAt(index) !== bytes[start + index]) return false;
  }
  return true;
}

/** Reads the fields of a table: its bytes without the leading length. */
export function readTable(bytes: Buffer): Table {
  return bytes.length === 0 ? EMPTY : readEntries(bytes, 0);
}

function readEntries(bytes: Buffer, depth: number): Entry[] {
  const entries: Entry[] = [];
  let offset = 0;
  while (offset < bytes.length) {
    const start = offset;
    const tagAt = start + 1 + (bytes[start] as number);
    const cut = tagAt >= bytes.length;
    offset = cut ? bytes.length : fieldEnd(bytes, tagAt);
    const name = cut ? '' : nameAt(bytes, start + 1, tagAt, entries.length);
    entries.push(new EntryInPlace(name, bytes, start, cut ? -1 : tagAt, offset, depth));
  }
  return entries;
}

/** Where the field ends whose tag is there: what cannot be read takes the rest. */
function fieldEnd(bytes: Buffer, tagAt: number): number {
  const width = WIDTH_OF_BYTE[bytes[tagAt] as number] as number;
  const start = tagAt + 1;
  if (width === UNKNOWN || (width < 0 && start + 4 > bytes.length)) return bytes.length;
  const end = width >= 0 ? start + width : start + 4 + bytes.readUInt32BE(start);
  return Math.min(end, bytes.length);
}

interface Read {
  readonly value: Field;
  readonly end: number;
}

/** Bytes after the tag; -1: a four-byte length and that many. */
const WIDTH: Readonly<Record<string, number>> = {
  ...{ S: -1, x: -1, A: -1, F: -1 },
  ...{ I: 4, i: 4, s: 2, u: 2, b: 1, B: 1, d: 8, f: 4, l: 8, L: 8, T: 8, D: 5, t: 1, V: 0 },
};

const UNKNOWN = -2;
const WIDTH_OF_BYTE = new Int8Array(256).fill(UNKNOWN);
for (const [tag, width] of Object.entries(WIDTH)) WIDTH_OF_BYTE[tag.charCodeAt(0)] = width;

function readField(bytes: Buffer, at: number, depth: number): Read {
  const tag = String.fromCharCode(bytes[at] as number);
  const start = at + 1;
  const width = WIDTH[tag];
  // After an unknown tag nothing says where the next key begins: the rest is kept as it is.
  const unreadable: Read = { value: { tag: '?', bytes: bytes.subarray(at) }, end: bytes.length };
  if (width === undefined) return unreadable;
  if (width >= 0) {
    const end = start + width;
    return end > bytes.length ? unreadable : { value: fixedField(tag, bytes, start), end };
  }
  if (start + 4 > bytes.length) return unreadable;
  const end = start + 4 + bytes.readUInt32BE(start);
  if (end > bytes.length) return unreadable;
  const content = bytes.subarray(start + 4, end);
  if (tag === 'S' || tag === 'x') return { value: { tag, bytes: content }, end };
  if (depth >= MAX_DEPTH) return { value: { tag: '?', bytes: bytes.subarray(at, end) }, end };
  if (tag === 'F') return { value: { tag, entries: readEntries(content, depth + 1) }, end };
  return { value: { tag: 'A', items: readItems(content, depth + 1) }, end };
}

function readItems(bytes: Buffer, depth: number): Field[] {
  const items: Field[] = [];
  for (let offset = 0; offset < bytes.length; ) {
    const read = readField(bytes, offset, depth);
    items.push(read.value);
    offset = read.end;
  }
  return items;
}

function fixedField(tag: string, bytes: Buffer, at: number): Field {
  switch (tag) {
    case 'I':
      return { tag, value: bytes.readInt32BE(at) };
    case 'i':
      return { tag, value: bytes.readUInt32BE(at) };
    case 's':
      return { tag, value: bytes.readInt16BE(at) };
    case 'u':
      return { tag, value: bytes.readUInt16BE(at) };
    case 'b':
      return { tag, value: bytes.readInt8(at) };
    case 'B':
      return { tag, value: bytes.readUInt8(at) };
    case 'd':
      return { tag, value: bytes.readDoubleBE(at) };
    case 'f':
      return { tag, value: bytes.readFloatBE(at) };
    case 'l':
    case 'L':
      return { tag, value: bytes.readBigInt64BE(at) };
    case 'T':
      return { tag, value: bytes.readBigUInt64BE(at) };
    case 'D':
      return { tag, scale: bytes[at] as number, digits: bytes.readInt32BE(at + 1) };
    case 't':
      return { tag, value: bytes[at] !== 0 };
    default:
      return { tag: 'V' };
  }
}

/** The table's fields, without the leading length. Throws RangeError when a key is longer than 255 bytes. */
export function writeTable(
  entries: readonly { readonly key: string | Buffer; readonly value: Field }[],
): Buffer {
  return Buffer.concat(
    entries.map(({ key, value }) => {
      const name = typeof key === 'string' ? Buffer.from(key) : key;
      if (name.length > 255) throw new RangeError('a header key is longer than 255 bytes');
      return Buffer.concat([Buffer.of(name.length), name, writeField(value)]);
    }),
  );
}

function writeField(field: Field): Buffer {
  switch (field.tag) {
    case '?':
      return field.bytes;
    case 'S':
    case 'x':
      return lengthed(field.tag, field.bytes);
    case 'F':
      return lengthed('F', writeTable(field.entries));
    case 'A':
      return lengthed('A', Buffer.concat(field.items.map(writeField)));
    default:
      return writeFixed(field);
  }
}

function lengthed(tag: string, content: Buffer): Buffer {
  const head = Buffer.alloc(5);
  head.write(tag);
  head.writeUInt32BE(content.length, 1);
  return Buffer.concat([head, content]);
}

function writeFixed(field: Exclude<Field, { tag: '?' | 'S' | 'x' | 'F' | 'A' }>): Buffer {
  const out = Buffer.alloc(1 + (WIDTH[field.tag] as number));
  out.write(field.tag);
  switch (field.tag) {
    case 'I':
      out.writeInt32BE(field.value, 1);
      break;
    case 'i':
      out.writeUInt32BE(field.value, 1);
      break;
    case 's':
      out.writeInt16BE(field.value, 1);
      break;
    case 'u':
      out.writeUInt16BE(field.value, 1);
      break;
    case 'b':
      out.writeInt8(field.value, 1);
      break;
    case 'B':
      out.writeUInt8(field.value, 1);
      break;
    case 'd':
      out.writeDoubleBE(field.value, 1);
      break;
    case 'f':
      out.writeFloatBE(field.value, 1);
      break;
    case 'l':
    case 'L':
      out.writeBigInt64BE(field.value, 1);
      break;
    case 'T':
      out.writeBigUInt64BE(field.value, 1);
      break;
    case 'D':
      out[1] = field.scale;
      out.writeInt32BE(field.digits, 2);
      break;
    case 't':
      out[1] = field.value ? 1 : 0;
      break;
    case 'V':
      break;
  }
  return out;
}

/** The value under a key; of a repeated key the last, as brokers and clients do. */
export function findField(table: Table, key: string): Field | undefined {
  for (let index = table.length - 1; index >= 0; index -= 1) {
    const entry = table[index] as Entry;
    if (nameOf(entry) === key) return entry.value;
  }
  return undefined;
}

/** The key, one character a byte: enough to look for the ASCII names that we know. */
export const nameOf = (entry: Entry): string => entry.name ?? entry.key.toString('latin1');

/** Writes the entry's raw bytes into a buffer with room for them; answers where they end. */
export function copyRaw(entry: Entry, to: Buffer, at: number): number {
  if (entry instanceof EntryInPlace) return copyBytes(entry.bytes, entry.start, entry.end, to, at);
  const { raw } = entry;
  return copyBytes(raw, 0, raw.length, to, at);
}

/** Up to this length a loop is cheaper than making the object that names the range. */
const SHORT = 64;

/** The bytes from `start` to `end`, into a buffer with room for them; answers where they end there. */
export function copyBytes(from: Buffer, start: number, end: number, to: Buffer, at: number): number {
  if (end - start > SHORT) to.set(from.subarray(start, end), at);
  else for (let index = start; index < end; index += 1) to[at + index - start] = from[index] as number;
  return at + end - start;
}

/** The type tag of an entry as it lies; `?` where there is none. */
export function tagOf(entry: Entry): string {
  if (!(entry instanceof EntryInPlace)) return entry.value.tag;
  return entry.tagAt < 0 ? '?' : String.fromCharCode(entry.bytes[entry.tagAt] as number);
}

/** The text of a string field; undefined when it is another type or not UTF-8. */
export function textOf(field: Field | undefined): string | undefined {
  if (field === undefined || (field.tag !== 'S' && field.tag !== 'x') || !isUtf8(field.bytes))
    return undefined;
  return field.bytes.toString('utf8');
}

/** A whole number, whatever width or type it came in (libraries differ; some send text); undefined when it is none. */
export function integerOf(field: Field | undefined): number | undefined {
  if (field === undefined) return undefined;
  if ('value' in field && typeof field.value !== 'boolean') {
    const value = Number(field.value);
    return Number.isSafeInteger(value) ? value : undefined;
  }
  const text = textOf(field);
  return text !== undefined && /^-?\d{1,15}$/.test(text) ? Number(text) : undefined;
}

/** What a row keeps of one header string; the ledger has the bytes. */
const MAX_TEXT_BYTES = 8_192;
/** Entries of one table or array that a row keeps. An `x-death` of 500 entries is real. */
const MAX_ITEMS = 50;

/**
 * The table as JSON for a row. Plain where JSON says it exactly, else an object marked by `!`: 64-bit integers past 2^53
 * and decimals as text, timestamps, bytes that are not UTF-8 as base64, tables with repeated or unreadable keys as
 * pairs, and what was cut for its size.
 */
export function tableToJson(table: Table): Json {
  if (table.length > MAX_ITEMS) {
    return { '!': 'cut', count: table.length, head: pairsToJson(table.slice(0, MAX_ITEMS)) };
  }
  let out: Record<string, Json> = {};
  for (const entry of table) {
    const given = nameOf(entry);
    const name = isPlain(given) ? given : plainText(entry.key);
    if (name === undefined || name === '!' || Object.hasOwn(out, name)) {
      return { '!': 'table', pairs: pairsToJson(table) };
    }
    // Without a prototype it is an ordinary key, here and in JSON.stringify. Objects like that are slow, and it is rare.
    if (name === '__proto__') out = Object.assign(Object.create(null), out);
    out[name] = fieldToJson(entry.value);
  }
  return out;
}

function pairsToJson(table: Table): Json {
  return table.map((entry) => [plainText(entry.key) ?? bytesToJson(entry.key), fieldToJson(entry.value)]);
}

export function fieldToJson(field: Field): Json {
  switch (field.tag) {
    case 'S':
      return plainText(field.bytes) ?? bytesToJson(field.bytes);
    case 'x':
      return bytesToJson(field.bytes);
    case '?':
      return { '!': 'unreadable', base64: field.bytes.subarray(0, MAX_TEXT_BYTES).toString('base64') };
    case 'l':
    case 'L':
      return Number.isSafeInteger(Number(field.value))
        ? Number(field.value)
        : { '!': 'int64', value: String(field.value) };
    case 'T':
      return { '!': 'timestamp', value: exactNumber(field.value) };
    case 'D':
      return { '!': 'decimal', value: decimalText(field.digits, field.scale) };
    case 'd':
    case 'f':
      return Number.isFinite(field.value) ? field.value : { '!': 'double', value: String(field.value) };
    case 'V':
      return null;
    case 'F':
      return tableToJson(field.entries);
    case 'A':
      return field.items.length <= MAX_ITEMS
        ? field.items.map(fieldToJson)
        : { '!': 'cut', count: field.items.length, head: field.items.slice(0, MAX_ITEMS).map(fieldToJson) };
    default:
      return field.value;
  }
}

const exactNumber = (value: bigint): Json =>
  Number.isSafeInteger(Number(value)) ? Number(value) : String(value);

/** Text that JSON in Postgres can hold, or undefined. Cut text is marked by the caller's bytes form. */
function plainText(bytes: Buffer): string | undefined {
  if (bytes.length <= SHORT && isAscii(bytes)) return bytes.toString('latin1');
  if (bytes.length > MAX_TEXT_BYTES || !isUtf8(bytes) || bytes.includes(0)) return undefined;
  return bytes.toString('utf8');
}

/** Printable. */
function isAscii(bytes: Buffer): boolean {
  for (let index = 0; index < bytes.length; index += 1) {
    const byte = bytes[index] as number;
    if (byte < 0x20 || byte > 0x7e) return false;
  }
  return true;
}

function isPlain(name: string): boolean {
  for (let index = 0; index < name.length; index += 1) {
    const code = name.charCodeAt(index);
    if (code < 0x20 || code > 0x7e) return false;
  }
  return true;
}

function bytesToJson(bytes: Buffer): Json {
  if (bytes.length <= MAX_TEXT_BYTES) return { '!': 'bytes', base64: bytes.toString('base64') };
  const head = bytes.subarray(0, MAX_TEXT_BYTES);
  const text = head.toString('utf8').replaceAll('\u0000', '\u2400');
  return { '!': 'cut', bytes: bytes.length, head: isUtf8(bytes) ? text : head.toString('base64') };
}

/** -1 with scale 2 is -0.01. */
function decimalText(digits: number, scale: number): string {
  const text = String(Math.abs(digits)).padStart(scale + 1, '0');
  const whole = text.slice(0, text.length - scale);
  const sign = digits < 0 ? '-' : '';
  return scale === 0 ? `${sign}${whole}` : `${sign}${whole}.${text.slice(text.length - scale)}`;
}
