/**
 * One Postgres and one RabbitMQ for a whole test run. The run's main process serves this small door on a Unix socket
 * and starts a server when the first test asks for it, so a run without AMQP tests never waits for a broker. Test
 * files run in other processes and are the askers.
 */
import { randomBytes } from 'node:crypto';
import { createServer, type IncomingMessage, request } from 'node:http';
import { join } from 'node:path';
import pg from 'pg';
import { migrate } from '../../src/migrate.js';
import { administer } from './administer.js';
import { startPostgres } from './postgres.js';
import type { PostgresServer } from './postgres-server.js';
import { startRabbit } from './rabbitmq.js';
import type { RabbitServer } from './rabbitmq-server.js';
import { openServiceFolder } from './service-folder.js';

/** What another process may know of a server that the main process holds. */
export type SharedPostgres = Pick<PostgresServer, 'url' | 'version' | 'way'>;
export type SharedRabbit = Pick<RabbitServer, 'url' | 'version' | 'way' | 'managementUrl' | 'controllable'>;

export interface SharedServices {
  /** For `askPostgres`, `askRabbit` and `askRabbitCtl`. */
  readonly socketPath: string;
  /** Starts both now, without waiting: for a run that will need them anyway. */
  warmUp(): void;
  close(): Promise<void>;
}

/** An asker waits for the start, which on a fresh machine includes installing the broker. */
const ANSWER_WITHIN_MS = 11 * 60_000;

/** Remembers the promise; a failed start is not remembered, the next asker tries again. */
function once<T>(start: () => Promise<T>): { get(): Promise<T>; peek(): Promise<T> | undefined } {
  let started: Promise<T> | undefined;
  return {
    get() {
      started ??= start().catch((error: unknown) => {
        started = undefined;
        throw error;
      });
      return started;
    },
    peek: () => started,
  };
}

export async function serveSharedServices(): Promise<SharedServices> {
  const postgres = once(() => startPostgres());
  // Every five seconds by default, and several tests wait until the management API has seen what they did.
  const rabbit = once(() => startRabbit({ settings: { collect_statistics_interval: '1000' } }));
  const template = once(async () => makeTemplate((await postgres.get()).url));
  const folder = openServiceFolder('shared');
  const socketPath = join(folder.path, 'services.sock');

  const answer = async (path: string, body: unknown): Promise<unknown> => {
    if (path === '/postgres/template') return template.get();
    if (path === '/postgres') {
      const { url, version, way } = await postgres.get();
      return { url, version, way } satisfies SharedPostgres;
    }
    const server = await rabbit.get();
    if (path === '/rabbit/ctl') return server.ctl(body as string[]);
    const { url, version, way, managementUrl, controllable } = server;
    return { url, version, way, managementUrl, controllable } satisfies SharedRabbit;
  };
  const door = createServer((incoming, outgoing) => {
    readBody(incoming)
      .then((body) => answer(incoming.url ?? '/', body))
      .then((value) => outgoing.end(JSON.stringify({ value })))
      .catch((error: Error) => outgoing.end(JSON.stringify({ error: error.message })));
  });
  door.requestTimeout = 0;
  await new Promise<void>((resolve, reject) => {
    door.once('error', reject);
    door.listen(socketPath, resolve);
  });

  return {
    socketPath,
    warmUp() {
      for (const service of [postgres, rabbit]) service.get().catch(() => {});
    },
    async close() {
      door.close();
      door.closeAllConnections();
      await template
        .peek()
        ?.then(async (name) => administer((await postgres.get()).url, `drop database if exists ${name}`))
        .catch(() => {});
      // A start that failed has been reported to whoever asked.
      const running = await Promise.allSettled([postgres.peek(), rabbit.peek()]);
      await Promise.all(running.map((one) => (one.status === 'fulfilled' ? one.value?.close() : undefined)));
      await folder.close();
    },
  };
}

/** A migrated database that others are copied from: a tenth of a second of CPU for each, instead of all migrations. */
async function makeTemplate(url: string): Promise<string> {
  const name = `unbroker_test_template_${randomBytes(6).toString('hex')}`;
  await administer(url, `create database ${name}`);
  const own = new URL(url);
  own.pathname = `/${name}`;
  const pool = new pg.Pool({ connectionString: own.href, max: 1 });
  try {
    await migrate(pool);
  } finally {
    // A database with sessions cannot be copied.
    await pool.end();
  }
  return name;
}

async function readBody(incoming: IncomingMessage): Promise<unknown> {
  let text = '';
  for await (const chunk of incoming) text += String(chunk);
  return text === '' ? null : JSON.parse(text);
}

function ask(socketPath: string, path: string, body?: unknown): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const asking = request({ socketPath, path, method: 'POST', timeout: ANSWER_WITHIN_MS }, (answer) => {
      readBody(answer).then((parsed) => {
        const { value, error } = parsed as { value?: unknown; error?: string };
        if (error === undefined) resolve(value);
        else reject(new Error(error));
      }, reject);
    });
    asking.on('timeout', () => asking.destroy(new Error(`the run's services did not answer ${path}`)));
    asking.on('error', reject);
    asking.end(body === undefined ? undefined : JSON.stringify(body));
  });
}

export const askPostgres = (socketPath: string): Promise<SharedPostgres> =>
  ask(socketPath, '/postgres') as Promise<SharedPostgres>;

/** The name of a migrated database on it, with the schema's default name, to create others from. */
export const askTemplate = (socketPath: string): Promise<string> =>
  ask(socketPath, '/postgres/template') as Promise<string>;

export const askRabbit = (socketPath: string): Promise<SharedRabbit> =>
  ask(socketPath, '/rabbit') as Promise<SharedRabbit>;

/** rabbitmqctl on the shared broker. Never use it to change what other files see (alarms, stop_app). */
export const askRabbitCtl = (socketPath: string, args: readonly string[]): Promise<string> =>
  ask(socketPath, '/rabbit/ctl', args) as Promise<string>;
