/**
 * From a job of kind `relay.amqp` to the message that it publishes: property bytes and body, exactly those of the message
 * that it was drained from, or written from the payload's own text. Pure; what cannot be read is a Discard without a value.
 */
import type { ClaimedJob, Json } from '../../src/jobs/job.js';
import { Discard } from '../../src/jobs/settle.js';
import { type JsonNode, type ObjectNode, objectText, readJson, toPlain } from '../../src/json-text.js';
import { FLAG, type Properties, type RawProperties } from './delivery.js';
import { type Field, MAX_DEPTH, writeTable } from './headers.js';

export interface Publication {
  readonly exchange: string;
  readonly routingKey: string;
  readonly propertyBytes: Buffer;
  readonly body: Buffer;
  /** The one queue that it is for, in place of all that the exchange leads to; null: by exchange and routing key. */
  readonly queue: string | null;
  /** 0: the wait queue it goes to lets it go at once. */
  readonly remainingMs: number | null;
}

/** What a drain keeps in the headers of a row that goes back to the broker. */
export interface RelayHeader {
  readonly exchange: string;
  readonly routingKey: string;
  readonly queue: string;
  /** Base64. */
  readonly properties: string;
  /** It lay in the wait queue `queue`. */
  readonly waited?: true;
}

type Source = Pick<ClaimedJob, 'id' | 'payloadText' | 'body' | 'headers'> & {
  /** Which attempt this is; only an envelope tells it. */
  readonly attempt?: number;
};

/** Throws Discard `payload-invalid`, which names what is wrong and no value. */
export function readPublication(job: Source, nowMs = Date.now()): Publication {
  const drained = relayHeader(job.headers);
  if (drained !== null && job.body !== null) {
    const { properties, waited, ...route } = drained;
    const propertyBytes = Buffer.from(properties, 'base64');
    return { ...route, propertyBytes, body: job.body, remainingMs: waited ? 0 : null };
  }
  const fields = membersOf(job.payloadText);
  for (const name of fields.keys()) if (!FIELDS.includes(name)) throw invalid(`${name} is not known`);
  const envelope = envelopeOf(fields, job, nowMs);
  const headers = headersOf(fields, envelope === null ? {} : { 'x-schedule-id': job.id });
  const table = headers === null ? null : writeTable(entriesOf(headers, 0));
  const { contentType, content } = envelope ?? bodyOf(fields);
  const given = fields.get('properties');
  const properties: Properties = {
    ...{ contentType, deliveryMode: 2, messageId: job.id },
    ...(envelope === null ? {} : { type: envelope.key }),
    ...(given === undefined ? {} : propertiesOf(plain(given))),
  };
  const routingKey = fields.get('routingKey');
  return {
    exchange: shortText(fields.get('exchange'), 'exchange'),
    routingKey:
      routingKey === undefined && envelope !== null ? envelope.key : shortText(routingKey, 'routingKey'),
    propertyBytes: writeProperties(properties, table),
    body: content,
    ...{ queue: null, remainingMs: null },
  };
}

const FIELDS = [
  ...['exchange', 'routingKey', 'body', 'text', 'base64'],
  ...['key', 'data', 'properties', 'headers'],
];

function relayHeader(headers: Json): RelayHeader | null {
  const relay = isObject(headers) ? headers['relay'] : undefined;
  if (!isObject(relay)) return null;
  const { exchange, routingKey, queue, properties, waited } = relay;
  if (typeof exchange !== 'string' || typeof routingKey !== 'string') return null;
  if (typeof queue !== 'string' || typeof properties !== 'string') return null;
  return { exchange, routingKey, queue, properties, ...(waited === true ? { waited } : {}) };
}

function membersOf(payloadText: string | null): ReadonlyMap<string, JsonNode> {
  let node: JsonNode | undefined;
  try {
    node = readJson(payloadText ?? '');
  } catch {
    // Reported below: a payload has no business in an error.
  }
  if (node?.type !== 'object') throw invalid('it is not an object that can be read exactly');
  return (node as ObjectNode).members;
}

/** What the old scheduler published when a schedule fired; null where the payload has a body of its own. */
function envelopeOf(
  fields: ReadonlyMap<string, JsonNode>,
  { id, attempt = 1 }: Source,
  nowMs: number,
): { readonly key: string; readonly contentType: string; readonly content: Buffer } | null {
  const data = fields.get('data');
  const given = fields.get('key');
  if (data === undefined && given === undefined) return null;
  if (data === undefined || ['body', 'text', 'base64'].some((name) => fields.has(name)))
    throw invalid('data, with or without key, takes the place of body, text and base64');
  const key = given === undefined ? id : shortText(given, 'key');
  const text = objectText({
    id: JSON.stringify(id),
    key: JSON.stringify(key),
    data: data.raw,
    triggerTime: JSON.stringify(new Date(nowMs).toISOString()),
    attempt: String(attempt),
  });
  return { key, contentType: 'application/json', content: Buffer.from(text) };
}

