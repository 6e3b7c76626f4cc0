/**
 * How fast a queue becomes rows: our drain beside a bare consume-insert-ack loop and two limits (consuming alone,
 * inserting alone), on the same broker and database in the same round. Persistent messages of about 1 KB.
 */
import { fileURLToPath } from 'node:url';
import type { BenchResult } from './bench.js';
import { fill, type Measured, measure, type QueueType, withServers, withWorld } from './broker-bench.js';
import { interleave, median, pairedRatio, range, round } from './rounds.js';
import { say } from './say.js';
import { table } from './table.js';

type Mode = 'unbroker' | 'pipeline' | 'consume' | 'insert';

type Figure = Measured<{
  readonly perSecond: number;
  readonly rssMb: number;
  /** CPU of the process from the first message to the last. */
  readonly nodeUsPerMessage: number;
  readonly lastByFirst: number | null;
  readonly tenths: readonly { readonly perSecond: number; readonly rssMb: number }[];
}>;

const CONTENDER = fileURLToPath(new URL('drain-contender.ts', import.meta.url));
/** Long enough that what the compiler of Node takes to get warm does not count for more than it does in a real drain. */
const MESSAGES = 200_000;

export async function benchDrain(options: {
  readonly rounds: number;
  readonly quick: boolean;
  /** A long queue, drained by us alone: does it keep its pace and its memory? */
  readonly million: boolean;
}): Promise<BenchResult> {
  const { quick, million } = options;
  const messages = million ? (quick ? 200_000 : 1_000_000) : quick ? 20_000 : MESSAGES;
  const all = [
    ...(['unbroker', 'pipeline', 'consume'] as const).flatMap(
      (mode) => [`classic ${mode}`, `quorum ${mode}`] as const,
    ),
    'classic insert',
  ] as const;
  const cases = million ? (['classic unbroker'] as const) : all;
  return withServers(async (servers) => {
    const figures = await interleave(cases, options.rounds, (name) =>
      withWorld(servers, async (world) => {
        const [type, mode] = name.split(' ') as [QueueType, Mode];
        // The limits are only for orientation.
        const count = mode === 'consume' || mode === 'insert' ? messages / 4 : messages;
        if (mode !== 'insert') await fill(world.vhost.url, type, count);
        const figure: Figure = await measure(world, { script: CONTENDER, mode, messages: count, name });
        say(
          `${name}: ${Math.round(figure.perSecond)}/s, ${figure.nodeUsPerMessage} us of Node a message, ${figure.postgresUsPerMessage} of Postgres, ${figure.rssMb} MB`,
        );
        return figure;
      }),
    );
    return report(figures, messages, servers.rabbit.version);
  });
}

function report(
  figures: Readonly<Record<string, readonly Figure[]>>,
  messages: number,
  version: string,
): BenchResult {
  const long = figures['classic unbroker'] ?? [];
  if (Object.keys(figures).length === 1) return reportLong(long, messages, version);
  const rates = (name: string): number[] => (figures[name] ?? []).map(({ perSecond }) => perSecond);
  const figuresOf = (type: QueueType) => ({
    unbroker: round(median(rates(`${type} unbroker`))),
    pipeline: round(median(rates(`${type} pipeline`))),
    consume: round(median(rates(`${type} consume`))),
    ratio: pairedRatio(rates(`${type} unbroker`), rates(`${type} pipeline`)),
    lastByFirst: round(
      median((figures[`${type} unbroker`] ?? []).map((each) => each.lastByFirst ?? Number.NaN)),
      2,
    ),
    rssMb: Math.max(...(figures[`${type} unbroker`] ?? []).map(({ rssMb }) => rssMb)),
  });
  const classic = figuresOf('classic');
  const quorum = figuresOf('quorum');
  const insert = round(median(rates('classic insert')));
  const rows = Object.entries(figures).map(([name, each]) => [
    name,
    range(rates(name)),
    range(each.map(({ nodeUsPerMessage }) => nodeUsPerMessage)),
    range(each.map(({ postgresUsPerMessage }) => postgresUsPerMessage ?? Number.NaN)),
    String(Math.max(...each.map(({ rssMb }) => rssMb))),
  ]);
  return {
    json: { ...classic, insert, quorum, messages, rabbitmq: version },
    text: [
      `${messages.toLocaleString('en')} persistent messages of 1 KB, RabbitMQ ${version}, messages per second, median (range)`,
      table(['', 'messages/s', 'Node us a message', 'Postgres us', 'RSS MB'], rows),
      `unbroker ÷ bare loop: classic ${classic.ratio}, quorum ${quorum.ratio}; last tenth ÷ first: ${classic.lastByFirst}, ${quorum.lastByFirst}`,
    ].join('\n'),
  };
}

function reportLong(figures: readonly Figure[], messages: number, version: string): BenchResult {
  const perSecond = round(median(figures.map((each) => each.perSecond)));
  const lastByFirst = round(median(figures.map((each) => each.lastByFirst ?? Number.NaN)), 2);
  const rssMb = Math.max(...figures.map((each) => each.rssMb));
  const rows = Array.from({ length: 10 }, (_, tenth) => [
    String(tenth + 1),
    range(figures.map((each) => each.tenths[tenth]?.perSecond ?? Number.NaN)),
    range(figures.map((each) => each.tenths[tenth]?.rssMb ?? Number.NaN)),
  ]);
  return {
    json: {
      ...{ unbroker: perSecond, lastByFirst, rssMb, messages, rabbitmq: version },
      tenths: figures.map(({ tenths }) => tenths),
    },
    text: [
      `${messages.toLocaleString('en')} messages, RabbitMQ ${version}: ${perSecond}/s, last tenth ÷ first ${lastByFirst}, RSS at most ${rssMb} MB`,
      table(['tenth', 'messages/s', 'RSS MB at its end'], rows),
    ].join('\n'),
  };
}
