/**
 * The only file that runs the statements of a worker on the jobs that it runs; a part of the store (store.ts), with the same
 * rules. What becomes of a job is settle.ts's answer; which are written together, settler.ts's.
 */
import { joinedIds, returnedIds, rows } from './answers.js';
import type { Fallbacks } from './fallbacks.js';
import { type Completion, completions, type Held, ids, inOrder, sharedToken, tokens } from './held.js';
import type { Queryable } from './job.js';
import type { RowNow } from './recheck.js';
import { createSettleStatements } from './settle-statements.js';

/** `stale`: no longer ours. `held`: somebody else has it locked. `refused`: asked by itself it says why. */
export type EachAnswer = 'written' | 'stale' | 'held' | 'refused';

const EACH_ANSWERS: Readonly<Record<string, EachAnswer>> = {
  ...{ w: 'written', s: 'stale', h: 'held', e: 'refused' },
};

/** Why an attempt failed; already storable (settle.ts). */
export interface Failure {
  readonly name: string;
  readonly message: string;
}

const failures = (held: readonly Failure[]): string[][] => [
  held.map((h) => h.name),
  held.map((h) => h.message),
];

/** Ids of those that a statement wrote, which says '*' for all. */
async function allOrSome(
  held: readonly Held[],
  db: Queryable,
  text: string,
  values: unknown[],
): Promise<string[]> {
  const [answer] = await rows<{ ids: string | null }>(db, text, values);
  if (answer?.ids === '*') return held.map(({ id }) => id);
  return answer?.ids?.split(',') ?? [];
}

/** What ends jobs has an older way each (fallbacks.ts): what ran shall not run again for a schema that is migrated later. */
export function settleStore(schema: string, fallbacks: Fallbacks) {
  const sql = createSettleStatements(schema);
  const finish = (db: Queryable, held: readonly Completion[]): Promise<string[]> =>
    joinedIds(db, sql.finish, completions(held));
  const finishOne = async (held: Completion, db: Queryable): Promise<string[]> => {
    const values = [held.id, held.leaseToken, held.resultText];
    const [answer] = await rows<{ written: boolean }>(db, sql.finishOne, values);
    return answer?.written === true ? [held.id] : [];
  };
  const finishMany = (held: readonly Completion[], db: Queryable): Promise<string[]> => {
    // Before finish, since no end may wait long for another's row.
    const inBatch = () =>
      fallbacks.ask(
        'finish_batch',
        () => allOrSome(held, db, sql.finishBatch, completions(held)),
        () => finish(db, held),
      );
    const token = sharedToken(held);
    if (token === null || held.some(({ resultText }) => resultText !== null)) return inBatch();
    return fallbacks.ask('finish_of', () => allOrSome(held, db, sql.finishOf, [ids(held), token]), inBatch);
  };
  const removeFree = (db: Queryable, held: readonly Held[]): Promise<string[]> => {
    const mine = inOrder(held);
    return joinedIds(db, sql.removeFree, [ids(mine), tokens(mine)]);
  };
  return {
    /** Ids whose lease was prolonged; those missing are held by somebody else just now, or lost. */
    extend(db: Queryable, held: readonly Held[], leaseMs: number) {
      const mine = inOrder(held);
      return returnedIds(db, sql.extend, [ids(mine), tokens(mine), leaseMs]);
    },

    /** `keeping`: `db`, but it may keep the plans of statements. Refused (55P03) when somebody else holds one of the rows. */
    complete(db: Queryable, held: readonly Completion[], keeping = db): Promise<string[]> {
      const [first] = held;
      if (first === undefined || held.length > 1) return finishMany(held, keeping);
      return fallbacks.ask(
        'finish_one',
        () => finishOne(first, keeping),
        () => finish(keeping, held),
      );
    },

    /**
     * Each in a transaction of its own: what became of them, in the order given. `keeping` is in no transaction. All are refused
     * where the schema cannot do it: each by itself is the older way.
     */
    completeEach(keeping: Queryable, held: readonly Completion[]): Promise<EachAnswer[]> {
      const values = [ids(held), tokens(held), held.map(({ resultText }) => resultText)];
      return fallbacks.ask(
        'finish_each',
        async () => {
          const [row] = await rows<{ answers: string }>(keeping, sql.finishEach, values);
          return [...(row?.answers ?? '')].map((letter) => EACH_ANSWERS[letter] ?? 'refused');
        },
        async () => held.map(() => 'refused'),
      );
    },

    /** Their rows go with it. Only for jobs of which nothing has to be remembered (leavesNothing). Refused as complete is. */
    completeAndRemove(db: Queryable, held: readonly Held[]): Promise<string[]> {
      const older = () => removeFree(db, held);
      const token = sharedToken(held);
      if (token !== null)
        return fallbacks.ask('remove_of', () => allOrSome(held, db, sql.removeOf, [ids(held), token]), older);
      const mine = inOrder(held);
      return fallbacks.ask(
        'remove_soon',
        () => joinedIds(db, sql.removeSoon, [ids(mine), tokens(mine)]),
        older,
      );
    },

    /** The same of those that nobody else holds: never waits for a lock. */
    completeFree(db: Queryable, held: readonly Completion[]): Promise<string[]> {
      return joinedIds(db, sql.finishFree, completions(held));
    },

    completeAndRemoveFree: removeFree,

    /** Those that are there, in no order. */
    rowsNow(db: Queryable, jobIds: readonly string[]) {
      return rows<RowNow>(db, sql.rowsNow, [jobIds]);
    },

    /** Each settle answers the ids that it changed; those missing were held by somebody else, or no longer ours. */
    retry(db: Queryable, held: readonly (Held & Failure & { readonly delayMs: number })[]) {
      const mine = inOrder(held);
      const delays = mine.map((h) => h.delayMs);
      return returnedIds(db, sql.retry, [ids(mine), tokens(mine), delays, ...failures(mine)]);
    },

    snooze(db: Queryable, held: readonly (Held & { readonly delayMs: number })[]) {
      const mine = inOrder(held);
      return returnedIds(db, sql.snooze, [ids(mine), tokens(mine), mine.map((h) => h.delayMs)]);
    },

    discard(db: Queryable, held: readonly (Held & Failure)[]) {
      const mine = inOrder(held);
      return returnedIds(db, sql.discard, [ids(mine), tokens(mine), ...failures(mine)]);
    },

    release(db: Queryable, held: readonly Held[]) {
      const mine = inOrder(held);
      return returnedIds(db, sql.release, [ids(mine), tokens(mine)]);
    },

    /** False when the lease is lost. `progressText` is JSON. */
    async checkpoint(db: Queryable, held: Held, progressText: string): Promise<boolean> {
      return (await returnedIds(db, sql.checkpoint, [held.id, held.leaseToken, progressText])).length === 1;
    },
  };
}
