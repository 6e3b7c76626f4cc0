/** pg-promise 12. */
import pgPromise, { type ITask } from 'pg-promise';
import { fromPgPromise } from '../../../adapters/transactions/index.js';
import { describeLibrary, type Scope } from './contract.js';

const scopeOf = (t: ITask<object>): Scope => ({
  db: fromPgPromise(t),
  insertOrder: (note) => t.none('insert into orders (note) values ($1)', [note]),
  nested: (work) => t.tx((inner) => work(scopeOf(inner))),
});

describeLibrary('pg-promise', async (url) => {
  const db = pgPromise({ noWarnings: true })({ connectionString: url, max: 2 });
  return {
    alone: fromPgPromise(db),
    transaction: (work) => db.tx((t) => work(scopeOf(t))),
    close: () => db.$pool.end(),
  };
});
