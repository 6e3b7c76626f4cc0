/**
 * Every statement that keeps the table in order, whoever put the jobs in, in the form of statements.ts: each bounded, each
 * blind to rows that somebody holds. upkeep-store.ts is the only file that runs these.
 */
import { quoteSchema } from './schema-name.js';
import { exact } from './statements.js';

export function createUpkeepStatements(schema: string) {
  const s = quoteSchema(schema);
  const jobs = `${s}.jobs`;
  return {
    /**
     * Refused as a missing function on a schema before 035_claim_open.sql: what a worker claimed there it could not put off, and
     * not end. What it calls of later ones has an older way.
     */
    reach: `
select '${schema}.claim_many'::regproc::text as newest`,

    /** Takes back up to $1 expired leases (migrations/031_claims.sql). */
    reap: `
select id, kind, state from ${s}.reap($1)`,

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
