/** `unbroker work`: a worker process with the handlers that the config names. */
import { resolve } from 'node:path';
import { Command } from 'commander';
import { parseDuration } from '../check.js';
import { WORKER_BOUNDS } from '../config.js';
import { EXIT, UnbrokerError } from '../errors.js';
import type { Handler } from '../jobs/handler.js';
import type { KindLimits } from '../jobs/kind-limits.js';
import type { Retention } from '../jobs/retention.js';
import { createWorker, type Worker, type WorkerEvent } from '../jobs/worker.js';
import { createMetrics } from '../jobs/worker-metrics.js';
import { takesWrites } from '../jobs/writable.js';
import { type Context, run } from './context.js';
import { hearEnd } from './end-signals.js';
import { loadModule, reason } from './load-module.js';
import { type MetricsFlags, openMetrics, withMetricsFlags } from './metrics.js';
import { print, printJson } from './output.js';
import { warnOfReadOnly } from './read-only.js';
import { wholeOption } from './whole-option.js';

interface WorkOptions extends MetricsFlags {
  readonly concurrency?: string;
  readonly lease?: string;
  readonly grace?: string;
  readonly untilIdle?: boolean;
  readonly listen: boolean;
}

/** Less than the 30 s that a container gets between SIGTERM and SIGKILL. */
const DEFAULT_GRACE_MS = 25_000;

const CONNECTIONS = 5;

export function workCommand(): Command {
  const command = new Command('work')
    .description('claim jobs and run them with the handlers of the config')
    .option('--concurrency <n>', 'jobs at once (default 10)')
    .option('--lease <duration>', 'how long a dead worker keeps its jobs, as 30s (default)')
    .option('--grace <duration>', 'how long a stopping worker waits for what runs (default 25s)')
    .option('--until-idle', 'end when nothing is due')
    .option('--no-listen', 'poll only; for a DATABASE_URL that leads through a pooler');
  return withMetricsFlags(command).action(run(work));
}

async function work(context: Context, options: WorkOptions): Promise<number> {
  const { graceMs = DEFAULT_GRACE_MS, ...settings } = workerSettings(context, options);
  const handlers = await loadHandlers(context);
  // A worker that cannot listen goes on by polling: a wrong URL would be a line in its log.
  if (options.listen) context.listenUrl();
  const pool = await context.migratedPool(CONNECTIONS);
  const counts = { done: 0, retried: 0, snoozed: 0, dead: 0, lost: 0, released: 0 };
  const names = { complete: 'done', retry: 'retried', snooze: 'snoozed', discard: 'dead' } as const;
  const metrics =
    options.metricsPort === undefined ? undefined : createMetrics({ db: pool, schema: context.schema });
  const watched: { worker?: Worker } = {};
  // A claim that finds nothing writes nothing, so the worker itself does not know.
  const isReady = async (): Promise<boolean> => watched.worker?.ready === true && (await takesWrites(pool));
  const server = metrics && (await openMetrics(context, options, metrics, isReady));
  await warnOfReadOnly(context.log, pool, 'no job is run');

  return new Promise((resolveStatus) => {
    let ending = false;
    const worker = createWorker({
      db: pool,
      schema: context.schema,
      handlers,
      log: context.log,
      ...settings,
      ...(options.listen ? { listen: () => context.listen() } : {}),
      onEvent: (event: WorkerEvent) => {
        metrics?.onEvent(event);
        if (event.type === 'settled') counts[names[event.outcome.type]] += 1;
        if (event.type === 'lost') counts.lost += 1;
        if (event.type === 'released') counts.released += event.jobs.length;
        if (event.type === 'idle' && options.untilIdle) end(EXIT.ok);
      },
    });
    watched.worker = worker;
    const end = (status: number): void => {
      if (ending) return;
      ending = true;
      context.log.info({ running: worker.running, graceMs }, 'stopping');
      void worker.stop({ deadlineMs: graceMs }).then(async () => {
        await server?.close();
        hearNoMore();
        if (context.json) printJson(counts);
        else
          print(
            `Worker ended: ${Object.entries(counts)
              .map(([name, n]) => `${n} ${name}`)
              .join(', ')}.`,
          );
        resolveStatus(status);
      });
    };
    // A second signal ends it at once: leases then run out and the jobs are taken back.
    const interrupt = (): void => (ending ? process.exit(EXIT.interrupted) : end(EXIT.interrupted));
    const terminate = (): void => (ending ? process.exit(EXIT.interrupted) : end(EXIT.ok));
    const hearNoMore = hearEnd(interrupt, terminate);
    worker.start();
    context.log.info({ kinds: Object.keys(handlers), ...settings }, 'working');
  });
}

