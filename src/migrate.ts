/**
 * Brings a schema up to the version that this package needs. Numbered files, forward only, one runner at a time by
 * try and poll: a blocking lock beside `create index concurrently` deadlocks (measured). No session state is used, so
 * it works through PgBouncer in transaction mode.
 */
import { randomUUID } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { EXIT, UnbrokerError } from './errors.js';
import { schemaMissing, UPGRADE_HINT } from './jobs/behind.js';
import type { Queryable } from './jobs/job.js';
import { DEFAULT_SCHEMA, quoteSchema } from './jobs/schema-name.js';
import { codeOf } from './jobs/sqlstate.js';
import { autovacuumIn, FIRST_TRY, type LockTry, lockHint, nextTry, pauseMs } from './lock-tries.js';
import { MIGRATION_NAMES } from './migration-names.js';
import { ownerToBe } from './schema-owner.js';

export interface Migration {
  /** From the file name, 001 = 1. */
  readonly version: number;
  /** File name without `.sql`. */
  readonly name: string;
  /** DDL with `{schema}` where the quoted schema goes. */
  readonly text: string;
  /** False when the file's first line is `-- no transaction`: statements run one by one and must be repeatable. */
  readonly transactional: boolean;
}

/** A pool: statements that need one transaction get one client. */
export interface MigratePool extends Queryable {
  connect(): Promise<MigrateClient>;
}

interface MigrateClient extends Queryable {
  release(destroy?: boolean): void;
  on?(event: 'error', listener: () => void): unknown;
  off?(event: 'error', listener: () => void): unknown;
}

export interface MigrateOptions {
  readonly schema?: string | undefined;
  /** Called before each migration. */
  readonly onMigration?: ((name: string) => void) | undefined;
  /** How long to wait for another runner. Default 60,000. */
  readonly maxWaitMs?: number | undefined;
  /** How long a runner that was killed keeps the others waiting. Default 30,000: less than they wait. */
  readonly leaseMs?: number | undefined;
  /** How often a migration tries for its lock, half a second each (more beside an autovacuum) and one to two between. Default 30. */
  readonly maxLockTries?: number | undefined;
  /** Default: this package's. */
  readonly migrations?: readonly Migration[] | undefined;
}

export interface MigrateResult {
  readonly schema: string;
  readonly from: number;
  readonly to: number;
  readonly applied: readonly string[];
}

/** Renewed every third of it: building an index on a large table takes as long as it takes. */
const LEASE_MS = 30_000;
const POLL_MS = 100;
const MAX_LOCK_TRIES = 30;
/** lock_not_available, deadlock_detected: what live traffic does to DDL now and then. */
const LOCK_STATES = ['55P03', '40P01'];
/** Postgres 13: the oldest that the statements are written for. */
const MIN_SERVER_VERSION = 130_000;

/** The migrations of this package, in order. Throws `migrations-missing`. */
export function readMigrations(): Migration[] {
  // A program bundled as CommonJS has no such URL.
  const here: string | undefined = import.meta.url;
  const directory = (here === undefined ? [] : ['../migrations/', '../../migrations/'])
    .map((path) => fileURLToPath(new URL(path, here)))
    .find(isOurs);
  if (directory === undefined) {
    throw new UnbrokerError('migrations-missing', "The package's migrations folder is not beside its code", {
      hint: 'Run unbroker migrate, or leave unbroker out of the bundle; if it is in none, install it again.',
    });
  }
  return readdirSync(directory)
    .filter((file) => /^\d{3}_[a-z0-9_]+\.sql$/.test(file))
    .sort()
    .map((file) => {
      const text = readFileSync(`${directory}/${file}`, 'utf8');
      return {
        version: Number(file.slice(0, 3)),
        name: file.slice(0, -4),
        text,
        transactional: !/^-- no transaction\b/.test(text),
      };
    });
}

/** Beside a bundle stands the migrations folder of whoever made it, and its files would be run for ours. */
function isOurs(directory: string): boolean {
  const first = `${directory}/001_jobs.sql`;
  return existsSync(first) && readFileSync(first, 'utf8').includes('{schema}');
}

/** The DDL as text, for a team's own migration tool. */
export function migrationSql(schema: string = DEFAULT_SCHEMA): string {
  const s = quoteSchema(schema);
  const bodies = readMigrations().map((m) => {
    const note = `insert into ${s}.migrations (version, name) values (${m.version}, '${m.name}') on conflict do nothing;`;
    const body = `-- ${m.name}\n${render(m.text, s)}\n${note}\n`;
    return m.transactional ? `begin;\n${body}commit;\n` : body;
  });
  return `${bookkeeping(s).join(';\n')};\n\n${bodies.join('\n')}`;
}

