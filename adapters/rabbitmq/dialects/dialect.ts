/**
 * How one ecosystem writes kind, attempts, delay and error into a message: a table of fields, each a small function that
 * finds it or says undefined. Adding an ecosystem is adding a file with such a table and naming it in known.ts.
 */
import type { Json } from '../../../src/jobs/job.js';
import type { ReadBody } from '../body.js';
import type { Death, Delivery } from '../delivery.js';
import type { QueueRole } from '../drain-config.js';
import { type Field, findField, integerOf, type Table, textOf } from '../headers.js';
import type { DialectName } from './names.js';

/** A message as dialects see it. */
export interface MessageView {
  readonly delivery: Delivery;
  readonly body: ReadBody;
  readonly role: QueueRole;
  /** The queue's TTL; null = none, or not to be seen. */
  readonly ttlMs: number | null;
  /** Newest first; empty when there is none or it is not what a broker writes. */
  readonly deaths: readonly Death[];
  readonly nowMs: number;
}

export type Find<T> = (view: MessageView) => T | undefined;

export interface Dialect {
  /** As in a rule's `dialect`. */
  readonly name: DialectName;
  readonly summary: string;
  /** True when the message bears this ecosystem's marks; a guess is no mark. */
  claims(view: MessageView): boolean;
  /**
   * True: a temporary reply queue makes its message a request whose caller waits, as with a bare message. Unless a rule
   * names this dialect.
   */
  readonly requests?: boolean;
  readonly fields: DialectFields;
}

/** Where a message was, or would be, published. */
export interface Route {
  readonly exchange: string;
  readonly routingKey: string;
}

export interface Reason {
  readonly name: string;
  readonly message: string;
}

/** The application's own body, where the message wraps it. */
export interface Inner {
  readonly bytes: Buffer;
  readonly contentType: string | null;
}

/** What a row keeps beside the raw headers, in the dialect's words made plain. Undefined members are left out. */
export type Details = Readonly<Record<string, Json | undefined>>;

export interface DialectFields {
  /** Not a job at all, and why: a reply, an audit copy, a control message. */
  readonly exclude?: Find<string>;
  /** What rules are matched against. Default: the first publish as x-death keeps it, else as delivered. */
  readonly route?: Find<Route>;
  readonly kind: Find<string>;
  /** JSON text taken as it stands from the body; default: all of it. */
  readonly payloadText?: Find<string>;
  /** Attempts already made. Default: what `x-death` says. */
  readonly attempts?: Find<number>;
  readonly maxAttempts?: Find<number>;
  /** Epoch ms of the application's own due time. */
  readonly dueMs?: Find<number>;
  /** Epoch ms after which the application itself would not run it any more. */
  readonly expiresMs?: Find<number>;
  /** The queue whose rejections are attempts. Default: the one that rejected it last. */
  readonly homeQueue?: Find<string>;
  /** Why a dead letter is dead. */
  readonly error?: Find<Reason>;
  /** The library's id of the message. Together with home queue and attempt it names one job. Default: message-id. */
  readonly id?: Find<string>;
  /** Attempts that remain, where that is what is carried. */
  readonly attemptsLeft?: Find<number>;
  /** Epoch ms of the last moment at which it can be due, where only bounds are known. */
  readonly latestMs?: Find<number>;
  /** Read instead of the body. */
  readonly inner?: Find<Inner>;
  /** Why nobody but its own library can read the body: kept as bytes, and dead unless its rule says `body: 'run'`. */
  readonly opaque?: Find<Reason>;
  /** True: only the library's error handling writes such a message, whatever its queue seems to be for. */
  readonly dead?: Find<boolean>;
  /** True: no handler exists for it; dead even where a rule retries dead letters. */
  readonly unhandled?: Find<boolean>;
  readonly details?: Find<Details>;
  /** Words for the ledger: what a person should know. */
  readonly notes?: Find<readonly string[]>;
  /** Trace context that is not in headers of the usual names. */
  readonly trace?: Find<Readonly<Record<string, string>>>;
}

export const headerOf = ({ delivery }: MessageView, name: string): Field | undefined =>
  findField(delivery.headers, name);

export const headerText =
  (name: string): Find<string> =>
  (view) =>
    textOf(headerOf(view, name));

export const headerInteger =
  (name: string): Find<number> =>
  (view) =>
    integerOf(headerOf(view, name));

/** True when one of these headers is there and text. Made once for each dialect: it is asked about every message. */
export const anyHeaderText = (...names: readonly string[]): ((view: MessageView) => boolean) => {
  const has = (view: MessageView, name: string): boolean => textOf(headerOf(view, name)) !== undefined;
  return (view) => {
    for (const name of names) if (has(view, name)) return true;
    return false;
  };
};

/** The first that finds something. */
export const firstOf =
  <T>(...finds: readonly Find<T>[]): Find<T> =>
  (view) => {
    for (const find of finds) {
      const found = find(view);
      if (found !== undefined) return found;
    }
    return undefined;
  };

