/**
 * How much waits and how much runs, by kind, for whoever watches: the doctor and the metrics. Every statement here reads
 * a bounded number of index entries, however large the table is and whatever the statistics say of it: each inner
 * select carries the order of the index that it is meant for, so that the alternative is to sort the whole table.
 * Counts stop at a cap and say so. It refuses to know what is too much.
 */
import type { Queryable } from './job.js';
import { quoteSchema } from './schema-name.js';
import { agoMs } from './times.js';

/** A kind with ready jobs, due or not. */
export interface KindBacklog {
  readonly kind: string;
  /** Ready and due, counted up to the cap. */
  readonly due: number;
  /** There are more than `due`. */
  readonly capped: boolean;
  /** How long the oldest of them has been due; null when none is. */
  readonly oldestDueMs: number | null;
}

/** A kind with running jobs. */
export interface KindLeases {
  readonly kind: string;
  readonly running: number;
  /** Of these: leases that have ended and were not taken back. */
  readonly expired: number;
  /** How long ago the first of those ended; null when there is none. */
  readonly oldestExpiredMs: number | null;
}

export interface BacklogLimits {
  /** Levels (a kind with a priority) looked at, in the order of kinds. Default 200. */
  readonly maxLevels?: number;
  /** Due rows counted in each. Default 1,000. */
  readonly maxDue?: number;
  /** Running rows looked at. Default 10,000. */
  readonly maxRunning?: number;
}

export const BACKLOG_LIMITS = { maxLevels: 200, maxDue: 1_000, maxRunning: 10_000 } as const;

export interface Backlog {
  backlog(db: Queryable, limits?: BacklogLimits): Promise<KindBacklog[]>;
  leases(db: Queryable, limits?: BacklogLimits): Promise<KindLeases[]>;
}

export function createBacklog(schema: string): Backlog {
  const sql = createBacklogStatements(schema);
  return {
    async backlog(db, limits = {}) {
      const { maxLevels, maxDue } = { ...BACKLOG_LIMITS, ...limits };
      const ask = async (text: string) => (await db.query(text, [maxLevels, maxDue])).rows as KindBacklog[];
      return merged(await ask(sql.backlog), await ask(sql.backlogOrdered));
    },
    async leases(db, limits = {}) {
      const { maxRunning } = { ...BACKLOG_LIMITS, ...limits };
      return (await db.query(sql.leases, [maxRunning])).rows as KindLeases[];
    },
  };
}

/** A kind may have both: jobs without an ordering key, and jobs with one. */
function merged(plain: readonly KindBacklog[], ordered: readonly KindBacklog[]): KindBacklog[] {
  const kinds = new Map(plain.map((backlog) => [backlog.kind, backlog]));
  for (const more of ordered) {
    const { due, capped, oldestDueMs } = kinds.get(more.kind) ?? { due: 0, capped: false, oldestDueMs: null };
    const oldest = [oldestDueMs, more.oldestDueMs].filter((ms) => ms !== null);
    kinds.set(more.kind, {
      kind: more.kind,
      due: due + more.due,
      capped: capped || more.capped,
      oldestDueMs: oldest.length === 0 ? null : Math.max(...oldest),
    });
  }
  return [...kinds.values()].sort((a, b) => (a.kind < b.kind ? -1 : 1));
}

/** What the claim's indexes hold. Jobs that wait for their ordering key's turn are in neither. */
const plain = `j.state = 'ready' and j.finished_at is null and j.cron is null and not j.solo and j.ordering_key is null`;
const ordered = `j.state = 'ready' and j.finished_at is null and j.cron is null and not j.solo
      and j.ordering_key is not null and coalesce(j.turn, 'begun') in ('begun', 'holds')`;

export function createBacklogStatements(schema: string) {
  const s = quoteSchema(schema);
  const jobs = `${s}.jobs`;
  return {
    /**
     * Kinds with ready jobs: how many are due, how long the oldest has been. Two index entries find the next level (a
     * loose index scan), $1 levels at most; in each at most $2 + 1 due rows are counted.
     */
    backlog: backlogOf(jobs, plain),

    /** The same of jobs with an ordering key that may be the next of it. */
    backlogOrdered: backlogOf(jobs, ordered),

    /**
     * Running rows by kind, $1 rows at most, and those whose lease has ended: what the claims name, the oldest first; five
     * times as many names, since some have ended. One look a name: a join would be planned by statistics.
     */
    leases: `
select kind, count(*)::integer as running,
       (count(*) filter (where locked_until < clock_timestamp()))::integer as expired,
       max(${agoMs('locked_until', 'clock_timestamp()')})
         filter (where locked_until < clock_timestamp()) as "oldestExpiredMs"
from (
  select j.kind, j.locked_until
  from (
    select c.token, named.id
    from ${s}.claims c cross join lateral unnest(c.ids) as named (id)
    order by c.token
    limit $1::integer * 5
  ) as claimed cross join lateral (
    select j.kind, j.locked_until
    from ${jobs} j
    where j.id = claimed.id and j.state = 'running' and j.lease_token = claimed.token
    limit 1
  ) as j
  limit $1
) as leased
group by kind
order by kind`,
  } as const;
}

/** `waits`: the predicate of an index in the claim's order. */
function backlogOf(jobs: string, waits: string): string {
  return `
with recursive level (kind, priority, run_at, depth) as (
  (
    select j.kind, j.priority, j.run_at, 1
    from ${jobs} j
    where ${waits}
    order by j.kind, j.priority desc, j.run_at, j.id
    limit 1
  )
  union all
  select next.kind, next.priority, next.run_at, level.depth + 1
  from level cross join lateral (
    select found.kind, found.priority, found.run_at
    from (
      (
        select 1 as step, j.kind, j.priority, j.run_at
        from ${jobs} j
        where ${waits} and j.kind = level.kind and j.priority < level.priority
        order by j.priority desc, j.run_at, j.id
        limit 1
      )
      union all
      (
        select 2, j.kind, j.priority, j.run_at
        from ${jobs} j
        where ${waits} and j.kind > level.kind
        order by j.kind, j.priority desc, j.run_at, j.id
        limit 1
      )
    ) as found
    order by found.step
    limit 1
  ) as next
  where level.depth < $1
)
select level.kind, sum(least(counted.due, $2))::integer as due, bool_or(counted.due > $2) as capped,
       max(${agoMs('level.run_at')}) filter (where level.run_at <= now()) as "oldestDueMs"
from level cross join lateral (
  select count(*)::integer as due
  from (
    select
    from ${jobs} j
    where ${waits} and j.kind = level.kind and j.priority = level.priority and j.run_at <= now()
    order by j.run_at, j.id
    limit $2::integer + 1
  ) as rows
) as counted
group by level.kind
order by level.kind`;
}
