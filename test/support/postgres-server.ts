/**
 * What a Postgres for tests is, whichever way it came: its options, what one can do to it, and how it is asked for its
 * version. It starts nothing.
 */
import pg from 'pg';

export type PostgresWay = 'url' | 'docker' | 'local' | 'embedded';

export interface PostgresOptions {
  /** Only this way. Default: UNBROKER_TEST_POSTGRES, else the first that works of url, local, embedded. */
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
  /** Ends a private server, also a paused one, and removes its folder; leaves a given one alone. */
  close(): Promise<void>;
}

export const READY_WITHIN_MS = 180_000;
export const STOP_SIGNALS = { smart: 'SIGTERM', fast: 'SIGINT', immediate: 'SIGQUIT' } as const;

/** Whoever may reach the port is trusted; the password is there so that what prints a URL has something to hide. */
export function urlAt(host: string, port: number): string {
  return `postgres://postgres:not-a-secret@${host}:${port}/postgres`;
}

/** The settings of every server that we start. */
export function configured({ durable = true, settings = {} }: PostgresOptions): Record<string, string> {
  return {
    max_connections: '200',
    timezone: 'UTC',
    log_timezone: 'UTC',
    ...(durable ? {} : { fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off' }),
    ...settings,
  };
}

/** Rejects while the server does not accept connections. */
export async function askVersion(url: string): Promise<string> {
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
