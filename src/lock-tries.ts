/**
 * How long a migration waits for its lock. A person's transaction is waited for shortly, again and again; an autovacuum, which
 * may run for hours, gives way only to whoever has waited for `deadlock_timeout`, and one against wraparound gives way to
 * nobody. It asks the server who holds a lock and decides; it takes none.
 */
import type { Queryable } from './jobs/job.js';

/**
 * Whoever comes after a statement that waits for its lock waits too. So a try gives up soon, and lets traffic pass for longer
 * than it held it up before the next.
 */
const LOCK_TIMEOUT_MS = 500;
const LOCK_PAUSE_MS = 1_000;
/** A server on which deadlocks are looked for later than that keeps its autovacuum: traffic would stand still for too long. */
const MAX_DEADLOCK_TIMEOUT_MS = 10_000;

/** One that holds a lock on a table of the schema. */
export interface Autovacuum {
  readonly pid: number;
  /** With its schema. */
  readonly table: string;
  /** True only where this role may see what others do. */
  readonly againstWraparound: boolean;
  /** Of this session. */
  readonly deadlockTimeoutMs: number;
}

export interface LockTry {
  readonly lockTimeoutMs: number;
  /** What probably is in the way. */
  readonly vacuum?: Autovacuum;
  /** It does not give way. */
  readonly stays?: boolean;
}

export const FIRST_TRY: LockTry = { lockTimeoutMs: LOCK_TIMEOUT_MS };

/** After `last` failed, with `vacuum` holding a lock then. */
export function nextTry(last: LockTry, vacuum: Autovacuum | null): LockTry {
  if (vacuum === null) return FIRST_TRY;
  const longEnoughMs = Math.min(vacuum.deadlockTimeoutMs, MAX_DEADLOCK_TIMEOUT_MS) + LOCK_TIMEOUT_MS;
  // Who may not see what it does sees that it stayed.
  const stayed =
    last.vacuum?.pid === vacuum.pid && (last.stays === true || last.lockTimeoutMs >= longEnoughMs);
  const stays = vacuum.againstWraparound || stayed;
  return { lockTimeoutMs: stays ? LOCK_TIMEOUT_MS : longEnoughMs, vacuum, stays };
}

/** Until the next try. `random`: 0 to 1. */
export function pauseMs({ lockTimeoutMs }: LockTry, random: number): number {
  return Math.max(LOCK_PAUSE_MS, lockTimeoutMs) * (1 + random);
}

/** What to do when none of the tries got the lock. */
export function lockHint({ vacuum, stays }: LockTry): string {
  if (vacuum === undefined || !stays)
    return 'Find the transaction that holds it (select * from pg_stat_activity where xact_start is not null order by xact_start), end it, and run: unbroker migrate';
  return `The autovacuum of ${vacuum.table} (pid ${vacuum.pid}) does not give way, as one that prevents wraparound: let it end (select * from pg_stat_progress_vacuum), and run: unbroker migrate`;
}

/** `schema` quoted. Nobody but autovacuum works without a user; what kind of backend it is, only privileged roles are told. */
export async function autovacuumIn(db: Queryable, schema: string): Promise<Autovacuum | null> {
  const { rows } = await db.query(
    `select l.pid, format('%s.%s', n.nspname, c.relname) as table,
            coalesce(a.query like '%(to prevent wraparound)', false) as "againstWraparound",
            (select setting::float8 from pg_settings where name = 'deadlock_timeout') as "deadlockTimeoutMs"
     from pg_locks l
     join pg_class c on c.oid = l.relation
     join pg_namespace n on n.oid = c.relnamespace
     join pg_stat_activity a on a.pid = l.pid
     where l.locktype = 'relation' and l.granted and l.mode = 'ShareUpdateExclusiveLock'
       and l.database = (select d.oid from pg_database d where d.datname = current_database())
       and n.oid = to_regnamespace($1) and a.usesysid is null
     order by "againstWraparound" desc, l.pid
     limit 1`,
    [schema],
  );
  return (rows[0] as Autovacuum | undefined) ?? null;
}
