/**
 * A private Postgres: a fresh cluster in a temporary folder, on a free loopback port, under an account that Postgres
 * accepts. It is told where the binaries are and does not look for them.
 */
import { execFile } from 'node:child_process';
import { appendFileSync, chownSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Account } from './machine.js';
import { freePort } from './ports.js';
import {
  askVersion,
  configured,
  type PostgresOptions,
  type PostgresServer,
  type PostgresWay,
  READY_WITHIN_MS,
  STOP_SIGNALS,
  urlAt,
} from './postgres-server.js';
import { PrivateServer } from './private-server.js';
import { openServiceFolder, type ServiceFolder } from './service-folder.js';

const STOP_WITHIN_MS = 20_000;
const PORT_ATTEMPTS = 5;
const PORT_TAKEN = /could not bind|could not create any/i;

const run = promisify(execFile);

/** `binariesIn` may put the binaries into the service folder and returns the folder with `initdb` and `postgres`. */
export async function startCluster(
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
    appendFileSync(join(data, 'postgresql.conf'), configurationFile(options));
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
        if (attempt === PORT_ATTEMPTS || !PORT_TAKEN.test(String(error))) throw error;
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

/** `--no-sync` leaves only this empty cluster unsynced; commits are durable as ever. */
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
    timeout: READY_WITHIN_MS,
    ...(account ?? {}),
  });
}

function configurationFile(options: PostgresOptions): string {
  const all = { listen_addresses: '127.0.0.1', unix_socket_directories: '', ...configured(options) };
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
  const url = urlAt('127.0.0.1', port);
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
