/** This package, from dist as a user gets it, with documented options only; fencing on, finished rows kept. */
import pg from 'pg';
import type * as Library from '../../../src/index.js';
import { batches, type Contender, KIND } from '../contender.js';

const built = new URL('../../../dist/src/index.js', import.meta.url).href;
const { createWorker, enqueue, enqueueMany, migrate } = (await import(built)) as typeof Library;

export const unbroker: Contender = {
  unfinished: `
select exists (select from unbroker.jobs where state = 'ready' and cron is null and not solo and kind = '${KIND}')
    or exists (select from unbroker.jobs where state = 'running') as unfinished`,

  async install(url) {
    await withPool(url, 2, (pool) => migrate(pool));
  },

  async enqueueMany(url, jobs) {
    await withPool(url, 1, async (pool) => {
      for (const payloads of batches(jobs)) {
        await enqueueMany(
          pool,
          payloads.map((payload) => ({ kind: KIND, payload })),
        );
      }
    });
  },

  async enqueuer() {
    return { enqueue: (client, payload) => enqueue(client, KIND, payload), close: async () => {} };
  },

  async work(url, profile, onJob) {
    const pool = new pg.Pool({ connectionString: url, max: 5 });
    const worker = createWorker({
      db: pool,
      concurrency: profile === 'drain' ? 1_000 : 10,
      handlers: { [KIND]: (job) => onJob(job.payload as Parameters<typeof onJob>[0]) },
    });
    worker.start();
    return {
      async stop() {
        await worker.stop();
        await pool.end();
      },
    };
  },
};

async function withPool<T>(url: string, max: number, use: (pool: pg.Pool) => Promise<T>): Promise<T> {
  const pool = new pg.Pool({ connectionString: url, max });
  try {
    return await use(pool);
  } finally {
    await pool.end();
  }
}
