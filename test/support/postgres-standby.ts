/**
 * A standby of a private Postgres, copied from it while it runs, that the primary waits for at each commit; and its
 * promotion. Needs the server's own pg_basebackup, which the embedded package does not have.
 */
import { execFile } from 'node:child_process';
import { appendFileSync, chownSync, existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { startFaultProxy } from './fault-proxy.js';
import { unprivilegedAccount } from './machine.js';
import { freePort } from './ports.js';
import { findLocalBinaries } from './postgres-binaries.js';
import { askVersion, READY_WITHIN_MS, urlAt } from './postgres-server.js';
import { PrivateServer } from './private-server.js';
import { openServiceFolder } from './service-folder.js';
import { until } from './until.js';

/** What the primary must be started with. */
export const PRIMARY_SETTINGS = { wal_level: 'replica', max_wal_senders: '4', hot_standby: 'on' } as const;
const NAME = 'unbroker_standby';

export interface Standby {
  readonly url: string;
  /** From now on it gets nothing of what the primary writes. */
  cutOff(): void;
  /** Makes it the primary; resolves when it takes writes. */
  promote(): Promise<void>;
  close(): Promise<void>;
}

/** Why there can be none here; null when there can. */
export function noStandby(): string | null {
  const binaries = findLocalBinaries();
  return binaries !== null && existsSync(join(binaries, 'pg_basebackup')) ? null : 'no local pg_basebackup';
}

/** `url`: of the running primary, as a superuser. Resolves when the primary's commits wait for it. */
export async function startStandby(url: string): Promise<Standby> {
  const binaries = findLocalBinaries();
  if (binaries === null) throw new Error(noStandby() ?? '');
  const account = unprivilegedAccount('postgres');
  const folder = openServiceFolder('standby');
  const data = join(folder.path, 'data');
  mkdirSync(data, { mode: 0o700 });
  if (account) chownSync(data, account.uid, account.gid);
  const link = await startFaultProxy(url);
  const source = conninfo(link.url);
  const port = await freePort();
  const server = new PrivateServer({
    command: join(binaries, 'postgres'),
    args: ['-D', data, '-p', String(port)],
    environment: { ...folder.environment(), LC_ALL: 'C', HOME: folder.path },
    cwd: data,
    logFile: join(folder.path, 'postgres.log'),
    account,
  });
  const close = async (): Promise<void> => {
    await server.kill();
    await Promise.all([folder.close(), link.close()]);
  };
  const own = urlAt('127.0.0.1', port);
  try {
    await promisify(execFile)(
      join(binaries, 'pg_basebackup'),
      ['-D', data, '-d', conninfo(url), '-c', 'fast', '-X', 'stream', '-R', '--no-sync'],
      {
        cwd: data,
        timeout: READY_WITHIN_MS,
        env: { ...folder.environment(), LC_ALL: 'C' },
        ...(account ?? {}),
      },
    );
    appendFileSync(join(data, 'postgresql.auto.conf'), `primary_conninfo = '${source}'\n`);
    server.spawn();
    await server.waitUntilReady('the standby', () => askVersion(own), READY_WITHIN_MS);
    await asked(url, `alter system set synchronous_standby_names = '${NAME}'`);
    await asked(url, 'select pg_reload_conf()');
    await until('the primary waits for its standby', async () => {
      const rows = await asked(url, `select from pg_stat_replication where sync_state = 'sync'`);
      return rows.length === 1;
    });
  } catch (error) {
    await close();
    throw error;
  }
  return {
    ...{ url: own, close },
    cutOff: () => link.blackHole(),
    async promote() {
      link.cut();
      await asked(own, 'select pg_promote()');
      await until('the standby takes writes', async () => {
        const [row] = await asked(own, 'select pg_is_in_recovery() as standby');
        return row?.['standby'] === false;
      });
    },
  };
}

function conninfo(url: string): string {
  const { hostname, port, username } = new URL(url);
  return `host=${hostname} port=${port} user=${username} application_name=${NAME}`;
}

async function asked(url: string, text: string): Promise<Record<string, unknown>[]> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 5_000 });
  client.on('error', () => {});
  await client.connect();
  try {
    return (await client.query<Record<string, unknown>>(text)).rows;
  } finally {
    await client.end().catch(() => {});
  }
}
