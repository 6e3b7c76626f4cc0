/**
 * How many no-op jobs a second one worker process finishes, and two, beside a hand-written loop and the peers; and how
 * many of 24 at once with nothing tuned, beside graphile-worker without its batching.
 */
import type { BenchOptions, BenchResult } from './bench.js';
import type { ContenderName } from './contender.js';
import { type Drained, drainTable } from './drain-table.js';
import { interleave, median, pairedRatio, range, round } from './rounds.js';
import { say } from './say.js';
import { table } from './table.js';

/** With 24 jobs at once and nothing tuned; and unbroker again with every outcome written by itself. */
const FEW = [
  { label: 'unbroker', name: 'unbroker', profile: 'small' },
  { label: 'unbrokerEach', name: 'unbroker', profile: 'each' },
  { label: 'graphile', name: 'graphile', profile: 'small' },
] as const;

/** The yardstick must be fast: below this multiple of graphile-worker the run says nothing. */
const MIN_LIMIT_TO_GRAPHILE = 1.6;

export async function benchClaim(options: BenchOptions): Promise<BenchResult> {
  const jobs = options.quick ? 20_000 : 100_000;
  const drained = await interleave(options.contenders, options.rounds, async (name, at) => {
    const figure = await drainTable(name, { ...options, jobs });
    say(
      `round ${at + 1} of ${options.rounds}: ${name} ${round(figure.perSecond).toLocaleString('en')} jobs/s`,
    );
    return figure;
  });
  const two = await interleave(options.contenders, options.rounds, (name) =>
    drainTable(name, { ...options, jobs, processes: 2 }),
  );
  const removing = await benchRemoving(options, jobs);
  const few = await interleave(
    FEW.filter(({ name }) => options.contenders.includes(name)).map(({ label }): string => label),
    options.rounds,
    (label) => {
      const { name, profile } = FEW.find((one) => one.label === label) as (typeof FEW)[number];
      return drainTable(name, { ...options, jobs: jobs / 10, profile });
    },
  );
  const rates = (name: ContenderName): number[] => (drained[name] ?? []).map((figure) => figure.perSecond);
  const ratioTo = (name: ContenderName): number | null => pairedRatio(rates('unbroker'), rates(name));
  const limitToGraphile = pairedRatio(rates('limit'), rates('graphile'));
  const valid = limitToGraphile !== null && limitToGraphile >= MIN_LIMIT_TO_GRAPHILE;
  const of = (name: ContenderName, figure: (d: Drained) => number | null, digits = 0): number | null =>
    medianOf(drained[name] ?? [], figure, digits);
  return {
    json: {
      jobs,
      ...Object.fromEntries(options.contenders.map((name) => [name, of(name, (d) => d.perSecond)])),
      ratioLimit: ratioTo('limit'),
      ratioGraphile: ratioTo('graphile'),
      ratioPgboss: ratioTo('pgboss'),
      limitToGraphile,
      valid,
      two: ratesOf(two),
      removing: ratesOf(removing.one),
      removingTwo: ratesOf(removing.two),
      few: ratesOf(few),
      cpuUsPerJob: of('unbroker', cpuUs, 1),
      postgresUsPerJob: of('unbroker', (d) => d.postgresUsPerJob, 1),
      nodeUsPerJob: of('unbroker', (d) => d.nodeUsPerJob, 1),
      walBytesPerJob: of('unbroker', (d) => d.walBytesPerJob),
      rssMb: of('unbroker', (d) => d.rssMb),
      peersCpuUsPerJob: Object.fromEntries(options.contenders.map((name) => [name, of(name, cpuUs, 1)])),
      rates: Object.fromEntries(
        options.contenders.map((name) => [name, rates(name).map((rate) => round(rate))]),
      ),
    },
    text: [
      report(options.contenders, drained),
      verdict(limitToGraphile, valid),
      `two processes\n${report(options.contenders, two)}`,
      `done rows deleted, as graphile-worker does (keepDone: false)\n${report(Object.keys(removing.one), removing.one)}`,
      `the same, two processes\n${report(Object.keys(removing.two), removing.two)}`,
      `24 at once\n${report(Object.keys(few), few)}`,
    ].join('\n'),
  };
}

/** Like for like with a peer that deletes what is done: so do we here. One process, and two. */
async function benchRemoving(options: BenchOptions, jobs: number) {
  const names = (['unbroker', 'graphile'] as const).filter((name) => options.contenders.includes(name));
  const drain = (processes: number) =>
    interleave(names, options.rounds, (name) =>
      drainTable(name, {
        ...{ ...options, jobs, processes },
        profile: name === 'unbroker' ? 'remove' : 'drain',
      }),
    );
  return { one: await drain(1), two: await drain(2) };
}

/** Medians, and the ratios of unbroker to the others, round by round. */
function ratesOf(drained: Readonly<Record<string, Drained[] | undefined>>): Record<string, number | null> {
  const rates = (name: string): number[] => (drained[name] ?? []).map((d) => d.perSecond);
  const names = Object.keys(drained);
  return {
    ...Object.fromEntries(names.map((name) => [name, round(median(rates(name)))])),
    ...Object.fromEntries(
      names
        .filter((name) => name !== 'unbroker')
        .map((name) => [`unbrokerTo_${name}`, pairedRatio(rates('unbroker'), rates(name))]),
    ),
  };
}

const cpuUs = (d: Drained): number | null =>
  d.postgresUsPerJob === null ? null : d.postgresUsPerJob + d.nodeUsPerJob;

function medianOf(
  figures: readonly Drained[],
  of: (d: Drained) => number | null,
  digits: number,
): number | null {
  const values = figures.map(of).filter((value) => value !== null);
  return values.length === 0 ? null : round(median(values), digits);
}

function report(names: readonly string[], drained: Readonly<Record<string, Drained[] | undefined>>): string {
  const rows = names.map((name) => {
    const figures = drained[name] ?? [];
    const ratio = pairedRatio(
      figures.map((d) => d.perSecond),
      (drained['limit'] ?? []).map((d) => d.perSecond),
    );
    return [
      name,
      range(figures.map((d) => d.perSecond)),
      ratio === null ? '–' : ratio.toFixed(2),
      range(
        figures.map((d) => d.postgresUsPerJob ?? Number.NaN),
        1,
      ),
      range(
        figures.map((d) => d.nodeUsPerJob),
        1,
      ),
      range(figures.map((d) => d.walBytesPerJob)),
      range(figures.map((d) => d.rssMb)),
    ];
  });
  return table(['', 'jobs/s', '÷ limit', 'Postgres µs/job', 'Node µs/job', 'WAL B/job', 'RSS MB'], rows);
}

function verdict(limitToGraphile: number | null, valid: boolean): string {
  if (limitToGraphile === null) return 'not valid: limit and graphile were not both measured';
  const said = `limit is ${limitToGraphile} × graphile (at least ${MIN_LIMIT_TO_GRAPHILE} makes a run valid)`;
  return valid ? `valid: ${said}` : `NOT VALID: ${said}; repeat it on a quieter machine`;
}
