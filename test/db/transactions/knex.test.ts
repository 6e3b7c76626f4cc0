/** Knex 3. */
import knex, { type Knex } from 'knex';
import { fromKnex } from '../../../adapters/transactions/index.js';
import { describeLibrary, type Scope } from './contract.js';

const scopeOf = (trx: Knex.Transaction): Scope => ({
  db: fromKnex(trx),
  insertOrder: (note) => trx('orders').insert({ note }),
  nested: (work) => trx.transaction((inner) => work(scopeOf(inner))),
});

describeLibrary('Knex', async (url) => {
  const db = knex({ client: 'pg', connection: url, pool: { min: 0, max: 2 } });
  return {
    alone: fromKnex(db),
    transaction: (work) => db.transaction((trx) => work(scopeOf(trx))),
    close: () => db.destroy(),
  };
});
