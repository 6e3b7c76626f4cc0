/**
 * Beside many rows that are not to run now: scheduled and done ones of the same kind, over ten priorities, and ready ones of
 * a kind that this worker does not know. The drain of a small ready set ÷ that of the small table alone, and the idle
 * latency beside the scheduled rows ÷ without. Each table is filled once and serves all rounds.
 */

import { existsSync, statfsSync } from 'node:fs';
import { type FreshDatabase, freshDatabase } from '../support/services.js';
import type { BenchOptions, BenchResult } from './bench.js';
import { KIND } from './contender.js';
import { ContenderClient } from './contender-client.js';
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

interface Filled {
  readonly database: FreshDatabase;
  readonly loadSeconds: number;
  readonly tableMb: number;
  readonly indexesMb: number;
}

const CASES: readonly Beside[] = ['alone', 'scheduled', 'other kind'];
const LEVELS = 10;
/** Of one statement: each row waits in memory for its rules to be asked. */
const LOAD_BATCH = 200_000;
/** Table and indexes, with what the log and a vacuum need for a while (measured: 300 B a row, and 1 GB). */
const ROW_BYTES = 400;
const LOG_BYTES = 3e9;
const GB = 1e9;
const MB = 1_048_576;

/** How each further row of a case is put in; `$1` is the kind, the rows are numbered from $2 to $3. */
const LOADS: Readonly<Record<Beside, { readonly kind: string; readonly statements: readonly string[] }>> = {
  alone: { kind: KIND, statements: [] },
  scheduled: {
    kind: KIND,
    statements: [
      `insert into unbroker.jobs (kind, payload, priority, run_at)
       select $1, '{}', n % ${LEVELS}, now() + interval '1 day' + n * interval '1 second' from generate_series($2::int, $3::int) n`,
      `insert into unbroker.jobs (kind, payload, priority, attempts, state, finished_at)
       select $1, '{}', n % ${LEVELS}, 1, 'done', now() from generate_series($2::int, $3::int) n`,
    ],
  },
  'other kind': {
    kind: 'bench.other',
    statements: [
      `insert into unbroker.jobs (kind, payload, priority)
       select $1, '{}', n % ${LEVELS} from generate_series($2::int, $3::int) n`,
    ],
  },
};

export async function benchBacklog(options: BenchOptions): Promise<BenchResult> {
  const rows = options.rows ?? (options.quick ? 100_000 : 1_000_000);
  const filled = {} as Record<Beside, Filled>;
  try {
    for (const beside of CASES) filled[beside] = await fill(beside, rows, options);
    const figures = await interleave(CASES, options.rounds, async (beside, at) => {
      const figure = await measure(beside, filled[beside].database, options);
      say(
        `round ${at + 1} of ${options.rounds}: ${beside} ${round(figure.rate).toLocaleString('en')} jobs/s`,
      );
      return figure;
    });
    return report(rows, figures, filled);
  } finally {
    for (const { database } of Object.values(filled)) await database.close();
  }
}

function report(
  rows: number,
  figures: Readonly<Record<Beside, Figure[]>>,
  filled: Readonly<Record<Beside, Filled>>,
): BenchResult {
  const rates = (beside: Beside): number[] => figures[beside].map((f) => f.rate);
  const us = (beside: Beside): number[] => figures[beside].map((f) => f.postgresUs);
  const p50s = (beside: Beside): number[] =>
    figures[beside].flatMap((f) => (f.p50Ms === null ? [] : [f.p50Ms]));
  const sizes = (of: (f: Filled) => number): Record<string, number> =>
    Object.fromEntries(CASES.slice(1).map((beside) => [beside, round(of(filled[beside]))]));
  return {
    json: {
      rows,
      scheduledRatio: pairedRatio(rates('scheduled'), rates('alone')),
      otherKindRatio: pairedRatio(rates('other kind'), rates('alone')),
      futureP50Ratio: pairedRatio(p50s('scheduled'), p50s('alone')),
      futureP50Ms: round(median(p50s('scheduled')), 2),
      futureCpu: round(median(figures.scheduled.map((f) => f.postgresCpu ?? Number.NaN)), 3),
      alone: round(median(rates('alone'))),
      postgresUsPerJob: Object.fromEntries(CASES.map((beside) => [beside, round(median(us(beside)), 1)])),
      loadSeconds: sizes((f) => f.loadSeconds),
      tableMb: sizes((f) => f.tableMb),
      indexesMb: sizes((f) => f.indexesMb),
    },
    text: table(
      [
        ...[
          `beside ${rows.toLocaleString('en')} rows`,
          'drain, jobs/s',
          '÷ alone',
          'Postgres µs/job',
          'idle p50 ms',
        ],
        ...['Postgres, % of a core', 'filled in, s', 'table, MB', 'indexes, MB'],
      ],
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
        ...[filled[beside].loadSeconds, filled[beside].tableMb, filled[beside].indexesMb].map((n) =>
          round(n).toLocaleString('en'),
        ),
      ]),
    ),
  };
}

