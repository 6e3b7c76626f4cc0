/**
 * When to try again: a retry policy and the number of the attempt that failed give a delay. Pure; the random number
 * is an argument.
 */
import type { RetryPolicy } from './job.js';

/** Exponential with full jitter: about 1 s, 2 s, 4 s, ... each uniform in [0, delay], at most an hour. */
export const DEFAULT_RETRY_POLICY: RetryPolicy = {
  type: 'exponential',
  baseMs: 1_000,
  factor: 2,
  maxMs: 3_600_000,
  jitter: 'full',
};

/** No policy waits longer than this: 30 days. */
export const MAX_RETRY_DELAY_MS = 30 * 24 * 3_600_000;

/**
 * Delay in ms before the next start. `attempt` is the start that just failed, from 1; `random` is in [0, 1).
 * A ladder's last rung repeats. Never negative, never over MAX_RETRY_DELAY_MS.
 */
export function retryDelayMs(policy: RetryPolicy, attempt: number, random: number): number {
  return Math.round(boundedDelayMs(rawDelayMs(policy, Math.max(1, attempt), random)));
}

/** 0 to MAX_RETRY_DELAY_MS: what the database's interval surely takes. */
export function boundedDelayMs(delayMs: number): number {
  return Math.min(Math.max(0, delayMs), MAX_RETRY_DELAY_MS);
}

function rawDelayMs(policy: RetryPolicy, attempt: number, random: number): number {
  switch (policy.type) {
    case 'fixed':
      return policy.delayMs;
    case 'ladder':
      return policy.delaysMs[Math.min(attempt, policy.delaysMs.length) - 1] ?? 0;
    case 'exponential': {
      // Bounded before it is multiplied: 0 × Infinity is no number.
      const factor = Math.min(policy.factor ** (attempt - 1), Number.MAX_VALUE);
      const capped = Math.min(policy.baseMs * factor, policy.maxMs);
      return policy.jitter === 'none' ? capped : capped * random;
    }
  }
}

/**
 * Reads a policy from jsonb, an HTTP body or a config; null when it is not one. Bounds: delays 0 to 30 days, factor 1
 * to 100, ladder 1 to 100 rungs.
 */
export function parseRetryPolicy(value: unknown): RetryPolicy | null {
  if (typeof value !== 'object' || value === null) return null;
  const { type, baseMs, factor, maxMs, jitter, delayMs, delaysMs } = value as Record<string, unknown>;
  if (type === 'fixed') return isDelay(delayMs) ? { type, delayMs } : null;
  if (type === 'ladder') {
    const valid =
      Array.isArray(delaysMs) && delaysMs.length >= 1 && delaysMs.length <= 100 && delaysMs.every(isDelay);
    return valid ? { type, delaysMs } : null;
  }
  if (type !== 'exponential' || !isDelay(baseMs) || !isDelay(maxMs)) return null;
  if (typeof factor !== 'number' || !(factor >= 1 && factor <= 100)) return null;
  if (jitter !== undefined && jitter !== 'full' && jitter !== 'none') return null;
  return { type, baseMs, factor, maxMs, jitter: jitter ?? 'full' };
}

function isDelay(value: unknown): value is number {
  return typeof value === 'number' && value >= 0 && value <= MAX_RETRY_DELAY_MS;
}
