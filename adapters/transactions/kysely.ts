/**
 * Kysely on a Postgres dialect: a transaction (`trx`), or a Kysely instance as a transaction of its own.
 */
import type { Queryable } from '../../src/jobs/job.js';
import { plainParameters } from './parameters.js';

/** The part of Kysely that is used; any version that has it will do. */
export interface KyselyHandle {
  executeQuery(query: CompiledQuery): Promise<{ rows: unknown[]; numAffectedRows?: bigint | undefined }>;
}

/** What `CompiledQuery.raw(text, values)` makes. */
interface CompiledQuery {
  readonly sql: string;
  readonly parameters: readonly unknown[];
  readonly query: {
    readonly kind: 'RawNode';
    readonly sqlFragments: readonly string[];
    readonly parameters: readonly [];
  };
  readonly queryId: { readonly queryId: string };
}

export function fromKysely(handle: KyselyHandle): Queryable {
  return {
    async query(text, values) {
      const { rows, numAffectedRows } = await handle.executeQuery({
        sql: text,
        parameters: plainParameters(values),
        query: { kind: 'RawNode', sqlFragments: [text], parameters: [] },
        queryId: { queryId: 'unbroker' },
      });
      return { rows, rowCount: numAffectedRows === undefined ? rows.length : Number(numAffectedRows) };
    },
  };
}
