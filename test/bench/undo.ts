/**
 * How fast drained rows go back to their queue: our undo, the same with one page on its way at a time, and a bare loop,
 * each over a queue that was drained for it, on the same servers in the same round.
 */
import { fileURLToPath } from 'node:url';
import { drainGroup } from '../../adapters/rabbitmq/drain.js';
import { compileRules } from '../../adapters/rabbitmq/drain-config.js';
import { createStore } from '../../src/jobs/store.js';
import { SILENT } from '../../src/log.js';
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

const MODES = ['undo', 'a page at a time', 'bare'] as const;
type Mode = (typeof MODES)[number];

interface Figure {
  readonly perSecond: number;
  /** CPU of the process and of the server's processes. */
  readonly nodeUsPerMessage: number;
  readonly postgresUsPerMessage: number;
  readonly rssMb: number;
}

const CONTENDER = fileURLToPath(new URL('undo-contender.ts', import.meta.url));
const WITHIN_MS = 300_000;

export async function benchUndo(options: {
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
    await fill(vhost.url, 'classic', messages);
    const queues = [{ name: 'bench', role: 'main' as const, ttlMs: null, feeders: [], singleActive: false }];
    await drainGroup({
      ...{ amqpUrl: vhost.url, pool: database.pool, store: createStore(), log: SILENT },
      ...{
        group: { name: 'bench', queues },
        rules: compileRules([{ match: { queue: '*' }, kind: 'bench' }]),
      },
    });
    await database.pool.query('vacuum analyze');
    await database.pool.query('checkpoint');
    const meter = await Meter.open(database.pool);
    await meter.start();
    const env = {
      ...{ MODE: mode, AMQP_URL: vhost.url, DATABASE_URL: database.url, MESSAGES: String(messages) },
    };
    const child = startScript(CONTENDER, [], { env });
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
