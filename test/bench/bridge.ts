/**
 * How fast a bridge turns a full queue into rows, with ids and without, beside a bare consume-insert-ack loop that knows neither
 * keys nor ledger, on the same servers in the same round. Persistent messages of about 1 KB.
 */
import { fileURLToPath } from 'node:url';
import type { BenchResult } from './bench.js';
import { fill, type Measured, measure, withServers, withWorld } from './broker-bench.js';
import { interleave, median, pairedRatio, range, round } from './rounds.js';
import { say } from './say.js';
import { table } from './table.js';

const MODES = ['with ids', 'without ids', 'bare loop'] as const;
type Mode = (typeof MODES)[number];

type Figure = Measured<{
  readonly perSecond: number;
  /** CPU of the process, start included. */
  readonly nodeUsPerMessage: number;
  readonly rssMb: number;
}>;

const scriptAt = (name: string): string => fileURLToPath(new URL(name, import.meta.url));
const BRIDGE = scriptAt('bridge-contender.ts');
const BARE = scriptAt('drain-contender.ts');

export async function benchBridge(options: {
  readonly rounds: number;
  readonly quick: boolean;
}): Promise<BenchResult> {
  const messages = options.quick ? 10_000 : 20_000;
  return withServers(async (servers) => {
    const figures = await interleave(MODES, options.rounds, (mode) =>
      withWorld(servers, async (world) => {
        await fill(world.vhost.url, 'classic', messages, mode !== 'without ids');
        const script = mode === 'bare loop' ? BARE : BRIDGE;
        const figure: Figure = await measure(world, { script, mode: 'pipeline', messages, name: mode });
        say(`${mode}: ${JSON.stringify(figure)}`);
        return figure;
      }),
    );
    return report(figures, messages, servers.rabbit.version);
  });
}

function report(
  figures: Readonly<Record<Mode, readonly Figure[]>>,
  messages: number,
  version: string,
): BenchResult {
  const of = (mode: Mode, what: keyof Figure): number[] =>
    figures[mode].map((each) => each[what] ?? Number.NaN);
  const middle = (mode: Mode, what: keyof Figure): number => round(median(of(mode, what)));
  const rows = MODES.map((mode) => [
    mode,
    range(of(mode, 'perSecond')),
    range(of(mode, 'nodeUsPerMessage')),
    range(of(mode, 'postgresUsPerMessage')),
    String(Math.max(...of(mode, 'rssMb'))),
  ]);
  const ratio = (mode: Mode) => pairedRatio(of(mode, 'perSecond'), of('bare loop', 'perSecond'));
  const json = {
    withIds: middle('with ids', 'perSecond'),
    withoutIds: middle('without ids', 'perSecond'),
    bare: middle('bare loop', 'perSecond'),
    ...{ ratioWithIds: ratio('with ids'), ratioWithoutIds: ratio('without ids') },
    nodeUsPerMessage: middle('with ids', 'nodeUsPerMessage'),
    postgresUsPerMessage: middle('with ids', 'postgresUsPerMessage'),
    ...{ messages, rabbitmq: version },
  };
  return {
    json,
    text: [
      `${messages.toLocaleString('en')} persistent messages of 1 KB in a classic queue, RabbitMQ ${version}, median (range)`,
      table(['bridge', 'messages/s', 'us of Node', 'us of Postgres', 'RSS MB'], rows),
      `bridge ÷ bare loop: with ids ${json.ratioWithIds}, without ${json.ratioWithoutIds}`,
    ].join('\n'),
  };
}
