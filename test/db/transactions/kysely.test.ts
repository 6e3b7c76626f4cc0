/** Kysely 0.28: a callback's transaction, and a controlled one under the plugins that change rows. */
import {
  CamelCasePlugin,
  type ControlledTransaction,
  type Generated,
  Kysely,
  ParseJSONResultsPlugin,
  PostgresDialect,
  sql,
  type Transaction,
} from 'kysely';
import pg from 'pg';
import { fromKysely } from '../../../adapters/transactions/index.js';
import { describeLibrary, type Scope } from './contract.js';

interface Tables {
  orders: { id: Generated<string>; note: string };
}

const dialect = (url: string) =>
  new PostgresDialect({ pool: new pg.Pool({ connectionString: url, max: 2 }).on('error', () => {}) });

describeLibrary('Kysely', async (url) => {
  const db = new Kysely<Tables>({ dialect: dialect(url) });
  const scopeOf = (trx: Transaction<Tables>): Scope => ({
    db: fromKysely(trx),
    insertOrder: (note) => trx.insertInto('orders').values({ note }).execute(),
    async nested(work) {
      await sql`savepoint inner_work`.execute(trx);
      await work(scopeOf(trx)).catch(async (error: unknown) => {
        await sql`rollback to savepoint inner_work`.execute(trx);
        throw error;
      });
    },
  });
  return {
    alone: fromKysely(db),
    transaction: (work) => db.transaction().execute((trx) => work(scopeOf(trx))),
    close: () => db.destroy(),
  };
});

describeLibrary('Kysely with a controlled transaction and plugins', async (url) => {
  const plugins = [new CamelCasePlugin(), new ParseJSONResultsPlugin()];
  const db = new Kysely<Tables>({ dialect: dialect(url), plugins });
  const scopeOf = (trx: ControlledTransaction<Tables>): Scope => ({
    db: fromKysely(trx),
    insertOrder: (note) => trx.insertInto('orders').values({ note }).execute(),
    async nested(work) {
      const inner = await trx.savepoint('inner_work').execute();
      await work(scopeOf(trx)).catch(async (error: unknown) => {
        await inner.rollbackToSavepoint('inner_work').execute();
        throw error;
      });
    },
  });
  return {
    alone: fromKysely(db),
    async transaction(work) {
      const trx = await db.startTransaction().execute();
      await work(scopeOf(trx)).catch(async (error: unknown) => {
        await trx.rollback().execute();
        throw error;
      });
      await trx.commit().execute();
    },
    close: () => db.destroy(),
  };
});
