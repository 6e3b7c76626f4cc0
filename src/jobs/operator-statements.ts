/**
 * Every statement of an operator, and of the doors' clients, in the form of statements.ts: look, list, count; retry, discard,
 * cancel, edit. An act is fenced by state: a running job is left to its worker. operator-store.ts is the only file that runs
 * these; acts on many at once, with their line in the audit, are operations.ts's.
 */
import { LIMITS } from './job.js';
import { quoteSchema } from './schema-name.js';
import { appendError, failure, jobColumns, wakes } from './statements.js';
import { epochMs } from './times.js';

/** A dead row of kind $1, whose last error is $2, whose source starts with $3, that died from $4 and before $5. */
const deadWhere = `j.dead and j.state = 'dead' and j.cron is null
  and ($1::text is null or j.kind = $1)
  and ($2::text is null or j.errors -> -1 ->> 'name' = $2)
  and ($3::text is null or starts_with(j.source, $3))
  and ($4::timestamptz is null or j.finished_at >= $4)
  and ($5::timestamptz is null or j.finished_at < $5)`;

/**
 * How a search ends: rows in any of the states $n, retried or not yet ($n+1), created before $n+2, below the id $n+4, the
 * newest $n+3 of them.
 */
const narrowed = (n: number): string => `
  and ($${n}::text[] is null or j.state = any ($${n}))
  and ($${n + 1}::boolean is null or (j.attempts > 0) = $${n + 1})
  and ($${n + 2}::timestamptz is null or j.created_at < $${n + 2})
  and ($${n + 4}::bigint is null or j.id < $${n + 4})
order by j.id desc
limit $${n + 3}`;

