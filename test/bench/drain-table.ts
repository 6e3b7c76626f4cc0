/**
 * One measurement of a full table: a fresh database, so many jobs, vacuum and checkpoint, then a worker in its own
 * process until its handler has seen all of them and a query finds none unfinished.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type FreshDatabase, freshDatabase } from '../support/services.js';
import type { BenchOptions } from './bench.js';
import type { ContenderName } from './contender.js';
import { ContenderClient } from './contender-client.js';
import type { WorkReport } from './contender-process.js';
import { Meter } from './meter.js';

export interface Drained {
  readonly perSecond: number;
  /** Null when the server's processes cannot be seen. */
  readonly postgresUsPerJob: number | null;
  readonly nodeUsPerJob: number;
  readonly walBytesPerJob: number;
  readonly rssMb: number;
}

export interface DrainOptions extends BenchOptions {
  readonly jobs: number;
  /** Between the installation and the jobs: a backlog, an open snapshot. What it returns is called at the end. */
  readonly before?: (database: FreshDatabase) => Promise<(() => Promise<void>) | undefined>;
}

const MAX_DRAIN_MS = 300_000;
const LOOK_MS = 2;

export async function drainTable(name: ContenderName, options: DrainOptions): Promise<Drained> {
  const { server, node, jobs, before, profileFolder } = options;
  const database = await freshDatabase(server);
  const { url, pool } = database;
  const filler = await ContenderClient.start(name, node);
  let worker: ContenderClient | undefined;
  let after: (() => Promise<void>) | undefined;
  try {
    await filler.ask({ do: 'install', url });
    after = await before?.(database);
    await filler.ask({ do: 'enqueue-many', url, jobs });
    await filler.close();
    await pool.query('vacuum analyze');
    await pool.query('checkpoint');
    const profiler =
      profileFolder && name === 'unbroker' ? ['--cpu-prof', `--cpu-prof-dir=${profileFolder}`] : [];
    worker = await ContenderClient.start(name, node, profiler);
    return await measure(worker, await Meter.open(pool), url, jobs, name);
  } finally {
    await after?.();
    await filler.close();
    await worker?.close();
    await database.close();
  }
}

async function measure(
  worker: ContenderClient,
  meter: Meter,
  url: string,
  jobs: number,
  name: ContenderName,
): Promise<Drained> {
  const { unfinished } = worker.hello;
  const allHandled = new Promise<void>((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`${name} handled only ${worker.handled}`)), MAX_DRAIN_MS);
    worker.onHandled = () => {
      if (worker.handled < jobs) return;
      clearTimeout(timer);
      resolve();
    };
  });
  await meter.start();
  const startAt = performance.now();
  const started = worker.ask({ do: 'work', url, profile: 'drain', jobs });
  await Promise.all([allHandled, started]);
  while ((await meter.pool.query<{ unfinished: boolean }>(unfinished)).rows[0]?.unfinished) {
    if (performance.now() - startAt > MAX_DRAIN_MS) throw new Error(`${name} left jobs unfinished`);
    await sleep(LOOK_MS);
  }
  const seconds = (performance.now() - startAt) / 1_000;
  const cost = await meter.stop();
  const report = await worker.ask<WorkReport>({ do: 'stop' });
  if (report.handled !== jobs) throw new Error(`${name} handled ${report.handled} of ${jobs} jobs`);
  return {
    perSecond: jobs / seconds,
    postgresUsPerJob: cost.cpuUs === null ? null : cost.cpuUs / jobs,
    nodeUsPerJob: report.cpuUs / jobs,
    walBytesPerJob: cost.walBytes / jobs,
    rssMb: report.rssMb,
  };
}
