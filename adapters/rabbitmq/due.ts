/**
 * When an imported job may start. The broker does not say when a waiting message falls due, so this takes the best that
 * is known, best first, and says whether it is exact. Pure: the clock is an argument.
 */
import { type Death, timestampMs } from './delivery.js';
import { findField, integerOf, type Table } from './headers.js';

export interface DueInput {
  /** Only a wait queue holds messages back; elsewhere a delay has already elapsed. */
  readonly waiting: boolean;
  /** The application's own time, from its dialect. */
  readonly applicationMs: number | undefined;
  /** The queue's TTL. */
  readonly queueTtlMs: number | null;
  /** The message's `expiration` property. */
  readonly expiration: string | undefined;
  readonly deaths: readonly Death[];
  readonly headers: Table;
  /** Queues whose dead letters come into this one. */
  readonly feeders: readonly string[];
  readonly nowMs: number;
  /** When only bounds are known: the end of them (never early), or now. */
  readonly policy: 'latest' | 'now';
}

export interface Due {
  /** Epoch ms; null = at once. */
  readonly runAtMs: number | null;
  readonly exact: boolean;
}

/** Year 9999: far beyond any TTL, well within what Postgres holds. */
const MAX_RUN_AT_MS = 253_402_300_799_000;
const AT_ONCE: Due = { runAtMs: null, exact: true };

export function dueAt(input: DueInput): Due {
  const { applicationMs, nowMs, headers } = input;
  if (applicationMs !== undefined && Number.isFinite(applicationMs)) {
    return applicationMs <= nowMs
      ? AT_ONCE
      : { runAtMs: Math.min(Math.ceil(applicationMs), MAX_RUN_AT_MS), exact: true };
  }
  if (!input.waiting) return AT_ONCE;
  const ttlMs = effectiveTtlMs(input.queueTtlMs, input.expiration);
  if (ttlMs === null) return { runAtMs: null, exact: false };
  // Written by the broker's own interceptor when it is on.
  const enqueuedMs = integerOf(findField(headers, 'timestamp_in_ms'));
  if (enqueuedMs !== undefined && timestampMs(BigInt(enqueuedMs)) !== null) {
    return { runAtMs: clamp(enqueuedMs + ttlMs, nowMs, ttlMs), exact: true };
  }
  const diedMs = onlyDeathMs(input.deaths, input.feeders);
  if (diedMs !== null) return { runAtMs: clamp(diedMs + ttlMs, nowMs, ttlMs), exact: true };
  // It entered some time in [now - TTL, now].
  return { runAtMs: input.policy === 'latest' ? nowMs + ttlMs : null, exact: false };
}

/** The broker takes the smaller; an expiration that is not whole milliseconds it would have refused. */
export function effectiveTtlMs(queueTtlMs: number | null, expiration: string | undefined): number | null {
  const ownMs = expiration !== undefined && /^\d{1,15}$/.test(expiration) ? Number(expiration) : null;
  if (queueTtlMs === null || ownMs === null) return queueTtlMs ?? ownMs;
  return Math.min(queueTtlMs, ownMs);
}

/**
 * When the newest death put the message into this queue. The recorded time is that of the *first* death for a queue and
 * reason, so it dates the message only while the count is 1.
 */
function onlyDeathMs(deaths: readonly Death[], feeders: readonly string[]): number | null {
  const newest = deaths[0];
  if (newest === undefined || newest.count !== 1 || !feeders.includes(newest.queue)) return null;
  return newest.timeMs;
}

/** Clocks differ: whatever a stamp says, the message leaves the queue between now and now + TTL. */
function clamp(dueMs: number, nowMs: number, ttlMs: number): number {
  return Math.min(Math.max(dueMs, nowMs), nowMs + ttlMs);
}
