/** What may be said to createWorker, and within which bounds. It refuses what is outside before anything starts. */
import { suggestion } from '../check.js';
import { EXIT, UnbrokerError } from '../errors.js';
import type { KindRule } from './claim-store.js';
import { foreignHandle } from './handle.js';
import type { Handler, KindOptions } from './handler.js';
import { LIMITS } from './job.js';
import { KIND_LIMITS, type KindLimits } from './kind-limits.js';
import { KeepRules, type Retention } from './retention.js';
import { parseRetryPolicy } from './retry.js';
import { MAX_SETTLE } from './settler.js';
import { isStorable } from './text.js';
import type { WorkerOptions } from './worker-face.js';

interface Expected {
  readonly is: (value: unknown) => boolean;
  readonly named: string;
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const isFunction = (value: unknown): boolean => typeof value === 'function';
const hasFunctions =
  (...names: readonly string[]) =>
  (value: unknown): boolean =>
    (isObject(value) || isFunction(value)) &&
    names.every((name) => isFunction((value as Record<string, unknown>)[name]));

const A_NUMBER: Expected = { is: (value) => typeof value === 'number', named: 'a number' };
const A_FUNCTION: Expected = { is: isFunction, named: 'a function' };
const AN_OBJECT: Expected = { is: isObject, named: 'an object' };

/** What each option must be; how large a number may be is checked where it is read. */
const OPTIONS: Readonly<Record<string, Expected>> = {
  db: { is: hasFunctions('query'), named: 'a pool of pg, or anything with `query`' },
  schema: { is: (value) => typeof value === 'string', named: 'a string' },
  handlers: { is: isObject, named: 'an object that maps kinds to functions' },
  concurrency: A_NUMBER,
  kinds: AN_OBJECT,
  leaseMs: A_NUMBER,
  settleBatch: A_NUMBER,
  pollMs: A_NUMBER,
  listen: A_FUNCTION,
  upkeepMs: A_NUMBER,
  keepDone: { is: (value) => typeof value === 'boolean', named: 'true or false' },
  retentionMs: A_NUMBER,
  retention: AN_OBJECT,
  log: { is: hasFunctions('debug', 'info', 'warn', 'error'), named: 'a logger like pino' },
  onEvent: A_FUNCTION,
};

export const WORKER_OPTIONS: readonly string[] = Object.keys(OPTIONS);

/** A limit that is used up is looked at again after so long at most: nobody notifies of it. */
const LIMITED_POLL_MS = 200;

/** What is said of a worker, or its default. Throws `worker-invalid`. */
export function settingsOf(options: WorkerOptions) {
  checkOptions(options);
  const concurrency = whole('concurrency', options.concurrency ?? 10, 10_000);
  const leaseMs = bounded('leaseMs', options.leaseMs ?? 30_000, 100, 86_400_000);
  const pollMs = bounded('pollMs', options.pollMs ?? 200, 5, 60_000);
  const upkeepMs = bounded('upkeepMs', options.upkeepMs ?? 5_000, 0, 3_600_000);
  const handlers = checkHandlers(options.handlers);
  const limits = checkKindLimits(options.kinds ?? {});
  const retention = checkRetention(options);
  return {
    ...{ concurrency, leaseMs, upkeepMs, handlers, limits, retention },
    pollMs: limits.size > 0 ? Math.min(pollMs, LIMITED_POLL_MS) : pollMs,
    settleBatch: Math.floor(bounded('settleBatch', options.settleBatch ?? MAX_SETTLE, 1, MAX_SETTLE)),
    keepDone: options.keepDone ?? true,
  };
}

/**
 * From JavaScript anything may come: a misspelt option would be passed over, and what has no `query` would fail later and
 * elsewhere. Throws `worker-invalid`.
 */
function checkOptions(options: unknown): void {
  if (!isObject(options)) throw workerInvalid('it has no options', 'Give at least db and handlers.');
  for (const [name, value] of Object.entries(options)) {
    const expected = Object.hasOwn(OPTIONS, name) ? OPTIONS[name] : undefined;
    if (expected === undefined) {
      const near = suggestion(name, Object.keys(OPTIONS));
      const known = `Options are ${Object.keys(OPTIONS).join(', ')}`;
      throw workerInvalid(`${name.slice(0, 60)} is no option`, `${known}${near || '.'}`);
    }
    if (value !== undefined && !expected.is(value))
      throw workerInvalid(`${name} is not ${expected.named}`, `Give ${expected.named}.`);
  }
  const foreign = foreignHandle(options['db']);
  if (foreign !== undefined)
    throw workerInvalid(
      `db is ${foreign}`,
      'Give a pool of pg, or the wrapping of the library’s own handle.',
    );
  for (const name of ['db', 'handlers'])
    if (options[name] === undefined)
      throw workerInvalid(`it has no ${name}`, `Give ${OPTIONS[name]?.named ?? name}.`);
}

const DEFAULT_DEADLINE_MS = 30_000;

/** How long a worker that stops waits. What cannot be meant is told to `warn`, not refused: a process that ends must see it stop. */
export function deadlineOf(options: unknown, warn: (text: string) => void): number {
  const next = `give stop({ deadlineMs }), a number; without one it waits ${DEFAULT_DEADLINE_MS} ms`;
  if (options !== undefined && !isObject(options)) warn(`the options of stop() are not an object: ${next}`);
  const { deadlineMs, ...others }: Record<string, unknown> = isObject(options) ? options : {};
  for (const name of Object.keys(others)) warn(`${name.slice(0, 60)} is no option of stop(): ${next}`);
  if (typeof deadlineMs === 'number' && !Number.isNaN(deadlineMs)) return deadlineMs;
  if (deadlineMs !== undefined) warn(`deadlineMs of stop() is not a number: ${next}`);
  return DEFAULT_DEADLINE_MS;
}

/** Kinds with their options. Throws `worker-invalid`. */
export function checkHandlers(handlers: Readonly<Record<string, Handler>>): Map<string, KindOptions> {
  const kinds = new Map(Object.entries(handlers).map(([kind, handler]) => [kind, checkKind(kind, handler)]));
  if (kinds.size === 0) throw workerInvalid('handlers is empty', 'Register at least one kind.');
  return kinds;
}

const POLICIES =
  "{ type: 'exponential', baseMs, factor, maxMs }, { type: 'fixed', delayMs } or { type: 'ladder', delaysMs }";

export const KIND_OPTIONS: readonly (keyof KindOptions)[] = [
  ...([
    'handle',
    'concurrency',
    'retryPolicy',
    'onLeaseExpired',
    'onDeadHead',
    'keepDone',
    'schema',
  ] as const),
];

function checkKind(kind: string, handler: Handler): KindOptions {
  const options = typeof handler === 'function' ? { handle: handler } : handler;
  const path = `handlers.${kind.slice(0, 60)}`;
  // The table holds no such kind; and a claim that asks for NUL is refused each time, for the other kinds, too.
  if (kind.length < 1 || kind.length > LIMITS.kindLength || !isStorable(kind))
    throw workerInvalid(
      'a kind in handlers is no name',
      `Use 1 to ${LIMITS.kindLength} characters without NUL or lone surrogates.`,
    );
  if (typeof options?.handle !== 'function')
    throw workerInvalid(`${path} is not a function`, 'Give a function, or an object with `handle`.');
  // Only what is nearly an option: the object may be the caller's own, with more in it that `handle` needs.
  for (const name of Object.keys(options)) {
    const near = KIND_OPTIONS.includes(name as keyof KindOptions) ? '' : suggestion(name, KIND_OPTIONS);
    if (near !== '')
      throw workerInvalid(`${path}.${name} is no option`, `Options are ${KIND_OPTIONS.join(', ')}${near}`);
  }
  whole(`${path}.concurrency`, options.concurrency ?? 1, 10_000);
  if (options.retryPolicy !== undefined && parseRetryPolicy(options.retryPolicy) === null)
    throw workerInvalid(`${path}.retryPolicy is no policy`, `Give ${POLICIES}.`);
  if (!['retry', 'park', undefined].includes(options.onLeaseExpired))
    throw workerInvalid(`${path}.onLeaseExpired is not valid`, 'Give retry or park.');
  if (!['pass', 'block', undefined].includes(options.onDeadHead))
    throw workerInvalid(`${path}.onDeadHead is not valid`, 'Give pass or block.');
  if (!['boolean', 'undefined'].includes(typeof options.keepDone))
    throw workerInvalid(`${path}.keepDone is not valid`, 'Give true or false.');
  if (options.schema !== undefined && !isFunction(options.schema?.['~standard']?.validate))
    throw workerInvalid(`${path}.schema is no Standard Schema`, 'Give a validator with ~standard.validate.');
  return options;
}

/** What claims ask for, by kind. Throws `worker-invalid`. */
function checkKindLimits(limits: Readonly<Record<string, KindLimits>>): Map<string, KindRule> {
  return new Map(
    Object.entries(limits).map(([kind, limit]) => {
      const path = `kinds.${kind.slice(0, 60)}`;
      known(path, limit, ['maxRunning', 'rate']);
      const { maxRunning, rate } = limit;
      if (rate !== undefined) known(`${path}.rate`, rate, ['max', 'perMs', 'burst']);
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

/** The rules by kind; none where nothing ever goes. Throws `worker-invalid`. */
export function checkRetention(options: { readonly retentionMs?: number; readonly retention?: Retention }): {
  readonly retention?: Retention;
} {
  const { retentionMs, retention = {} } = options;
  if (retentionMs !== undefined) bounded('retentionMs', retentionMs, 0, MAX_AGE_MS);
  known('retention', retention, ['default', 'kinds']);
  if (retention.kinds !== undefined) known('retention.kinds', retention.kinds);
  const rules = {
    ...retention,
    default: { ...(retentionMs === undefined ? {} : { maxAgeMs: retentionMs }), ...retention.default },
  };
  for (const [kind, keep] of [['default', rules.default] as const, ...Object.entries(rules.kinds ?? {})]) {
    known(`retention of ${kind.slice(0, 60)}`, keep, ['maxAgeMs', 'maxCount']);
    bounded(`retention of ${kind.slice(0, 60)}, maxAgeMs`, keep.maxAgeMs ?? 0, 0, MAX_AGE_MS);
    bounded(`retention of ${kind.slice(0, 60)}, maxCount`, keep.maxCount ?? 0, 0, MAX_COUNT);
  }
  return new KeepRules(rules).minAgeMs === Number.POSITIVE_INFINITY ? {} : { retention: rules };
}

function bounded(name: string, value: number, min: number, max: number): number {
  if (Number.isFinite(value) && value >= min && value <= max) return value;
  throw workerInvalid(`${name} is out of range`, `Give a number from ${min} to ${max}.`);
}

/** From 1 to `max`. The server takes no half jobs: a claim of 2.5 is refused, each time. */
function whole(name: string, value: number, max: number): number {
  if (Number.isInteger(value) && value >= 1 && value <= max) return value;
  throw workerInvalid(`${name} is no whole number within its range`, `Give a whole number from 1 to ${max}.`);
}

/** An object, and with these names alone if they are given. */
function known(path: string, value: unknown, names?: readonly string[]): void {
  if (!isObject(value)) throw workerInvalid(`${path} is not an object`, 'Give an object.');
  const odd = names === undefined ? undefined : Object.keys(value).find((name) => !names.includes(name));
  if (odd === undefined || names === undefined) return;
  const options = `Options are ${names.join(', ')}`;
  throw workerInvalid(
    `${path}.${odd.slice(0, 60)} is no option`,
    `${options}${suggestion(odd, names) || '.'}`,
  );
}

function workerInvalid(what: string, hint: string): UnbrokerError {
  return new UnbrokerError('worker-invalid', `The worker cannot start: ${what}`, {
    hint,
    exitStatus: EXIT.badInput,
  });
}
