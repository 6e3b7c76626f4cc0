/**
 * What of a message stays the same on every hop between queues: a hint for recognising a delivery that came back,
 * inside a window whose size is known from counting. Never a global key: identical messages are legitimate.
 */
import { createHash, type Hash } from 'node:crypto';
import { type Delivery, FLAG } from './delivery.js';
import type { Entry, Field } from './headers.js';

/** Headers that brokers, shovels and dead-lettering write. */
const WRITTEN_BY_HOPS = [
  'x-death',
  'x-first-death-queue',
  'x-first-death-reason',
  'x-first-death-exchange',
  'x-last-death-queue',
  'x-last-death-reason',
  'x-last-death-exchange',
  'x-opt-deaths',
  'x-delivery-count',
  'x-acquired-count',
  'x-delay',
  'CC',
  'BCC',
  'x-received-from',
  'x-stream-offset',
  'timestamp_in_ms',
];
const WRITTEN = new Set(WRITTEN_BY_HOPS);

export const FINGERPRINT_BYTES = 32;

/**
 * SHA-256 over body, properties and headers that no hop rewrites. Exchange, routing key, expiration and the redelivered
 * flag are left out: a wait-queue message comes back through the main queue with all four changed.
 */
export function fingerprint(delivery: Delivery): Buffer {
  const { body, bytes, headersSpan, expirationSpan, headers } = delivery;
  const hash = createHash('sha256');
  const head = Buffer.alloc(10);
  head.writeUIntBE(body.length, 0, 6);
  const flags = bytes.length >= 2 ? bytes.readUInt16BE(0) : 0;
  head.writeUInt16BE(flags & ~(FLAG.headers | FLAG.expiration), 6);
  hash.update(head);
  hash.update(body);
  // The property list with the two spans cut out. Either may be absent (an empty span at 0).
  let from = Math.min(2, bytes.length);
  for (const span of [headersSpan, expirationSpan]) {
    if (span.end === 0) continue;
    hash.update(bytes.subarray(from, span.start));
    from = span.end;
  }
  hash.update(bytes.subarray(from));
  if (headers.length > 0) hashHeaders(hash, headers);
  return hash.digest();
}

/** Dead-lettering sorts the table by key and re-encodes it, so order and the two tags of int64 do not count. */
function hashHeaders(hash: Hash, headers: readonly Entry[]): void {
  const kept = headers.filter((entry) => !isWrittenByHops(entry.key.toString('latin1')));
  if (kept.length > 1) kept.sort((a, b) => Buffer.compare(a.key, b.key));
  for (const entry of kept) {
    hash.update(Buffer.of(entry.key.length));
    hash.update(entry.key);
    hashField(hash, entry.value, entry.raw.subarray(1 + entry.key.length));
  }
}

function isWrittenByHops(key: string): boolean {
  return WRITTEN.has(key) || key.startsWith('x-shovelled');
}

/** `raw` is the field as it lay in the table, tag included; only tables and arrays need a look inside. */
function hashField(hash: Hash, field: Field, raw?: Buffer): void {
  hash.update(field.tag === 'L' ? 'l' : field.tag);
  switch (field.tag) {
    case 'F':
      for (const entry of field.entries) {
        hash.update(Buffer.of(entry.key.length));
        hash.update(entry.key);
        hashField(hash, entry.value, entry.raw.subarray(1 + entry.key.length));
      }
      hash.update(')');
      break;
    case 'A':
      for (const item of field.items) hashField(hash, item);
      hash.update(')');
      break;
    case 'V':
      break;
    case 't':
      hash.update(field.value ? '1' : '0');
      break;
    case 'S':
    case 'x':
    case '?':
      hash.update(`${field.bytes.length}:`);
      hash.update(field.bytes);
      break;
    default:
      if (raw !== undefined) hash.update(raw.subarray(1));
      else hash.update('digits' in field ? `${field.digits}/${field.scale};` : `${field.value};`);
  }
}
