/** From an enqueue to the start of its handler, twenty jobs a second, nothing else to do. */
import type { BenchOptions, BenchResult } from './bench.js';
import { measurePaced, type Paced } from './paced.js';
import { interleave, median, range, round } from './rounds.js';
import { say } from './say.js';
import { table } from './table.js';

const PER_SECOND = 20;

export async function benchLatency(options: BenchOptions): Promise<BenchResult> {
  const jobs = options.quick ? 60 : 500;
  const figures = await interleave(options.contenders, options.rounds, async (name, at) => {
    const figure = await measurePaced(name, { ...options, jobs, perSecond: PER_SECOND, profile: 'idle' });
    say(`round ${at + 1} of ${options.rounds}: ${name} p50 ${round(figure.p50Ms, 2)} ms`);
    return figure;
  });
  const summary = (paced: readonly Paced[]) => ({
    p50Ms: round(median(paced.map((f) => f.p50Ms)), 2),
    p99Ms: round(median(paced.map((f) => f.p99Ms)), 2),
    postgresCpu: round(median(paced.map((f) => f.postgresCpu ?? Number.NaN)), 3),
  });
  const peers = options.contenders.filter((name) => name !== 'unbroker');
  return {
    json: {
      ...(figures.unbroker ? summary(figures.unbroker) : {}),
      peers: Object.fromEntries(peers.map((name) => [name, summary(figures[name])])),
      jobs,
      perSecond: PER_SECOND,
    },
    text: table(
      ['', 'p50 ms', 'p99 ms', 'Postgres, % of a core'],
      options.contenders.map((name) => [
        name,
        range(
          figures[name].map((f) => f.p50Ms),
          2,
        ),
        range(
          figures[name].map((f) => f.p99Ms),
          2,
        ),
        range(
          figures[name].map((f) => (f.postgresCpu ?? Number.NaN) * 100),
          1,
        ),
      ]),
    ),
  };
}
