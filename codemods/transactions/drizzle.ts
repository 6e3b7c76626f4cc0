/** Drizzle on Postgres: `db.transaction(async (tx) => …)`, and `db.insert(…)` that commits by itself. */

import type { Idiom } from './idiom.js';

const WRITES = new Set(['insert', 'update', 'delete', 'refreshMaterializedView']);

export const drizzle: Idiom = {
  name: 'drizzle',
  summary: 'db.transaction with a callback, and builders that commit by themselves',
  packages: ['drizzle-orm'],
  adapter: 'fromDrizzle',
  table: {
    types: {
      PgDatabase: 'db',
      NodePgDatabase: 'db',
      PostgresJsDatabase: 'db',
      NeonDatabase: 'db',
      VercelPgDatabase: 'db',
      PgTransaction: 'tx',
      NodePgTransaction: 'tx',
      PostgresJsTransaction: 'tx',
      MySqlDatabase: 'db',
      MySql2Database: 'db',
      MySqlTransaction: 'tx',
      BaseSQLiteDatabase: 'db',
      BetterSQLite3Database: 'db',
      LibSQLDatabase: 'db',
      SQLiteTransaction: 'tx',
    },
    parts: { db: 'part', tx: 'part', part: 'part' },
    calls: { 'module.drizzle': 'db' },
    news: {},
    callbacks: { 'db.transaction': 'tx', 'tx.transaction': 'tx' },
  },
  writes: (_what, method) => (method === 'execute' ? 'sql' : WRITES.has(method) ? 'write' : 'none'),
  postgresOnly: false,
  wrap: {
    roots: new Set(['db']),
    members: { db: /^(?!\$client$)/ },
    names: ['tx', 'transaction', 'dbTx'],
    open: (root, _what, handle) => `${root}.transaction(async (${handle}) => {`,
  },
};
