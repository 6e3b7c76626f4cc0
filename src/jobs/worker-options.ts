/** What may be said to createWorker, and within which bounds. It refuses what is outside before anything starts. */
import { EXIT, UnbrokerError } from '../errors.js';
import type { Handler, KindOptions } from './handler.js';
import { plainAgeMs, type Retention, RetentionWalk } from './retention.js';
import { parseRetryPolicy } from './retry.js';

/** Kinds with their options. Throws `worker-invalid`. */
export function checkHandlers(handlers: Readonly<Record<string, Handler>>): Map<string, KindOptions> {
  const kinds = new Map(Object.entries(handlers).map(([kind, handler]) => [kind, checkKind(kind, handler)]));
  if (kinds.size === 0) throw workerInvalid('handlers is empty', 'Register at least one kind.');
  return kinds;
}

function checkKind(kind: string, handler: Handler): KindOptions {
  const options = typeof handler === 'function' ? { handle: handler } : handler;
  const path = `handlers.${kind.slice(0, 60)}`;
  if (typeof options?.handle !== 'function')
    throw workerInvalid(`${path} is not a function`, 'Give a function, or an object with `handle`.');
  bounded(`${path}.concurrency`, options.concurrency ?? 1, 1, 10_000);
  if (options.retryPolicy !== undefined && parseRetryPolicy(options.retryPolicy) === null)
    throw workerInvalid(`${path}.retryPolicy is no policy`, 'Give an exponential, fixed or ladder policy.');
  if (!['retry', 'park', undefined].includes(options.onLeaseExpired))
    throw workerInvalid(`${path}.onLeaseExpired is not valid`, 'Give retry or park.');
  return options;
}

/** A hundred years. */
const MAX_AGE_MS = 3_153_600_000_000;
const MAX_COUNT = 1_000_000_000;

/** What upkeep needs to know: one age, or the rules by kind. Throws `worker-invalid`. */
export function checkRetention(options: { readonly retentionMs?: number; readonly retention?: Retention }): {
  readonly retentionMs?: number;
  readonly retention?: Retention;
} {
  const { retentionMs, retention } = options;
  if (retentionMs !== undefined) bounded('retentionMs', retentionMs, 0, MAX_AGE_MS);
  if (retention === undefined) return retentionMs === undefined ? {} : { retentionMs };
  const whole = {
    ...retention,
    default: { ...(retentionMs === undefined ? {} : { maxAgeMs: retentionMs }), ...retention.default },
  };
  for (const [kind, keep] of [['default', whole.default] as const, ...Object.entries(whole.kinds ?? {})]) {
    bounded(`retention of ${kind.slice(0, 60)}, maxAgeMs`, keep.maxAgeMs ?? 0, 0, MAX_AGE_MS);
    bounded(`retention of ${kind.slice(0, 60)}, maxCount`, keep.maxCount ?? 0, 0, MAX_COUNT);
  }
  if (new RetentionWalk(whole).minAgeMs === Number.POSITIVE_INFINITY) return {};
  const ageMs = plainAgeMs(whole);
  return ageMs === null ? { retention: whole } : { retentionMs: ageMs };
}

export function bounded(name: string, value: number, min: number, max: number): number {
  if (Number.isFinite(value) && value >= min && value <= max) return value;
  throw workerInvalid(`${name} is out of range`, `Give a number from ${min} to ${max}.`);
}

function workerInvalid(what: string, hint: string): UnbrokerError {
  return new UnbrokerError('worker-invalid', `The worker cannot start: ${what}`, {
    hint,
    exitStatus: EXIT.badInput,
  });
}
