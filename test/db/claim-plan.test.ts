/**
 * The claim reads few pages, whatever the planner believes: from the empty, freshly vacuumed table on, with settings
 * that talk it out of indexes, and beside a crowd of jobs of the future. Pages do not swing with the machine's load: only
 * those of our own tables and indexes are counted, since a session reads its catalogs again (600 pages) whenever others
 * on the server change theirs often enough.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type JobsDatabase, jobsDatabase, type Session } from '../support/jobs.js';
import { ownPages } from '../support/own-pages.js';
import { until } from '../support/until.js';

/** UNBROKER_TEST_LONG=1 takes the million of the bench; a fifth shows the same in a few seconds. */
const FUTURE_ROWS = process.env['UNBROKER_TEST_LONG'] ? 1_000_000 : 200_000;

let db: JobsDatabase;
beforeAll(async () => {
  db = await jobsDatabase();
  // An autovacuum or autoanalyze in between keeps dead entries from being marked; it was seen in a count of pages.
  await db.pool.query('alter table unbroker.jobs set (autovacuum_enabled = false)');
});
afterAll(() => db.close());

test('no index tells what a claim changes: its update writes none, and stays in the page of its row', async () => {
  const { rows: told } = await db.pool.query(
    `select i.relname as index, a.attname as column
     from pg_index x join pg_class i on i.oid = x.indexrelid
     join pg_depend d on d.classid = 'pg_class'::regclass and d.objid = x.indexrelid and d.refobjid = x.indrelid
     join pg_attribute a on a.attrelid = d.refobjid and a.attnum = d.refobjsubid
     where x.indrelid = 'unbroker.jobs'::regclass
       and a.attname in ('state', 'attempts', 'lease_token', 'locked_until', 'locked_by', 'on_lease_expired')`,
  );
  expect(told).toEqual([]);
  await addReady(100);
  const session = await db.session();
  await session.query('begin');
  expect(await db.claim('a', { db: session, total: 50 })).toHaveLength(50);
  const { rows } = await session.query(
    `select n_tup_upd::int as all, n_tup_hot_upd::int as hot from pg_stat_xact_user_tables where relname = 'jobs'`,
  );
  await session.query('commit');
  await session.end();
  expect(rows[0]).toEqual({ all: 50, hot: 50 });
});

const CLAIM = `select count(*)::int as rows from unbroker.finish_and_claim('{}', '{}', null, $1, $2, $3, $4, 'w', '1 minute')`;
const CLAIM_MANY = `select sum(n)::int as rows from unbroker.claim_lines($1, $2, $3, $4, 'w', '1 minute')`;

interface Cost {
  readonly rows: number;
  /** Shared buffers touched, the writes' own among them. */
  readonly buffers: number;
}

/** Claims in this session, its cached plan included, and counts pages. */
async function claimCost(
  session: Session,
  kinds: readonly string[],
  total: number,
  claim = CLAIM,
): Promise<Cost> {
  const values = [kinds, kinds.map(() => total), kinds.map(() => false), total];
  let rows = 0;
  const buffers = await ownPages(session, async () => {
    const answer = await session.query(claim, values);
    ({ rows } = answer.rows[0] as { rows: number });
  });
  return { rows, buffers };
}

/**
 * Each row touched costs some pages: its index entry, its lock, the new version and that one's index entries. 20 is
 * what was seen, rounded up; a scan of the table below costs thousands.
 */
const allowed = (rows: number): number => 20 * rows + 300;

async function addReady(count: number, kind = 'a'): Promise<void> {
  await db.pool.query(
    `insert into unbroker.jobs (kind, payload) select $1, jsonb_build_object('n', n) from generate_series(1, $2::int) n`,
    [kind, count],
  );
}

describe('a session whose plan was made on the empty, freshly vacuumed table', () => {
  let session: Session;
  beforeAll(async () => {
    await db.clear();
    await db.pool.query('vacuum analyze unbroker.jobs');
    session = await db.session();
    // More often than the planner needs to settle for a generic plan.
    for (let i = 0; i < 7; i += 1) {
      expect((await claimCost(session, ['a'], 10)).rows).toBe(0);
      expect((await claimCost(session, ['a'], 10, CLAIM_MANY)).rows).toBe(0);
      // With something to take back: its statements are planned one after the other.
      await addReady(1, 'b');
      expect((await claimCost(session, ['b'], 1)).rows).toBe(1);
      await db.expire();
      expect((await session.query('select from unbroker.reap(10)')).rows).toHaveLength(1);
    }
  });

  test.each([500, 2_000, 20_000, 40_000])('claims ten of %i with few pages', async (count) => {
    await addReady(count);
    for (const claim of [CLAIM, CLAIM_MANY, CLAIM, CLAIM_MANY]) {
      const { rows, buffers } = await claimCost(session, ['a'], 10, claim);
      expect(rows).toBe(10);
      expect(buffers).toBeLessThan(allowed(10));
    }
  });

  test('and takes ten of them back', async () => {
    await db.expire();
    const buffers = await ownPages(session, async () => {
      expect((await session.query('select from unbroker.reap(10)')).rows).toHaveLength(10);
    });
    // Of each it reads the claim, too, and what is left of it.
    expect(buffers).toBeLessThan(3 * allowed(10));
  });

  test('and two hundred and fifty of them, and of a kind that has none', async () => {
    const many = await claimCost(session, ['nothing', 'a', 'nobody'], 250);
    expect(many.rows).toBe(250);
    expect(many.buffers).toBeLessThan(allowed(250));
  });
});

