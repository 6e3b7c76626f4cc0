/**
 * Schedules, operators’ acts and templates under what a role or a database may say to its sessions: dates in another style than the
 * driver reads, fewer digits, other zones, no path. worker.test.ts runs under most of it, too.
 */
import { afterAll, expect, test } from 'vitest';
import { createSchedules, createWorker } from '../../src/index.js';
import { Floors } from '../../src/jobs/floors.js';
import { createTemplateTable } from '../../src/notify/template-table.js';
import { createOperations } from '../../src/operations.js';
import { createTesting } from '../../src/testing.js';
import { jobsDatabase } from '../support/jobs.js';
import { until } from '../support/until.js';

const db = await jobsDatabase({
  settings: [
    `datestyle = 'SQL, DMY'`,
    `intervalstyle = 'postgres_verbose'`,
    `timezone = 'Pacific/Chatham'`,
    'extra_float_digits = 0',
    'standard_conforming_strings = off',
    'bytea_output = escape',
    `search_path = ''`,
  ],
});
afterAll(() => db.close());

const { pool, store } = db;

test('a schedule has its times, is paused and resumed, and fires', async () => {
  const { schedule, pauseSchedule, resumeSchedule, listSchedules, nextRuns, scheduleHistory } =
    createSchedules();
  const endAt = new Date('2099-01-02T03:04:05.678Z');
  const made = await schedule(pool, {
    name: 's',
    kind: 'a',
    cron: '0 0 1 1 *',
    timeZone: 'Europe/Berlin',
    endAt,
  });
  const january = new Date(Date.UTC((made.nextRunAt as Date).getUTCFullYear(), 11, 31, 23));
  expect(made).toMatchObject({ nextRunAt: january, endAt });
  expect(Math.abs(made.createdAt.getTime() - Date.now())).toBeLessThan(3_600_000);
  await pauseSchedule(pool, 's');
  expect(await resumeSchedule(pool, 's')).toMatchObject({ paused: false, nextRunAt: january, endAt });
  expect(await listSchedules(pool)).toMatchObject([{ nextRunAt: january }]);
  expect((await nextRuns(pool, 's', 2))?.[0]).toEqual(january);
  await pool.query(`update unbroker.jobs set run_at = now() - interval '2 minutes' where cron is not null`);
  const worker = createWorker({ db: pool, handlers: { a: () => 1 }, upkeepMs: 50 });
  worker.start();
  try {
    const [fired] = await until('it has fired and is done', async () => {
      const jobs = await scheduleHistory(pool, 's');
      return jobs[0]?.state === 'done' && jobs;
    });
    expect(fired?.finishedAt?.getTime()).toBeGreaterThan(fired?.runAt.getTime() as number);
  } finally {
    await worker.stop({ deadlineMs: 0 });
  }
});

test('an operator’s bulk retry ends; lists, counts and groups have their times', async () => {
  await pool.query('truncate unbroker.jobs');
  const runAt = new Date('2031-02-03T04:05:06.789Z');
  const [id] = (await db.put('b', [1], { runAt })) as [string];
  expect(await store.show(pool, id)).toMatchObject({
    ...{ runAt, createdAt: expect.any(Date), finishedAt: null, lockedUntil: null },
  });
  expect(await store.stats(pool)).toMatchObject([{ kind: 'b', oldestRunAt: runAt }]);
  await pool.query(`update unbroker.jobs set run_at = now()`);
  const [job] = await db.claim('b');
  expect((await store.show(pool, id))?.lockedUntil?.getTime()).toBeGreaterThan(job?.createdAtMs as number);
  await store.discard(pool, [{ ...(job as NonNullable<typeof job>), name: 'E', message: 'm' }]);
  const dead = await store.show(pool, id);
  expect(await store.deadGroups(pool, {}, 10)).toMatchObject([
    { firstAt: dead?.finishedAt, lastAt: dead?.finishedAt },
  ]);
  const operations = createOperations('unbroker');
  const begun = await operations.begin(pool, 'retry', { kind: 'b' }, 'tester');
  expect(begun).toMatchObject({ startedAt: expect.any(Date), finishedAt: null });
  const ended = await operations.run(pool, begun.id);
  expect(ended).toMatchObject({ changed: 1, finishedAt: expect.any(Date) });
  expect(await operations.list(pool, 10)).toEqual([ended]);
});

test('templates have their times; a transaction’s own jobs have theirs', async () => {
  const tx = await db.session();
  await tx.query('begin');
  const templates = createTemplateTable('unbroker');
  await templates.put(tx, 'k', [{ locale: 'en', channel: 'email', parts: { text: 'x' } }]);
  expect(await templates.versions(tx, 'k', 5)).toMatchObject([{ createdAt: expect.any(Date) }]);
  expect(await templates.current(tx, 5)).toMatchObject([
    { createdAt: expect.any(Date), changedAt: expect.any(Date) },
  ]);
  const runAt = new Date('2031-02-03T04:05:06.789Z');
  await tx.query(`insert into unbroker.jobs (kind, payload, run_at) values ('c', '1', $1)`, [runAt]);
  expect(await createTesting().enqueued(tx)).toMatchObject([{ kind: 'c', runAt }]);
  await tx.query('rollback');
});

test.each(['few', 'many'])(
  'claims of %s behind floors pass over nothing that is due at the same microsecond',
  async (how) => {
    await pool.query('truncate unbroker.jobs, unbroker.claims');
    // The last digit is one that would be rounded up.
    await pool.query(
      `insert into unbroker.jobs (kind, payload, run_at)
       select 'd', '1', date_trunc('second', now()) - interval '9.999993 seconds' from generate_series(1, 6)`,
    );
    const floors = new Floors();
    const claimed: number[] = [];
    for (let n = 0; n < 3; n += 1) {
      const order = {
        ...{ demands: [{ kind: 'd', limit: 2, park: false }], total: 2, worker: 'w1', leaseMs: 30_000 },
        ...{ floors: floors.next(), oldest: false },
      };
      const jobs =
        how === 'many'
          ? (await store.claimMany(pool, order)).jobs()
          : (await store.finishAndClaim(pool, [], order)).jobs;
      floors.claimed(jobs, false);
      claimed.push(jobs.length);
    }
    expect(claimed).toEqual([2, 2, 2]);
  },
);
