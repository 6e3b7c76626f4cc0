/**
 * A job that ended and what is written of it, as the store's statements take it; and which refusals are of the row itself. Pure: when
 * it is written is settler.ts's.
 */

import type { Run } from './handler.js';
import type { Completion, Held } from './held.js';
import type { Queryable } from './job.js';
import type { Outcome } from './settle.js';
import { codeOf } from './sqlstate.js';
import type { Store } from './store.js';

/** A job that ended, and what to write. */
export interface Settlement {
  readonly run: Run;
  readonly outcome: Outcome;
}

/** A statement of the store. */
export type Write = Outcome['type'] | 'completeAndRemove';
export type StoreWrite = (db: Queryable, held: readonly Held[], keeping: Queryable) => Promise<string[]>;

/** In the order in which a batch writes them. */
export const WRITES: readonly Write[] = ['complete', 'completeAndRemove', 'retry', 'snooze', 'discard'];

/** The same without waiting for locks. */
export const FREE = {
  ...{ complete: 'completeFree', completeAndRemove: 'completeAndRemoveFree' },
  ...{ retry: 'retry', snooze: 'snooze', discard: 'discard' },
} as const satisfies Record<Write, keyof Store>;

/** What its statement needs. Most outcomes are completions: with a spread each took the worker 1.6 us of 6.6 more. */
export function rowOf({ run, outcome }: Settlement): Held {
  const { id, leaseToken } = run.job;
  if (outcome.type === 'complete') {
    const { resultText } = outcome;
    const completion: Completion = { id, leaseToken, resultText };
    return completion;
  }
  return { ...outcome, id, leaseToken };
}

/** Of what `take` gave. */
export function completionsOf(taken: readonly Settlement[]): Completion[] {
  return taken.map((settlement) => rowOf(settlement) as Completion);
}

/** Below that a statement more costs as much as one token for all of them saves. */
const MANY = 100;

/**
 * How many of a queue are written next, of `most`: not the beginning of a claim's jobs when it can be left for the next time.
 * Jobs that came with one claim are ended for less (held.ts), and whoever once cut one would cut each that follows.
 */
export function ofWholeClaims(queue: readonly Settlement[], most: number): number {
  const left = queue[most]?.run.job.leaseToken;
  if (left === undefined || most < MANY) return Math.min(queue.length, most);
  let whole = most;
  while (whole > 0 && queue[whole - 1]?.run.job.leaseToken === left) whole -= 1;
  return whole === 0 ? most : whole;
}

/** The same outcome with no text of a handler's in it; null when there is none already. */
export function withoutText(outcome: Outcome): Outcome | null {
  switch (outcome.type) {
    case 'snooze':
      return null;
    case 'complete':
      return outcome.resultText === null ? null : { type: 'complete', resultText: null };
    default: {
      const bare = { name: 'Error', message: 'unstorable message' };
      return outcome.message === bare.message ? null : { ...outcome, ...bare };
    }
  }
}

/** invalid_transaction_termination: whoever brings the database wraps what it is asked. */
export const isInTransaction = (error: unknown): boolean => codeOf(error) === '2D000';

/** SQLSTATE classes 22, 23 (data, constraints), 54 (limits), P0 (a trigger's): asking the same again will not help. */
export function isRefusal(error: unknown): boolean {
  return /^(22|23|54|P0)...$/.test(codeOf(error));
}
