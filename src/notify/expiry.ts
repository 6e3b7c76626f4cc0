/** A job that came too late: `expiresAt` in its headers, as the doors write it. */
import type { Json } from '../jobs/job.js';
import { Discard } from '../jobs/settle.js';

/** Throws Discard `expired` when the time has passed. What is no time is not looked at. */
export function refuseExpired(headers: Json, nowMs = Date.now()): void {
  if (typeof headers !== 'object' || headers === null || !('expiresAt' in headers)) return;
  const { expiresAt } = headers;
  const atMs = typeof expiresAt === 'string' ? Date.parse(expiresAt) : Number.NaN;
  if (atMs <= nowMs) throw new Discard('it expired before it could be sent', 'expired');
}
