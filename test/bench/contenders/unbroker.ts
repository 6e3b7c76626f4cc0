/** This package, from dist as a user gets it, with documented options only; fencing on, finished rows kept. */
import pg from 'pg';
import type * as Library from '../../../src/index.js';
import { type Contender, KIND, type Payload, PRIORITIES } from '../contender.js';

const built = new URL('../../../dist/src/index.js', import.meta.url).href;
const { createEnqueue, createWorker, enqueue, enqueueMany, migrate } = (await import(
  built
)) as typeof Library;

const CONCURRENCY = { drain: 2_000, remove: 2_000, small: 24, each: 24, steady: 100, idle: 10 };

export const unbroker: Contender = {
  // Level by level, as a claim does: a scan across them would walk all scheduled rows.
  unfinished: `
select exists (
  select from generate_series(0, ${PRIORITIES - 1}) as level cross join lateral (
    select from unbroker.jobs
    where finished_at is null and cron is null and not solo and ordering_key is null and kind = '${KIND}'
      and priority = level and run_at <= now()
    limit 1
  ) as due
) as unfinished`,

  async install(url) {
    const pool = new pg.Pool({ connectionString: url, max: 2 });
    await migrate(pool);
    await pool.end();
  },

  async enqueuer(url) {
    const prepared = createEnqueue(undefined, { prepared: true });
    const pool = new pg.Pool({ connectionString: url, max: 1 });
    return {
      enqueue: (client, payload) => enqueue(client, KIND, payload, { priority: payload.priority ?? 0 }),
      enqueuePrepared: (client, payload) =>
        prepared.enqueue(client, KIND, payload, { priority: payload.priority ?? 0 }),
      enqueueMany: (payloads) =>
        enqueueMany(
          pool,
          payloads.map((payload) => ({ kind: KIND, payload })),
        ),
      close: () => pool.end(),
    };
  },

  async work(url, profile, onJob) {
    const pool = new pg.Pool({ connectionString: url, max: 5 });
    const listen = async (): Promise<pg.Client> => {
      const client = new pg.Client({ connectionString: url });
      await client.connect();
      return client;
    };
    const worker = createWorker({
      db: pool,
      concurrency: CONCURRENCY[profile],
      handlers: { [KIND]: (job) => onJob(job.payload as Payload) },
      ...(profile === 'steady' || profile === 'idle' ? { listen } : {}),
      ...(profile === 'remove' ? { keepDone: false } : {}),
      ...(profile === 'each' ? { settleBatch: 1 } : {}),
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
