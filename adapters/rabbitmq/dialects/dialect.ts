/**
 * How one ecosystem writes kind, attempts, delay and error into a message: a table of fields, each a small function that
 * finds it or says undefined. Adding an ecosystem is adding a file with such a table and naming it in known.ts.
 */
import type { ReadBody } from '../body.js';
import type { Death, Delivery } from '../delivery.js';
import type { QueueRole } from '../drain-config.js';
import { type Field, findField, integerOf, textOf } from '../headers.js';

/** A message as dialects see it. */
export interface MessageView {
  readonly delivery: Delivery;
  readonly body: ReadBody;
  readonly role: QueueRole;
  /** Newest first; empty when there is none or it is not what a broker writes. */
  readonly deaths: readonly Death[];
  readonly nowMs: number;
}

export type Find<T> = (view: MessageView) => T | undefined;

export interface Dialect {
  /** As in a rule's `dialect`. */
  readonly name: string;
  readonly summary: string;
  /** True when the message bears this ecosystem's marks; a guess is no mark. */
  claims(view: MessageView): boolean;
  readonly fields: DialectFields;
}

/** Where a message was, or would be, published. */
export interface Route {
  readonly exchange: string;
  readonly routingKey: string;
}

export interface DialectFields {
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
  readonly error?: Find<{ readonly name: string; readonly message: string }>;
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

/** Epoch ms of an ISO 8601 text; undefined when it is none. */
export function isoMs(text: unknown): number | undefined {
  if (typeof text !== 'string' || !/^\d{4}-\d{2}-\d{2}T/.test(text)) return undefined;
  const ms = Date.parse(text);
  return Number.isNaN(ms) ? undefined : ms;
}
