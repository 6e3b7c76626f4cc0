/** The service starter's Postgres half: isolation of fresh databases. */
import { afterAll, expect, test } from 'vitest';
import { freshDatabase } from '../support/services.js';

const first = await freshDatabase();
const second = await freshDatabase();
afterAll(() => Promise.all([first.close(), second.close()]));

test('two fresh databases do not see each other and both keep commits durable', async () => {
  await first.pool.query('create table t (id int)');
  const there = await second.pool.query("select to_regclass('t') as t");
  expect(there.rows[0].t).toBeNull();
  const settings = await first.pool.query(
    "select current_setting('fsync') as a, current_setting('synchronous_commit') as b",
  );
  expect(settings.rows[0]).toEqual({ a: 'on', b: 'on' });
});
