/** Drizzle 0.45 on node-postgres and on postgres.js. */
import { drizzle as drizzleNodePostgres, type NodePgDatabase } from 'drizzle-orm/node-postgres';
import { bigint, pgTable, text } from 'drizzle-orm/pg-core';
import { drizzle as drizzlePostgresJs, type PostgresJsDatabase } from 'drizzle-orm/postgres-js';
import pg from 'pg';
import postgres from 'postgres';
import { fromDrizzle } from '../../../adapters/transactions/index.js';
import { describeLibrary, type Scope } from './contract.js';

const orders = pgTable('orders', {
  id: bigint({ mode: 'bigint' }).generatedAlwaysAsIdentity(),
  note: text().notNull(),
});

type NodePgTransaction = Parameters<Parameters<NodePgDatabase['transaction']>[0]>[0];
type PostgresJsTransaction = Parameters<Parameters<PostgresJsDatabase['transaction']>[0]>[0];

const nodePgScope = (tx: NodePgTransaction): Scope => ({
  db: fromDrizzle(tx),
  insertOrder: (note) => tx.insert(orders).values({ note }),
  nested: (work) => tx.transaction((inner) => work(nodePgScope(inner))),
});

const postgresJsScope = (tx: PostgresJsTransaction): Scope => ({
  db: fromDrizzle(tx),
  insertOrder: (note) => tx.insert(orders).values({ note }),
  nested: (work) => tx.transaction((inner) => work(postgresJsScope(inner))),
});

describeLibrary('Drizzle on node-postgres', async (url) => {
  const pool = new pg.Pool({ connectionString: url, max: 2 }).on('error', () => {});
  const db = drizzleNodePostgres(pool, { casing: 'snake_case' });
  return {
    alone: fromDrizzle(db),
    transaction: (work) => db.transaction((tx) => work(nodePgScope(tx))),
    close: () => pool.end(),
  };
});

describeLibrary('Drizzle on postgres.js', async (url) => {
  const client = postgres(url, { max: 2, onnotice: () => {} });
  const db = drizzlePostgresJs(client);
  return {
    alone: fromDrizzle(db),
    transaction: (work) => db.transaction((tx) => work(postgresJsScope(tx))),
    close: () => client.end(),
  };
});
