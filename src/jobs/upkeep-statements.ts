/**
 * Every statement that keeps the table in order, whoever put the jobs in, in the form of statements.ts: each bounded, each
 * blind to rows that somebody holds. upkeep-store.ts is the only file that runs these.
 */
import { quoteSchema } from './schema-name.js';
import { exact } from './statements.js';
import { agoMs } from './times.js';

export function createUpkeepStatements(schema: string) {
  const s = quoteSchema(schema);
  const jobs = `${s}.jobs`;
  const finished = `
select j.id::text, j.kind, j.state, coalesce(${exact('j.finished_at')}, j.finished_at::text) as "finishedAtText",
       ${agoMs('j.finished_at')} as "ageMs"
from ${jobs} j`.trim();
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

    /** Up to $4 finished rows older than $1 ms, newest first, below the row $2 (its finished_at), $3 (its id). */
    finishedBelow: `
${finished}
where j.finished_at <= coalesce($2::timestamptz, now() - $1 * interval '1 millisecond')
  and ($2::timestamptz is null or j.finished_at < $2 or j.id < $3::bigint)
order by j.finished_at desc, j.id desc
limit $4`,

    /** The same, oldest first, above that row. */
    finishedAbove: `
${finished}
where j.finished_at < now() - $1 * interval '1 millisecond'
  and j.finished_at >= $2::timestamptz and (j.finished_at > $2 or j.id > $3::bigint)
order by j.finished_at, j.id
limit $4`,

    /** Removes of the rows $1 those that finished at $2, whichever of them may go (migrations/045_remove_finished.sql). */
    removeFinished: `
select gone, refused from ${s}.remove_finished($1, $2::timestamptz[])`,

    /** The same before that: all or none. */
    removeAll: `
with old as materialized (
  select j.id
  from ${jobs} j
  where j.id = any ($1::bigint[]) and j.finished_at = ($2::timestamptz[])[array_position($1::bigint[], j.id)]
  order by j.id
  for update skip locked
), gone as (
  delete from ${jobs} j where j.id = any (array(select old.id from old))
  returning j.id
)
select count(*)::int as gone, 0 as refused from gone`,
  } as const;
}
