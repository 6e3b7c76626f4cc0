/**
 * One measurement of a full table: a fresh database, so many jobs, vacuum and checkpoint, then a worker in its own
 * process until its handler has seen all of them and a query finds none unfinished.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type FreshDatabase, freshDatabase } from '../support/services.js';
import type { BenchOptions } from './bench.js';
import type { ContenderName, WorkProfile } from './contender.js';
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
  /** Worker processes. Default 1. */
  readonly processes?: number;
  /** Default `drain`. */
  readonly profile?: WorkProfile;
  /** Between the installation and the jobs: a backlog, an open snapshot. What it returns is called at the end. */
  readonly before?: (database: FreshDatabase) => Promise<(() => Promise<void>) | undefined>;
  /** Given, it is used and left, with its table in it. Default: a fresh one. */
  readonly database?: FreshDatabase;
  /** How the jobs get in. Default: in bulk, as the contender does. */
  readonly enqueue?: (database: FreshDatabase) => Promise<void>;
}

const MAX_DRAIN_MS = 300_000;
const LOOK_MS = 2;

export async function drainTable(name: ContenderName, options: DrainOptions): Promise<Drained> {
  const { server, node, jobs, before, enqueue, profileFolder, processes = 1, profile = 'drain' } = options;
  const database = options.database ?? (await freshDatabase(server));
  const { url, pool } = database;
  const filler = await ContenderClient.start(name, node);
  const workers: ContenderClient[] = [];
  let after: (() => Promise<void>) | undefined;
  try {
    await filler.ask({ do: 'install', url });
    after = await before?.(database);
    await (enqueue === undefined ? filler.ask({ do: 'enqueue-many', url, jobs }) : enqueue(database));
    await filler.close();
    await pool.query('vacuum analyze');
    await pool.query('checkpoint');
    const profiler =
      profileFolder && name === 'unbroker' ? ['--cpu-prof', `--cpu-prof-dir=${profileFolder}`] : [];
    for (let n = 0; n < processes; n += 1) workers.push(await ContenderClient.start(name, node, profiler));
    return await measure(workers, await Meter.open(pool), { url, jobs, name, profile });
  } finally {
    await after?.();
    await filler.close();
    await Promise.all(workers.map((worker) => worker.close()));
    if (options.database === undefined) await database.close();
  }
}

interface Measured {
  readonly url: string;
  readonly jobs: number;
  readonly name: ContenderName;
  readonly profile: WorkProfile;
}

async function measure(
  workers: readonly ContenderClient[],
  meter: Meter,
  { url, jobs, name, profile }: Measured,
): Promise<Drained> {
  const handled = (): number => workers.reduce((sum, worker) => sum + worker.handled, 0);
  const allHandled = new Promise<void>((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`${name} handled only ${handled()}`)), MAX_DRAIN_MS);
    const onHandled = (): void => {
      if (handled() < jobs) return;
      clearTimeout(timer);
      resolve();
    };
    for (const worker of workers) worker.onHandled = onHandled;
  });
  await meter.start();
  const startAt = performance.now();
  const started = workers.map((worker) => worker.ask({ do: 'work', url, profile, jobs }));
  await Promise.all([allHandled, ...started]);
  while (await unfinished(meter, workers)) {
    if (performance.now() - startAt > MAX_DRAIN_MS) throw new Error(`${name} left jobs unfinished`);
    await sleep(LOOK_MS);
  }
  const seconds = (performance.now() - startAt) / 1_000;
  const cost = await meter.stop();
  const reports = await Promise.all(workers.map((worker) => worker.ask<WorkReport>({ do: 'stop' })));
  const all = reports.reduce((sum, report) => sum + report.handled, 0);
  if (all !== jobs) throw new Error(`${name} handled ${all} of ${jobs} jobs`);
  return {
    perSecond: jobs / seconds,
    postgresUsPerJob: cost.cpuUs === null ? null : cost.cpuUs / jobs,
    nodeUsPerJob: reports.reduce((sum, report) => sum + report.cpuUs, 0) / jobs,
    walBytesPerJob: cost.walBytes / jobs,
    rssMb: Math.max(...reports.map((report) => report.rssMb)),
  };
}

async function unfinished(meter: Meter, [worker]: readonly ContenderClient[]): Promise<boolean> {
  const { rows } = await meter.pool.query<{ unfinished: boolean }>(worker?.hello.unfinished ?? '');
  return rows[0]?.unfinished ?? false;
}
