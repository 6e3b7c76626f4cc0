/**
 * What of a message stays the same on every hop between queues: a hint for recognising a delivery that came back,
 * inside a window whose size is known from counting. Never a global key: identical messages are legitimate.
 */
import { createHash, hash } from 'node:crypto';
import { type Delivery, FLAG } from './delivery.js';
import {
  copyBytes,
  copyRaw,
  type Entry,
  type Field,
  nameOf,
  type Table,
  tagOf,
  writeTable,
} from './headers.js';

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
/** Reused like the bytes. */
const kept: Entry[] = [];
/** More headers than this are sorted as everything else is. */
const MANY = 16;
/** Body size and flags. */
const HEAD_BYTES = 8;

/**
 * SHA-256 over body, properties and headers that no hop rewrites, as latin1 text: one character a byte, a good key and
 * cheaper to keep by the thousand than small buffers. Exchange, routing key, expiration and the redelivered flag are
 * left out: a wait-queue message comes back through the main queue with all four changed.
 */
export function fingerprint(delivery: Delivery): string {
  const { body, bytes } = delivery;
  const fits = HEAD_BYTES + body.length + bytes.length <= MAX_COPIED_BYTES;
  const out = fits ? scratch : Buffer.alloc(HEAD_BYTES + bytes.length);
  out.writeUIntBE(body.length, 0, 6);
  const flags = bytes.length >= 2 ? bytes.readUInt16BE(0) : 0;
  out.writeUInt16BE(flags & ~(FLAG.headers | FLAG.expiration), 6);
  if (fits) {
    out.set(body, HEAD_BYTES);
    const end = putProperties(out, HEAD_BYTES + body.length, delivery);
    return hash('sha256', out.subarray(0, end), 'binary');
  }
  const end = putProperties(out, HEAD_BYTES, delivery);
  const sha = createHash('sha256').update(out.subarray(0, HEAD_BYTES)).update(body);
  return sha.update(out.subarray(HEAD_BYTES, end)).digest('binary');
}

/** The property list without headers and expiration, then the headers that stay; answers where it ends. */
function putProperties(out: Buffer, at: number, delivery: Delivery): number {
  const { bytes, headersSpan, expirationSpan, headers } = delivery;
  let end = at;
  let from = Math.min(2, bytes.length);
  // Either may be absent (an empty span at 0).
  if (headersSpan.end > 0) {
    end = copyBytes(bytes, from, headersSpan.start, out, end);
    from = headersSpan.end;
  }
  if (expirationSpan.end > 0) {
    end = copyBytes(bytes, from, expirationSpan.start, out, end);
    from = expirationSpan.end;
  }
  end = copyBytes(bytes, from, bytes.length, out, end);
  return headers.length === 0 ? end : putHeaders(out, end, headers);
}

/** Dead-lettering sorts the table by key and re-encodes it, so order and the two tags of int64 do not count. */
function putHeaders(out: Buffer, at: number, headers: Table): number {
  let end = at;
  for (const entry of inOrder(headers)) {
    if (survivesAsIs(tagOf(entry))) end = copyRaw(entry, out, end);
    else end += writeTable([{ key: entry.key, value: reencoded(entry.value) }]).copy(out, end);
  }
  return end;
}

/** In the order of their keys; sorts a few by insertion, without an array for each message. */
function inOrder(headers: Table): readonly Entry[] {
  kept.length = 0;
  for (const entry of headers) if (!isWrittenByHops(entry)) kept.push(entry);
  if (kept.length > MANY) return kept.sort(compareKeys);
  for (let next = 1; next < kept.length; next += 1) {
    const entry = kept[next] as Entry;
    let at = next;
    for (; at > 0 && compareKeys(kept[at - 1] as Entry, entry) > 0; at -= 1) kept[at] = kept[at - 1] as Entry;
    kept[at] = entry;
  }
  return kept;
}

function isWrittenByHops(entry: Entry): boolean {
  const name = nameOf(entry);
  return WRITTEN.has(name) || name.startsWith('x-shovelled');
}

/** One character a byte: the same order as by the bytes. */
function compareKeys(a: Entry, b: Entry): number {
  const [first, second] = [nameOf(a), nameOf(b)];
  return first < second ? -1 : first > second ? 1 : 0;
}

const survivesAsIs = (tag: string): boolean => tag !== 'L' && tag !== 't' && tag !== 'F' && tag !== 'A';

/** As a broker writes the field when it has read it. */
function reencoded(field: Field): Field {
  if (field.tag === 'L') return { tag: 'l', value: field.value };
  if (field.tag === 'A') return { tag: 'A', items: field.items.map(reencoded) };
  if (field.tag !== 'F') return field;
  const entries = field.entries.map(({ key, value, raw }) => ({ key, value: reencoded(value), raw }));
  return { tag: 'F', entries };
}
