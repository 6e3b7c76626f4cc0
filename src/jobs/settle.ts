/**
 * What follows from how a handler ended. One pure decision; the worker acts on it. It refuses to know about leases:
 * whether the outcome may still be written is the statement's fence to say.
 */
import { type ClaimedJob, LIMITS, type RetryPolicy } from './job.js';
import { boundedDelayMs, parseRetryPolicy, retryDelayMs } from './retry.js';
import { isStorableJson, storableText } from './text.js';

/** How a handler ended. */
export type HandlerEnd =
  | { readonly type: 'returned'; readonly value: unknown }
  | { readonly type: 'threw'; readonly error: unknown };

/** What to write. */
export type Outcome =
  | { readonly type: 'complete'; readonly resultText: string | null }
  | { readonly type: 'retry'; readonly delayMs: number; readonly name: string; readonly message: string }
  | { readonly type: 'snooze'; readonly delayMs: number }
  | { readonly type: 'discard'; readonly name: string; readonly message: string };

/** Throw it to run again after `delayMs` (at most 30 days) without spending an attempt: a pause, a Retry-After. */
export class Snooze extends Error {
  constructor(readonly delayMs: number) {
    super(`snooze ${delayMs} ms`);
    this.name = 'Snooze';
  }
}

/** Throw it to give the job up at once: no further attempt can succeed (a refused address, an unknown template). */
export class Discard extends Error {
  constructor(
    message: string,
    readonly reason = 'discarded',
  ) {
    super(message);
    this.name = 'Discard';
  }
}

/** Throw it to fail this attempt and say when to try next (at most 30 days), over the kind's policy. */
export class RetryAfter extends Error {
  constructor(
    readonly delayMs: number,
    message: string,
  ) {
    super(message);
    this.name = 'RetryAfter';
  }
}

/**
 * A program may hold two copies of this package: its CommonJS side beside the other, a command installed elsewhere, a
 * workspace with two versions. What handlers throw of the one must mean the same to the other: by `instanceof` alone a
 * Discard was an error like any, tried again twenty times. Subclasses of a caller's go by their prototype, as ever. The
 * name is given, since minifiers change that of a class.
 */
function meansTheSameInEachCopy(
  ending: typeof Snooze | typeof Discard | typeof RetryAfter,
  name: string,
): void {
  const mark = Symbol.for(`unbroker.${name}`);
  Object.defineProperty(ending.prototype, mark, { value: true });
  Object.defineProperty(ending, Symbol.hasInstance, {
    value(this: unknown, thrown: unknown): boolean {
      if (this === ending) return (thrown as { [mark]?: unknown } | null | undefined)?.[mark] === true;
      return Function.prototype[Symbol.hasInstance].call(this, thrown);
    },
  });
}
meansTheSameInEachCopy(Snooze, 'Snooze');
meansTheSameInEachCopy(Discard, 'Discard');
meansTheSameInEachCopy(RetryAfter, 'RetryAfter');

/**
 * May its row go as soon as it is done? Not when something is known by the row: a dedupe key that swallows repeats, the turn
 * of an ordering key, a source under which a client, an operator or the books of a drain look for it.
 */
export function leavesNothing({ dedupeKey, orderingKey, source }: ClaimedJob): boolean {
  return dedupeKey === null && orderingKey === null && source === null;
}

/** `policy` is the kind's; the job's own goes first. `random` in [0, 1) feeds the jitter. Never throws. */
export function settle(job: ClaimedJob, end: HandlerEnd, policy: RetryPolicy, random: number): Outcome {
  if (end.type === 'returned') return complete(end.value);
  const { as, name, message, delayMs } = read(end.error);
  if (as === 'discard') return { type: 'discard', name, message };
  if (as === 'retry' && job.attempt >= job.maxAttempts) return { type: 'discard', name, message };
  // A delay that is no number (a Retry-After that did not parse) must not make a hot loop: the policy's instead.
  const waitMs = delayMs ?? retryDelayMs(parseRetryPolicy(job.retryPolicy) ?? policy, job.attempt, random);
  return as === 'snooze'
    ? { type: 'snooze', delayMs: waitMs }
    : { type: 'retry', delayMs: waitMs, name, message };
}

interface Thrown {
  readonly as: 'snooze' | 'discard' | 'retry';
  readonly name: string;
  readonly message: string;
  /** Asked for by the handler; undefined when it asked for none. */
  readonly delayMs: number | undefined;
}

/**
 * What was thrown, in texts and numbers that the database takes. Anything can be thrown: a message that is no text, a
 * getter that throws, a revoked proxy; none of them may leave its job running for ever.
 */
function read(error: unknown): Thrown {
  try {
    const name = text(
      error instanceof Discard ? error.reason : (error as Partial<Error> | null)?.name,
      'Error',
      100,
    );
    const raw = error instanceof Error ? error.message : error;
    const message = text(raw, 'a value that is not an Error was thrown', LIMITS.errorMessageLength);
    if (error instanceof Snooze) return { as: 'snooze', name, message, delayMs: delay(error.delayMs) };
    if (error instanceof Discard) return { as: 'discard', name, message, delayMs: undefined };
    const delayMs = error instanceof RetryAfter ? delay(error.delayMs) : undefined;
    return { as: 'retry', name: error instanceof Error ? name : 'Error', message, delayMs };
  } catch {
    return { as: 'retry', name: 'Error', message: 'what was thrown cannot be read', delayMs: undefined };
  }
}

const text = (value: unknown, otherwise: string, maxLength: number): string =>
  storableText(typeof value === 'string' ? value : otherwise, maxLength);

const delay = (value: unknown): number | undefined =>
  typeof value === 'number' && !Number.isNaN(value) ? boundedDelayMs(value) : undefined;

const NO_RESULT: Outcome = { type: 'complete', resultText: null };

/**
 * The work is done whatever it returned: a result that cannot be stored (cyclic, a BigInt, too large, NUL inside) must
 * not make the job run again, so it is replaced by a note.
 */
function complete(value: unknown): Outcome {
  if (value === undefined || value === null) return NO_RESULT;
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch {
    return { type: 'complete', resultText: '{"unstorable":"not JSON"}' };
  }
  if (text === undefined) return { type: 'complete', resultText: '{"unstorable":"not JSON"}' };
  if (Buffer.byteLength(text) > LIMITS.resultBytes)
    return { type: 'complete', resultText: '{"unstorable":"too large"}' };
  if (!isStorableJson(text))
    return { type: 'complete', resultText: '{"unstorable":"NUL or lone surrogate"}' };
  return { type: 'complete', resultText: text };
}
