/**
 * The shape of `unbroker.config.ts` and its check. Pure: reading the file is the command line's business. Sections of
 * parts (drain, serve, notify) are checked by those parts; here they are only put together.
 */
import { checkDrainConfig, type DrainConfig } from '../adapters/rabbitmq/drain-config.js';
import { boolean, type Checker, integer, object, oneOf, record, string } from './check.js';
import { checkSeamConfig, type SeamConfig } from './cutover/seam-rules.js';
import { UnbrokerError } from './errors.js';
import { LIMITS } from './jobs/job.js';
import { KIND_LIMITS, type KindLimits } from './jobs/kind-limits.js';
import type { Retention } from './jobs/retention.js';
import { quoteSchema } from './jobs/schema-name.js';
import { LOG_LEVELS } from './log-face.js';
import { checkNotifyConfig, type NotifyConfig } from './notify/config.js';
import { checkServeConfig, type ServeConfig } from './shims/config.js';

export interface Config {
  /** Default `unbroker`. */
  readonly schema?: string;
  /** Where `DATABASE_URL`, `AMQP_URL` are taken from when the environment has other names for them. */
  readonly databaseUrlEnv?: string;
  readonly amqpUrlEnv?: string;
  /** A module whose default export maps kinds to handlers, relative to the config file. */
  readonly handlers?: string;
  readonly worker?: WorkerConfig;
  readonly seam?: SeamConfig;
  readonly drain?: DrainConfig;
  readonly serve?: ServeConfig;
  readonly notify?: NotifyConfig;
  readonly relay?: RelayConfig;
}

/** Of `relay.amqp`, which `unbroker work` serves when the AMQP URL is set. */
export interface RelayConfig {
  /** A message that no queue takes: `retry` (default) by the kind's policy, or `dead` at once. */
  readonly onUnroutable?: 'retry' | 'dead';
}

export interface WorkerConfig {
  /** Jobs at once. Default 10. */
  readonly concurrency?: number;
  /** Default 30,000. */
  readonly leaseMs?: number;
  /** Poll while idle. Default 200. */
  readonly pollMs?: number;
  /** How long a stopping worker waits for what runs. Default 25,000. */
  readonly graceMs?: number;
  /** Limits of kinds across all workers. Default: none. */
  readonly kinds?: Readonly<Record<string, KindLimits>>;
  /** What kinds say that do not say it: whether the rows of done jobs stay. Default true. */
  readonly keepDone?: boolean;
  /** What is kept of finished jobs. Default: all. */
  readonly retention?: Retention;
  readonly logLevel?: (typeof LOG_LEVELS)[number];
}

/** Bounds of a worker's settings; the library checks the same. */
export const WORKER_BOUNDS = {
  concurrency: { min: 1, max: 10_000 },
  /** Under 100 ms an ordinary pause of the event loop loses the lease; over a day a dead worker hides its jobs. */
  leaseMs: { min: 100, max: 86_400_000 },
  pollMs: { min: 5, max: 60_000 },
  graceMs: { min: 0, max: 86_400_000 },
  maxAgeMs: { min: 0, max: 3_153_600_000_000 },
  maxCount: { min: 0, max: 1_000_000_000 },
} as const;

const schemaName: Checker<string> = (value, path) => {
  const name = string({ maxLength: 63 })(value, path);
  try {
    quoteSchema(name);
  } catch (error) {
    if (!(error instanceof UnbrokerError)) throw error;
    const { hint, exitStatus } = error;
    throw new UnbrokerError('schema-invalid', `${path} is not usable`, { hint, exitStatus });
  }
  return name;
};

const environmentName = string({
  pattern: /^[A-Z_][A-Z0-9_]*$/,
  expected: 'the name of an environment variable, in capitals (not a URL: secrets stay out of files)',
});

/** As the table takes it: a limit under another name would hold for nothing. */
const kindName = string({ maxLength: LIMITS.kindLength });

const keep = object({
  maxAgeMs: integer(0, WORKER_BOUNDS.maxAgeMs.max),
  maxCount: integer(0, WORKER_BOUNDS.maxCount.max),
});

const kindLimits = object({
  maxRunning: integer(1, KIND_LIMITS.maxRunning),
  rate: object(
    {
      max: integer(1, KIND_LIMITS.rate),
      perMs: integer(1, KIND_LIMITS.perMs),
      burst: integer(1, KIND_LIMITS.rate),
    },
    ['max', 'perMs'],
  ),
});

const checkShape = object({
  schema: schemaName,
  databaseUrlEnv: environmentName,
  amqpUrlEnv: environmentName,
  handlers: string(),
  worker: object({
    concurrency: integer(WORKER_BOUNDS.concurrency.min, WORKER_BOUNDS.concurrency.max),
    leaseMs: integer(WORKER_BOUNDS.leaseMs.min, WORKER_BOUNDS.leaseMs.max),
    pollMs: integer(WORKER_BOUNDS.pollMs.min, WORKER_BOUNDS.pollMs.max),
    graceMs: integer(WORKER_BOUNDS.graceMs.min, WORKER_BOUNDS.graceMs.max),
    kinds: record(kindLimits, undefined, kindName),
    keepDone: boolean,
    retention: object({ default: keep, kinds: record(keep, undefined, kindName) }),
    logLevel: oneOf(...LOG_LEVELS),
  }),
  seam: checkSeamConfig,
  drain: checkDrainConfig,
  serve: checkServeConfig,
  notify: checkNotifyConfig,
  relay: object({ onUnroutable: oneOf('retry', 'dead') }),
});

/** Throws `config-invalid` (exit 2), naming the key and what it must be. */
export function checkConfig(value: unknown): Config {
  return checkShape(value, 'config');
}

/** Types a config file: `export default defineConfig({ … })`. */
export function defineConfig(config: Config): Config {
  return config;
}
