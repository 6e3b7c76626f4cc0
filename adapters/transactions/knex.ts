/**
 * Knex: a transaction (`trx`), or a Knex instance as a transaction of its own. Objection's transactions are Knex's.
 */
import type { Queryable } from '../../src/jobs/job.js';
import { plainParameters } from './parameters.js';

/** The part of Knex that is used; any version that has it will do. */
export interface KnexHandle {
  raw(sql: string): { options(options: { readonly values: unknown[] }): PromiseLike<unknown> };
}

/**
 * Values travel as `values` of pg's own query object, not as Knex bindings: those need `?` for `$1`, read `:name` as a
 * key, and are written into the message of every error. An escaped `?` is the only thing Knex changes in such a text.
 */
export function fromKnex(handle: KnexHandle): Queryable {
  return {
    async query(text, values) {
      const query = handle.raw(text.replaceAll('?', '\\?')).options({ values: plainParameters(values) });
      const { rows, rowCount } = (await query) as Awaited<ReturnType<Queryable['query']>>;
      return { rows, rowCount };
    },
  };
}
