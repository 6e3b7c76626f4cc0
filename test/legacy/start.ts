/**
 * Starts the old system as separate processes and hands out its addresses, its journals and the ways to stop or kill
 * each part. It refuses to know of the broker and the database that it is given.
 */
import { cpSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { type StartedProcess, startProcess } from '../support/processes.js';
import { openServiceFolder } from '../support/service-folder.js';
import { type Delivery, readJournal } from './sinks/journal.js';

export type { Delivery } from './sinks/journal.js';

export interface Service {
  /** `http://127.0.0.1:PORT`, or `smtp://…` of the SMTP sink. */
  readonly url: string;
  readonly process: StartedProcess;
  /** SIGTERM, then waits: it finishes what is in hand. Safe to call twice. */
  stop(): Promise<void>;
  /** SIGKILL, then waits. */
  kill(): Promise<void>;
}

type Environment = Readonly<Record<string, string | undefined>>;

const HERE = import.meta.dirname;
const READY_WITHIN_MS = 30_000;
const STOP_WITHIN_MS = 20_000;

export interface TrioOptions {
  /** Contains the virtual host. */
  readonly amqpUrl: string;
  readonly databaseUrl: string;
  readonly smtpUrl?: string;
  readonly providerUrl?: string;
  /** The rungs of the retry ladder in ms. Default 1000, 10000, 60000: far too slow for a test. */
  readonly ladderMs?: readonly number[];
  /** Where templates are read and written. Default: a copy of the committed ones, gone at `stop`. */
  readonly templatesDir?: string;
  /** Added to the environment of all three: PREFETCH, MAIL_FROM. */
  readonly env?: Environment;
}

export interface Trio {
  readonly notification: Service;
  readonly scheduling: Service;
  readonly retry: Service;
  readonly templatesDir: string;
  /** All three, gracefully. */
  stop(): Promise<void>;
}

export async function startTrio(options: TrioOptions): Promise<Trio> {
  const folder = openServiceFolder('legacy');
  const templatesDir = options.templatesDir ?? join(folder.path, 'templates');
  if (options.templatesDir === undefined) {
    cpSync(join(HERE, 'notification', 'templates'), templatesDir, { recursive: true });
  }
  const common = { ...options.env, AMQP_URL: options.amqpUrl, DATABASE_URL: options.databaseUrl };
  const [notification, scheduling, retry] = await startAll([
    () =>
      start('notification', 'notification/main.ts', {
        ...common,
        SMTP_URL: options.smtpUrl,
        PROVIDER_URL: options.providerUrl,
        TEMPLATES_DIR: templatesDir,
      }),
    () => start('scheduling', 'scheduling/main.ts', common),
    () => start('retry', 'retry/main.ts', { ...common, RETRY_LADDER_MS: options.ladderMs?.join(',') }),
  ]);
  return {
    notification: notification!,
    scheduling: scheduling!,
    retry: retry!,
    templatesDir,
    async stop() {
      await Promise.all([notification!.stop(), scheduling!.stop(), retry!.stop()]);
      await folder.close();
    },
  };
}

export interface OrdersOptions {
  readonly amqpUrl: string;
  readonly databaseUrl: string;
  readonly schedulingUrl?: string;
  readonly reminderDelayMs?: number;
  readonly reviewDelayMs?: number;
  /** Kill it right after Postgres has answered its nth COMMIT, before it publishes. */
  readonly killAfterCommit?: number;
  /** Kill it right after the answer to the first statement that contains this text. */
  readonly killAfterStatement?: string;
  /** Another copy of the application's folder: one that a codemod has rewritten. Needs `node_modules` above it. */
  readonly folder?: string;
  readonly env?: Environment;
}

export async function startOrders(options: OrdersOptions): Promise<Service> {
  const environment = {
    ...options.env,
    AMQP_URL: options.amqpUrl,
    DATABASE_URL: options.databaseUrl,
    SCHEDULING_URL: options.schedulingUrl,
    REMINDER_DELAY_MS: options.reminderDelayMs?.toString(),
    REVIEW_DELAY_MS: options.reviewDelayMs?.toString(),
    KILL_AFTER_COMMIT: options.killAfterCommit?.toString(),
    KILL_AFTER_STATEMENT: options.killAfterStatement,
  };
  const main = join(options.folder ?? join(HERE, 'orders'), 'src', 'main.ts');
  return start('orders', main, environment, ['--import', join(HERE, 'support', 'kill-point.mjs')]);
}

export interface Sink extends Service {
  /** The same file over restarts. */
  readonly journalPath: string;
  /** What it has taken so far, oldest first. */
  deliveries(): Delivery[];
  /** Sets faults (sinks/faults.ts): `{ failNext: 2 }`, `{ failMatch: 'bounce@', failCode: 550 }`, `{ delayMs: 50 }`. */
  control(faults: Readonly<Record<string, number | string | boolean>>): Promise<void>;
}

/** `journalPath` in a folder of the caller's. `port` 0, the default, takes any. */
export async function startSmtpSink(journalPath: string, port = 0): Promise<Sink> {
  const sink = await start('smtp-sink', 'sinks/smtp.ts', { JOURNAL: journalPath, PORT: String(port) });
  const [, controlUrl = ''] = await sink.process.waitFor(/smtp-sink control on (\S+)/);
  return asSink(sink, journalPath, controlUrl);
}

export async function startHttpSink(journalPath: string, port = 0): Promise<Sink> {
  const sink = await start('http-sink', 'sinks/http.ts', { JOURNAL: journalPath, PORT: String(port) });
  return asSink(sink, journalPath, sink.url);
}

function asSink(service: Service, journalPath: string, controlUrl: string): Sink {
  return {
    ...service,
    journalPath,
    deliveries: () => readJournal(journalPath),
    async control(faults) {
      const response = await fetch(`${controlUrl}/_control`, {
        method: 'POST',
        body: JSON.stringify(faults),
      });
      if (!response.ok) throw new Error(await response.text());
    },
  };
}

/** All, or none: when one does not start, the others are killed. */
async function startAll(starts: readonly (() => Promise<Service>)[]): Promise<Service[]> {
  const results = await Promise.allSettled(starts.map((one) => one()));
  const failed = results.find((result) => result.status === 'rejected');
  const services = results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
  if (failed === undefined) return services;
  await Promise.all(services.map((service) => service.kill()));
  throw failed.reason;
}

async function start(
  name: string,
  file: string,
  environment: Environment,
  preload: readonly string[] = [],
): Promise<Service> {
  const tsx = createRequire(import.meta.url).resolve('tsx');
  const args = ['--import', tsx, ...preload, resolve(HERE, file)];
  const started = startProcess(process.execPath, args, { env: { PORT: '0', ...environment } });
  try {
    const [, url = ''] = await started.waitFor(
      new RegExp(`^${name} listening on (\\S+)`, 'm'),
      READY_WITHIN_MS,
    );
    return {
      url,
      process: started,
      async stop() {
        if (!started.running) return;
        started.signal('SIGTERM');
        await started.waitForExit(STOP_WITHIN_MS);
      },
      async kill() {
        await started.kill('SIGKILL');
      },
    };
  } catch (error) {
    await started.kill('SIGKILL');
    throw error;
  }
}
