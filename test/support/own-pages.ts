/**
 * Pages that a session touches of one schema's tables and indexes, for tests that bound them. Those of the catalogs are not
 * counted: a session reads them again (600 pages) whenever others on the server change theirs often enough.
 */
import type { Queryable } from '../../src/jobs/job.js';

/** Pages that `act` touches, in a transaction of its own. `session` must be one connection. */
export async function ownPages(
  session: Queryable,
  act: () => Promise<unknown>,
  schema = 'unbroker',
): Promise<number> {
  await session.query('begin');
  const before = await touched(session, schema);
  await act();
  const pages = (await touched(session, schema)) - before;
  await session.query('commit');
  return pages;
}

/** By this session so far; within a transaction it only grows. */
async function touched(session: Queryable, schema: string): Promise<number> {
  const { rows } = await session.query(
    `select sum(pg_stat_get_xact_blocks_fetched(oid))::int as pages from pg_class
     where relnamespace = $1::regnamespace and relkind in ('r', 'i', 'S')`,
    [schema],
  );
  return (rows[0] as { pages: number }).pages;
}
