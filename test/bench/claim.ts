/** How many no-op jobs a second one worker process finishes, beside a hand-written loop and the peers. */
import type { BenchOptions, BenchResult } from './bench.js';
import type { ContenderName } from './contender.js';
import { type Drained, drainTable } from './drain-table.js';
import { interleave, median, pairedRatio, range, round } from './rounds.js';
import { say } from './say.js';
import { table } from './table.js';

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
    text: `${report(options.contenders, drained)}\n${verdict(limitToGraphile, valid)}`,
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

function report(names: readonly ContenderName[], drained: Record<ContenderName, Drained[]>): string {
  const rows = names.map((name) => {
    const figures = drained[name];
    const ratio = pairedRatio(
      figures.map((d) => d.perSecond),
      (drained.limit ?? []).map((d) => d.perSecond),
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
