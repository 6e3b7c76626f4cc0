/**
 * One measurement of jobs that come one by one: a worker, or more, in its own process, a producer in another that sends at a fixed
 * pace whatever becomes of the jobs, and the time from there to the start of each handler.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type FreshDatabase, freshDatabase } from '../support/services.js';
import type { BenchOptions } from './bench.js';
import type { ContenderName, WorkProfile } from './contender.js';
import { ContenderClient } from './contender-client.js';
import type { WorkReport } from './contender-process.js';
import { Meter } from './meter.js';
import { quantile } from './rounds.js';

export interface Paced {
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** Of one core, the server alone; null when its processes cannot be seen. */
  readonly postgresCpu: number | null;
  /** Server CPU of a job, which says something on a busy machine, too. */
  readonly postgresUsPerJob: number | null;
  /** Handled by the end of the grace period, of those sent. */
  readonly handledShare: number;
}

export interface PacedOptions extends Pick<BenchOptions, 'server' | 'node'> {
  readonly jobs: number;
  readonly perSecond: number;
  readonly profile: WorkProfile;
  /** Processes that work. Default 1. */
  readonly workers?: number;
  /** Spread over so many priorities. Default 1. */
  readonly priorities?: number;
  /** Something on the side, begun together with the sending and waited for; it may not use much of the machine. */
  readonly during?: (database: FreshDatabase) => Promise<void>;
  /** Between the installation and the first job: a backlog, an open snapshot. What it returns is called at the end. */
  readonly before?: (database: FreshDatabase) => Promise<(() => Promise<void>) | undefined>;
  /** Given, it is used and left. Default: a fresh one. */
  readonly database?: FreshDatabase;
}

const SETTLE_MS = 1_000;
/** A contender that is further behind than this has lost. */
const GRACE_MS = 10_000;

export async function measurePaced(name: ContenderName, options: PacedOptions): Promise<Paced> {
  const { server, node, jobs, perSecond, profile, before, priorities = 1, during, workers = 1 } = options;
  const database = options.database ?? (await freshDatabase(server));
  const { url, pool } = database;
  const producer = await ContenderClient.start(name, node);
  const fleet = await Promise.all(Array.from({ length: workers }, () => ContenderClient.start(name, node)));
  const handledByAll = (): number => fleet.reduce((sum, worker) => sum + worker.handled, 0);
  let after: (() => Promise<void>) | undefined;
  try {
    await producer.ask({ do: 'install', url });
    after = await before?.(database);
    const startAt = performance.now();
    await Promise.all(fleet.map((worker) => worker.ask({ do: 'work', url, profile, jobs })));
    // A worker says that it sleeps, and has its first plans, before the first job comes.
    await sleep(SETTLE_MS);
    const meter = await Meter.open(pool);
    await meter.start();
    const measuredAt = performance.now();
    const lateCounts = profile === 'steady';
    await Promise.all([
      producer.ask({ do: 'send-paced', url, perSecond, jobs, priorities, lateCounts }),
      during?.(database),
    ]);
    for (let leftMs = GRACE_MS; handledByAll() < jobs && leftMs > 0; leftMs -= 10) await sleep(10);
    const seconds = (performance.now() - measuredAt) / 1_000;
    const { cpuUs } = await meter.stop();
    const reports = await Promise.all(fleet.map((worker) => worker.ask<WorkReport>({ do: 'stop' })));
    const handled = reports.reduce((sum, report) => sum + report.handled, 0);
    const latenciesMs = reports.flatMap((report) => report.latenciesMs);
    if (handled === 0) throw new Error(`${name} handled nothing in ${performance.now() - startAt} ms`);
    return {
      p50Ms: quantile(latenciesMs, 0.5),
      p99Ms: quantile(latenciesMs, 0.99),
      postgresCpu: cpuUs === null ? null : cpuUs / 1_000_000 / seconds,
      postgresUsPerJob: cpuUs === null ? null : cpuUs / handled,
      handledShare: handled / jobs,
    };
  } finally {
    await after?.();
    await Promise.all([producer, ...fleet].map((client) => client.close()));
    if (options.database === undefined) await database.close();
  }
}
