/**
 * A delivery as received: raw body, raw property bytes, and a reader over both. Nothing here judges what the message
 * means, and nothing throws: a message that cannot be read is still a message with bytes to keep.
 */
import { findField, integerOf, isText, readTable, type Table, textOf } from './headers.js';
import { originalExchange } from './leading-exchange.js';

/** The fourteen basic properties, each absent or as sent. Text that is not UTF-8 is shown with U+FFFD; `raw` has it. */
export interface Properties {
  contentType?: string;
  contentEncoding?: string;
  deliveryMode?: number;
  priority?: number;
  correlationId?: string;
  replyTo?: string;
  /** Milliseconds as text, by the specification; publishers send anything. */
  expiration?: string;
  messageId?: string;
  /** Seconds by the specification; see timestampMs. */
  timestamp?: bigint;
  type?: string;
  userId?: string;
  appId?: string;
  clusterId?: string;
}

/** Where parts lie within the raw property bytes; start = end when absent. */
export interface Span {
  readonly start: number;
  readonly end: number;
}

export interface RawProperties {
  /** Flags and property list exactly as in the content header frame. */
  readonly bytes: Buffer;
  readonly properties: Properties;
  readonly headers: Table;
  /** With the four-byte length. */
  readonly headersSpan: Span;
  readonly expirationSpan: Span;
  /** False when the bytes end before the flags say so. */
  readonly complete: boolean;
}

/** As it came off the wire: few objects, because thousands of these wait in memory at a time. */
export interface RawDelivery {
  readonly queue: string;
  readonly exchange: string;
  readonly routingKey: string;
  readonly redelivered: boolean;
  readonly deliveryTag: number;
  /** Flags and property list. */
  readonly propertyBytes: Buffer;
  readonly body: Buffer;
}

export interface Delivery extends RawProperties, Omit<RawDelivery, 'propertyBytes'> {}

export function readDelivery(raw: RawDelivery): Delivery {
  const read = readProperties(raw.propertyBytes);
  // Written out: spreading would cost as much as the rest of the decoding.
  return {
    bytes: read.bytes,
    properties: read.properties,
    headers: read.headers,
    headersSpan: read.headersSpan,
    expirationSpan: read.expirationSpan,
    complete: read.complete,
    queue: raw.queue,
    exchange: raw.exchange,
    routingKey: raw.routingKey,
    redelivered: raw.redelivered,
    deliveryTag: raw.deliveryTag,
    body: raw.body,
  };
}

/** Flags of the property list, in wire order. */
export const FLAG = {
  contentType: 0x8000,
  contentEncoding: 0x4000,
  headers: 0x2000,
  deliveryMode: 0x1000,
  priority: 0x0800,
  correlationId: 0x0400,
  replyTo: 0x0200,
  expiration: 0x0100,
  messageId: 0x0080,
  timestamp: 0x0040,
  type: 0x0020,
  userId: 0x0010,
  appId: 0x0008,
  clusterId: 0x0004,
} as const;

const NONE: Span = { start: 0, end: 0 };
const NO_HEADERS: Table = [];
const FLAGS = Object.entries(FLAG) as [keyof typeof FLAG, number][];
const NAMES = Object.keys(FLAG) as (keyof typeof FLAG)[];
const BITS = Object.values(FLAG);
/** The last value of each text property: content type, type and the like are the same from message to message. */
const lastTexts: Partial<Record<keyof typeof FLAG, string>> = {};
/** Properties that differ from message to message. */
const UNIQUE: readonly string[] = ['messageId', 'correlationId'];

