/**
 * What a failed delivery means: try again, give up, wait as told, or nobody knows. Pure tables over status codes and
 * error codes; they know no provider by name.
 */
import type { Json } from '../jobs/job.js';

/**
 * `transient`: it was not delivered, a later try may work. `final`: no try will. `deferred`: the other side says when,
 * or must be mended first; no attempt is spent. `ambiguous`: it may have been delivered.
 */
export type Fate =
  | { readonly type: 'transient' }
  | { readonly type: 'final' }
  | { readonly type: 'deferred'; readonly retryAfterMs: number }
  | { readonly type: 'ambiguous' };

export const TRANSIENT: Fate = { type: 'transient' };
export const FINAL: Fate = { type: 'final' };
export const AMBIGUOUS: Fate = { type: 'ambiguous' };

/** A refused login concerns every message alike: hold them rather than burn their attempts. */
export const LOGIN_REFUSED: Fate = { type: 'deferred', retryAfterMs: 60_000 };

/** No Retry-After is believed beyond a day. */
const MAX_RETRY_AFTER_MS = 86_400_000;

/** Who only ever says "later" must not keep a job for ever: after so many times a deferral costs an attempt. */
export const MAX_DEFERRALS = 50;

/** `deferrals` of what a handler kept, 0 without. */
export function deferralsOf(progress: Json): number {
  const kept =
    typeof progress === 'object' && progress !== null && 'deferrals' in progress ? progress.deferrals : 0;
  return typeof kept === 'number' ? kept : 0;
}

/** The message names codes and hosts, never recipients or payloads. */
export class DeliveryError extends Error {
  constructor(
    readonly fate: Fate,
    message: string,
  ) {
    super(message);
    this.name = 'DeliveryError';
  }
}

/** Of an HTTP answer; null when it is a success. Redirects are not followed, so 3xx is final. */
export function httpFate(status: number, retryAfter: string | undefined, nowMs: number): Fate | null {
  if (status >= 200 && status <= 299) return null;
  if (status === 401 || status === 403) return LOGIN_REFUSED;
  if (status >= 500 || [408, 425, 429].includes(status)) {
    const retryAfterMs = retryAfter === undefined ? null : parseRetryAfter(retryAfter, nowMs);
    return retryAfterMs === null ? TRANSIENT : { type: 'deferred', retryAfterMs };
  }
  return FINAL;
}

/** Seconds or an HTTP date, in ms from now: 0 to a day; null for anything else. */
export function parseRetryAfter(text: string, nowMs: number): number | null {
  const trimmed = text.trim();
  const ms = /^\d{1,9}$/.test(trimmed) ? Number(trimmed) * 1_000 : parseHttpDate(trimmed, nowMs) - nowMs;
  return Number.isFinite(ms) ? Math.min(Math.max(0, ms), MAX_RETRY_AFTER_MS) : null;
}

/** All three forms of RFC 9110; each is UTC, where Date.parse would take the last as local time. Otherwise NaN. */
function parseHttpDate(text: string, nowMs: number): number {
  const clock = String.raw`(\d\d:\d\d:\d\d)`;
  const fixed = new RegExp(String.raw`^[A-Z][a-z]{2}, (\d\d) ([A-Z][a-z]{2}) (\d{4}) ${clock} GMT$`).exec(
    text,
  );
  if (fixed !== null) return utc(fixed[3], fixed[2], fixed[1], fixed[4]);
  const rfc850 = new RegExp(String.raw`^[A-Z][a-z]+day, (\d\d)-([A-Z][a-z]{2})-(\d\d) ${clock} GMT$`).exec(
    text,
  );
  if (rfc850 !== null) {
    // Two digits are of this century, unless that is more than fifty years ahead.
    const year = Math.floor(new Date(nowMs).getUTCFullYear() / 100) * 100 + Number(rfc850[3]);
    const isAhead = year > new Date(nowMs).getUTCFullYear() + 50;
    return utc(String(isAhead ? year - 100 : year), rfc850[2], rfc850[1], rfc850[4]);
  }
  const asctime = new RegExp(String.raw`^[A-Z][a-z]{2} ([A-Z][a-z]{2}) ([ \d]\d) ${clock} (\d{4})$`).exec(
    text,
  );
  return asctime === null ? Number.NaN : utc(asctime[4], asctime[1], asctime[2], asctime[3]);
}

const utc = (year = '', month = '', day = '', clock = ''): number =>
  Date.parse(`${day.trim()} ${month} ${year} ${clock} GMT`);

/** Of an SMTP failure. `handedOver`: the whole message was written when it happened. */
export function smtpFate(
  error: { readonly responseCode?: number | undefined; readonly code?: string | undefined },
  handedOver: boolean,
): Fate {
  const { responseCode, code } = error;
  if (code === 'EAUTH' || responseCode === 530 || responseCode === 535) return LOGIN_REFUSED;
  if (responseCode !== undefined && responseCode >= 400) return responseCode >= 500 ? FINAL : TRANSIENT;
  // Without an answer: a server may only take a message whose end it has seen.
  return handedOver ? AMBIGUOUS : TRANSIENT;
}
