/**
 * What a transaction handle is called as a parameter, and how its type is written: pg's own, a client's or ORM's where it
 * has a plain name, else what `unbroker/transactions` takes of it. Data and small decisions; no edits.
 */

import type { ts } from 'ts-morph';
import { type Need, TRANSACTIONS } from './imports.js';
import type { Idiom } from './transactions/idiom.js';

export interface HandleType {
  /** Names for the parameter, by preference. */
  readonly names: readonly string[];
  /** What its type's import is, from a package or from a file of the repository; undefined: it is at hand. */
  readonly need: Need | LocalNeed | undefined;
  /** The type as written, with `*` for the import's local name. */
  readonly type: string;
}

export interface LocalNeed {
  readonly file: ts.SourceFile;
  readonly name: string;
}

const own = (module: string, name: string, type: string, ...names: string[]): HandleType => ({
  names,
  need: { module, name },
  type,
});

/** What a function needs that runs its queries on a pool, or on a client when it is given one. */
export const POOL_OR_CLIENT = own(
  'pg',
  'Pool',
  "Pick<*, 'query'>",
  'db',
  'client',
  'connection',
  'queryable',
);

const PG_NAMES = ['client', 'dbClient', 'txClient', 'transactionClient'];

/** Types that are generic or that a library does not export are written as what the adapter takes. */
const TYPES: Readonly<Record<string, HandleType>> = {
  knex: own('knex', 'Knex', '*.Transaction', 'trx', 'tx', 'transaction'),
  objection: own('objection', 'Transaction', '*', 'trx', 'tx', 'transaction'),
  typeorm: own('typeorm', 'EntityManager', '*', 'manager', 'entityManager', 'txManager'),
  prisma: own('@prisma/client', 'Prisma', '*.TransactionClient', 'tx', 'trx', 'transaction'),
  drizzle: own(TRANSACTIONS, 'DrizzleHandle', '*', 'tx', 'trx', 'transaction'),
  kysely: own(TRANSACTIONS, 'KyselyHandle', '*', 'trx', 'tx', 'transaction'),
  mikroorm: own(TRANSACTIONS, 'MikroormHandle', '*', 'em', 'manager', 'txManager'),
  'pg-promise': own(TRANSACTIONS, 'PgPromiseHandle', '*', 't', 'tx', 'task'),
  'postgres-js': own(TRANSACTIONS, 'PostgresJsHandle', '*', 'sql', 'tx', 'transaction'),
};

const PG_TYPES = new Set(['PoolClient', 'Client', 'ClientBase']);

/**
 * Of pg: the type of the handles, their common base when they differ or have none. Undefined stands for the client that a
 * new transaction takes from a pool.
 */
export function pgType(handles: readonly (ts.Expression | undefined)[], checker: ts.TypeChecker): HandleType {
  const names = new Set(
    handles.map((h) =>
      h === undefined ? 'PoolClient' : (checker.getTypeAtLocation(h).getSymbol()?.name ?? ''),
    ),
  );
  const [only] = names;
  const name = names.size === 1 && only !== undefined && PG_TYPES.has(only) ? only : 'ClientBase';
  return own('pg', name, '*', ...PG_NAMES);
}

export function libraryType(library: Idiom): HandleType | undefined {
  return TYPES[library.name];
}
