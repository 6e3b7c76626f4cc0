/**
 * How fast a bridge turns a full queue into rows, with ids and without, beside a bare consume-insert-ack loop that knows neither
 * keys nor ledger, on the same servers in the same round. Persistent messages of about 1 KB.
 */
import { fileURLToPath } from 'node:url';
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
import { fill } from './drain.js';
import { Meter } from './meter.js';
import { interleave, median, pairedRatio, range, round } from './rounds.js';
import { say } from './say.js';
import { table } from './table.js';

const MODES = ['with ids', 'without ids', 'bare loop'] as const;
type Mode = (typeof MODES)[number];

interface Figure {
  readonly perSecond: number;
  /** CPU of the process, start included, and of the server's processes. */
  readonly nodeUsPerMessage: number;
  readonly postgresUsPerMessage: number;
  readonly rssMb: number;
}

const scriptAt = (name: string): string => fileURLToPath(new URL(name, import.meta.url));
const BRIDGE = scriptAt('bridge-contender.ts');
const BARE = scriptAt('drain-contender.ts');
const WITHIN_MS = 300_000;

export async function benchBridge(options: {
  readonly rounds: number;
  readonly quick: boolean;
}): Promise<BenchResult> {
  const messages = options.quick ? 10_000 : 20_000;
  const [postgres, rabbit] = await Promise.all([
    startPostgres({ controllable: true, settings: SERVER_SETTINGS }),
    startRabbit({ controllable: true }),
  ]);
  process.once(
    'SIGINT',
    () => void Promise.all([postgres.close(), rabbit.close()]).finally(() => process.exit(130)),
  );
  try {
    const figures = await interleave(MODES, options.rounds, async (mode) => {
      const figure = await measure(postgres, rabbit, mode, messages);
      say(`${mode}: ${JSON.stringify(figure)}`);
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
  mode: Mode,
  messages: number,
): Promise<Figure> {
  const [database, vhost] = await Promise.all([freshDatabase(postgres), freshVhost(rabbit)]);
  try {
    await migrate(database.pool);
    await fill(vhost.url, 'classic', messages, mode !== 'without ids');
    await database.pool.query('checkpoint');
    const meter = await Meter.open(database.pool);
    await meter.start();
    const child = startScript(mode === 'bare loop' ? BARE : BRIDGE, [], {
      env: {
        ...{ MODE: 'pipeline', AMQP_URL: vhost.url },
        ...{ DATABASE_URL: database.url, MESSAGES: String(messages) },
      },
    });
    const { code } = await child.waitForExit(WITHIN_MS);
    const cost = await meter.stop();
    if (code !== 0) throw new Error(`${mode} ended with ${code}: ${child.stderr.slice(-3_000)}`);
    const own = JSON.parse(child.stdout) as Omit<Figure, 'postgresUsPerMessage'>;
    return { ...own, postgresUsPerMessage: Math.round((cost.cpuUs ?? Number.NaN) / messages) };
  } finally {
    await Promise.all([database.close(), vhost.close()]);
  }
}

function report(
  figures: Readonly<Record<Mode, readonly Figure[]>>,
  messages: number,
  version: string,
): BenchResult {
  const of = (mode: Mode, what: keyof Figure): number[] => figures[mode].map((each) => each[what]);
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
