/**
 * The only file that runs the statements which keep the table in order; a part of the store (store.ts), with the same rules.
 * When and how often is upkeep.ts's answer; which rows are old, retention.ts's.
 */
import { returnedIds, rows } from './answers.js';
import type { Queryable } from './job.js';
import type { FinishedRow, WalkPosition } from './retention.js';
import { createUpkeepStatements } from './upkeep-statements.js';

export interface Reaped {
  readonly id: string;
  readonly kind: string;
  readonly state: 'ready' | 'dead';
}

export function upkeepStore(schema: string) {
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

    /** Removes up to `limit` rows that finished more than `ageMs` ago; how many went. */
    async prune(db: Queryable, ageMs: number, limit: number): Promise<number> {
      return (await returnedIds(db, sql.prune, [ageMs, limit])).length;
    },

    /** Finished rows below a position, newest first, none younger than `minAgeMs`. */
    finishedBelow(db: Queryable, position: WalkPosition | null, minAgeMs: number, limit: number) {
      const { finishedAtText = null, id = null } = position ?? {};
      return rows<FinishedRow>(db, sql.finishedBelow, [minAgeMs, finishedAtText, id, limit]);
    },

    /** Removes rows that have not finished anew after `until` (a finishedAtText); how many went. */
    async removeFinished(db: Queryable, jobIds: readonly string[], until: string): Promise<number> {
      return (await returnedIds(db, sql.removeFinished, [jobIds, until])).length;
    },
  };
}
