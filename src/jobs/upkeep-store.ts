/**
 * The only file that runs the statements which keep the table in order; a part of the store (store.ts), with the same rules.
 * When and how often is upkeep.ts's and pruning.ts's answer; which rows are old, retention.ts's.
 */
import { rows } from './answers.js';
import type { Fallbacks } from './fallbacks.js';
import type { Queryable } from './job.js';
import type { FinishedRow, WalkPosition } from './retention.js';
import { createUpkeepStatements } from './upkeep-statements.js';

export interface Reaped {
  readonly id: string;
  readonly kind: string;
  readonly state: 'ready' | 'dead';
}

/** How many went, and how many could not. */
export interface Removed {
  readonly gone: number;
  readonly refused: number;
}

export function upkeepStore(schema: string, fallbacks: Fallbacks) {
  const sql = createUpkeepStatements(schema);
  return {
    /** Throws what the server says of a schema where a worker may not begin yet. */
    async reach(db: Queryable): Promise<void> {
      await db.query(sql.reach);
    },

    /** Takes back up to `limit` expired leases. */
    reap(db: Queryable, limit: number) {
      return rows<Reaped>(db, sql.reap, [limit]);
    },

    /** Finished rows below a position, newest first, none younger than `minAgeMs`; from the newest without one. */
    finishedBelow(db: Queryable, position: WalkPosition | null, minAgeMs: number, limit: number) {
      const { finishedAtText = null, id = null } = position ?? {};
      return rows<FinishedRow>(db, sql.finishedBelow, [minAgeMs, finishedAtText, id, limit]);
    },

    /** The same above a position, oldest first. */
    finishedAbove(db: Queryable, { finishedAtText, id }: WalkPosition, minAgeMs: number, limit: number) {
      return rows<FinishedRow>(db, sql.finishedAbove, [minAgeMs, finishedAtText, id, limit]);
    },

    /**
     * Removes rows that have not finished anew since they were read, but for those that somebody holds, and those that a reference
     * or a trigger of the caller's keeps. Null while another session removes some.
     */
    async removeFinished(db: Queryable, finished: readonly WalkPosition[]): Promise<Removed | null> {
      const values = [finished.map(({ id }) => id), finished.map((row) => row.finishedAtText)];
      const ask = (text: string) => () => rows<{ gone: number | null; refused: number }>(db, text, values);
      const [answer] = await fallbacks.ask('remove_finished', ask(sql.removeFinished), ask(sql.removeAll));
      return answer === undefined || answer.gone === null ? null : { ...answer, gone: answer.gone };
    },
  };
}
