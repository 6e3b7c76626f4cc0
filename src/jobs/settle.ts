/**
 * What follows from how a handler ended. One pure decision; the worker acts on it. It refuses to know about leases:
 * whether the outcome may still be written is the statement's fence to say.
 */
import { type ClaimedJob, LIMITS, type RetryPolicy } from './job.js';
import { parseRetryPolicy, retryDelayMs } from './retry.js';
import { storableText } from './text.js';

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

/** Throw it to run again after `delayMs` without spending an attempt (a provider's Retry-After, a pause). */
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

/** Throw it to fail this attempt and say when to try next, over the kind's policy. */
export class RetryAfter extends Error {
  constructor(
    readonly delayMs: number,
    message: string,
  ) {
    super(message);
    this.name = 'RetryAfter';
  }
}

/** `policy` is the kind's; the job's own goes first. `random` in [0, 1) feeds the jitter. */
export function settle(job: ClaimedJob, end: HandlerEnd, policy: RetryPolicy, random: number): Outcome {
  if (end.type === 'returned') return complete(end.value);
  const { error } = end;
  if (error instanceof Snooze) return { type: 'snooze', delayMs: Math.max(0, error.delayMs) };
  const message = storableText(errorMessage(error), LIMITS.errorMessageLength);
  if (error instanceof Discard) return { type: 'discard', name: storableText(error.reason, 100), message };
  const name = storableText(error instanceof Error ? error.name : 'Error', 100);
  if (job.attempt >= job.maxAttempts) return { type: 'discard', name, message };
  const delayMs =
    error instanceof RetryAfter
      ? Math.max(0, error.delayMs)
      : retryDelayMs(parseRetryPolicy(job.retryPolicy) ?? policy, job.attempt, random);
  return { type: 'retry', delayMs, name, message };
}

/**
 * The work is done whatever it returned: a result that cannot be stored (cyclic, a BigInt, too large, NUL inside) must
 * not make the job run again, so it is replaced by a note.
 */
function complete(value: unknown): Outcome {
  if (value === undefined || value === null) return { type: 'complete', resultText: null };
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch {
    return { type: 'complete', resultText: '{"unstorable":"not JSON"}' };
  }
  if (text === undefined) return { type: 'complete', resultText: '{"unstorable":"not JSON"}' };
  if (Buffer.byteLength(text) > LIMITS.resultBytes)
    return { type: 'complete', resultText: '{"unstorable":"too large"}' };
  // JSON.stringify writes NUL and lone surrogates as escapes, which jsonb refuses just the same.
  if (/(?<!\\)(?:\\\\)*\\u(?:0000|d[89a-f])/i.test(text)) {
    return { type: 'complete', resultText: '{"unstorable":"NUL or lone surrogate"}' };
  }
  return { type: 'complete', resultText: text };
}

function errorMessage(error: unknown): string {
  if (error instanceof Error) return error.message;
  return typeof error === 'string' ? error : 'a value that is not an Error was thrown';
}
