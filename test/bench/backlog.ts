/**
 * Beside a million rows that are not to run now: scheduled and done ones of the same kind, over ten priorities, and ready ones of
 * a kind that this worker does not know. The drain of a small ready set ÷ that of the small table alone, and the idle
 * latency beside the scheduled rows ÷ without.
 */

import type { FreshDatabase } from '../support/services.js';
import type { BenchOptions, BenchResult } from './bench.js';
import { KIND } from './contender.js';
import { drainTable } from './drain-table.js';
import { measurePaced } from './paced.js';
import { interleave, median, pairedRatio, range, round } from './rounds.js';
import { say } from './say.js';
import { table } from './table.js';

type Beside = 'alone' | 'scheduled' | 'other kind';

interface Figure {
  readonly rate: number;
  /** Server CPU of a job of the drain; NaN where its processes cannot be seen. */
  readonly postgresUs: number;
  readonly p50Ms: number | null;
  /** Of a core, at twenty jobs a second. */
  readonly postgresCpu: number | null;
}

const CASES: readonly Beside[] = ['alone', 'scheduled', 'other kind'];

export async function benchBacklog(options: BenchOptions): Promise<BenchResult> {
  const figures = await interleave(CASES, options.rounds, async (beside, at) => {
    const figure = await measure(beside, options);
    say(`round ${at + 1} of ${options.rounds}: ${beside} ${round(figure.rate).toLocaleString('en')} jobs/s`);
    return figure;
  });
  const rates = (beside: Beside): number[] => figures[beside].map((f) => f.rate);
  const us = (beside: Beside): number[] => figures[beside].map((f) => f.postgresUs);
  const p50s = (beside: Beside): number[] =>
    figures[beside].flatMap((f) => (f.p50Ms === null ? [] : [f.p50Ms]));
  return {
    json: {
      scheduledRatio: pairedRatio(rates('scheduled'), rates('alone')),
      otherKindRatio: pairedRatio(rates('other kind'), rates('alone')),
      futureP50Ratio: pairedRatio(p50s('scheduled'), p50s('alone')),
      futureP50Ms: round(median(p50s('scheduled')), 2),
      futureCpu: round(median(figures.scheduled.map((f) => f.postgresCpu ?? Number.NaN)), 3),
      alone: round(median(rates('alone'))),
      postgresUsPerJob: Object.fromEntries(CASES.map((beside) => [beside, round(median(us(beside)), 1)])),
    },
    text: table(
      ['', 'drain, jobs/s', '÷ alone', 'Postgres µs/job', 'idle p50 ms', 'Postgres, % of a core'],
      CASES.map((beside) => [
        beside,
        range(rates(beside)),
        pairedRatio(rates(beside), rates('alone'))?.toFixed(2) ?? '–',
        range(us(beside), 1),
        range(p50s(beside), 2),
        range(
          figures[beside].flatMap((f) => (f.postgresCpu === null ? [] : [f.postgresCpu * 100])),
          1,
        ),
      ]),
    ),
  };
}

async function measure(beside: Beside, options: BenchOptions): Promise<Figure> {
  const rows = options.quick ? 100_000 : 1_000_000;
  const before = async ({ pool }: Pick<FreshDatabase, 'pool'>): Promise<undefined> => {
    if (beside === 'scheduled') {
      await pool.query(
        `insert into unbroker.jobs (kind, payload, priority, run_at)
         select $1, '{}', n % 10, now() + interval '1 day' + n * interval '1 second' from generate_series(1, $2::int) n`,
        [KIND, rows / 2],
      );
      await pool.query(
        `insert into unbroker.jobs (kind, payload, priority, attempts, state, finished_at)
         select $1, '{}', n % 10, 1, 'done', now() from generate_series(1, $2::int) n`,
        [KIND, rows / 2],
      );
    }
    if (beside === 'other kind') {
      await pool.query(
        `insert into unbroker.jobs (kind, payload) select 'bench.other', '{}' from generate_series(1, $1::int)`,
        [rows],
      );
    }
    await pool.query('vacuum analyze');
    return undefined;
  };
  const drained = await drainTable('unbroker', { ...options, jobs: options.quick ? 5_000 : 10_000, before });
  const rate = drained.perSecond;
  const postgresUs = drained.postgresUsPerJob ?? Number.NaN;
  if (beside === 'other kind') return { rate, postgresUs, p50Ms: null, postgresCpu: null };
  const jobs = options.quick ? 60 : 300;
  const paced = await measurePaced('unbroker', { ...options, jobs, perSecond: 20, profile: 'idle', before });
  return { rate, postgresUs, p50Ms: paced.p50Ms, postgresCpu: paced.postgresCpu };
}
