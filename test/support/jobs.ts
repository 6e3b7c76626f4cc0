/**
 * A migrated jobs table of one's own, and the few things every test of it does: put jobs in, claim them by hand, set
 * the end of a lease, look at a row, open a second session and see it wait. Time is set here, never slept.
 */
import pg from 'pg';
import { createEnqueue, type EnqueueOptions } from '../../src/enqueue.js';
import type { KindDemand } from '../../src/jobs/claim-store.js';
import type { ClaimedJob, Job, Queryable } from '../../src/jobs/job.js';
import { createStore, type Store } from '../../src/jobs/store.js';
import { migrate } from '../../src/migrate.js';
import { type FreshDatabase, freshDatabase, freshMigratedDatabase } from './fresh.js';
import type { PostgresServer } from './postgres-server.js';
import { until } from './until.js';

export interface ClaimOptions {
  /** Default 100. */
  readonly total?: number;
  /** Default 30,000. */
  readonly leaseMs?: number;
  /** Default `w1`. */
  readonly worker?: string;
  readonly park?: boolean;
  readonly db?: Queryable;
}

export interface JobsDatabase extends FreshDatabase {
  readonly schema: string;
  readonly store: Store;
  /** Ids in the order of the payloads. */
  put(kind: string, payloads: readonly unknown[], options?: EnqueueOptions): Promise<string[]>;
  /** Claims by hand, of each kind up to `total`. */
  claim(kinds: string | readonly string[], options?: ClaimOptions): Promise<ClaimedJob[]>;
  /** The row must be there. */
  job(id: string): Promise<Job>;
  /** Ends these leases a second ago. All running ones without an argument. */
  expire(ids?: readonly string[]): Promise<void>;
  /** Counts by state; absent states are absent. */
  states(): Promise<Record<string, number>>;
  /** A connection of its own, closed with the database. */
  session(): Promise<Session>;
  /** Empties the table. */
  clear(): Promise<void>;
}

export interface Session extends Queryable {
  readonly pid: number;
  readonly client: pg.Client;
  /** Resolves once this session waits for a lock of another. */
  untilBlocked(): Promise<void>;
  end(): Promise<void>;
}

export interface JobsDatabaseOptions {
  readonly server?: Pick<PostgresServer, 'url'>;
  /** Default `unbroker`. */
  readonly schema?: string;
  /** Default true. */
  readonly migrated?: boolean;
  /** What the database says to each of its sessions, those that migrate it too, as `timezone = 'Asia/Kathmandu'`. */
  readonly settings?: readonly string[];
}

export async function jobsDatabase({
  server,
  schema = 'unbroker',
  migrated = true,
  settings = [],
}: JobsDatabaseOptions = {}): Promise<JobsDatabase> {
  const copied = server === undefined && schema === 'unbroker' && migrated && settings.length === 0;
  const database = copied ? await freshMigratedDatabase() : await freshDatabase(server);
  const { pool } = database;
  const store = createStore(schema);
  const { enqueueMany } = createEnqueue(schema);
  const jobs = `"${schema}".jobs`;
  const claims = `"${schema}".claims`;
  const sessions: Session[] = [];
  if (settings.length > 0) {
    const first = await openSession(database.url, pool);
    for (const setting of settings) await first.query(`alter database ${database.name} set ${setting}`);
    await first.end();
  }
  if (migrated && !copied) await migrate(pool, { schema });

  return {
    ...database,
    ...{ schema, store },
    async put(kind, payloads, options = {}) {
      const put = await enqueueMany(
        pool,
        payloads.map((payload) => ({ kind, payload, ...options })),
      );
      return put.map(({ id }) => id);
    },
    claim(kinds, { total = 100, leaseMs = 30_000, worker = 'w1', park = false, db = pool } = {}) {
      const demands = [kinds].flat().map((kind): KindDemand => ({ kind, limit: total, park }));
      return store.claim(db, demands, total, worker, leaseMs);
    },
    async job(id) {
      const job = await store.show(pool, id);
      if (job === null) throw new Error(`there is no job ${id}`);
      return job;
    },
    async expire(ids) {
      await endLeases(pool, { schema, ids });
    },
    async states() {
      const { rows } = await pool.query<{ state: string; count: number }>(
        `select state, count(*)::int as count from ${jobs} group by state`,
      );
      return Object.fromEntries(rows.map(({ state, count }) => [state, count]));
    },
    async session() {
      const opened = await openSession(database.url, pool);
      sessions.push(opened);
      return opened;
    },
    async clear() {
      // A test that failed may have left a transaction open: the next one must not wait for it.
      await pool.query(
        `select pg_terminate_backend(pid) from pg_stat_activity
         where datname = current_database() and pid <> pg_backend_pid()
           and (state like 'idle in transaction%' or cardinality(pg_blocking_pids(pid)) > 0)`,
      );
      await pool.query(`truncate ${jobs}, ${claims}`);
    },
    async close() {
      await Promise.allSettled(sessions.map((session) => session.end()));
      await database.close();
    },
  };
}

/** Ends leases so long ago, default a second: those of `ids` that run, all that run without. */
export async function endLeases(
  db: Queryable,
  {
    schema = 'unbroker',
    ids,
    ago = '1 second',
  }: { readonly schema?: string; readonly ids?: readonly string[] | undefined; readonly ago?: string } = {},
): Promise<void> {
  await db.query(
    `update "${schema}".jobs set locked_until = clock_timestamp() - $2::interval
     where state = 'running' and ($1::bigint[] is null or id = any ($1))`,
    [ids ?? null, ago],
  );
  await db.query(
    `update "${schema}".claims set ends_at = clock_timestamp() - $2::interval
     where $1::bigint[] is null or ids && $1`,
    [ids ?? null, ago],
  );
}

/** `watcher` sees what the session waits for. */
export async function openSession(url: string, watcher: Queryable): Promise<Session> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => {});
  await client.connect();
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
  const pid = (rows[0] as { pid: number }).pid;
  return {
    ...{ pid, client },
    query: (text, values) => client.query(text, values),
    untilBlocked: () => untilBlocked(watcher, pid),
    end: () => client.end(),
  };
}

/** Until the backend waits for a lock that another one holds. */
export async function untilBlocked(watcher: Queryable, pid: number): Promise<void> {
  await until(`backend ${pid} is blocked`, () => isBlocked(watcher, pid));
}

export async function isBlocked(watcher: Queryable, pid: number): Promise<boolean> {
  const { rows } = await watcher.query('select cardinality(pg_blocking_pids($1)) as blockers', [pid]);
  return (rows[0] as { blockers: number }).blockers > 0;
}
