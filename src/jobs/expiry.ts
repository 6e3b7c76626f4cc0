/**
 * Jobs that came too late. Doors write the caller's `expiresAt` on top of the headers, where the handlers that deliver
 * look at it; a drain or bridge writes a message's own expiry into `origin`, where every worker looks before a start.
 */
import type { Json } from './job.js';
import { Discard, Snooze } from './settle.js';

/**
 * Epoch ms by the database's clock. A worker whose own is two hours ahead would else give up what is in time; asked only when
 * there is an expiry.
 */
export type Clock = () => Promise<number>;

const ASK_AGAIN_MS = 1_000;

/** Rejects with Discard `expired` when `expiresAt` of the headers has passed. What is no time is not looked at. */
export async function refuseExpired(headers: Json, clock: Clock): Promise<void> {
  const atMs = expiryMs(memberOf(headers, 'expiresAt'));
  if (!Number.isNaN(atMs) && atMs <= (await timeOf(clock)))
    throw new Discard('it expired before it could be sent', 'expired');
}

/** When a message that was imported with an expiry ahead ends: the library that sent it would not run it any more. */
export function expiryOfOrigin(headers: Json): string | undefined {
  const origin = memberOf(headers, 'origin');
  // `origin` may be anybody's word; the drain's has the dialect that read the message.
  if (origin === undefined || typeof memberOf(origin, 'dialect') !== 'string') return undefined;
  const expiresAt = memberOf(origin, 'expiresAt');
  return Number.isNaN(expiryMs(expiresAt)) ? undefined : String(expiresAt);
}

/** Rejects with Discard `expired` when this time, as `expiryOfOrigin` gave it, has passed. */
export async function refuseExpiredAt(expiresAt: string, clock: Clock): Promise<void> {
  if (expiryMs(expiresAt) <= (await timeOf(clock)))
    throw new Discard(`it expired at ${expiresAt} by its own expiry, before it was started`, 'expired');
}

/** A database that does not answer is no attempt: nothing has begun. */
async function timeOf(clock: Clock): Promise<number> {
  return clock().catch(() => {
    throw new Snooze(ASK_AGAIN_MS);
  });
}

function memberOf(value: Json | undefined, name: string): Json | undefined {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
  return (value as { readonly [key: string]: Json })[name];
}

/** NaN for what is no time: no comparison with it holds. */
const expiryMs = (value: Json | undefined): number =>
  typeof value === 'string' ? Date.parse(value) : Number.NaN;
