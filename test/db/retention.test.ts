/** Finished rows by kind, by age and by count, on a real table: what goes, what stays, how much one sweep touches. */
import { afterAll, beforeEach, expect, test } from 'vitest';
import type { Queryable } from '../../src/jobs/job.js';
import type { Retention } from '../../src/jobs/retention.js';
import { Upkeep } from '../../src/jobs/upkeep.js';
import { createUpkeepStatements } from '../../src/jobs/upkeep-statements.js';
import { jobsDatabase } from '../support/jobs.js';
import { until } from '../support/until.js';
import { startWorker } from '../support/workers.js';

const db = await jobsDatabase();
afterAll(() => db.close());
beforeEach(() => db.clear());

const HOUR = 3_600_000;
const upkeep = (retention: Retention, queryable: Queryable = db.pool) =>
  new Upkeep({ store: db.store, db: queryable, retention });

/** `count` rows of a kind, the n-th finished n hours ago. */
const finished = (kind: string, count: number, state = 'done') =>
  db.pool.query(
    `insert into unbroker.jobs (kind, state, finished_at)
     select $1, $3, now() - n * interval '1 hour' from generate_series(1, $2) as n`,
    [kind, count, state],
  );

async function left(): Promise<Record<string, number>> {
  const { rows } = await db.pool.query(
    `select kind || ' ' || state as what, count(*)::int from unbroker.jobs group by 1`,
  );
  return Object.fromEntries(rows.map(({ what, count }) => [what, count]));
}

test('each kind by its own rule, the rest by the default; unfinished ones are not touched', async () => {
  for (const kind of ['short', 'long', 'few', 'other']) await finished(kind, 50);
  await finished('few', 50, 'dead');
  await db.put('short', [1]);
  await upkeep({
    default: { maxAgeMs: 20.5 * HOUR },
    kinds: { short: { maxAgeMs: 5.5 * HOUR }, long: { maxAgeMs: 1_000 * HOUR }, few: { maxCount: 3 } },
  }).sweep();
  expect(await left()).toEqual({
    'short done': 5,
    'short ready': 1,
    'long done': 50,
    'few done': 3,
    'few dead': 20,
    'other done': 20,
  });
  const { rows } = await db.pool.query(
    `select max(finished_at) > now() - interval '61 minutes' as newest, min(finished_at) > now() - interval '4 hours' as oldest
     from unbroker.jobs where kind = 'few' and state = 'done'`,
  );
  expect(rows).toEqual([{ newest: true, oldest: true }]);
});

test('many that finished in the same instant are each looked at once', async () => {
  await db.pool.query(
    `insert into unbroker.jobs (kind, state, finished_at)
     select 'burst', 'done', now() - interval '1 hour' from generate_series(1, 2345)`,
  );
  await upkeep({ kinds: { burst: { maxCount: 1_000 } } }).sweep();
  expect(await left()).toEqual({ 'burst done': 1_000 });
});

test('two at once keep what they promise', async () => {
  await finished('few', 3_000);
  const retention = { kinds: { few: { maxCount: 700 } } };
  await Promise.all([upkeep(retention).sweep(), upkeep(retention).sweep(), upkeep(retention).sweep()]);
  expect(await left()).toEqual({ 'few done': 700 });
});

test('a job that was retried and ended anew while the walk was on its way stays', async () => {
  await finished('few', 2, 'dead');
  await finished('few', 1);
  const [oldest] = (await db.pool.query(`select id::text from unbroker.jobs order by finished_at limit 1`))
    .rows as { id: string }[];
  const racing: Queryable = {
    async query(text, values) {
      if (text.startsWith('\nwith old') && text.includes('any ($1')) {
        await db.pool.query(
          `update unbroker.jobs set state = 'done', finished_at = clock_timestamp() where id = $1`,
          [oldest?.id],
        );
      }
      return db.pool.query(text, values);
    },
  };
  await upkeep({ default: { maxAgeMs: 1.5 * HOUR }, kinds: { x: { maxCount: 1 } } }, racing).sweep();
  expect(await left()).toEqual({ 'few done': 2, 'few dead': 1 });
});

test('a sweep is bounded and the next one goes on', async () => {
  await db.pool.query(
    `insert into unbroker.jobs (kind, state, finished_at)
     select 'k', 'done', now() - n * interval '1 second' from generate_series(1, 12000) as n`,
  );
  const sweeper = upkeep({ kinds: { k: { maxCount: 100 } } });
  await sweeper.sweep();
  expect(await left()).toEqual({ 'k done': 2_100 });
  await sweeper.sweep();
  expect(await left()).toEqual({ 'k done': 100 });
});

test('a step of the walk reads a step of the index, in 200,000 rows', async () => {
  await db.pool.query(
    `insert into unbroker.jobs (kind, state, finished_at)
     select 'k' || n % 7, 'done', now() - n * interval '1 second' from generate_series(1, 200000) as n`,
  );
  await db.pool.query('analyze unbroker.jobs');
  const { rows } = await db.pool.query(
    `explain (analyze, buffers, format json) ${createUpkeepStatements(db.schema).finishedBelow}`,
    [0, new Date(Date.now() - 100_000_000).toISOString(), '1', 500],
  );
  const plan = JSON.stringify(rows[0]);
  expect(plan).not.toContain('Seq Scan');
  expect(plan).toContain('jobs_prune');
  expect(rows[0]['QUERY PLAN'][0].Plan['Shared Hit Blocks']).toBeLessThan(1_500);
});

test('a worker does it', async () => {
  await finished('few', 10);
  const worker = startWorker({
    url: db.url,
    handlers: { idle: () => null },
    upkeepMs: 50,
    retention: { kinds: { few: { maxCount: 4 } } },
  });
  await until('four are left', async () => (await left())['few done'] === 4);
  await worker.close();
});