/** The parsed body as an object; undefined when it is another thing. */
export function bodyObject({ body }: MessageView): Readonly<Record<string, unknown>> | undefined {
  const parsed = body.parsed();
  return typeof parsed === 'object' && parsed !== null && !Array.isArray(parsed)
    ? (parsed as Record<string, unknown>)
    : undefined;
}

/**
 * Member names that mark a library's body, one for each `bodyWith`. They are looked for all at once: name by name, every
 * message that no library marked would be read through a dozen times (4 µs a KB instead of 0.6).
 */
const BODY_MARKS = [
  ...['task', 'actor_name', 'Message', 'job', 'UUID', 'messageType'],
  ...['pattern', 'isDisposed', 'payload'],
] as const;
type BodyMark = (typeof BODY_MARKS)[number];
const ANY_MARK = new RegExp(`"(?:${BODY_MARKS.join('|')})"`);
/** The dialects are asked one after the other about the same text. */
let unmarked: string | undefined;

function mayBeMarked(text: string): boolean {
  if (text === unmarked) return false;
  if (ANY_MARK.test(text)) return true;
  unmarked = text;
  return false;
}

/** The parsed body as an object, parsed only when all these member names occur in its text. */
export function bodyWith(
  view: MessageView,
  mark: BodyMark,
  ...names: readonly string[]
): Readonly<Record<string, unknown>> | undefined {
  const { text } = view.body;
  if (text === null || !mayBeMarked(text)) return undefined;
  const all = [mark, ...names];
  if (!all.every((name) => text.includes(`"${name}"`))) return undefined;
  const body = bodyObject(view);
  return body !== undefined && all.every((name) => Object.hasOwn(body, name)) ? body : undefined;
}

export const objectOf = (value: unknown): Readonly<Record<string, unknown>> | undefined =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : undefined;

/** A text that says something. */
export const filled = (value: unknown): string | undefined =>
  typeof value === 'string' && value !== '' ? value : undefined;

/** A whole number >= 0. */
export const countOf = (value: unknown): number | undefined =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : undefined;

/** The entries of a table header; undefined when it is another thing. */
export function headerTable(view: MessageView, name: string): Table | undefined {
  const field = headerOf(view, name);
  return field?.tag === 'F' ? field.entries : undefined;
}

/** As published first, as far as headers tell. */
export function firstRoute({ delivery, deaths }: MessageView): Route {
  const first = deaths.at(-1);
  return {
    exchange: first?.exchange ?? delivery.exchange,
    routingKey: first?.routingKeys[0] ?? delivery.routingKey,
  };
}

/** `Some.Exception: what happened` and whatever follows, as exceptions print themselves. */
export function printedError(text: string | undefined, fallback: string): Reason | undefined {
  if (text === undefined) return undefined;
  const [, name, message] = /^([A-Za-z_][\w.$+`\\]*?)(?:: ?|-->)(.*)$/m.exec(text.trimStart()) ?? [];
  return name === undefined ? { name: fallback, message: text } : { name, message: message || text };
}

/** A JSON text in a header; undefined when it is none. */
export function jsonOf(text: string | undefined): unknown {
  if (text === undefined) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const INSTANT = /^(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2}:\d{2})(?:[.,:](\d{1,9}))?\s*(Z|[+-]\d{2}:?\d{2})?$/;

/**
 * Epoch ms, rounded up, of the forms that libraries write: ISO 8601 with any fraction, and `2026-03-01 12:00:00:123456 Z`.
 * Without a zone it is taken for UTC, never for the zone of this machine.
 */
export function instantMs(text: unknown): number | undefined {
  const [, day, time, fraction = '', zone = 'Z'] = INSTANT.exec(typeof text === 'string' ? text : '') ?? [];
  if (day === undefined) return undefined;
  const offset = zone.length === 5 ? `${zone.slice(0, 3)}:${zone.slice(3)}` : zone;
  const ms = Date.parse(`${day}T${time}.${fraction.slice(0, 3).padEnd(3, '0')}${offset}`);
  if (Number.isNaN(ms)) return undefined;
  return /[1-9]/.test(fraction.slice(3)) ? ms + 1 : ms;
}

/** Milliseconds of a .NET time span, `[d.]hh:mm:ss[.fffffff]`. */
export function timeSpanMs(text: string | undefined): number | undefined {
  const parts = /^(?:(\d+)\.)?(\d{1,2}):(\d{2}):(\d{2})(?:\.(\d{1,7}))?$/.exec(text ?? '');
  if (parts === null) return undefined;
  const [days, hours, minutes, seconds] = parts.slice(1, 5).map((part) => Number(part ?? 0)) as [
    number,
    number,
    number,
    number,
  ];
  const whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds;
  return whole * 1_000 + Math.ceil(Number(`0.${parts[5] ?? '0'}`) * 1_000);
}

/** Epoch ms of an ISO 8601 text; undefined when it is none. */
export function isoMs(text: unknown): number | undefined {
  if (typeof text !== 'string' || !/^\d{4}-\d{2}-\d{2}T/.test(text)) return undefined;
  const ms = Date.parse(text);
  return Number.isNaN(ms) ? undefined : ms;
}
