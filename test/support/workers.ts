/**
 * A worker for a test: its own pool (so that its connections can be told from others by name), its events kept, and all
 * of it stopped and closed with the test's database.
 */
import pg from 'pg';
import type { KindOptions } from '../../src/jobs/handler.js';
import type { ClaimedJob, Queryable } from '../../src/jobs/job.js';
import type { Outcome } from '../../src/jobs/settle.js';
import { createWorker, type Worker, type WorkerEvent, type WorkerOptions } from '../../src/jobs/worker.js';
import { pooled } from './pgbouncer.js';
import { until } from './until.js';

/**
 * The same kinds, with ten minutes before each retry. By default the first comes after any time up to a second: often before
 * a test that waits for the failure has looked. The test brings the job forward itself.
 */
export function lateRetries(kinds: Readonly<Record<string, KindOptions>>): Record<string, KindOptions> {
  const retryPolicy = { type: 'fixed', delayMs: 600_000 } as const;
  return Object.fromEntries(
    Object.entries(kinds).map(([kind, options]) => [kind, { ...options, retryPolicy }]),
  );
}

export interface TestWorkerOptions extends Omit<WorkerOptions, 'db'> {
  readonly url: string;
  /** Connections; default 5. */
  readonly max?: number;
  /** Overrides the pool that `url` would give. */
  readonly db?: Queryable;
  /** Default `test-worker`. */
  readonly applicationName?: string;
}

export interface TestWorker extends Worker {
  readonly pool: pg.Pool;
  readonly events: readonly WorkerEvent[];
  /** Jobs of the events of one type, in order. */
  settled(): readonly { readonly job: ClaimedJob; readonly outcome: Outcome }[];
  lost(): readonly ClaimedJob[];
  claimed(): readonly ClaimedJob[];
  released(): readonly ClaimedJob[];
  /** Claimed jobs of which nothing was told yet: neither settled nor lost nor released. Throws when one was told twice. */
  untold(): readonly ClaimedJob[];
  errors(): readonly unknown[];
  /** Until `count` outcomes were written (or their leases lost). */
  untilEnded(count: number, withinMs?: number): Promise<void>;
  /** Stops the worker, at once by default, and closes its pool. */
  close(options?: { deadlineMs?: number }): Promise<void>;
}

export function startWorker(options: TestWorkerOptions): TestWorker {
  const { url, max = 5, applicationName = 'test-worker', db, onEvent, ...settings } = options;
  const pool = new pg.Pool({
    connectionString: pooled(url),
    max,
    connectionTimeoutMillis: 10_000,
    application_name: applicationName,
  });
  pool.on('error', () => {});
  const events: WorkerEvent[] = [];
  const worker = createWorker({
    pollMs: 20,
    upkeepMs: 0,
    ...settings,
    db: db ?? pool,
    onEvent: (event) => {
      events.push(event);
      onEvent?.(event);
    },
  });
  worker.start();
  const settled = () => events.flatMap((event) => (event.type === 'settled' ? [event] : []));
  const lost = () => events.flatMap((event) => (event.type === 'lost' ? [event.job] : []));
  const claimed = () => events.flatMap((event) => (event.type === 'claimed' ? event.jobs : []));
  const released = () => events.flatMap((event) => (event.type === 'released' ? event.jobs : []));
  const untold = () => {
    const left = new Set(claimed());
    for (const job of [...settled().map((event) => event.job), ...lost(), ...released()])
      if (!left.delete(job)) throw new Error(`job ${job.id} was told twice, or without a claim`);
    return [...left];
  };
  return {
    ...{ pool, events, settled, lost, claimed, released, untold },
    errors: () => events.flatMap((event) => (event.type === 'database-error' ? [event.error] : [])),
    start: () => worker.start(),
    stop: (stopOptions) => worker.stop(stopOptions),
    wake: () => worker.wake(),
    get ready() {
      return worker.ready;
    },
    get running() {
      return worker.running;
    },
    async untilEnded(count, withinMs = 60_000) {
      await until(`${count} jobs have ended`, () => settled().length + lost().length >= count, {
        withinMs,
        everyMs: 5,
      });
    },
    async close(stopOptions = { deadlineMs: 0 }) {
      await worker.stop(stopOptions);
      await pool.end();
      untold();
    },
  };
}
