/**
 * Jobs that came too late. Doors write the caller's `expiresAt` on top of the headers, where the handlers that deliver
 * look at it; a drain or bridge writes a message's own expiry into `origin`, where every worker looks before a start.
 */
import type { Json } from './job.js';
import { Discard } from './settle.js';

/** Throws Discard `expired` when `expiresAt` of the headers has passed. What is no time is not looked at. */
export function refuseExpired(headers: Json, nowMs = Date.now()): void {
  if (expiryMs(memberOf(headers, 'expiresAt')) <= nowMs)
    throw new Discard('it expired before it could be sent', 'expired');
}

/** The same for a message that was imported with an expiry ahead: the library that sent it would not run it any more. */
export function refuseExpiredOrigin(headers: Json, nowMs?: number): void {
  const origin = memberOf(headers, 'origin');
  if (origin === undefined) return;
  // `origin` may be anybody's word; the drain's has the dialect that read the message.
  if (typeof memberOf(origin, 'dialect') !== 'string') return;
  const expiresAt = memberOf(origin, 'expiresAt');
  if (expiryMs(expiresAt) <= (nowMs ?? Date.now()))
    throw new Discard(
      `it expired at ${String(expiresAt)} by its own expiry, before it was started`,
      'expired',
    );
}

function memberOf(value: Json | undefined, name: string): Json | undefined {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
  return (value as { readonly [key: string]: Json })[name];
}

/** NaN for what is no time: no comparison with it holds. */
const expiryMs = (value: Json | undefined): number =>
  typeof value === 'string' ? Date.parse(value) : Number.NaN;
