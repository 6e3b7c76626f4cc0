/**
 * Drizzle on node-postgres or postgres.js: the `tx` of `db.transaction`, or a `db` as a transaction of its own.
 */
import type { Queryable } from '../../src/jobs/job.js';
import { plainParameters } from './parameters.js';

/** The part of Drizzle that is used. It takes an SQL object, of which only `getSQL` and `toQuery` matter. */
export interface DrizzleHandle {
  execute(query: never): PromiseLike<unknown>;
}

export function fromDrizzle(handle: DrizzleHandle): Queryable {
  return {
    async query(text, values) {
      const statement = {
        getSQL: () => statement,
        toQuery: () => ({ sql: text, params: plainParameters(values) }),
      };
      const answer = (await handle.execute(statement as never).then(null, unwrap)) as
        | (unknown[] & { count: number | null })
        | { rows: unknown[]; rowCount: number | null };
      // postgres.js answers the rows themselves, node-postgres a result that has them.
      if (Array.isArray(answer)) return { rows: [...answer], rowCount: answer.count };
      return { rows: answer.rows, rowCount: answer.rowCount };
    },
  };
}

/** Drizzle's own error carries every parameter, payload included, in its message; Postgres' error is its cause. */
function unwrap(error: unknown): never {
  throw error instanceof Error && error.cause instanceof Error ? error.cause : error;
}
