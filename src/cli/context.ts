/**
 * What every verb needs: the config file, a database pool, a logger, and the wrapper that opens and closes them and turns
 * what is thrown into a line and an exit status (failure.ts).
 */
import { accessSync, constants, existsSync, lstatSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import type { Command } from 'commander';
import pg from 'pg';
import { oneOf } from '../check.js';
import { type Config, checkConfig } from '../config.js';
import { EXIT, UnbrokerError } from '../errors.js';
import { DEFAULT_SCHEMA } from '../jobs/schema-name.js';
import { within } from '../jobs/signal.js';
import { createStore, type Store } from '../jobs/store.js';
import { type Log, unfailing } from '../log.js';
import { LOG_LEVELS } from '../log-face.js';
import { checkSchema } from '../migrate.js';
import { withTlsModeNamed } from '../tls-mode.js';
import { databasePlace } from './database-place.js';
import { report } from './failure.js';
import { createLog } from './json-log.js';
import { loadModule, reason } from './load-module.js';

export { report } from './failure.js';
export { printable } from './printable.js';

export interface GlobalOptions {
  readonly config?: string;
  readonly schema?: string;
  readonly json?: boolean;
}

export interface Context {
  readonly config: Config;
  /** Which config was read, or where none is, as a sentence. */
  readonly configSeen: string;
  /** Folder of the config file, or the working directory: relative paths in the config start here. */
  readonly directory: string;
  readonly schema: string;
  readonly store: Store;
  readonly json: boolean;
  readonly log: Log;
  /** Opened on first use; closed by `run`. `max` counts on the first call. */
  pool(max?: number): pg.Pool;
  /** The pool, once the schema is known to be at this package's version. */
  migratedPool(max?: number): Promise<pg.Pool>;
  /** A connection of its own to listen on: DATABASE_DIRECT_URL past a pooler, else the database URL. */
  listen(): Promise<pg.Client>;
  /** Where it would listen. Throws `database-url-invalid`, `tls-unreadable`. */
  listenUrl(): string;
  /** AMQP URL from the environment. Throws `amqp-url-missing`. */
  amqpUrl(): string;
  /** True when it is set, well or not. */
  hasAmqpUrl(): boolean;
}

const CONFIG_NAMES = [
  'unbroker.config.ts',
  'unbroker.config.mts',
  'unbroker.config.js',
  'unbroker.config.mjs',
  'unbroker.config.json',
];

/** What a verb leaves to be closed, and which database it asked (database-place.ts). */
interface Opened {
  readonly closers: (() => Promise<unknown>)[];
  database?: string;
}

/** Wraps a verb: opens its context, closes it, and turns whatever is thrown into one line and an exit status. */
export function run<Args extends unknown[]>(
  action: (context: Context, ...args: Args) => Promise<number | undefined>,
): (...args: [...Args, Command]) => Promise<void> {
  return async (...all) => {
    const command = all.at(-1) as Command;
    const args = all.slice(0, -1) as unknown as Args;
    const opened: Opened = { closers: [] };
    try {
      const context = await openContext(command.optsWithGlobals<GlobalOptions>(), opened);
      process.exitCode = (await action(context, ...args)) ?? EXIT.ok;
    } catch (error) {
      process.exitCode = report(error, opened.database);
    } finally {
      await closeAll(opened.closers);
      // A handler that hears no signal, a socket that a module forgot: nothing keeps an ended command alive. Unreferenced,
      // so that one that is done ends at once.
      setTimeout(() => process.exit(), 500).unref();
    }
  };
}

/** A pool waits for its connections; one that does not answer must not keep the command. */
async function closeAll(closers: readonly (() => Promise<unknown>)[]): Promise<void> {
  await within(Promise.allSettled(closers.map((close) => close())), 2_000).catch(() => undefined);
}

async function openContext(options: GlobalOptions, opened: Opened): Promise<Context> {
  const loaded = await loadConfig(options.config);
  const { config, directory } = loaded;
  const schema = options.schema ?? config.schema ?? DEFAULT_SCHEMA;
  const store = createStore(schema);
  const asked = process.env['UNBROKER_LOG_LEVEL'] || undefined;
  const level = asked && oneOf(...LOG_LEVELS)(asked, 'UNBROKER_LOG_LEVEL');
  // A terminal that is gone takes no line; whoever says so goes on with giving back what it holds.
  const log = unfailing(createLog(level ?? config.worker?.logLevel ?? 'info'));
  let pool: pg.Pool | undefined;
  const openPool = (max = 4): pg.Pool => {
    if (pool === undefined) {
      const url = databaseUrl(loaded);
      opened.database = databasePlace(url);
      if (isOpenToReaders(url))
        log.warn(
          {},
          'sslmode=disable: the way to the database, password and payloads, can be read by others',
        );
      pool = createPool(url, max, log);
      opened.closers.push(() => (pool as pg.Pool).end());
    }
    return pool;
  };
  return {
    config,
    configSeen: configSeen(loaded),
    directory,
    schema,
    store,
    json: options.json === true,
    log,
    pool: openPool,
    async migratedPool(max) {
      const opened = openPool(max);
      await checkSchema(opened, schema);
      return opened;
    },
    listenUrl: () => listenUrl(loaded),
    async listen() {
      const connectionString = listenUrl(loaded);
      const client = new pg.Client({
        connectionString,
        connectionTimeoutMillis: 5_000,
        keepAlive: true,
        application_name: 'unbroker',
      });
      // Wake-up listens for it once it has the connection; until then it would end the process.
      client.on('error', () => undefined);
      await client.connect();
      return client;
    },
    hasAmqpUrl: () => Boolean(process.env[config.amqpUrlEnv ?? 'AMQP_URL']),
    amqpUrl: () =>
      urlFrom(config.amqpUrlEnv ?? 'AMQP_URL', ['amqp:', 'amqps:'], 'amqp', 'amqp://localhost', loaded),
  };
}

/** A pool that outlives a lost server: errors of idle clients are logged, connecting is bounded. */
export function createPool(connectionString: string, max: number, log: Log): pg.Pool {
  const pool = new pg.Pool({
    connectionString,
    max,
    connectionTimeoutMillis: 5_000,
    keepAlive: true,
    application_name: 'unbroker',
  });
  pool.on('error', (error) =>
    log.warn({ code: (error as { code?: string }).code }, 'an idle database connection was lost'),
  );
  // One that breaks while a verb holds it fails the verb's query; its event, unheard, would end the process with a stack.
  pool.on('connect', (client) => client.on('error', () => undefined));
  return pool;
}

function listenUrl(loaded: Loaded): string {
  return process.env['DATABASE_DIRECT_URL']
    ? databaseUrlOf('DATABASE_DIRECT_URL', loaded)
    : databaseUrl(loaded);
}

const databaseUrl = (loaded: Loaded): string =>
  databaseUrlOf(loaded.config.databaseUrlEnv ?? 'DATABASE_URL', loaded);

function databaseUrlOf(name: string, loaded: Loaded): string {
  const url = urlFrom(name, ['postgres:', 'postgresql:'], 'database', 'postgres://localhost/app', loaded);
  checkTlsFiles(new URL(url).searchParams, name);
  return withTlsModeNamed(url);
}

/** The driver reads them when it connects, and fails with no more than ENOENT. */
function checkTlsFiles(parameters: URLSearchParams, variable: string): void {
  for (const name of ['sslrootcert', 'sslcert', 'sslkey']) {
    const file = parameters.get(name);
    if (file === null || file === '') continue;
    try {
      accessSync(file, constants.R_OK);
    } catch (cause) {
      throw new UnbrokerError('tls-unreadable', `The file that ${name} in ${variable} names cannot be read`, {
        hint: 'Give its whole path, and its reader the right to read it.',
        exitStatus: EXIT.badInput,
        cause,
      });
    }
  }
}

/** Told to encrypt nothing, to another machine. */
function isOpenToReaders(url: string): boolean {
  const { hostname, searchParams } = new URL(url);
  const local =
    hostname === '' || hostname === 'localhost' || hostname === '[::1]' || /^127(?:\.\d+){3}$/.test(hostname);
  return searchParams.get('sslmode') === 'disable' && !local && !searchParams.get('host')?.startsWith('/');
}

function urlFrom(
  name: string,
  protocols: readonly string[],
  what: 'database' | 'amqp',
  example: string,
  loaded: Loaded,
): string {
  const called = what === 'amqp' ? 'AMQP' : what;
  const value = process.env[name];
  if (value === undefined || value === '') {
    throw new UnbrokerError(`${what}-url-missing`, `The ${called} URL is not set`, {
      hint: `Set ${name}, for example ${name}=${example}. ${configSeen(loaded)}`,
      exitStatus: EXIT.badInput,
    });
  }
  if (isUrl(value, protocols)) return value;
  // Without the value: it may hold a password.
  throw new UnbrokerError(
    `${what}-url-invalid`,
    `${name} is not ${what === 'amqp' ? 'an' : 'a'} ${called} URL`,
    {
      hint: `Write it as ${protocols[0]}//user:password@host:port/name, with special characters percent-encoded.`,
      exitStatus: EXIT.badInput,
    },
  );
}

function isUrl(value: string, protocols: readonly string[]): boolean {
  try {
    const url = new URL(value);
    // The drivers decode these later, and would fail there with a stack.
    for (const part of [url.username, url.password, url.pathname, url.hostname]) decodeURIComponent(part);
    return protocols.includes(url.protocol);
  } catch {
    return false;
  }
}

interface Loaded {
  readonly config: Config;
  readonly directory: string;
  /** Null without a file. */
  readonly path: string | null;
}

/** In another folder than was meant nothing says so: without a file everything has its default. */
const configSeen = ({ path, directory }: Loaded): string =>
  path === null
    ? `No config was read: there is no unbroker.config.ts (.mts, .js, .mjs, .json) in ${directory}, and --config names none.`
    : `The config that was read is ${path}.`;

/** Loads the config through jiti (Node 20 cannot import TypeScript). No file is fine unless one was named. */
async function loadConfig(named: string | undefined): Promise<Loaded> {
  const path =
    named === undefined
      ? CONFIG_NAMES.map((name) => resolve(name)).find((name) => existsSync(name))
      : resolve(named);
  if (path === undefined) return { config: {}, directory: process.cwd(), path: null };
  let loaded: unknown;
  try {
    const link = lstatSync(path);
    if (link.isSymbolicLink() || (statSync(path).mode & 0o002) !== 0) {
      throw new UnbrokerError('config-unsafe', 'The config file is a link or writable by everybody', {
        hint: 'It is run as code: make it a plain file and run chmod o-w on it.',
        exitStatus: EXIT.badInput,
      });
    }
    loaded = await loadModule(path);
  } catch (error) {
    if (error instanceof UnbrokerError) throw error;
    throw new UnbrokerError('config-unreadable', `The config file cannot be loaded (${reason(error)})`, {
      hint: 'Check the path given with --config and that the file runs by itself.',
      exitStatus: EXIT.badInput,
      cause: error,
    });
  }
  return { config: checkConfig(loaded), directory: dirname(path), path };
}
