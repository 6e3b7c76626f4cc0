/** postgres.js 3. */
import postgres from 'postgres';
import { fromPostgresJs } from '../../../adapters/transactions/index.js';
import { describeLibrary, type Scope } from './contract.js';

const scopeOf = (sql: postgres.TransactionSql): Scope => ({
  db: fromPostgresJs(sql),
  insertOrder: (note) => sql`insert into orders (note) values (${note})`,
  nested: (work) => sql.savepoint((inner) => work(scopeOf(inner))),
});

describeLibrary('postgres.js', async (url) => {
  const sql = postgres(url, { max: 2, onnotice: () => {} });
  return {
    alone: fromPostgresJs(sql),
    transaction: (work) => sql.begin((tx) => work(scopeOf(tx))),
    close: () => sql.end(),
  };
});

describeLibrary('postgres.js without its own look at the types, with names transformed', async (url) => {
  const sql = postgres(url, {
    max: 2,
    onnotice: () => {},
    fetch_types: false,
    prepare: false,
    transform: postgres.camel,
  });
  return {
    alone: fromPostgresJs(sql),
    transaction: (work) => sql.begin((tx) => work(scopeOf(tx))),
    close: () => sql.end(),
  };
});
