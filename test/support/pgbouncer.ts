/**
 * A private PgBouncer in transaction mode before a Postgres: few server connections, handed on after each transaction, so
 * that whatever relies on a session breaks. Debian's package has it; nothing is installed for it.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { foldersWith, unprivilegedAccount } from './machine.js';
import { freePort } from './ports.js';
import { askVersion } from './postgres-server.js';
import { PrivateServer } from './private-server.js';
import { openServiceFolder } from './service-folder.js';

export interface PgBouncer {
  /** The given URL, through the bouncer. */
  through(url: string): string;
  readonly port: number;
  close(): Promise<void>;
}

const PROGRAM = 'pgbouncer';
/** Debian keeps it where users do not look. */
const programFolder = (): string | undefined => [...foldersWith(PROGRAM), ...foldersIn('/usr/sbin')][0];
const foldersIn = (folder: string): string[] => {
  const path = process.env['PATH'];
  try {
    process.env['PATH'] = folder;
    return foldersWith(PROGRAM);
  } finally {
    process.env['PATH'] = path;
  }
};

/** Why it cannot be had here; null when it can. */
export const noPgBouncer = (): string | null =>
  programFolder() === undefined ? 'pgbouncer is not installed (apt-get install pgbouncer)' : null;

/** `url`: of any database of the server. Default 4 server connections a database. */
export async function startPgBouncer(url: string, poolSize = 4): Promise<PgBouncer> {
  const binaries = programFolder();
  if (binaries === undefined) throw new Error(noPgBouncer() ?? '');
  const { hostname, port: serverPort, username } = new URL(url);
  const folder = openServiceFolder(PROGRAM);
  const port = await freePort();
  const configuration = join(folder.path, 'pgbouncer.ini');
  writeFileSync(
    configuration,
    `[databases]
* = host=${hostname} port=${serverPort || 5432} user=${decodeURIComponent(username)}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = ${poolSize}
max_client_conn = 500
ignore_startup_parameters = extra_float_digits
server_login_retry = 1
`,
    { mode: 0o644 },
  );
  const server = new PrivateServer({
    command: join(binaries, PROGRAM),
    args: [configuration],
    environment: folder.environment(),
    cwd: folder.path,
    logFile: join(folder.path, 'pgbouncer.log'),
    account: unprivilegedAccount('postgres'),
  });
  const through = (direct: string): string => {
    const pooled = new URL(direct);
    pooled.hostname = '127.0.0.1';
    pooled.port = String(port);
    return pooled.href;
  };
  try {
    server.spawn();
    await server.waitUntilReady('PgBouncer', () => askVersion(through(url)), 30_000);
  } catch (error) {
    await server.kill();
    await folder.close();
    throw error;
  }
  return {
    ...{ port, through },
    async close() {
      await server.kill();
      await folder.close();
    },
  };
}

/**
 * The URL through the bouncer that UNBROKER_TEST_POOLER names (`host:port`), which stands before the server of
 * UNBROKER_TEST_DATABASE_URL; as it is without one, or when it leads elsewhere (a fault proxy).
 */
export function pooled(url: string): string {
  const pooler = process.env['UNBROKER_TEST_POOLER'];
  const changed = new URL(url);
  const behind = process.env['UNBROKER_TEST_DATABASE_URL'];
  if (!pooler || !behind || changed.host !== new URL(behind).host) return url;
  changed.host = pooler;
  return changed.href;
}
