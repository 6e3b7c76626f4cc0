/**
 * Beside an open snapshot: a forgotten transaction keeps every dead row version, and a claim that walks them falls
 * behind. The drain of a full table and a thousand jobs a second, with a snapshot held ÷ without.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import type { FreshDatabase } from '../support/services.js';
import type { BenchOptions, BenchResult } from './bench.js';
import { type ContenderName, KIND, PRIORITIES } from './contender.js';
import { drainTable } from './drain-table.js';
import { measurePaced } from './paced.js';
import { interleave, median, pairedRatio, range, round } from './rounds.js';
import { say } from './say.js';
import { table } from './table.js';

const PER_SECOND = 1_000;

interface Figure {
  readonly rate: number;
  readonly p99Ms: number;
  readonly cpu: number;
  /** Server CPU of a job at that pace. */
  readonly usPerJob: number;
  /** From the commit of a job with an old run_at to its end; only unbroker beside a snapshot. */
  readonly lateMs: number | null;
}

export async function benchHorizon(options: BenchOptions): Promise<BenchResult> {
  const cases = options.contenders.flatMap((name) => [`${name}`, `${name} held`]);
  const figures = await interleave(cases, options.rounds, async (name, at) => {
    const [contender, held] = name.split(' ') as [ContenderName, string | undefined];
    const figure = await measure(contender, held !== undefined, options);
    say(
      `round ${at + 1} of ${options.rounds}: ${name} p99 ${round(figure.p99Ms)} ms, CPU ${round(figure.cpu, 2)}`,
    );
    return figure;
  });
  const of = (name: string, figure: keyof Figure): number[] =>
    (figures[name] ?? []).flatMap((f) => f[figure] ?? []);
  const late = of('unbroker held', 'lateMs');
  const ratios = (name: ContenderName) => ({
    rateRatio: pairedRatio(of(`${name} held`, 'rate'), of(name, 'rate')),
    p99Ratio: pairedRatio(of(`${name} held`, 'p99Ms'), of(name, 'p99Ms')),
    cpuRatio: pairedRatio(of(`${name} held`, 'cpu'), of(name, 'cpu')),
    p99Ms: round(median(of(`${name} held`, 'p99Ms')), 1),
    steadyCpu: round(median(of(name, 'cpu')), 2),
    steadyP99Ms: round(median(of(name, 'p99Ms')), 1),
    cpuToGraphile: pairedRatio(of(name, 'cpu'), of('graphile', 'cpu')),
    steadyUsPerJob: round(median(of(name, 'usPerJob'))),
    usPerJobToGraphile: pairedRatio(of(name, 'usPerJob'), of('graphile', 'usPerJob')),
    usPerJobRatio: pairedRatio(of(`${name} held`, 'usPerJob'), of(name, 'usPerJob')),
    cpu: round(median(of(`${name} held`, 'cpu')), 2),
  });
  const peers = options.contenders.filter((name) => name !== 'unbroker');
  return {
    json: {
      ...(options.contenders.includes('unbroker') ? ratios('unbroker') : {}),
      lateMs: late.length === 0 ? null : round(Math.max(...late)),
      priorities: PRIORITIES,
      peers: Object.fromEntries(peers.map((name) => [name, ratios(name)])),
    },
    text: table(
      ['', 'drain, jobs/s', 'p99 ms at 1,000/s', 'Postgres, % of a core', 'Postgres µs/job'],
      cases.map((name) => [
        name,
        range(of(name, 'rate')),
        range(of(name, 'p99Ms'), 1),
        range(of(name, 'cpu').map((share) => share * 100)),
        range(of(name, 'usPerJob')),
      ]),
    ),
  };
}

async function measure(name: ContenderName, held: boolean, options: BenchOptions): Promise<Figure> {
  const seconds = options.seconds ?? (options.quick ? 3 : 20);
  let lateMs: number | null = null;
  const during = async (database: FreshDatabase): Promise<void> => {
    lateMs = await commitLate(database);
  };
  const before = async ({ url }: { readonly url: string }): Promise<(() => Promise<void>) | undefined> =>
    held ? holdSnapshot(url) : undefined;
  const drained = await drainTable(name, { ...options, jobs: options.quick ? 10_000 : 50_000, before });
  const paced = await measurePaced(name, {
    ...options,
    ...{ jobs: seconds * PER_SECOND, perSecond: PER_SECOND, profile: 'steady', before },
    ...{ priorities: PRIORITIES, ...(name === 'unbroker' && held ? { during } : {}) },
  });
  const usPerJob = paced.postgresUsPerJob ?? Number.NaN;
  return {
    ...{ rate: drained.perSecond, p99Ms: paced.p99Ms, lateMs },
    ...{ cpu: paced.postgresCpu ?? Number.NaN, usPerJob },
  };
}

/** A job that stands in front of all that was claimed, put in by a transaction that takes its time. */
async function commitLate({ url, pool }: FreshDatabase): Promise<number> {
  await sleep(1_500);
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query('begin');
  const { rows } = await client.query<{ id: string }>(
    `insert into unbroker.jobs (kind, payload, priority, run_at)
     values ($1, '{"n": 0}', 2, now() - interval '1 minute') returning id::text`,
    [KIND],
  );
  await sleep(500);
  await client.query('commit');
  const { rows: committed } = await client.query<{ at: Date }>('select clock_timestamp() as at');
  await client.end();
  for (let tries = 0; tries < 200; tries += 1) {
    await sleep(50);
    const { rows: found } = await pool.query<{ ms: number | null }>(
      `select date_part('epoch', finished_at - $2) * 1000 as ms from unbroker.jobs where id = $1`,
      [rows[0]?.id, committed[0]?.at],
    );
    if (found[0]?.ms !== null && found[0]?.ms !== undefined) return Math.max(0, found[0].ms);
  }
  return Number.POSITIVE_INFINITY;
}

/** A snapshot of this very database, so that it holds back the vacuum of its tables; answers how to end it. */
async function holdSnapshot(url: string): Promise<() => Promise<void>> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => {});
  await client.connect();
  await client.query('begin isolation level repeatable read');
  await client.query('select count(*) from pg_class');
  return async () => {
    await client.query('rollback');
    await client.end();
  };
}
