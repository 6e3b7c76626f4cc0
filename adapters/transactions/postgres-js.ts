/**
 * postgres.js: the `sql` that `sql.begin` or `sql.savepoint` gives, or an `sql` as a transaction of its own.
 */
import type { Queryable } from '../../src/jobs/job.js';
import { type Parameter, plainParameters } from './parameters.js';

/** The part of postgres.js that is used; any version that has it will do. */
export interface PostgresJsHandle {
  unsafe(text: string, parameters: Parameter[]): PromiseLike<unknown>;
}

export function fromPostgresJs(handle: PostgresJsHandle): Queryable {
  return {
    async query(text, values) {
      const rows = (await handle.unsafe(text, plainParameters(values))) as unknown[] & {
        count: number | null;
      };
      return { rows: [...rows], rowCount: rows.count };
    },
  };
}
