/**
 * A message of the ledger as it goes back: its bytes, without what would close the channel or double it, and the exchange
 * that it goes through. Pure; what is changed is named, and what cannot be sent is said with its reason.
 */
import { FLAG, propertySpans, readDelivery, readProperties, type Span } from './delivery.js';
import { fingerprint } from './fingerprint.js';
import { CONTENT_HEAD_BYTES, type RawMessage } from './publisher.js';

/** What may be changed of a message: listed with its number, never silently. */
export type Stripped = 'cc' | 'bcc' | 'x-delay' | 'user-id' | 'expiration' | 'delay-set';

export interface WayBack {
  readonly bytes: Buffer;
  readonly stripped: readonly Stripped[];
}

export interface WayBackContext {
  /** Whom we publish as: the broker refuses another user's id. */
  readonly user: string;
  readonly frameMax: number;
  readonly maxMessageBytes: number;
}

/** A map: a header may be called `toString`, and an object has one of these. */
const ROUTING_HEADERS: ReadonlyMap<string, Stripped> = new Map([
  ['CC', 'cc'],
  ['BCC', 'bcc'],
  ['x-delay', 'x-delay'],
]);
/** Longest expiration that a broker takes, about 50 days. */
const MAX_EXPIRATION_MS = 4_294_967_295;

/** `remainingMs`: what is left of the delay of a message in a wait queue; null leaves its expiration alone. */
export function wayBack(
  bytes: Buffer,
  bodyBytes: number,
  remainingMs: number | null,
  { user, frameMax, maxMessageBytes }: WayBackContext,
): WayBack | { readonly refused: string } {
  const read = readProperties(bytes);
  if (!read.complete) return { refused: 'properties-cut' };
  if (bodyBytes > maxMessageBytes) return { refused: 'larger-than-the-broker-takes' };
  const stripped: Stripped[] = [];
  const edits = new Map<keyof typeof FLAG, Buffer | null>();
  const kept = read.headers.filter(({ key }) => {
    const word = ROUTING_HEADERS.get(key.toString('latin1'));
    if (word !== undefined) stripped.push(word);
    return word === undefined;
  });
  if (kept.length < read.headers.length) edits.set('headers', lengthed(kept.map(({ raw }) => raw)));
  const { userId, expiration } = read.properties;
  if (userId !== undefined && userId !== user) {
    stripped.push('user-id');
    edits.set('userId', null);
  }
  if (remainingMs !== null) {
    const text = Buffer.from(String(Math.min(Math.max(Math.ceil(remainingMs), 0), MAX_EXPIRATION_MS)));
    if (expiration !== text.toString()) stripped.push('delay-set');
    edits.set('expiration', Buffer.concat([Buffer.of(text.length), text]));
  } else if (expiration !== undefined && !isExpiration(expiration)) {
    stripped.push('expiration');
    edits.set('expiration', null);
  }
  const result = edits.size === 0 ? bytes : edited(bytes, edits);
  if (CONTENT_HEAD_BYTES + result.length + 8 > frameMax)
    return { refused: 'header-table-larger-than-a-frame' };
  return { bytes: result, stripped };
}

/** The first 64 bits of the fingerprint of what is sent, as a signed number: Postgres has no other. */
export function hashOf(
  { propertyBytes, body }: Pick<RawMessage, 'propertyBytes' | 'body'>,
  queue: string,
): bigint {
  const none = { exchange: '', routingKey: '', redelivered: false, deliveryTag: 0 };
  return hash64(fingerprint(readDelivery({ queue, ...none, propertyBytes, body })));
}

/** Of a fingerprint. */
export function hash64(print: string): bigint {
  return Buffer.from(print.slice(0, 8), 'latin1').readBigInt64BE();
}

const isExpiration = (text: string): boolean => /^\d{1,10}$/.test(text) && Number(text) <= MAX_EXPIRATION_MS;

function lengthed(parts: readonly Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(content.length);
  return Buffer.concat([length, content]);
}

/** The property list with some properties replaced, added or (null) left out. */
function edited(bytes: Buffer, edits: ReadonlyMap<keyof typeof FLAG, Buffer | null>): Buffer {
  const spans: ReadonlyMap<string, Span> = propertySpans(bytes);
  let flags = bytes.readUInt16BE(0);
  const list: Buffer[] = [];
  let end = 2;
  for (const [name, flag] of Object.entries(FLAG)) {
    const span = spans.get(name);
    if (span !== undefined) end = span.end;
    const edit = edits.get(name as keyof typeof FLAG);
    const value = edit === undefined ? span && bytes.subarray(span.start, span.end) : edit;
    flags = value ? flags | flag : flags & ~flag;
    if (value) list.push(value);
  }
  const head = Buffer.alloc(2);
  head.writeUInt16BE(flags);
  return Buffer.concat([head, ...list, bytes.subarray(end)]);
}
