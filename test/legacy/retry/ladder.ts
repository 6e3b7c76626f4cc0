/**
 * What happens to a dead letter or a retry request: which rung, or the parking queue. Pure; the broker's and our own
 * headers are read here and written by the callers.
 */
import { isObject } from '../common/bus.js';

/** The ladder's delays in ms, ascending; a queue each. */
export type Ladder = readonly number[];

export type Policy =
  | { readonly type: 'fixed'; readonly delayMs: number; readonly maxAttempts: number }
  | {
      readonly type: 'exponential';
      readonly baseMs: number;
      readonly factor?: number;
      readonly maxMs?: number;
      readonly maxAttempts: number;
    }
  | { readonly type: 'ladder'; readonly delaysMs: readonly number[]; readonly maxAttempts?: number };

export type Headers = Readonly<Record<string, unknown>>;

/** How a message came to its death. */
export interface Death {
  readonly queue: string;
  readonly exchange: string;
  readonly routingKey: string;
  /** Retries it has had; attempts made = this + 1. */
  readonly retries: number;
}

export type Decision =
  | { readonly kind: 'wait'; readonly rungMs: number; readonly retries: number }
  | { readonly kind: 'park'; readonly error: string };

interface XDeath {
  readonly queue: string;
  readonly exchange: string;
  readonly routingKey: string;
  readonly reason: string;
  readonly count: number;
}

/**
 * Our own headers first, then the broker's. `x-death` has the newest entry first; the home queue is where the message
 * was first rejected, for it may have expired from a wait queue before that.
 */
export function readDeath(headers: Headers, fallbackQueue: string): Death {
  const deaths = readXDeath(headers['x-death']);
  const first = deaths.findLast((death) => death.reason === 'rejected') ?? deaths.at(-1);
  const queue = text(headers['x-original-queue']) ?? first?.queue ?? fallbackQueue;
  const rejected = deaths
    .filter((death) => death.queue === queue && death.reason === 'rejected')
    .reduce((sum, death) => sum + death.count, 0);
  const count = headers['x-retry-count'];
  return {
    queue,
    exchange: text(headers['x-original-exchange']) ?? first?.exchange ?? '',
    routingKey: text(headers['x-original-routing-key']) ?? first?.routingKey ?? queue,
    retries: typeof count === 'number' ? count : Math.max(0, rejected - 1),
  };
}

export function decide(death: Death, headers: Headers, ladder: Ladder): Decision {
  const error = text(headers['x-error']);
  if (headers['x-permanent'] === true) return { kind: 'park', error: error ?? 'permanent failure' };
  const rungMs = ladder[death.retries];
  if (rungMs !== undefined) return { kind: 'wait', rungMs, retries: death.retries + 1 };
  return { kind: 'park', error: `rejected from ${death.queue} ${death.retries + 1} times` };
}

/** The rung for a request's next attempt, or undefined when its attempts are spent. `attempt`: attempts made so far. */
export function rungFor(policy: Policy | null, attempt: number, ladder: Ladder): number | undefined {
  const delayMs = policy === null ? ladder[Math.max(0, attempt - 1)] : delayOf(policy, attempt);
  if (delayMs === undefined) return undefined;
  return ladder.find((rungMs) => rungMs >= delayMs) ?? ladder.at(-1);
}

function delayOf(policy: Policy, attempt: number): number | undefined {
  const nth = Math.max(0, attempt - 1);
  if (policy.type === 'ladder') {
    if (policy.maxAttempts !== undefined && attempt >= policy.maxAttempts) return undefined;
    return policy.delaysMs[nth];
  }
  if (attempt >= policy.maxAttempts) return undefined;
  if (policy.type === 'fixed') return policy.delayMs;
  return Math.min(policy.baseMs * (policy.factor ?? 2) ** nth, policy.maxMs ?? Number.POSITIVE_INFINITY);
}

export function isPolicy(value: unknown): value is Policy {
  if (!isObject(value)) return false;
  const { type, delayMs, maxAttempts, baseMs, factor, maxMs, delaysMs } = value;
  if (type === 'fixed') return isCount(delayMs) && isCount(maxAttempts);
  if (type === 'exponential') {
    return (
      isCount(baseMs) && isCount(maxAttempts) && [factor, maxMs].every((n) => n === undefined || isCount(n))
    );
  }
  return (
    type === 'ladder' &&
    Array.isArray(delaysMs) &&
    delaysMs.every(isCount) &&
    (maxAttempts === undefined || isCount(maxAttempts))
  );
}

function readXDeath(value: unknown): XDeath[] {
  if (!Array.isArray(value)) return [];
  return value.filter(isObject).map((entry) => ({
    queue: text(entry['queue']) ?? '',
    exchange: text(entry['exchange']) ?? '',
    routingKey: Array.isArray(entry['routing-keys']) ? String(entry['routing-keys'][0] ?? '') : '',
    reason: text(entry['reason']) ?? '',
    count: typeof entry['count'] === 'number' ? entry['count'] : 1,
  }));
}

const text = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined);
const isCount = (value: unknown): value is number => typeof value === 'number' && value >= 0;
