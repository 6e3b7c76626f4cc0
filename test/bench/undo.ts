/**
 * How fast drained rows go back to their queue: our undo, the same with one page on its way at a time, and a bare loop,
 * each over a queue that was drained for it, on the same servers in the same round.
 */
import { fileURLToPath } from 'node:url';
import { drainGroup } from '../../adapters/rabbitmq/drain.js';
import { compileRules } from '../../adapters/rabbitmq/drain-config.js';
import { createStore } from '../../src/jobs/store.js';
import { SILENT } from '../../src/log.js';
import type { BenchResult } from './bench.js';
import { type BenchWorld, fill, type Measured, measure, withServers, withWorld } from './broker-bench.js';
import { interleave, median, pairedRatio, range, round } from './rounds.js';
import { say } from './say.js';
import { table } from './table.js';

const MODES = ['undo', 'a page at a time', 'bare'] as const;
type Mode = (typeof MODES)[number];

type Figure = Measured<{
  readonly perSecond: number;
  /** CPU of the process. */
  readonly nodeUsPerMessage: number;
  readonly rssMb: number;
}>;

const CONTENDER = fileURLToPath(new URL('undo-contender.ts', import.meta.url));

export async function benchUndo(options: {
  readonly rounds: number;
  readonly quick: boolean;
}): Promise<BenchResult> {
  const messages = options.quick ? 10_000 : 20_000;
  return withServers(async (servers) => {
    const figures = await interleave(MODES, options.rounds, (mode) =>
      withWorld(servers, async (world) => {
        await fill(world.vhost.url, 'classic', messages);
        await drainAll(world);
        const figure: Figure = await measure(world, { script: CONTENDER, mode, messages, name: mode });
        say(`${mode}: ${JSON.stringify(figure)}`);
        return figure;
      }),
    );
    return report(figures, messages, servers.rabbit.version);
  });
}

async function drainAll({ vhost, database: { pool } }: BenchWorld): Promise<void> {
  const queues = [{ name: 'bench', role: 'main' as const, ttlMs: null, feeders: [], singleActive: false }];
  await drainGroup({
    ...{ amqpUrl: vhost.url, pool, store: createStore(), log: SILENT },
    group: { name: 'bench', queues },
    rules: compileRules([{ match: { queue: '*' }, kind: 'bench' }]),
  });
  await pool.query('vacuum analyze');
}

function report(
  figures: Readonly<Record<Mode, readonly Figure[]>>,
  messages: number,
  version: string,
): BenchResult {
  const of = (mode: Mode, what: keyof Figure): number[] =>
    figures[mode].map((each) => each[what] ?? Number.NaN);
  const rows = MODES.map((mode) => [
    mode,
    range(of(mode, 'perSecond')),
    range(of(mode, 'nodeUsPerMessage')),
    range(of(mode, 'postgresUsPerMessage')),
    String(Math.max(...of(mode, 'rssMb'))),
  ]);
  const rates = (mode: Mode): number => round(median(of(mode, 'perSecond')));
  const ratio = pairedRatio(of('undo', 'perSecond'), of('bare', 'perSecond'));
  return {
    json: {
      ...{ unbroker: rates('undo'), onePage: rates('a page at a time'), bare: rates('bare'), ratio },
      nodeUsPerMessage: round(median(of('undo', 'nodeUsPerMessage'))),
      postgresUsPerMessage: round(median(of('undo', 'postgresUsPerMessage'))),
      ...{ messages, rabbitmq: version },
    },
    text: [
      `${messages.toLocaleString('en')} drained messages of 1 KB back to a classic queue, RabbitMQ ${version}, median (range)`,
      table(['', 'messages/s', 'us of Node', 'us of Postgres', 'RSS MB'], rows),
      `undo ÷ bare loop: ${ratio}`,
    ].join('\n'),
  };
}
