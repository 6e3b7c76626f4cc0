/**
 * A worker process for the fault runs. Its handlers leave a start and an effect in the sink and say under which token
 * they ran; `poison` kills the process in the middle of its start, `long` never ends at its first attempt.
 */
import pg from 'pg';
import type { HandlerFunction } from '../../src/jobs/handler.js';
import { createWorker } from '../../src/jobs/worker.js';
import { EffectsClient } from '../support/effects-sink.js';

const env = (name: string, otherwise: string): string => process.env[name] || otherwise;

const effects = new EffectsClient(Number(env('EFFECTS_PORT', '0')));
const pool = new pg.Pool({
  connectionString: env('DATABASE_URL', ''),
  max: 5,
  connectionTimeoutMillis: 3_000,
  application_name: env('NAME', 'worker'),
});

/** Milliseconds that an ordinary job takes, and how many more at random. */
const [busyMs = 0, spreadMs = 0] = env('BUSY_MS', '5+5').split('+').map(Number);
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

const leave = (what: string, job: Parameters<HandlerFunction>[0]): Promise<void> =>
  effects.record({ job: job.id, token: job.leaseToken, attempt: job.attempt, what });

const plain: HandlerFunction = async (job) => {
  await leave('start', job);
  await pause(busyMs + Math.random() * spreadMs);
  await leave('effect', job);
  return { token: job.leaseToken };
};

const worker = createWorker({
  db: pool,
  concurrency: Number(env('CONCURRENCY', '10')),
  leaseMs: Number(env('LEASE_MS', '2000')),
  pollMs: 50,
  upkeepMs: Number(env('UPKEEP_MS', '5000')),
  handlers: {
    plain,
    poison: async (job) => {
      await leave('start', job);
      process.kill(process.pid, 'SIGKILL');
      await pause(60_000);
    },
    long: async (job, { signal }) => {
      await leave('start', job);
      if (job.attempt === 1) await new Promise((resolve) => signal.addEventListener('abort', resolve));
      return { token: job.leaseToken };
    },
  },
});
worker.start();
process.on('SIGTERM', () => {
  void worker.stop({ deadlineMs: 20_000 }).then(async () => {
    effects.close();
    await pool.end();
  });
});