/**
 * Applies what is missing. Safe to race: several runners may start at once, one works, the others wait and find
 * nothing to do. Throws `schema-newer`, `server-unsupported`, `migrate-busy`, `migrate-locked`, `not-the-owner`.
 */
export async function migrate(pool: MigratePool, options: MigrateOptions = {}): Promise<MigrateResult> {
  const schema = options.schema ?? DEFAULT_SCHEMA;
  const s = quoteSchema(schema);
  const migrations = options.migrations ?? readMigrations();
  const newest = migrations.at(-1)?.version ?? 0;

  await checkServer(pool);
  await createBookkeeping(pool, s);
  const from = await currentVersion(pool, s);
  refuseNewer(from, newest, schema);
  if (from === newest) return { schema, from, to: from, applied: [] };

  const owner = await ownerToBe(pool, s);
  const turn = { holder: randomUUID(), leaseMs: options.leaseMs ?? LEASE_MS };
  await acquire(pool, s, turn, options.maxWaitMs ?? 60_000);
  // A renewal that fails is made good by the next; one that comes too late is noticed before the next migration.
  const renewals = setInterval(() => void renew(pool, s, turn).catch(() => undefined), turn.leaseMs / 3);
  try {
    const applied: string[] = [];
    const start = await currentVersion(pool, s);
    refuseNewer(start, newest, schema);
    for (const migration of migrations.filter((m) => m.version > start)) {
      options.onMigration?.(migration.name);
      await renew(pool, s, turn);
      await applyWithRetry({ pool, s, owner }, migration, options.maxLockTries ?? MAX_LOCK_TRIES);
      applied.push(migration.name);
    }
    return { schema, from, to: newest, applied };
  } finally {
    clearInterval(renewals);
    await pool
      .query(`delete from ${s}.migration_lease where holder = $1`, [turn.holder])
      .catch(() => undefined);
  }
}

/** Throws `schema-missing`, `schema-older` or `schema-newer` unless the database is at this package's version. */
export async function checkSchema(db: Queryable, schema: string = DEFAULT_SCHEMA): Promise<void> {
  const s = quoteSchema(schema);
  const newest = MIGRATION_NAMES.length;
  const version = await currentVersion(db, s);
  refuseNewer(version, newest, schema);
  if (version === newest) return;
  if (version === 0) throw schemaMissing(schema, '--schema, or schema in the config');
  const missing = MIGRATION_NAMES.slice(version);
  const names = missing.length === 1 ? `${missing[0]}` : `${missing[0]} to ${missing.at(-1)}`;
  throw new UnbrokerError(
    'schema-older',
    `Schema ${schema} is at version ${version}, this package needs ${newest} (${names})`,
    { hint: UPGRADE_HINT, exitStatus: EXIT.badInput },
  );
}

function refuseNewer(version: number, newest: number, schema: string): void {
  if (version <= newest) return;
  throw new UnbrokerError(
    'schema-newer',
    `Schema ${schema} is at version ${version}, this package knows ${newest}: a newer unbroker has migrated it`,
    { hint: 'Run: npm install unbroker@latest', exitStatus: EXIT.badInput },
  );
}

async function checkServer(db: Queryable): Promise<void> {
  const { rows } = await db.query(
    `select current_setting('server_version_num')::int as number, version() as text`,
  );
  const row = rows[0] as { number: number; text: string };
  if (row.number >= MIN_SERVER_VERSION && row.text.startsWith('PostgreSQL ')) return;
  throw new UnbrokerError('server-unsupported', 'The server is not PostgreSQL 13 or newer', {
    hint: 'Point DATABASE_URL at PostgreSQL 13 to 18; forks without the same SKIP LOCKED semantics are refused.',
    exitStatus: EXIT.badInput,
  });
}

const bookkeeping = (s: string): string[] => [
  `create schema if not exists ${s}`,
  `create table if not exists ${s}.migrations (
  version    integer     primary key,
  name       text        not null,
  applied_at timestamptz not null default now()
)`,
  `create table if not exists ${s}.migration_lease (
  one        boolean     primary key default true check (one),
  holder     text        not null,
  expires_at timestamptz not null
)`,
];

