/**
 * Knex: a transaction (`trx`), or a Knex instance as a transaction of its own. Objection's transactions are Knex's.
 */
import type { Queryable } from '../../src/jobs/job.js';
import { plainParameters } from './parameters.js';

/** The part of Knex that is used; any version that has it will do. */
export interface KnexHandle {
  raw(sql: string): { options(options: { readonly values: unknown[] }): PromiseLike<unknown> };
}

/** An escaped `?` is all that Knex changes in a text without bindings. */
export function fromKnex(handle: KnexHandle): Queryable {
  return { query: (text, values) => queryThroughKnex(handle, text.replaceAll('?', '\\?'), values) };
}

/**
 * Values travel as `values` of pg's own query object, not as Knex bindings: those need `?` for `$1`, read `:name` as a
 * key, and are written into the message of every error. For MikroORM, too, whose Knex leaves the text alone.
 */
export async function queryThroughKnex(
  handle: KnexHandle,
  text: string,
  values: readonly unknown[] | undefined,
): ReturnType<Queryable['query']> {
  const result = await handle.raw(text).options({ values: plainParameters(values) });
  const { rows, rowCount } = result as Awaited<ReturnType<Queryable['query']>>;
  return { rows, rowCount };
}