/** A table with its rows, vacuumed. */
async function fill(beside: Beside, rows: number, options: BenchOptions): Promise<Filled> {
  const database = await freshDatabase(options.server);
  const { url, pool } = database;
  try {
    const contender = await ContenderClient.start('unbroker', options.node);
    await contender.ask({ do: 'install', url }).finally(() => contender.close());
    const startAt = performance.now();
    const { kind, statements } = LOADS[beside];
    if (statements.length > 0) await refuseSmallDisk(pool, rows);
    for (const statement of statements) {
      const each = Math.ceil(rows / statements.length);
      for (let from = 1; from <= each; from += LOAD_BATCH)
        await pool.query(statement, [kind, from, Math.min(from + LOAD_BATCH - 1, each)]);
    }
    await pool.query('vacuum analyze');
    await pool.query('checkpoint');
    const loadSeconds = (performance.now() - startAt) / 1_000;
    const sizes = await pool.query<{ table: number; indexes: number }>(
      `select pg_table_size('unbroker.jobs')::float8 as table, pg_indexes_size('unbroker.jobs')::float8 as indexes`,
    );
    const { table: tableBytes = 0, indexes = 0 } = sizes.rows[0] ?? {};
    if (statements.length > 0) say(`${beside}: ${rows.toLocaleString('en')} rows in ${round(loadSeconds)} s`);
    return { database, loadSeconds, tableMb: tableBytes / MB, indexesMb: indexes / MB };
  } catch (error) {
    await database.close();
    throw error;
  }
}

/** Before hours of loading end at a full disk, which others use, too. */
async function refuseSmallDisk(pool: FreshDatabase['pool'], rows: number): Promise<void> {
  const { rows: settings } = await pool.query<{ folder: string }>(
    `select current_setting('data_directory') as folder`,
  );
  const folder = settings[0]?.folder ?? '';
  // Where the server's disk is another machine's, nobody can tell.
  if (!existsSync(folder)) return;
  const disk = statfsSync(folder);
  const free = disk.bavail * disk.bsize;
  const needed = rows * ROW_BYTES + LOG_BYTES;
  if (free >= needed) return;
  throw new Error(
    `${rows.toLocaleString('en')} rows need ${round(needed / GB, 1)} GB where Postgres keeps its data, and ${round(free / GB, 1)} are free: give fewer --rows, or TMPDIR on a larger disk`,
  );
}

async function measure(beside: Beside, database: FreshDatabase, options: BenchOptions): Promise<Figure> {
  const jobs = options.quick ? 5_000 : 10_000;
  const enqueue = async ({ pool }: FreshDatabase): Promise<void> => {
    await pool.query(
      `insert into unbroker.jobs (kind, payload, priority)
       select $1, jsonb_build_object('n', n), n % ${LEVELS} from generate_series(1, $2::int) n`,
      [KIND, jobs],
    );
  };
  const drained = await drainTable('unbroker', { ...options, database, jobs, enqueue });
  const rate = drained.perSecond;
  const postgresUs = drained.postgresUsPerJob ?? Number.NaN;
  // What a drain left would be vacuumed and analyzed in the middle of what follows, in this database or the next, or not, by
  // chance: 0.4 s of a core, which is 2.5 % of these seconds and 0.07 % of the ten minutes in which so many jobs end at this pace.
  await database.pool.query('vacuum analyze unbroker.jobs');
  if (beside === 'other kind') return { rate, postgresUs, p50Ms: null, postgresCpu: null };
  const paced = await measurePaced('unbroker', {
    ...{ ...options, database },
    ...{ jobs: options.quick ? 60 : 300, perSecond: 20, profile: 'idle' },
  });
  return { rate, postgresUs, p50Ms: paced.p50Ms, postgresCpu: paced.postgresCpu };
}
