/**
 * TypeORM: the EntityManager that `dataSource.transaction` gives, a QueryRunner, or a DataSource as a transaction of its
 * own. It cannot tell an EntityManager outside of a transaction from one inside; the caller chooses which to pass.
 */
import type { Queryable } from '../../src/jobs/job.js';
import { plainParameters } from './parameters.js';

/** The part of TypeORM that is used; any version that has it will do. */
export interface TypeormHandle {
  query(text: string, parameters?: unknown[]): Promise<unknown>;
}

export function fromTypeorm(handle: TypeormHandle): Queryable {
  return {
    async query(text, values) {
      const answer = (await handle.query(text, plainParameters(values))) as unknown[];
      // A plain update or delete answers [rows, count], everything else the rows.
      const [rows, count] = answer;
      if (Array.isArray(rows)) return { rows, rowCount: count as number };
      return { rows: answer, rowCount: answer.length };
    },
  };
}
