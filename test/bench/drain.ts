/**
 * How fast a queue becomes rows: our drain beside a bare consume-insert-ack loop and two limits (consuming alone,
 * inserting alone), on the same broker and database in the same round. Persistent messages of about 1 KB.
 */
import { fileURLToPath } from 'node:url';
import amqp from 'amqplib';
import { migrate } from '../../src/migrate.js';
import { startScript } from '../support/processes.js';
import {
  freshDatabase,
  freshVhost,
  type PostgresServer,
  type RabbitServer,
  startPostgres,
  startRabbit,
} from '../support/services.js';
import { type BenchResult, SERVER_SETTINGS } from './bench.js';
import { benchMessage } from './drain-contender.js';
import { Meter } from './meter.js';
import { interleave, median, pairedRatio, range, round } from './rounds.js';
import { say } from './say.js';
import { table } from './table.js';

type Mode = 'unbroker' | 'pipeline' | 'consume' | 'insert';
type QueueType = 'classic' | 'quorum';

interface Figure {
  readonly perSecond: number;
  readonly rssMb: number;
  /** CPU of the process from the first message to the last. */
  readonly nodeUsPerMessage: number;
  /** CPU of Postgres, connecting and closing the books included; null when its processes cannot be seen. */
  readonly postgresUsPerMessage: number | null;
  readonly lastByFirst: number | null;
  readonly tenths: readonly { readonly perSecond: number; readonly rssMb: number }[];
}

const CONTENDER = fileURLToPath(new URL('drain-contender.ts', import.meta.url));
const WITHIN_MS = 600_000;
/** Long enough that what the compiler of Node takes to get warm does not count for more than it does in a real drain. */
const MESSAGES = 200_000;
/** Confirms are awaited this often, those of the window before: the broker is never far behind the publisher. */
const PUBLISH_WINDOW = 5_000;

export async function benchDrain(options: {
  readonly rounds: number;
  readonly quick: boolean;
  /** A long queue, drained by us alone: does it keep its pace and its memory? */
  readonly million: boolean;
}): Promise<BenchResult> {
  const { quick, million } = options;
  const messages = million ? (quick ? 200_000 : 1_000_000) : quick ? 20_000 : MESSAGES;
  const [postgres, rabbit] = await Promise.all([
    startPostgres({ controllable: true, settings: SERVER_SETTINGS }),
    startRabbit({ controllable: true }),
  ]);
  process.once(
    'SIGINT',
    () => void Promise.all([postgres.close(), rabbit.close()]).finally(() => process.exit(130)),
  );
  const all = [
    ...(['unbroker', 'pipeline', 'consume'] as const).flatMap(
      (mode) => [`classic ${mode}`, `quorum ${mode}`] as const,
    ),
    'classic insert',
  ] as const;
  const cases = million ? (['classic unbroker'] as const) : all;
  try {
    const figures = await interleave(cases, options.rounds, async (name) => {
      const [type, mode] = name.split(' ') as [QueueType, Mode];
      // The limits are only for orientation.
      const beside = mode === 'consume' || mode === 'insert';
      const figure = await measure(postgres, rabbit, type, mode, beside ? messages / 4 : messages);
      say(
        `${name}: ${Math.round(figure.perSecond)}/s, ${figure.nodeUsPerMessage} us of Node a message, ${figure.postgresUsPerMessage} of Postgres, ${figure.rssMb} MB`,
      );
      return figure;
    });
    return report(figures, messages, rabbit.version);
  } finally {
    await Promise.all([postgres.close(), rabbit.close()]);
  }
}

async function measure(
  postgres: PostgresServer,
  rabbit: RabbitServer,
  type: QueueType,
  mode: Mode,
  messages: number,
): Promise<Figure> {
  const database = await freshDatabase(postgres);
  const vhost = await freshVhost(rabbit);
  try {
    await migrate(database.pool);
    if (mode !== 'insert') await fill(vhost.url, type, messages);
    await database.pool.query('checkpoint');
    const env = { MODE: mode, AMQP_URL: vhost.url, DATABASE_URL: database.url, MESSAGES: String(messages) };
    const meter = await Meter.open(database.pool);
    await meter.start();
    const child = startScript(CONTENDER, [], { env });
    const { code } = await child.waitForExit(WITHIN_MS);
    const { cpuUs } = await meter.stop();
    if (code !== 0) throw new Error(`${type} ${mode} ended with ${code}: ${child.stderr.slice(-3_000)}`);
    const postgresUsPerMessage = cpuUs === null ? null : round(cpuUs / messages, 1);
    return { ...(JSON.parse(child.stdout) as Figure), postgresUsPerMessage };
  } finally {
    await Promise.all([database.close(), vhost.close()]);
  }
}

/** `ids`: with a message id each. */
export async function fill(url: string, type: QueueType, messages: number, ids = true): Promise<void> {
  const connection = await amqp.connect(url, { noDelay: true });
  const channel = await connection.createConfirmChannel();
  await channel.assertQueue('bench', { durable: true, arguments: { 'x-queue-type': type } });
  let confirmed = Promise.resolve();
  for (let from = 0; from < messages; from += PUBLISH_WINDOW) {
    for (let index = from; index < Math.min(from + PUBLISH_WINDOW, messages); index += 1) {
      const { body, headers, messageId } = benchMessage(index);
      channel.publish('', 'bench', body, {
        persistent: true,
        contentType: 'application/json',
        headers,
        ...(ids ? { messageId } : {}),
      });
    }
    const before = confirmed;
    confirmed = channel.waitForConfirms();
    await before;
  }
  await confirmed;
  await connection.close();
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