async function createBookkeeping(db: Queryable, s: string): Promise<void> {
  const { rows } = await db.query(`select to_regclass('${s}.migration_lease') is not null as there`);
  if ((rows[0] as { there: boolean }).there) return;
  for (let tries = 1; ; tries += 1) {
    try {
      for (const statement of bookkeeping(s)) await db.query(statement);
      return;
    } catch (error) {
      // `if not exists` races: two runners may both find nothing and one then meets the other's row in a catalog.
      if (!['23505', '42P06', '42P07', '42710', 'XX000'].includes(codeOf(error)) || tries === 10) throw error;
      await sleep(POLL_MS * Math.random());
    }
  }
}

async function currentVersion(db: Queryable, s: string): Promise<number> {
  const there = await db.query(`select to_regclass('${s}.migrations') is not null as there`);
  if (!(there.rows[0] as { there: boolean }).there) return 0;
  const { rows } = await db.query(`select coalesce(max(version), 0) as version from ${s}.migrations`);
  return (rows[0] as { version: number }).version;
}

interface Turn {
  readonly holder: string;
  readonly leaseMs: number;
}

async function acquire(db: Queryable, s: string, turn: Turn, maxWaitMs: number): Promise<void> {
  const deadlineAt = performance.now() + maxWaitMs;
  for (;;) {
    const { rows } = await db.query(
      `insert into ${s}.migration_lease as l (holder, expires_at)
       values ($1, clock_timestamp() + $2 * interval '1 millisecond')
       on conflict (one) do update set holder = excluded.holder, expires_at = excluded.expires_at
       where l.expires_at < clock_timestamp()
       returning holder`,
      [turn.holder, turn.leaseMs],
    );
    if (rows.length === 1) return;
    if (performance.now() > deadlineAt) {
      throw new UnbrokerError('migrate-busy', 'Another migration of this schema is still running', {
        hint: 'Wait for it to end and run: unbroker migrate',
      });
    }
    await sleep(POLL_MS);
  }
}

async function renew(db: Queryable, s: string, turn: Turn): Promise<void> {
  const { rows } = await db.query(
    `update ${s}.migration_lease set expires_at = clock_timestamp() + $2 * interval '1 millisecond'
     where holder = $1 returning holder`,
    [turn.holder, turn.leaseMs],
  );
  if (rows.length === 1) return;
  throw new UnbrokerError('migrate-busy', 'This migration lost its lease to another runner', {
    hint: 'Run: unbroker migrate',
  });
}

/** Where, and under which role (quoted; null: the own). */
interface Place {
  readonly pool: MigratePool;
  readonly s: string;
  readonly owner: string | null;
}

async function applyWithRetry(place: Place, migration: Migration, maxTries: number): Promise<void> {
  let how = FIRST_TRY;
  for (let tries = 1; ; tries += 1) {
    try {
      await apply(place, migration, how);
      return;
    } catch (error) {
      if (!LOCK_STATES.includes(codeOf(error))) throw error;
      const vacuum = await autovacuumIn(place.pool, place.s).catch(() => null);
      const pause = pauseMs(how, Math.random());
      how = nextTry(how, vacuum);
      if (tries >= maxTries) {
        throw new UnbrokerError('migrate-locked', `Migration ${migration.name} could not get its lock`, {
          hint: lockHint(how),
          cause: error,
        });
      }
      await sleep(pause);
    }
  }
}

async function apply(
  { pool, s, owner }: Place,
  migration: Migration,
  { lockTimeoutMs }: LockTry,
): Promise<void> {
  const note = `insert into ${s}.migrations (version, name) values ($1, $2) on conflict do nothing`;
  const values = [migration.version, migration.name];
  const client = await pool.connect();
  // A connection that breaks between two answers says so by an event; unheard it would end the process.
  client.on?.('error', ignore);
  let broken = true;
  try {
    if (migration.transactional) {
      await client.query('begin');
      await client.query(`set local lock_timeout = '${lockTimeoutMs}ms'`);
      if (owner !== null) await client.query(`set local role ${owner}`);
      await client.query(render(migration.text, s));
      await client.query(note, values);
      await client.query('commit');
    } else {
      for (const statement of splitStatements(render(migration.text, s))) await client.query(statement);
      await client.query(note, values);
    }
    broken = false;
  } catch (error) {
    broken = !(await client.query('rollback').then(
      () => true,
      () => false,
    ));
    throw error;
  } finally {
    client.off?.('error', ignore);
    client.release(broken);
  }
}

const ignore = (): void => {};

/** Files marked `-- no transaction` hold plain statements, one per blank-line-separated paragraph. */
function splitStatements(text: string): string[] {
  return text
    .split(/;\s*\n/)
    .map((part) => part.replace(/^\s*--.*$/gm, '').trim())
    .filter((part) => part !== '');
}

function render(text: string, s: string): string {
  return text.replaceAll('{schema}', s);
}
