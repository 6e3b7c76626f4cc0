/**
 * What follows from how a handler ended. One pure decision; the worker acts on it. It refuses to know about leases:
 * whether the outcome may still be written is the statement's fence to say.
 */
import { messageOf } from '../thrown.js';
import { type ClaimedJob, LIMITS, type RetryPolicy } from './job.js';
import { boundedDelayMs, parseRetryPolicy, retryDelayMs } from './retry.js';
import { isStorableJson, storableText } from './text.js';

/** How a handler ended. */
export type HandlerEnd =
  | { readonly type: 'returned'; readonly value: unknown }
  | {
      readonly type: 'threw';
      readonly error: unknown;
      /** What came before the handler, which was not called then. */
      readonly before?: 'expiry' | 'schema';
    };

/** What to write. */
export type Outcome =
  | { readonly type: 'complete'; readonly resultText: string | null }
  | { readonly type: 'retry'; readonly delayMs: number; readonly name: string; readonly message: string }
  | { readonly type: 'snooze'; readonly delayMs: number }
  | { readonly type: 'discard'; readonly name: string; readonly message: string };

/**
 * Throw it to run again after `delayMs` (0 or more, at most 30 days) without spending an attempt: a pause, a Retry-After. Throws
 * TypeError for what is no such number: it would come again and again without an end, since nothing counts how often.
 */
export class Snooze extends Error {
  constructor(readonly delayMs: number) {
    if (!isDelay(delayMs))
      throw new TypeError(
        `Snooze takes a delay in ms, 0 or more; got ${shown(delayMs)}. Until a time: Math.max(0, atMs - nowMs)`,
      );
    super(`snooze ${delayMs} ms`);
    this.name = 'Snooze';
  }
}

/** Throw it to give the job up at once: no further attempt can succeed (a refused address, an unknown template). */
export class Discard extends Error {
  constructor(
    message: string,
    readonly reason = 'discarded',
    options?: { readonly cause?: unknown },
  ) {
    super(message, options);
    this.name = 'Discard';
  }
}

/**
 * Throw it to fail this attempt and say when to try next (at most 30 days), over the kind's policy, which decides where the
 * number is NaN: a Retry-After that did not parse. Throws TypeError for what is no number at all.
 */
export class RetryAfter extends Error {
  constructor(
    readonly delayMs: number,
    message: string,
    options?: { readonly cause?: unknown },
  ) {
    if (typeof delayMs !== 'number')
      throw new TypeError(`RetryAfter takes a delay in ms, and then its message; got ${shown(delayMs)}`);
    super(message, options);
    this.name = 'RetryAfter';
  }
}

const isDelay = (value: unknown): value is number =>
  typeof value === 'number' && value >= 0 && value < Number.POSITIVE_INFINITY;

/** A number as it is; of anything else its sort, since a text may be a payload's. */
function shown(value: unknown): string {
  if (typeof value === 'number' || value === undefined || value === null) return String(value);
  return value instanceof Date ? 'a Date' : `a ${typeof value}`;
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
  // A delay that is no number (a Retry-After that did not parse): the policy's instead.
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
    const message = text(messageOf(error, LIMITS.errorMessageLength), UNREADABLE, LIMITS.errorMessageLength);
    // Of a subclass or another copy of this package: one that is no delay spends the attempt, or nothing would end it.
    if (error instanceof Snooze && isDelay(error.delayMs))
      return { as: 'snooze', name, message, delayMs: boundedDelayMs(error.delayMs) };
    if (error instanceof Discard) return { as: 'discard', name, message, delayMs: undefined };
    const delayMs = error instanceof RetryAfter ? delay(error.delayMs) : undefined;
    return { as: 'retry', name: error instanceof Error ? name : 'Error', message, delayMs };
  } catch {
    return { as: 'retry', name: 'Error', message: UNREADABLE, delayMs: undefined };
  }
}

const UNREADABLE = 'what was thrown cannot be read';

const text = (value: unknown, otherwise: string, maxLength: number): string =>
  storableText(typeof value === 'string' ? value : otherwise, maxLength);

const delay = (value: unknown): number | undefined =>
  typeof value === 'number' && !Number.isNaN(value) ? boundedDelayMs(value) : undefined;

const NO_RESULT: Outcome = { type: 'complete', resultText: null };

const note = (unstorable: string): Outcome => ({
  type: 'complete',
  resultText: JSON.stringify({ unstorable }),
});
const NOT_JSON = note('not JSON');
const TOO_LARGE = note('too large');
const UNTEXTUAL = note('NUL or lone surrogate');
/** Why what a handler returned is not kept, by the outcome that has a note in its place. */
const WHY_NOT_KEPT: ReadonlyMap<Outcome, string> = new Map([
  [NOT_JSON, 'it is not JSON'],
  [TOO_LARGE, `it is larger than ${LIMITS.resultBytes} bytes`],
  [UNTEXTUAL, 'NUL or half a surrogate pair is in it'],
]);

/** Undefined when it is kept as it was returned. */
export const whyNotKept = (outcome: Outcome): string | undefined => WHY_NOT_KEPT.get(outcome);

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
    return NOT_JSON;
  }
  if (text === undefined) return NOT_JSON;
  if (Buffer.byteLength(text) > LIMITS.resultBytes) return TOO_LARGE;
  if (!isStorableJson(text)) return UNTEXTUAL;
  return { type: 'complete', resultText: text };
}