export function createOperatorStatements(schema: string) {
  const jobs = `${quoteSchema(schema)}.jobs`;
  const wake = wakes(schema);
  return {
    /** One row, for a person. */
    show: `
select ${jobColumns}
from ${jobs} j where j.id = $1`,

    /** A row by a key that a client or a message gave it. The kinds make the unique index usable. */
    showByDedupeKey: `
select ${jobColumns}
from ${jobs} j
where j.kind = any ($1::text[]) and j.dedupe_key = $2
order by j.id desc
limit 1`,

    /** Newest first: rows by state, kind and source prefix, below an id; at most $5. */
    list: `
select ${jobColumns}
from ${jobs} j
where j.cron is null
  and ($1::text is null or j.state = $1)
  and ($2::text is null or j.kind = $2)
  and ($3::text is null or starts_with(j.source, $3))
  and ($4::bigint is null or j.id < $4)
order by j.id desc
limit $5`,

    /** Rows by kind and state. Counts the whole table: for an operator's question, never for a scrape. */
    stats: `
select kind, state, count(*)::int as count, ${epochMs(`min(run_at) filter (where state = 'ready')`)} as "oldestRunAt"
from ${jobs} where cron is null
group by kind, state order by kind, state`,

    /** Newest first: what an HTTP client lists. Prefixes of kind and source, or one whole source. */
    search: `
select ${jobColumns}
from ${jobs} j
where j.cron is null
  and ($1::text is null or starts_with(j.kind, $1))
  and ($2::text is null or starts_with(j.source, $2))
  and ($3::text is null or j.source = $3)${narrowed(4)}`,

    /** The same for one `reference` in the payload of notifications; jobs_reference is made for it. */
    searchReference: `
select ${jobColumns}
from ${jobs} j
where j.kind like 'notify.%' and j.payload ? 'reference' and j.payload ->> 'reference' = $1
  and j.cron is null${narrowed(2)}`,

    /** The same for one tag of notifications; jobs_tags is made for it. */
    searchTag: `
select ${jobColumns}
from ${jobs} j
where j.kind like 'notify.%' and j.payload ? 'tags' and j.payload -> 'tags' ? $1
  and j.cron is null${narrowed(2)}`,

    /** Dead rows by kind, last error, source prefix and time, below an id; at most $7. */
    searchDead: `
select ${jobColumns}
from ${jobs} j
where ${deadWhere} and ($6::bigint is null or j.id < $6)
order by j.id desc
limit $7`,

    /** How many there are, counted up to $7. */
    countDeadWhere: `
select count(*)::int as count
from (select from ${jobs} j where ${deadWhere} and ($6::bigint is null or j.id < $6) limit $7) as dead`,

    /** Dead rows by kind and last error, the largest group first; looks at the newest $7. */
    deadGroups: `
select j.kind, j.errors -> -1 ->> 'name' as error, count(*)::int as count, ${epochMs('min(j.finished_at)')} as "firstAt",
       ${epochMs('max(j.finished_at)')} as "lastAt", max(j.id)::text as "sampleId"
from (select j.kind, j.errors, j.finished_at, j.id from ${jobs} j
      where ${deadWhere} and ($6::bigint is null or j.id < $6) order by j.id desc limit $7) as j
group by 1, 2
order by 3 desc, 1, 2
limit 200`,

    /** How many rows are dead, counted up to $1. */
    countDead: `
select count(*)::int as count
from (select from ${jobs} where dead and state = 'dead' and cron is null limit $1) as dead`,

    /** How many rows of a kind are ready, counted up to $2. Each part is what an index holds: together they are a scan. */
    countReady: `
select count(*)::int as count
from (
  (select from ${jobs}
   where finished_at is null and cron is null and not solo and ordering_key is null and kind = $1 and state = 'ready'
   limit $2)
  union all
  (select from ${jobs}
   where ordering_key is not null and cron is null and (finished_at is null or turn = 'stops') and kind = $1 and not solo
     and state = 'ready'
   limit $2)
  union all
  (select from ${jobs} where finished_at is null and cron is null and solo and kind = $1 and state = 'ready' limit $2)
  limit $2
) as ready`,

    /** One row, held until the transaction ends. */
    holdJob: `
select ${jobColumns}
from ${jobs} j where j.id = $1 and j.cron is null
for update`,

    /** What is not null replaces what is there; not while it runs. */
    editJob: `
update ${jobs} j
set kind = coalesce($2, j.kind), payload = coalesce($3::text::jsonb, j.payload),
    body = case when $3 is null then j.body end, content_type = case when $3 is null then j.content_type end,
    headers = coalesce($4::text::jsonb, j.headers),
    run_at = coalesce($5, now() + $6 * interval '1 millisecond', j.run_at),
    max_attempts = coalesce($7, j.max_attempts), retry_policy = coalesce($8::text::jsonb, j.retry_policy)
where j.id = $1 and j.state in ('ready', 'dead') and j.cron is null
returning j.id::text`,

    /**
     * dead or cancelled -> ready, now, with at least $2 more starts allowed. An operator's act, fenced by state. Who retries
     * vouches for an effect that was begun and never confirmed: `unconfirmed` leaves the progress.
     */
    operatorRetry: `
update ${jobs} j
set state = 'ready', run_at = now(), finished_at = null, solo = false, dead = null,
    progress = case when jsonb_typeof(j.progress) = 'object' then j.progress - 'unconfirmed' else j.progress end,
    max_attempts = least(greatest(j.max_attempts, j.attempts + $2), ${LIMITS.maxAttempts})
where j.id = any ($1::bigint[]) and j.state in ('dead', 'cancelled') and j.attempts < ${LIMITS.maxAttempts}
returning j.id::text, ${wake()}`,

    /** ready -> dead, by an operator. */
    operatorDiscard: `
update ${jobs} j
set state = 'dead', finished_at = clock_timestamp(), dead = true,
    errors =${appendError(failure(`'discarded'`, `'discarded by an operator'`))}
where j.id = any ($1::bigint[]) and j.state = 'ready' and j.cron is null
returning j.id::text`,

    /** ready -> cancelled: it will not run. A running job is left to its worker. */
    cancel: `
update ${jobs} j
set state = 'cancelled', finished_at = clock_timestamp()
where j.id = any ($1::bigint[]) and j.state = 'ready' and j.cron is null
returning j.id::text`,

    /** dead -> cancelled: looked at and put aside; no longer listed as dead. */
    dismiss: `
update ${jobs} j
set state = 'cancelled', finished_at = clock_timestamp(), dead = null
where j.id = any ($1::bigint[]) and j.state = 'dead' and j.cron is null
returning j.id::text`,

    /** ready -> ready, due now. */
    runNow: `
update ${jobs} j
set run_at = now()
where j.id = any ($1::bigint[]) and j.state = 'ready' and j.cron is null
returning j.id::text, ${wake()}`,
  } as const;
}
