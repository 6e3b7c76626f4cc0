/**
 * What the benches of drain, bridge and undo share: both servers, a full queue, and one contender in a process of its
 * own beside what it cost Postgres. It knows no contender.
 */
import amqp from 'amqplib';
import { migrate } from '../../src/migrate.js';
import { startScript } from '../support/processes.js';
import {
  type FreshDatabase,
  type FreshVhost,
  freshDatabase,
  freshVhost,
  type PostgresServer,
  type RabbitServer,
  startPostgres,
  startRabbit,
} from '../support/services.js';
import { SERVER_SETTINGS } from './bench.js';
import { benchMessage } from './drain-contender.js';
import { Meter } from './meter.js';

export interface BenchServers {
  readonly postgres: PostgresServer;
  readonly rabbit: RabbitServer;
}

export interface BenchWorld {
  readonly database: FreshDatabase;
  readonly vhost: FreshVhost;
}

/** Closed in the end, also by Ctrl-C. */
export async function withServers<T>(run: (servers: BenchServers) => Promise<T>): Promise<T> {
  const [postgres, rabbit] = await Promise.all([
    startPostgres({ controllable: true, settings: SERVER_SETTINGS }),
    startRabbit({ controllable: true }),
  ]);
  const close = () => Promise.all([postgres.close(), rabbit.close()]);
  process.once('SIGINT', () => void close().finally(() => process.exit(130)));
  try {
    return await run({ postgres, rabbit });
  } finally {
    await close();
  }
}

/** A migrated database and a virtual host of one's own. */
export async function withWorld<T>(
  { postgres, rabbit }: BenchServers,
  run: (world: BenchWorld) => Promise<T>,
): Promise<T> {
  const [database, vhost] = await Promise.all([freshDatabase(postgres), freshVhost(rabbit)]);
  try {
    await migrate(database.pool);
    return await run({ database, vhost });
  } finally {
    await Promise.all([database.close(), vhost.close()]);
  }
}

export type QueueType = 'classic' | 'quorum';

/** Confirms are awaited this often, those of the window before: the broker is never far behind the publisher. */
const PUBLISH_WINDOW = 5_000;

/** Queue `bench`. `ids`: with a message id each. */
export async function fill(url: string, type: QueueType, messages: number, ids = true): Promise<void> {
  const connection = await amqp.connect(url, { noDelay: true });
  connection.on('error', () => {});
  const channel = await connection.createConfirmChannel();
  channel.on('error', () => {});
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

export interface Contest {
  /** The contender's script; it prints one JSON line. */
  readonly script: string;
  /** What it is told to do. */
  readonly mode: string;
  readonly messages: number;
  /** For an error. */
  readonly name: string;
}

/** CPU of Postgres, connecting included; null where its processes cannot be seen. */
export type Measured<Own> = Own & { readonly postgresUsPerMessage: number | null };

const WITHIN_MS = 600_000;

export async function measure<Own>(
  { database, vhost }: BenchWorld,
  { script, mode, messages, name }: Contest,
): Promise<Measured<Own>> {
  await database.pool.query('checkpoint');
  const meter = await Meter.open(database.pool);
  await meter.start();
  const env = { MODE: mode, AMQP_URL: vhost.url, DATABASE_URL: database.url, MESSAGES: String(messages) };
  const child = startScript(script, [], { env });
  const { code } = await child.waitForExit(WITHIN_MS);
  const { cpuUs } = await meter.stop();
  if (code !== 0) throw new Error(`${name} ended with ${code}: ${child.stderr.slice(-3_000)}`);
  const own = JSON.parse(child.stdout) as Own;
  return { ...own, postgresUsPerMessage: cpuUs === null ? null : Math.round((10 * cpuUs) / messages) / 10 };
}
