/**
 * What a row keeps of its message beside the payload, as JSON that Postgres takes: trace context for later spans, what the
 * dialect could tell, properties and headers. The ledger has the bytes; this is for reading.
 */
import type { Json } from '../../src/jobs/job.js';
import { isStorable, storableText } from '../../src/jobs/text.js';
import { timestampMs } from './delivery.js';
import type { Dialect, MessageView } from './dialects/dialect.js';
import { findField, tableToJson, textOf } from './headers.js';

/** A fan-out has one id in several queues, and a retry keeps its id: both are jobs of their own. */
export interface Identity {
  readonly homeQueue: string;
  readonly id: string;
  readonly attempt: number;
}

/** Trace context that later spans link to. */
const TRACE_HEADERS = ['traceparent', 'tracestate', 'baggage', 'b3', 'uber-trace-id'];
const NOTHING: readonly [string, string][] = [];
const MAX_TRACE = 1_000;
/** A date reaches no further. */
const MAX_DATE_MS = 8.64e15;
const TEXTS = [
  ...(['contentType', 'contentEncoding', 'correlationId', 'replyTo', 'expiration', 'messageId'] as const),
  ...(['type', 'userId', 'appId', 'clusterId'] as const),
] as const;

/** What the row keeps of the message: trace context on top, the dialect's view in `origin`, the rest under `amqp`. */
export function rowHeaders(
  view: MessageView,
  dialect: Dialect,
  identity: Identity | null,
  notes: readonly string[],
): Readonly<Record<string, Json>> {
  const { delivery } = view;
  const { properties, headers } = delivery;
  const out: Record<string, Json> = {};
  for (const name of headers.length === 0 ? [] : TRACE_HEADERS) {
    const value = textOf(findField(headers, name));
    if (value !== undefined && isStorable(value)) out[name] = storableText(value, MAX_TRACE);
  }
  const amqp: Record<string, Json> = {
    exchange: shortText(delivery.exchange),
    routingKey: shortText(delivery.routingKey),
  };
  for (const name of TEXTS) {
    const value = properties[name];
    if (value !== undefined) amqp[name] = shortText(value);
  }
  if (properties.deliveryMode !== undefined) amqp['deliveryMode'] = properties.deliveryMode;
  if (properties.priority !== undefined) amqp['priority'] = properties.priority;
  if (properties.timestamp !== undefined) {
    const ms = timestampMs(properties.timestamp);
    amqp['timestamp'] = ms === null ? String(properties.timestamp) : new Date(ms).toISOString();
  }
  if (delivery.redelivered) amqp['redelivered'] = true;
  if (headers.length > 0) amqp['headers'] = tableToJson(headers);
  if (notes.length > 0) amqp['notes'] = [...notes];
  const trace = dialect.fields.trace?.(view);
  for (const [name, value] of trace === undefined ? NOTHING : Object.entries(trace)) {
    if (TRACE_HEADERS.includes(name) && isStorable(value)) out[name] ??= storableText(value, MAX_TRACE);
  }
  const origin = originOf(view, dialect, identity);
  if (origin !== undefined) out['origin'] = origin;
  out['amqp'] = amqp;
  return out;
}

function originOf(view: MessageView, { name, fields }: Dialect, identity: Identity | null): Json | undefined {
  const details = fields.details?.(view);
  if (details === undefined && fields.id === undefined) return undefined;
  const origin: Record<string, Json> = { dialect: name, ...identity };
  // Ahead still: a worker that starts the job later than that discards it, as the library itself would. What expired
  // before is cancelled already, and runs when somebody retries it nevertheless.
  const expiresMs = fields.expiresMs?.(view);
  if (expiresMs !== undefined && expiresMs >= view.nowMs && expiresMs <= MAX_DATE_MS)
    origin['expiresAt'] = new Date(expiresMs).toISOString();
  for (const [key, value] of Object.entries(details ?? {})) {
    if (value !== undefined) origin[key] = typeof value === 'string' ? shortText(value) : value;
  }
  return origin;
}

/** Nearly all of it is plain ASCII, which needs no second look. */
export function shortText(text: string): string {
  const { length } = text;
  if (length > 255) return storableText(text, 255);
  for (let index = 0; index < length; index += 1) {
    const code = text.charCodeAt(index);
    if (code < 0x20 || code > 0x7e) return storableText(text, 255);
  }
  return text;
}
