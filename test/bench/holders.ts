/**
 * Twenty workers, a hundred thousand jobs: a log of every claim and every end says whether two ever held the same one.
 */
import pg from 'pg';
import type * as Library from '../../src/index.js';
import { freshDatabase } from '../support/services.js';
import { TokenLog } from '../support/token-log.js';
import type { BenchOptions, BenchResult } from './bench.js';
import { round } from './rounds.js';
import { table } from './table.js';

const WORKERS = 20;

export async function benchHolders({ server, quick }: BenchOptions): Promise<BenchResult> {
  const built = new URL('../../dist/src/index.js', import.meta.url).href;
  const { createWorker, enqueueMany, migrate } = (await import(built)) as typeof Library;
  const jobs = quick ? 20_000 : 100_000;
  const database = await freshDatabase(server);
  const pools = Array.from(
    { length: WORKERS },
    () => new pg.Pool({ connectionString: database.url, max: 3 }),
  );
  const log = new TokenLog();
  const holding = new Set<string>();
  let doubled = 0;
  try {
    await migrate(database.pool);
    await enqueueMany(
      database.pool,
      Array.from({ length: jobs }, (_, n) => ({ kind: 'a', payload: n })),
    );
    const startAt = performance.now();
    const ended = new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error('not through in 5 minutes')), 300_000);
      const workers = pools.map((db, index) =>
        createWorker({
          db,
          concurrency: 50,
          handlers: {
            a: async (job) => {
              if (holding.has(job.id)) doubled += 1;
              holding.add(job.id);
              await null;
              holding.delete(job.id);
            },
          },
          onEvent: (event) => {
            log.record(`w${index}`, event);
            if (log.settled + log.lost < jobs) return;
            clearTimeout(timer);
            void Promise.all(workers.map((worker) => worker.stop({ deadlineMs: 1_000 }))).then(() =>
              resolve(),
            );
          },
        }),
      );
      for (const worker of workers) worker.start();
    });
    await ended;
    const perSecond = round(jobs / ((performance.now() - startAt) / 1_000));
    const problems = log.problems().length;
    const { claimed, lost } = log;
    return {
      json: { jobs, workers: WORKERS, claimed, doubled, problems, lost, perSecond },
      text: table(
        ['jobs', 'workers', 'claims', 'held twice', 'impossible claims or ends', 'lost', 'jobs/s'],
        [[jobs, WORKERS, claimed, doubled, problems, lost, perSecond].map(String)],
      ),
    };
  } finally {
    await Promise.all(pools.map((pool) => pool.end()));
    await database.close();
  }
}
