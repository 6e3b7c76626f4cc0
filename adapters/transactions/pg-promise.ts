/**
 * pg-promise: the `t` of `db.tx`, a task, or a `db` as a transaction of its own.
 */
import type { Queryable } from '../../src/jobs/job.js';
import { plainParameters } from './parameters.js';

/** The part of pg-promise that is used; any version that has it will do. */
export interface PgPromiseHandle {
  result(query: { text: string; values: unknown[] }): Promise<{ rows: unknown[]; rowCount: number | null }>;
}

/** An object with a text is a parameterized query: Postgres gets the values, pg-promise's own formatting is passed by. */
export function fromPgPromise(handle: PgPromiseHandle): Queryable {
  return {
    async query(text, values) {
      const { rows, rowCount } = await handle.result({ text, values: plainParameters(values) });
      return { rows, rowCount };
    },
  };
}
