/**
 * The ground the demo stands on: private servers, a workspace folder, the real command line in child processes, and a
 * few lines on the screen. It knows nothing of the story.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import amqp from 'amqplib';
import type pg from 'pg';
import { type StartedProcess, startProcess } from '../support/processes.js';
import { openServiceFolder } from '../support/service-folder.js';
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

export const ROOT = join(import.meta.dirname, '..', '..');
const CLI = join(ROOT, 'dist', 'src', 'cli', 'main.js');

export interface CliAnswer {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
  /** The last line of stdout, parsed. */
  json<T>(): T;
}

export interface World {
  readonly folder: string;
  readonly postgres: PostgresServer;
  readonly rabbit: RabbitServer;
  readonly database: FreshDatabase;
  readonly vhost: FreshVhost;
  readonly pool: pg.Pool;
  /** Environment that a person would export to run the commands by hand. */
  readonly env: Readonly<Record<string, string>>;
  /** Runs `unbroker …` in the workspace to its end; echoes the command. */
  cli(
    args: readonly string[],
    options?: { readonly quiet?: boolean; readonly cwd?: string },
  ): Promise<CliAnswer>;
  /** Starts `unbroker …` and leaves it running. */
  startCli(args: readonly string[], cwd?: string): StartedProcess;
  write(name: string, text: string): string;
  /** Ready messages of a queue. */
  depth(queue: string): Promise<number>;
  close(): Promise<void>;
}

export async function openWorld(): Promise<World> {
  const workspace = openServiceFolder('demo');
  const [postgres, rabbit] = await Promise.all([startPostgres(), startRabbit()]);
  const database = await freshDatabase(postgres);
  const vhost = await freshVhost(rabbit);
  const folder = join(workspace.path, 'workspace');
  mkdirSync(folder);
  const env = {
    DATABASE_URL: database.url,
    AMQP_URL: vhost.url,
    UNBROKER_LOG_LEVEL: 'error',
    ...(rabbit.managementUrl === null ? {} : { RABBITMQ_MANAGEMENT_URL: rabbit.managementUrl }),
  };
  const connection = await amqp.connect(vhost.url);
  const channel = await connection.createChannel();
  const startCli = (args: readonly string[], cwd = folder): StartedProcess => {
    return startProcess(process.execPath, [CLI, ...args], { env, cwd });
  };
  return {
    folder,
    postgres,
    rabbit,
    database,
    vhost,
    pool: database.pool,
    env,
    startCli,
    async cli(args, { quiet = false, cwd } = {}) {
      if (!quiet) say(`$ unbroker ${args.join(' ')}`);
      const running = startCli(args, cwd);
      const { code } = await running.waitForExit(60_000);
      const { stdout, stderr } = running;
      return {
        status: code,
        stdout,
        stderr,
        json: <T>() => {
          const last = stdout.trim().split('\n').at(-1) ?? '';
          try {
            return JSON.parse(last) as T;
          } catch {
            throw new Error(
              `unbroker ${args.join(' ')} (exit ${code}) did not print JSON:\n${stdout}\n${stderr}`,
            );
          }
        },
      };
    },
    write(name, text) {
      const path = join(folder, name);
      writeFileSync(path, text);
      return path;
    },
    depth: async (queue) => (await channel.checkQueue(queue)).messageCount,
    async close() {
      await connection.close().catch(() => {});
      await database.close();
      await vhost.close();
      await Promise.all([postgres.close(), rabbit.close()]);
      await workspace.close();
    },
  };
}

const startedAt = performance.now();

/** A numbered heading with the time since the start. */
export function chapter(title: string): void {
  const seconds = ((performance.now() - startedAt) / 1_000).toFixed(0).padStart(3);
  process.stdout.write(`\n${seconds} s  ${title}\n`);
}

export function say(text: string): void {
  process.stdout.write(`${text.replace(/^/gm, '       ')}\n`);
}

export function elapsedSeconds(): number {
  return (performance.now() - startedAt) / 1_000;
}