/** Those of the payload over ours; null for none. */
function headersOf(
  fields: ReadonlyMap<string, JsonNode>,
  own: Readonly<Record<string, string>>,
): Json | null {
  const given = fields.get('headers');
  const headers = given === undefined ? {} : plain(given);
  if (Object.keys(own).length === 0) return given === undefined ? null : headers;
  if (!isObject(headers)) throw invalid('headers is not an object, or too deep');
  return { ...own, ...headers };
}

/** Exactly one of `body` (any JSON, sent as it is written), `text` and `base64`. */
function bodyOf(fields: ReadonlyMap<string, JsonNode>): { contentType: string; content: Buffer } {
  const given = ['body', 'text', 'base64'].filter((name) => fields.has(name));
  if (given.length !== 1) throw invalid('exactly one of body, text and base64 must be given');
  const body = fields.get('body');
  if (body !== undefined) return { contentType: 'application/json', content: Buffer.from(body.raw) };
  const text = fields.get('text');
  if (text?.type === 'string') return { contentType: 'text/plain', content: Buffer.from(text.value) };
  const base64 = fields.get('base64');
  if (base64?.type === 'string' && /^[A-Za-z0-9+/]*={0,2}$/.test(base64.value))
    return { contentType: 'application/octet-stream', content: Buffer.from(base64.value, 'base64') };
  throw invalid('text or base64 is not such a string');
}

const TEXTS = [
  ...['contentType', 'contentEncoding', 'correlationId', 'replyTo', 'expiration'],
  ...['messageId', 'type', 'userId', 'appId', 'clusterId'],
];

function propertiesOf(given: Json): Properties {
  if (!isObject(given)) throw invalid('properties is not an object');
  const out: Record<string, string | number | bigint> = {};
  for (const [name, value] of Object.entries(given)) {
    if (TEXTS.includes(name) && typeof value === 'string' && Buffer.byteLength(value) <= 255)
      out[name] = value;
    else if (name === 'deliveryMode' && (value === 1 || value === 2)) out[name] = value;
    else if (name === 'priority' && isByte(value)) out[name] = value;
    else if (name === 'timestamp' && timestampOf(value) !== null) out[name] = timestampOf(value) as bigint;
    else throw invalid(`properties.${name.slice(0, 60)} is not known or not valid`);
  }
  if (out['expiration'] !== undefined && !/^\d{1,10}$/.test(String(out['expiration'])))
    throw invalid('properties.expiration is not a text of whole milliseconds');
  return out as Properties;
}

const isByte = (value: Json): value is number =>
  Number.isInteger(value) && (value as number) >= 0 && (value as number) <= 255;

/** Seconds, as AMQP has it; or ISO 8601. */
function timestampOf(value: Json): bigint | null {
  const seconds = typeof value === 'string' ? Math.floor(Date.parse(value) / 1_000) : Number(value);
  return Number.isSafeInteger(seconds) && seconds >= 0 ? BigInt(seconds) : null;
}

function entriesOf(table: Json, depth: number): { key: string | Buffer; value: Field }[] {
  if (!isObject(table) || depth > MAX_DEPTH) throw invalid('headers is not an object, or too deep');
  const pairs = pairsOf(table);
  return pairs.map(([name, value]) => {
    const key = typeof name === 'string' ? Buffer.from(name) : bytesOf(name);
    if (key.length > 255) throw invalid('a header has a name of more than 255 bytes');
    return { key, value: fieldOf(value, depth) };
  });
}

/** A table as tableToJson writes it: `!` marks one whose keys are repeated or unreadable. */
function pairsOf(table: Readonly<Record<string, Json>>): [Json, Json][] {
  if (table['!'] === undefined) return Object.entries(table);
  const { pairs } = table;
  const whole = table['!'] === 'table' && Array.isArray(pairs) && pairs.every((pair) => Array.isArray(pair));
  if (!whole) throw invalid('a header is marked with a word that is not known');
  return pairs as [Json, Json][];
}

