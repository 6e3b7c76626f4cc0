/** What may be said to createWorker, and within which bounds. It refuses what is outside before anything starts. */
import { EXIT, UnbrokerError } from '../errors.js';
import type { Handler, KindOptions } from './handler.js';
import { KIND_LIMITS, type KindLimits } from './kind-limits.js';
import { plainAgeMs, type Retention, RetentionWalk } from './retention.js';
import { parseRetryPolicy } from './retry.js';
import type { KindRule } from './store.js';

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
  if (!['pass', 'block', undefined].includes(options.onDeadHead))
    throw workerInvalid(`${path}.onDeadHead is not valid`, 'Give pass or block.');
  if (!['boolean', 'undefined'].includes(typeof options.keepDone))
    throw workerInvalid(`${path}.keepDone is not valid`, 'Give true or false.');
  return options;
}

/** What claims ask for, by kind. Throws `worker-invalid`. */
export function checkKindLimits(limits: Readonly<Record<string, KindLimits>>): Map<string, KindRule> {
  const whole = (name: string, value: number, max: number): number => {
    if (Number.isInteger(value)) return bounded(name, value, 1, max);
    throw workerInvalid(`${name} is no whole number`, `Give a whole number from 1 to ${max}.`);
  };
  return new Map(
    Object.entries(limits).map(([kind, { maxRunning, rate }]) => {
      const path = `kinds.${kind.slice(0, 60)}`;
      const rule: { maxRunning?: number; rate?: KindRule['rate'] } = {};
      if (maxRunning !== undefined)
        rule.maxRunning = whole(`${path}.maxRunning`, maxRunning, KIND_LIMITS.maxRunning);
      if (rate !== undefined) {
        const max = whole(`${path}.rate.max`, rate.max, KIND_LIMITS.rate);
        rule.rate = {
          max,
          perMs: whole(`${path}.rate.perMs`, rate.perMs, KIND_LIMITS.perMs),
          burst: whole(`${path}.rate.burst`, rate.burst ?? max, KIND_LIMITS.rate),
        };
      }
      return [kind, rule];
    }),
  );
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
