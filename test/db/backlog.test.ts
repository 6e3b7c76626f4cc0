/** What watchers ask stays bounded: right answers, and few pages however large the table and wrong its statistics. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createDoctorStatements } from '../../src/doctor/statements.js';
import { createBacklog, createBacklogStatements } from '../../src/jobs/backlog.js';
import { jobsDatabase } from '../support/jobs.js';

const db = await jobsDatabase();
const { backlog, leases } = createBacklog(db.schema);
const sql = createBacklogStatements(db.schema);
const asked = createDoctorStatements(db.schema);
afterAll(() => db.close());

/** 200,000 rows: finished ones, a scheduled backlog over many levels, some due. */
beforeAll(async () => {
  await db.pool.query('alter table unbroker.jobs set (autovacuum_enabled = false)');
  await db.pool.query(
    `insert into unbroker.jobs (kind, state, finished_at)
     select 'old', 'done', now() - interval '1 day' from generate_series(1, 100000)`,
  );
  // What the statistics say from here on: everything is done.
  await db.pool.query('analyze unbroker.jobs');
  await db.pool.query(
    `insert into unbroker.jobs (kind, priority, run_at)
     select 'later', i % 10, now() + interval '1 hour' from generate_series(1, 95000) as i`,
  );
  await db.pool.query(
    `insert into unbroker.jobs (kind, priority, run_at)
     select 'k' || i % 20, i % 3, now() - i * interval '1 second' from generate_series(1, 5000) as i`,
  );
}, 180_000);

interface Plan {
  readonly 'Node Type': string;
  readonly 'Relation Name'?: string;
  readonly 'Shared Hit Blocks': number;
  readonly 'Shared Read Blocks': number;
  readonly Plans?: readonly Plan[];
}

async function explain(text: string, values: readonly unknown[]) {
  const { rows } = await db.pool.query(`explain (analyze, buffers, format json) ${text}`, [...values]);
  const plan = rows[0]['QUERY PLAN'][0].Plan as Plan;
  const flat = (node: Plan): Plan[] => [node, ...(node.Plans ?? []).flatMap(flat)];
  return {
    whole: flat(plan)
      .filter((node) => node['Relation Name'] === 'jobs' && !node['Node Type'].startsWith('Index'))
      .map((node) => node['Node Type']),
    blocks: plan['Shared Hit Blocks'] + plan['Shared Read Blocks'],
  };
}

const questions = [
  ['backlog', sql.backlog, [200, 100], 15_000],
  ['backlogOrdered', sql.backlogOrdered, [200, 100], 15_000],
  ['leases', sql.leases, [10_000], 500],
  ['recentKinds', asked.recentKinds, [600_000], 200],
  ['unnamedLeases', asked.unnamedLeases, [500], 2_500],
  ['solo', asked.solo, [], 50],
  ['schedules', asked.schedules, [], 50],
] as const;

test.each(questions)(
  '%s reads no whole table, whatever the statistics say',
  async (_, text, values, maxBlocks) => {
    const before = await explain(text, values);
    expect(before.whole).toEqual([]);
    expect(before.blocks).toBeLessThan(maxBlocks);
  },
);

test('each kind once, with what is due in all its levels', async () => {
  const found = await backlog(db.pool, { maxDue: 1_000 });
  expect(found).toHaveLength(21);
  expect(found.find(({ kind }) => kind === 'later')).toEqual({
    kind: 'later',
    due: 0,
    capped: false,
    oldestDueMs: null,
  });
  const k0 = found.find(({ kind }) => kind === 'k0');
  expect(k0).toMatchObject({ due: 250, capped: false });
  expect(k0?.oldestDueMs).toBeGreaterThanOrEqual(5_000_000);
  expect(k0?.oldestDueMs).toBeLessThan(5_600_000);
});

test('counts stop at their cap and say so; levels stop at theirs', async () => {
  const capped = await backlog(db.pool, { maxDue: 10 });
  expect(capped.find(({ kind }) => kind === 'k0')).toMatchObject({ due: 30, capped: true });
  expect(await backlog(db.pool, { maxLevels: 1 })).toMatchObject([{ kind: 'k0' }]);
});

test('after the statistics caught up the plans are the same', async () => {
  await db.claim(['k1', 'k2'], { total: 50 });
  await db.pool.query('analyze unbroker.jobs');
  for (const [name, text, values, maxBlocks] of questions) {
    const after = await explain(text, values);
    expect([name, after.whole]).toEqual([name, []]);
    expect([name, after.blocks < maxBlocks, after.blocks]).toEqual([name, true, after.blocks]);
  }
  expect(await leases(db.pool)).toEqual([{ kind: 'k1', running: 50, expired: 0, oldestExpiredMs: null }]);
});
