/** pg-promise 12. */
import pgPromise, { type ITask } from 'pg-promise';
import { expect, it } from 'vitest';
import { fromPgPromise } from '../../../adapters/transactions/index.js';
import { enqueue } from '../../../src/enqueue.js';
import { describeLibrary, type Scope } from './contract.js';

const scopeOf = (t: ITask<object>): Scope => ({
  db: fromPgPromise(t),
  insertOrder: (note) => t.none('insert into orders (note) values ($1)', [note]),
  nested: (work) => t.tx((inner) => work(scopeOf(inner))),
});

it('pg-promise: its own handle is refused, with the wrapping', async () => {
  const db = pgPromise({ noWarnings: true })('postgres://unused');
  await expect(enqueue(db as never, 'k')).rejects.toThrow(/fromPgPromise/);
  await db.$pool.end();
});

describeLibrary('pg-promise', async (url) => {
  const db = pgPromise({ noWarnings: true })({ connectionString: url, max: 2 });
  return {
    alone: fromPgPromise(db),
    transaction: (work) => db.tx((t) => work(scopeOf(t))),
    close: () => db.$pool.end(),
  };
});