describe('settings that talk the planner out of indexes', () => {
  beforeAll(async () => {
    await db.clear();
    await addReady(20_000);
    await addReady(20_000, 'b');
    await db.pool.query('analyze unbroker.jobs');
  });

  test.each([
    ['dear random pages', 'random_page_cost = 10000'],
    ['no index scans', 'enable_indexscan = off', 'enable_indexonlyscan = off'],
    ['no scans by place', 'enable_tidscan = off'],
    ['no nested loops', 'enable_nestloop = off'],
    ['custom plans', 'plan_cache_mode = force_custom_plan'],
    [
      'compiled plans at any cost',
      'jit = on',
      'jit_above_cost = 0',
      'jit_inline_above_cost = 0',
      'jit_optimize_above_cost = 0',
    ],
    [
      'parallel plans at any cost',
      'parallel_setup_cost = 0',
      'parallel_tuple_cost = 0',
      'min_parallel_table_scan_size = 0',
      // Planned, but none to start: pages that a worker reads would not be in this session's count.
      'max_parallel_workers = 0',
    ],
    ['dear index tuples', 'cpu_index_tuple_cost = 1000', 'cpu_operator_cost = 1000'],
  ])('%s', async (_name, ...settings) => {
    const session = await db.session();
    for (const setting of settings) await session.query(`set ${setting}`);
    for (let i = 0; i < 6; i += 1) {
      const { rows, buffers } = await claimCost(session, ['a', 'b'], 10, i < 3 ? CLAIM : CLAIM_MANY);
      expect(rows).toBe(10);
      expect(buffers).toBeLessThan(allowed(10));
    }
    await session.end();
  });

  /** Compiling costs 187 ms a claim and planning anew some of it; neither shows in pages. */
  test.each(['finish_and_claim', 'claim_lines'])('%s pins what costs time and not pages', async (name) => {
    const { rows } = await db.pool.query('select proconfig from pg_proc where oid = $1::regproc', [
      `unbroker.${name}`,
    ]);
    expect(rows[0].proconfig).toEqual(
      expect.arrayContaining(['jit=off', 'plan_cache_mode=force_generic_plan', 'enable_tidscan=on']),
    );
  });

  test('the settings of the caller are his own again after it', async () => {
    const session = await db.session();
    await claimCost(session, ['nobody'], 1);
    const { rows } = await session.query(`select name from pg_settings where source = 'session'`);
    expect(rows).toEqual([]);
    await session.end();
  });
});

describe(`beside ${FUTURE_ROWS} jobs of the future in ten priorities`, () => {
  beforeAll(async () => {
    await db.clear();
    await db.pool.query(
      `insert into unbroker.jobs (kind, payload, priority, run_at)
       select 'a', 'null', n % 10, now() + interval '1 day' + n * interval '1 second' from generate_series(1, $1::int) n`,
      [FUTURE_ROWS],
    );
    await db.pool.query(
      `insert into unbroker.jobs (kind, payload, priority) select 'a', 'null', n % 3 from generate_series(1, 3000) n`,
    );
  }, 120_000);

  test.each(['before anything is known of the table', 'after analyze'])('%s', async (when) => {
    if (when === 'after analyze') await db.pool.query('analyze unbroker.jobs');
    const session = await db.session();
    const large = await claimCost(session, ['a'], 250);
    expect(large.rows).toBe(250);
    expect(large.buffers).toBeLessThan(allowed(250));
    const small = await claimCost(session, ['a'], 1);
    expect(small.rows).toBe(1);
    expect(small.buffers).toBeLessThan(allowed(1));
    await session.end();
  });

  test('and when none of them is due', async () => {
    await db.pool.query(`delete from unbroker.jobs where state = 'ready' and run_at <= now()`);
    const session = await db.session();
    // The first meets the dead entries of what was deleted; an index scan marks them for those who follow, once nobody in this
    // database has a snapshot that is older (an analyze of the catalogs has). A scan costs its pages every time.
    await until('a claim reads few pages', async () => {
      const { rows, buffers } = await claimCost(session, ['a'], 100);
      expect(rows).toBe(0);
      return buffers < allowed(0);
    });
    await session.end();
  });
});