function workerSettings(context: Context, options: WorkOptions) {
  const { leaseMs: bounds, concurrency, graceMs: grace } = WORKER_BOUNDS;
  const { logLevel: _level, ...fromConfig } = context.config.worker ?? {};
  const settings: {
    concurrency?: number;
    leaseMs?: number;
    pollMs?: number;
    graceMs?: number;
    keepDone?: boolean;
    retention?: Retention;
    kinds?: Readonly<Record<string, KindLimits>>;
  } = {
    ...fromConfig,
  };
  if (options.lease !== undefined)
    settings.leaseMs = parseDuration(options.lease, '--lease', bounds.min, bounds.max);
  if (options.grace !== undefined)
    settings.graceMs = parseDuration(options.grace, '--grace', grace.min, grace.max);
  if (options.concurrency !== undefined)
    settings.concurrency = wholeOption(
      options.concurrency,
      '--concurrency',
      concurrency.min,
      concurrency.max,
    );
  return settings;
}

/** The config's own handlers, beside those that a configured part of ours brings. */
async function loadHandlers(context: Context): Promise<Record<string, Handler>> {
  const handlers: Record<string, Handler> = {};
  if (context.config.notify !== undefined) {
    const { createNotifyHandlers } = await import('../notify/index.js');
    Object.assign(
      handlers,
      createNotifyHandlers({
        config: context.config.notify,
        directory: context.directory,
        db: context.pool(CONNECTIONS),
        schema: context.schema,
      }),
    );
  }
  if (context.hasAmqpUrl()) {
    const url = context.amqpUrl();
    const { createAmqpRelay } = await import('../../adapters/rabbitmq/relay.js');
    const { connectBroker } = await import('../../adapters/rabbitmq/broker.js');
    const relay = createAmqpRelay({ connect: () => connectBroker(url), ...context.config.relay });
    Object.assign(handlers, relay.handlers);
  }
  if (context.config.handlers !== undefined) {
    const path = resolve(context.directory, context.config.handlers);
    let loaded: unknown;
    try {
      loaded = await loadModule(path);
    } catch (error) {
      throw new UnbrokerError(
        'handlers-unreadable',
        `The handlers module cannot be loaded (${reason(error)})`,
        {
          hint: 'Check `handlers` in the config and that the module runs by itself.',
          exitStatus: EXIT.badInput,
          cause: error,
        },
      );
    }
    Object.assign(handlers, checkHandlers(loaded));
  }
  if (Object.keys(handlers).length === 0) {
    throw new UnbrokerError('handlers-missing', 'There is no handler to work with', {
      hint: `Name a module in the config: handlers: "./handlers.ts", whose default export maps kinds to functions; or serve relay.http (notify: {} in the config), relay.amqp (AMQP_URL). ${context.configSeen}`,
      exitStatus: EXIT.badInput,
    });
  }
  return handlers;
}

function checkHandlers(loaded: unknown): Record<string, Handler> {
  const isMap = typeof loaded === 'object' && loaded !== null && !Array.isArray(loaded);
  const entries = isMap ? Object.entries(loaded) : [];
  const fits = (value: unknown): value is Handler =>
    typeof value === 'function' ||
    (typeof value === 'object' &&
      value !== null &&
      typeof (value as { handle?: unknown }).handle === 'function');
  if (entries.length > 0 && entries.every(([, value]) => fits(value))) return Object.fromEntries(entries);
  throw new UnbrokerError('handlers-invalid', 'The handlers module does not export kinds with functions', {
    hint: 'Write: export default { "order.receipt": async (job) => { … } }',
    exitStatus: EXIT.badInput,
  });
}
