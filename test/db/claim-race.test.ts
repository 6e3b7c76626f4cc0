/** Many claimers, one table: a row that is locked is passed by, and no job is ever held twice at a time. */
import pg from 'pg';
import { afterAll, beforeEach, expect, test } from 'vitest';
import { createWorker, type WorkerEvent } from '../../src/jobs/worker.js';
import { auditReport, installAudit } from '../support/audit.js';
import { jobsDatabase } from '../support/jobs.js';
import { TokenLog } from '../support/token-log.js';
import { until } from '../support/until.js';

const db = await jobsDatabase();
afterAll(() => db.close());
beforeEach(() => db.clear());

test('a claim does not wait for a row that another session holds; it takes the next', async () => {
  const ids = await db.put('a', [1, 2, 3]);
  const holder = await db.session();
  await holder.query('begin');
  await holder.query('select from unbroker.jobs where id = $1 for update', [ids[0]]);
  const claimer = await db.session();
  await claimer.query(`set lock_timeout = '5s'`);
  expect((await db.claim('a', { db: claimer })).map(({ id }) => id)).toEqual(ids.slice(1));
  await holder.query('rollback');
  expect((await db.claim('a')).map(({ id }) => id)).toEqual(ids.slice(0, 1));
});

test('a job claimed in an open transaction is nobody else’s, and free again after its rollback', async () => {
  const ids = await db.put('a', [1]);
  const first = await db.session();
  await first.query('begin');
  expect(await db.claim('a', { db: first })).toHaveLength(1);
  expect(await db.claim('a')).toEqual([]);
  await first.query('rollback');
  const [again] = await db.claim('a');
  expect(again).toMatchObject({ id: ids[0], attempt: 1 });
});

test('twenty sessions claim at once: each job once, each claim under a token of its own', async () => {
  await db.put('a', Array(2_000).fill(0));
  const sessions = await Promise.all(Array.from({ length: 20 }, () => db.session()));
  let claims = 0;
  const all = await Promise.all(
    sessions.map(async (session) => {
      const mine = [];
      for (;;) {
        const jobs = await db.claim('a', { total: 7, db: session, worker: `w${session.pid}` });
        if (jobs.length === 0) return mine;
        claims += 1;
        mine.push(...jobs);
      }
    }),
  );
  const claimed = all.flat();
  expect(claimed).toHaveLength(2_000);
  expect(new Set(claimed.map(({ id }) => id)).size).toBe(2_000);
  expect(new Set(claimed.map(({ leaseToken }) => leaseToken)).size).toBe(claims);
  expect(claimed.every(({ attempt }) => attempt === 1)).toBe(true);
  await Promise.all(sessions.map((session) => session.end()));
});

test('twenty workers, a thousand jobs that fail and snooze and return: no two ever hold the same', async () => {
  await installAudit(db.pool);
  const log = new TokenLog();
  const running = new Set<string>();
  const doubled: string[] = [];
  const starts = new Map<string, number>();
  const pools = Array.from({ length: 4 }, () => new pg.Pool({ connectionString: db.url, max: 10 }));
  const ids = await db.put(
    'a',
    Array.from({ length: 1_000 }, (_, i) => i % 3),
    {
      retryPolicy: { type: 'fixed', delayMs: 1 },
      maxAttempts: 5,
    },
  );
  const workers = Array.from({ length: 20 }, (_, index) =>
    createWorker({
      db: pools[index % pools.length] as pg.Pool,
      concurrency: 10,
      pollMs: 20,
      upkeepMs: 0,
      handlers: {
        a: async (job) => {
          if (running.has(job.id)) doubled.push(job.id);
          running.add(job.id);
          starts.set(job.id, (starts.get(job.id) ?? 0) + 1);
          await new Promise((resolve) => setTimeout(resolve, Math.random() * 5));
          running.delete(job.id);
          if (job.attempt <= (job.payload as number)) throw new Error(`token ${job.leaseToken}`);
          return { token: job.leaseToken };
        },
      },
      onEvent: (event: WorkerEvent) => log.record(`w${index}`, event),
    }),
  );
  for (const worker of workers) worker.start();
  await until('all are done', async () => (await db.states())['done'] === ids.length, {
    withinMs: 60_000,
    everyMs: 100,
  });
  await Promise.all(workers.map((worker) => worker.stop()));
  await Promise.all(pools.map((pool) => pool.end()));

  expect(doubled).toEqual([]);
  expect(log.problems()).toEqual([]);
  expect(log.lost).toBe(0);
  expect(await auditReport(db.pool)).toMatchObject({ claims: 2_000 - 1, stale: 0, problems: [] });
  // 0, 1 or 2 failures each, then success: not one start too many.
  expect([...starts.values()].reduce((sum, n) => sum + n, 0)).toBe(334 + 2 * 333 + 3 * 333);
});
