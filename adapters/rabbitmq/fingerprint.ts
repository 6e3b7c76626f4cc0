/**
 * What of a message stays the same on every hop between queues: a hint for recognising a delivery that came back,
 * inside a window whose size is known from counting. Never a global key: identical messages are legitimate.
 */
import { createHash, hash } from 'node:crypto';
import { type Delivery, FLAG } from './delivery.js';
import { type Field, type Table, writeTable } from './headers.js';

/** Headers that brokers, shovels and dead-lettering write. */
const WRITTEN = new Set([
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
]);

export const FINGERPRINT_BYTES = 32;

/** Up to this size one copy and one call are faster than feeding a hash in pieces. */
const MAX_COPIED_BYTES = 65_536;
/** Reused from call to call: a buffer for each message would be garbage at once. */
const scratch = Buffer.alloc(MAX_COPIED_BYTES);

/**
 * SHA-256 over body, properties and headers that no hop rewrites, as latin1 text: one character a byte, a good key and
 * cheaper to keep by the thousand than small buffers. Exchange, routing key, expiration and the redelivered flag are
 * left out: a wait-queue message comes back through the main queue with all four changed.
 */
export function fingerprint(delivery: Delivery): string {
  const { body, bytes, headersSpan, expirationSpan, headers } = delivery;
  const head = Buffer.alloc(8);
  head.writeUIntBE(body.length, 0, 6);
  const flags = bytes.length >= 2 ? bytes.readUInt16BE(0) : 0;
  head.writeUInt16BE(flags & ~(FLAG.headers | FLAG.expiration), 6);
  const parts = [head, body];
  // The property list with the two spans cut out. Either may be absent (an empty span at 0).
  let from = Math.min(2, bytes.length);
  for (const span of [headersSpan, expirationSpan]) {
    if (span.end === 0) continue;
    parts.push(bytes.subarray(from, span.start));
    from = span.end;
  }
  parts.push(bytes.subarray(from));
  if (headers.length > 0) addHeaders(parts, headers);
  return digest(parts);
}

function digest(parts: readonly Buffer[]): string {
  const size = parts.reduce((sum, part) => sum + part.length, 0);
  if (size > MAX_COPIED_BYTES) {
    const sha = createHash('sha256');
    for (const part of parts) sha.update(part);
    return sha.digest('binary');
  }
  let at = 0;
  for (const part of parts) at += part.copy(scratch, at);
  return hash('sha256', scratch.subarray(0, size), 'binary');
}

/** Dead-lettering sorts the table by key and re-encodes it, so order and the two tags of int64 do not count. */
function addHeaders(parts: Buffer[], headers: Table): void {
  const kept = headers.filter((entry) => !isWrittenByHops(entry.key.toString('latin1')));
  if (kept.length > 1) kept.sort((a, b) => Buffer.compare(a.key, b.key));
  for (const { key, value, raw } of kept) {
    parts.push(survivesAsIs(value) ? raw : writeTable([{ key, value: reencoded(value) }]));
  }
}

function isWrittenByHops(key: string): boolean {
  return WRITTEN.has(key) || key.startsWith('x-shovelled');
}

const survivesAsIs = ({ tag }: Field): boolean => tag !== 'L' && tag !== 't' && tag !== 'F' && tag !== 'A';

/** As a broker writes the field when it has read it. */
function reencoded(field: Field): Field {
  if (field.tag === 'L') return { tag: 'l', value: field.value };
  if (field.tag === 'A') return { tag: 'A', items: field.items.map(reencoded) };
  if (field.tag !== 'F') return field;
  const entries = field.entries.map(({ key, value, raw }) => ({ key, value: reencoded(value), raw }));
  return { tag: 'F', entries };
}
