/**
 * The only file that runs the statements of a worker on the jobs that it runs; a part of the store (store.ts), with the same
 * rules. What becomes of a job is settle.ts's answer; which are written together, settler.ts's.
 */
import { joinedIds, returnedIds, rows } from './answers.js';
import { type Completion, completions, type Held, ids, inOrder, sharedToken, tokens } from './held.js';
import type { Queryable } from './job.js';
import type { RowNow } from './recheck.js';
import { createSettleStatements } from './settle-statements.js';
import { isOutOfReach } from './sqlstate.js';

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

export function settleStore(schema: string) {
  const sql = createSettleStatements(schema);
  const finishMany = async (held: readonly Completion[], db: Queryable): Promise<string[]> => {
    const token = sharedToken(held);
    if (token !== null && held.every(({ resultText }) => resultText === null)) {
      try {
        return await allOrSome(held, db, sql.finishOf, [ids(held), token]);
      } catch (error) {
        // A schema that is migrated later than its workers. There, too, no end may wait long for another's row.
        if (!isOutOfReach(error)) throw error;
      }
    }
    return allOrSome(held, db, sql.finishBatch, completions(held));
  };
  const removeMany = (held: readonly Held[], db: Queryable): Promise<string[]> => {
    const token = sharedToken(held);
    if (token !== null) return allOrSome(held, db, sql.removeOf, [ids(held), token]);
    const mine = inOrder(held);
    return joinedIds(db, sql.removeSoon, [ids(mine), tokens(mine)]);
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
    async complete(db: Queryable, held: readonly Completion[], keeping = db): Promise<string[]> {
      const [first] = held;
      try {
        if (first === undefined || held.length > 1) return await finishMany(held, keeping);
        const values = [first.id, first.leaseToken, first.resultText];
        const [answer] = await rows<{ written: boolean }>(keeping, sql.finishOne, values);
        return answer?.written === true ? [first.id] : [];
      } catch (error) {
        // A schema that is migrated later than its workers: what ran shall not run again for that.
        if (!isOutOfReach(error)) throw error;
        return joinedIds(keeping, sql.finish, completions(held));
      }
    },

    /** Each in a transaction of its own: what became of them, in the order given. `keeping` is in no transaction. */
    async completeEach(keeping: Queryable, held: readonly Completion[]): Promise<EachAnswer[]> {
      const values = [ids(held), tokens(held), held.map(({ resultText }) => resultText)];
      const [row] = await rows<{ answers: string }>(keeping, sql.finishEach, values);
      return [...(row?.answers ?? '')].map((letter) => EACH_ANSWERS[letter] ?? 'refused');
    },

    /** Their rows go with it. Only for jobs of which nothing has to be remembered (leavesNothing). Refused as complete is. */
    async completeAndRemove(db: Queryable, held: readonly Held[]): Promise<string[]> {
      try {
        return await removeMany(held, db);
      } catch (error) {
        // A schema that is migrated later than its workers.
        if (!isOutOfReach(error)) throw error;
        return removeFree(db, held);
      }
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
