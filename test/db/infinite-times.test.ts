/**
 * A job put in by hand may have a time that no Date can be: `run_at = 'infinity'` waits until somebody says so, '-infinity' is before
 * all others. One such row is a row among others to whoever lists, counts, watches or removes.
 */
import { afterAll, beforeEach, expect, test } from 'vitest';
import { Pruning } from '../../src/jobs/pruning.js';
import { createMetrics } from '../../src/jobs/worker-metrics.js';
import { startCli } from '../support/cli.js';
import { parseExposition, sampleOf } from '../support/exposition.js';
import { jobsDatabase } from '../support/jobs.js';
import { startWorker } from '../support/workers.js';

const db = await jobsDatabase();
afterAll(() => db.close());
beforeEach(() => db.clear());

const HOUR = 3_600_000;
const put = async (kind: string, runAt: string): Promise<string> =>
  (
    await db.pool.query<{ id: string }>(
      'insert into unbroker.jobs (kind, run_at) values ($1, $2) returning id::text',
      [kind, runAt],
    )
  ).rows[0]?.id ?? '';
const command = async (...args: string[]) => {
  const child = startCli(args, { env: { DATABASE_URL: db.url } });
  child.endInput();
  const { code } = await child.waitForExit(60_000);
  return { code, text: child.stdout + child.stderr };
};

test('a list, a job and the doctor', async () => {
  const times = ['infinity', '-infinity', '290000-01-01', '4000-01-01 BC'];
  const ids = await Promise.all(times.map((runAt) => put('odd', runAt)));
  await db.pool.query(`insert into unbroker.jobs (kind, run_at, solo) values ('odd', '-infinity', true)`);
  for (const id of ids) expect((await db.job(id)).runAt.getTime()).not.toBeNaN();
  const list = await command('jobs', 'list', '--json');
  expect(list).toMatchObject({ code: 0, text: expect.stringContaining('"+275760-09-13T00:00:00.000Z"') });
  expect(await command('jobs', 'show', ids[0] as string)).toMatchObject({ code: 0 });
  expect((await command('doctor', '--json')).text).toContain('"findings"');
}, 30_000);

test('the metrics go on beside a job that is due since ever, and so do the sums of what was claimed', async () => {
  const metrics = createMetrics({ db: db.pool });
  await put('ever', '-infinity');
  await put('never', 'infinity');
  await put('usual', 'now');
  const due = sampleOf(parseExposition(await metrics.text()), 'unbroker_jobs_due', { kind: 'usual' });
  expect(due).toBe(1);
  const worker = startWorker({
    ...{ url: db.url, handlers: { ever: () => null, usual: () => null }, onEvent: metrics.onEvent },
  });
  await worker.untilEnded(2);
  await worker.close();
  const sum = sampleOf(parseExposition(await metrics.text()), 'unbroker_job_lag_seconds_sum', {
    kind: 'ever',
  });
  expect(sum).toBeGreaterThan(1e9);
  expect(sum).toBeLessThan(Number.POSITIVE_INFINITY);
});

test('retention removes what finished at -infinity, and what lies behind it', async () => {
  await db.pool.query(
    `insert into unbroker.jobs (kind, state, finished_at)
     select 'k', 'done', case when n % 2 = 0 then '-infinity' else now() - interval '2 hours' end from generate_series(1, 1600) as n`,
  );
  await new Pruning({ store: db.store, db: db.pool, retention: { default: { maxAgeMs: HOUR } } }).sweep();
  expect(await db.states()).toEqual({});
});