/** The inverse of headers.ts's fieldToJson; whole numbers as the usual client writes them. */
function fieldOf(value: Json, depth: number): Field {
  switch (typeof value) {
    case 'string':
      return { tag: 'S', bytes: Buffer.from(value) };
    case 'boolean':
      return { tag: 't', value };
    case 'number':
      if (!Number.isSafeInteger(value)) return { tag: 'd', value };
      return Math.abs(value) < 2 ** 31 ? { tag: 'I', value } : { tag: 'l', value: BigInt(value) };
  }
  if (value === null) return { tag: 'V' };
  if (Array.isArray(value)) {
    if (depth >= MAX_DEPTH) throw invalid('headers are too deep');
    return { tag: 'A', items: value.map((item: Json) => fieldOf(item, depth + 1)) };
  }
  const marked = value as Readonly<Record<string, Json>>;
  switch (marked['!']) {
    case 'bytes':
      return { tag: 'x', bytes: bytesOf(value) };
    case 'int64':
      return { tag: 'l', value: wholeOf(marked['value'], 64) };
    case 'timestamp':
      return { tag: 'T', value: BigInt.asUintN(64, wholeOf(marked['value'], 64)) };
    case 'decimal':
      return decimalOf(marked['value']);
    default:
      return { tag: 'F', entries: asTable(entriesOf(value, depth + 1)) };
  }
}

/** The writer takes key and value; the bytes as they lay in a table are there for readers. */
const asTable = (entries: { key: string | Buffer; value: Field }[]) =>
  entries.map(({ key, value }) => ({ key: Buffer.from(key), value, raw: Buffer.alloc(0) }));

function bytesOf(value: Json): Buffer {
  const base64 = isObject(value) && value['!'] === 'bytes' ? value['base64'] : undefined;
  if (typeof base64 === 'string') return Buffer.from(base64, 'base64');
  throw invalid('a header marked as bytes has no base64');
}

function wholeOf(value: Json | undefined, bits: number): bigint {
  const text = String(value);
  const whole = /^-?\d{1,20}$/.test(text) ? BigInt(text) : null;
  if (whole === null || BigInt.asIntN(bits, whole) !== whole)
    throw invalid('a marked header is no such number');
  return whole;
}

function decimalOf(value: Json | undefined): Field {
  const [, sign = '', whole = '', part = ''] = /^(-?)(\d{1,10})(?:\.(\d{1,10}))?$/.exec(String(value)) ?? [];
  const digits = Number(`${sign}${whole}${part}`);
  if (whole === '' || Math.abs(digits) > 2_147_483_647) throw invalid('a marked header is no such number');
  return { tag: 'D', scale: part.length, digits };
}

/** A message that waited by its own expiration must not expire where it is wanted. */
export function withoutExpiration({ bytes, expirationSpan: { start, end } }: RawProperties): Buffer {
  if (start === end) return bytes;
  const out = Buffer.concat([bytes.subarray(0, start), bytes.subarray(end)]);
  out.writeUInt16BE(out.readUInt16BE(0) & ~FLAG.expiration);
  return out;
}

/** Flags and property list. */
export function writeProperties(properties: Properties, headers: Buffer | null): Buffer {
  let flags = 0;
  const list: Buffer[] = [];
  for (const [name, flag] of Object.entries(FLAG) as [keyof typeof FLAG, number][]) {
    const value = name === 'headers' ? headers : properties[name];
    if (value === undefined || value === null) continue;
    flags |= flag;
    list.push(...propertyBytes(value));
  }
  const head = Buffer.alloc(2);
  head.writeUInt16BE(flags);
  return Buffer.concat([head, ...list]);
}

function propertyBytes(value: string | number | bigint | Buffer): Buffer[] {
  if (typeof value === 'number') return [Buffer.of(value)];
  if (typeof value === 'bigint') {
    const out = Buffer.alloc(8);
    out.writeBigUInt64BE(value);
    return [out];
  }
  if (typeof value === 'string') return [Buffer.of(Buffer.byteLength(value)), Buffer.from(value)];
  const length = Buffer.alloc(4);
  length.writeUInt32BE(value.length);
  return [length, value];
}

function shortText(node: JsonNode | undefined, name: string): string {
  if (node?.type === 'string' && Buffer.byteLength(node.value) <= 255) return node.value;
  throw invalid(`${name} is missing or not a string of at most 255 bytes`);
}

const plain = (node: JsonNode): Json => toPlain(node) as Json;

const isObject = (value: Json | undefined): value is Readonly<Record<string, Json>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const invalid = (what: string): Discard =>
  new Discard(`the payload is not a message: ${what}`, 'payload-invalid');
