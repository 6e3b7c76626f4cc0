/**
 * Ten worker processes with next to nothing to do, as a fleet is sized for its worst hour: what a job that comes by itself
 * costs the server when all of them listen, and how long it waits.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { freshDatabase } from '../support/services.js';
import type { BenchOptions, BenchResult } from './bench.js';
import type { ContenderName } from './contender.js';
import { ContenderClient } from './contender-client.js';
import { Meter } from './meter.js';
import { measurePaced, type Paced } from './paced.js';
import { interleave, median, range, round } from './rounds.js';
import { say } from './say.js';
import { table } from './table.js';

const WORKERS = 10;
const PACES = [20, 90, 300];
/** Until every worker has looked, found nothing and said that it sleeps. */
const SETTLE_MS = 3_000;

export async function benchFleet(options: BenchOptions): Promise<BenchResult> {
  // Nobody writes a loop by hand that listens.
  const contenders = options.contenders.filter((name) => name !== 'limit');
  const seconds = options.quick ? 3 : 10;
  const json: Record<string, object> = {};
  const lines: string[][] = [];
  const idle = await interleave(contenders, options.rounds, async (name, at) => {
    const share = await idleCpu(name, options, seconds);
    say(`round ${at + 1} of ${options.rounds}: idle ${name} ${round(share * 100, 2)} % of a core`);
    return share;
  });
  json.idle = Object.fromEntries(
    contenders.map((name) => [name, { postgresCpu: round(median(idle[name]), 4) }]),
  );
  lines.push(
    ...contenders.map((name) => [
      '0',
      name,
      '–',
      '–',
      range(
        idle[name].map((share) => share * 100),
        2,
      ),
      '–',
    ]),
  );
  for (const perSecond of PACES) {
    const figures = await interleave(contenders, options.rounds, async (name, at) => {
      const jobs = perSecond * seconds;
      const figure = await measurePaced(name, {
        ...options,
        ...{ workers: WORKERS, jobs, perSecond, profile: 'idle' as const },
      });
      say(`round ${at + 1} of ${options.rounds}: ${perSecond}/s ${name} p50 ${round(figure.p50Ms, 2)} ms`);
      return figure;
    });
    json[`at${perSecond}`] = Object.fromEntries(contenders.map((name) => [name, summary(figures[name])]));
    lines.push(
      ...contenders.map((name) => [
        String(perSecond),
        name,
        range(values(figures[name], 'p50Ms'), 2),
        range(values(figures[name], 'p99Ms'), 2),
        range(
          values(figures[name], 'postgresCpu').map((share) => share * 100),
          1,
        ),
        range(
          values(figures[name], 'handledShare').map((share) => share * 100),
          1,
        ),
      ]),
    );
  }
  return {
    json: { workers: WORKERS, seconds, ...json },
    text: table(['jobs/s', '', 'p50 ms', 'p99 ms', 'Postgres, % of a core', 'handled, %'], lines),
  };
}

/** Of one core, the server alone, while nobody enqueues. */
async function idleCpu(
  name: ContenderName,
  { server, node }: BenchOptions,
  seconds: number,
): Promise<number> {
  const database = await freshDatabase(server);
  const { url, pool } = database;
  const fleet = await Promise.all(Array.from({ length: WORKERS }, () => ContenderClient.start(name, node)));
  try {
    await fleet[0]?.ask({ do: 'install', url });
    await Promise.all(fleet.map((worker) => worker.ask({ do: 'work', url, profile: 'idle', jobs: 1 })));
    await sleep(SETTLE_MS);
    const meter = await Meter.open(pool);
    await meter.start();
    const startAt = performance.now();
    await sleep(seconds * 1_000);
    const elapsedMs = performance.now() - startAt;
    const { cpuUs } = await meter.stop();
    return (cpuUs ?? Number.NaN) / 1_000 / elapsedMs;
  } finally {
    await Promise.all(fleet.map((worker) => worker.close()));
    await database.close();
  }
}

function values(paced: readonly Paced[], name: keyof Paced): number[] {
  return paced.map((figure) => figure[name] ?? Number.NaN);
}

function summary(paced: readonly Paced[]): object {
  return {
    p50Ms: round(median(values(paced, 'p50Ms')), 2),
    p99Ms: round(median(values(paced, 'p99Ms')), 2),
    postgresCpu: round(median(values(paced, 'postgresCpu')), 3),
    handledShare: round(median(values(paced, 'handledShare')), 3),
  };
}
