/**
 * Every statement that keeps the table in order, whoever put the jobs in, in the form of statements.ts: each bounded, each
 * blind to rows that somebody holds. upkeep-store.ts is the only file that runs these.
 */
import { quoteSchema } from './schema-name.js';
import { appendError, exact, failure, lease } from './statements.js';

export function createUpkeepStatements(schema: string) {
  const jobs = `${quoteSchema(schema)}.jobs`;
  return {
    /**
     * Takes back up to $1 expired leases: ready again (alone next time), or dead when attempts are used up or the kind
     * parks. One statement with row locks, ordered, blind to which kinds anybody registered; the outer update repeats
     * both tests, so a job that finished or extended meanwhile is left as it is.
     */
    reap: `
with expired as materialized (
  select id, attempts >= max_attempts as spent, on_lease_expired is not null as parked
  from ${jobs}
  where state = 'running' and locked_until < clock_timestamp()
  order by id
  for update skip locked
  limit $1
)
update ${jobs} j
set state = case when expired.spent or expired.parked then 'dead' else 'ready' end,
    finished_at = case when expired.spent or expired.parked then clock_timestamp() end,
    solo = not (expired.spent or expired.parked),
    ${lease},
    errors =${appendError(
      failure(
        `case when expired.parked then 'lease-expired-parked' else 'lease-expired' end`,
        `'the lease of ' || j.locked_by || ' ran out before it settled'`,
      ),
    )}
from expired
where j.id = expired.id and j.state = 'running' and j.locked_until < clock_timestamp()
returning j.id::text, j.kind, j.state`,

    /** Removes up to $2 finished rows older than $1 ms, oldest first. */
    prune: `
with old as materialized (
  select id from ${jobs}
  where finished_at < now() - $1 * interval '1 millisecond'
  order by finished_at
  for update skip locked
  limit $2
)
delete from ${jobs} j using old where j.id = old.id
returning j.id::text`,

    /** Up to $4 finished rows older than $1 ms, newest first, below the row $2 (its finished_at), $3 (its id). */
    finishedBelow: `
select j.id::text, j.kind, j.state, ${exact('j.finished_at')} as "finishedAtText",
       date_part('epoch', now() - j.finished_at) * 1000 as "ageMs"
from ${jobs} j
where j.finished_at <= coalesce($2::timestamptz, now() - $1 * interval '1 millisecond')
  and ($2::timestamptz is null or j.finished_at < $2 or j.id < $3::bigint)
order by j.finished_at desc, j.id desc
limit $4`,

    /** Removes these rows, unless one was retried and finished anew since $2. */
    removeFinished: `
with old as materialized (
  select id from ${jobs}
  where id = any ($1::bigint[]) and finished_at <= $2::timestamptz
  order by id
  for update skip locked
)
delete from ${jobs} j using old where j.id = old.id
returning j.id::text`,
  } as const;
}