/** Reads flags and property list, the payload of a content header frame from its thirteenth byte on. */
export function readProperties(bytes: Buffer): RawProperties {
  const properties: Properties = {};
  let headers = NO_HEADERS;
  let headersSpan = NONE;
  let expirationSpan = NONE;
  if (bytes.length < 2) {
    return { bytes, properties, headers, headersSpan, expirationSpan, complete: false };
  }
  const flags = bytes.readUInt16BE(0);
  let offset = 2;
  let complete = true;
  for (let index = 0; index < NAMES.length; index += 1) {
    if ((flags & (BITS[index] as number)) === 0) continue;
    const name = NAMES[index] as keyof typeof FLAG;
    const end = offset + sizeAt(bytes, offset, name);
    if (end > bytes.length) {
      complete = false;
      break;
    }
    switch (name) {
      case 'headers':
        headersSpan = { start: offset, end };
        headers = readTable(bytes.subarray(offset + 4, end));
        break;
      case 'deliveryMode':
      case 'priority':
        properties[name] = bytes[offset] as number;
        break;
      case 'timestamp':
        properties.timestamp = bytes.readBigUInt64BE(offset);
        break;
      default:
        if (name === 'expiration') expirationSpan = { start: offset, end };
        properties[name] = textAt(bytes, offset + 1, end, name);
    }
    offset = end;
  }
  return { bytes, properties, headers, headersSpan, expirationSpan, complete };
}

function textAt(bytes: Buffer, start: number, end: number, name: keyof typeof FLAG): string {
  const last = lastTexts[name];
  if (last !== undefined && isText(bytes, start, end, last)) return last;
  const text = bytes.toString('utf8', start, end);
  if (!UNIQUE.includes(name) && /^[ -~]*$/.test(text)) lastTexts[name] = text;
  return text;
}

/** Where each property lies within complete property bytes; absent ones are absent. */
export function propertySpans(bytes: Buffer): ReadonlyMap<keyof typeof FLAG, Span> {
  const spans = new Map<keyof typeof FLAG, Span>();
  const flags = bytes.readUInt16BE(0);
  let start = 2;
  for (const [name, flag] of FLAGS) {
    if ((flags & flag) === 0) continue;
    const end = start + sizeAt(bytes, start, name);
    spans.set(name, { start, end });
    start = end;
  }
  return spans;
}

function sizeAt(bytes: Buffer, offset: number, name: keyof typeof FLAG): number {
  switch (name) {
    case 'headers':
      return 4 + (offset + 4 <= bytes.length ? bytes.readUInt32BE(offset) : 0);
    case 'deliveryMode':
    case 'priority':
      return 1;
    case 'timestamp':
      return 8;
    default:
      return 1 + (bytes[offset] ?? 0);
  }
}

/**
 * Epoch ms of a timestamp that may be seconds (the specification), milliseconds or microseconds (real publishers); null
 * when it is 0 or past the year 2200 however read.
 */
export function timestampMs(value: bigint | undefined): number | null {
  if (value === undefined || value <= 0n) return null;
  const ms =
    value > 100_000_000_000_000n ? value / 1_000n : value > 100_000_000_000n ? value : value * 1_000n;
  return ms > 7_258_118_400_000n ? null : Number(ms);
}

/** A death as the broker records it: newest first, one entry per queue and reason (old brokers: one per death). */
export interface Death {
  readonly queue: string;
  readonly reason: string;
  readonly count: number;
  /** Of the *first* death for this queue and reason, whole seconds; null when absent. */
  readonly timeMs: number | null;
  readonly exchange: string;
  readonly routingKeys: readonly string[];
}

/** Longer lists exist; what follows is older than anything we ask about. */
const MAX_DEATHS = 500;
const MAX_COUNT = 1_000_000;

/** Entries of `x-death`; null when the header is there but not what a broker writes. */
export function readDeaths(headers: Table): readonly Death[] | null {
  const field = findField(headers, 'x-death');
  if (field === undefined) return [];
  if (field.tag !== 'A') return null;
  const deaths: Death[] = [];
  for (const item of field.items.slice(0, MAX_DEATHS)) {
    if (item.tag !== 'F') return null;
    const at = (key: string) => findField(item.entries, key);
    const time = at('time');
    const keys = at('routing-keys');
    deaths.push({
      queue: textOf(at('queue')) ?? '',
      reason: textOf(at('reason')) ?? '',
      count: Math.min(Math.max(integerOf(at('count')) ?? 1, 0), MAX_COUNT),
      timeMs: time?.tag === 'T' ? timestampMs(time.value) : null,
      exchange: originalExchange(textOf(at('exchange')) ?? ''),
      routingKeys: keys?.tag === 'A' ? keys.items.map((key) => textOf(key) ?? '') : [],
    });
  }
  return deaths;
}
