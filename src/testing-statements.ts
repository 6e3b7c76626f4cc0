/**
 * The statements of `unbroker/testing`, run by testing.ts alone, in the transaction of somebody's test and through whatever library
 * that uses. `s` is the schema, quoted.
 */
import { claimedColumns } from './jobs/claimed.js';
import { epochMs } from './jobs/times.js';

/**
 * JSON on its way through the caller's library, of which some rename the keys of what they read, and parse each text that looks
 * like JSON (Kysely's CamelCasePlugin and ParseJSONResultsPlugin): as a text that does not look like it.
 */
const sent = (column: string): string => `'=' || ${column}::text`;

/**
 * As a claim does it, for one row: $3 the id, or else the next of the kinds $1 that is due until $4 (epoch ms). Where the time
 * is given ($5, what it is by now), what comes due earlier goes before what is more urgent: a worker would have started it.
 */
export const takeText = (s: string): string => `
with candidate as materialized (
  select j.id
  from ${s}.jobs j
  where j.state = 'ready' and j.cron is null and j.kind = any ($1::text[])
    and case when $3::bigint is null then j.run_at <= coalesce(to_timestamp($4::float8 / 1000), clock_timestamp()) else j.id = $3 end
  order by greatest(j.run_at, coalesce(to_timestamp($5::float8 / 1000), 'infinity')), j.priority desc, j.run_at, j.id
  limit 1
  for update skip locked
), taken as (
  update ${s}.jobs j
  set state = 'running', attempts = j.attempts + 1, lease_token = nextval('${s}.lease_tokens'), locked_by = 'test',
      locked_until = clock_timestamp() + $2 * interval '1 millisecond'
  from candidate c
  where j.id = c.id
  returning j.*
), noted as (
  insert into ${s}.claims (token, ends_at, remaining, ids)
  select lease_token, locked_until, 1, array[id] from taken
)
select id, ${sent('"payloadText"')} as "payloadText", body, numbers, ${sent('rest')} as rest
from (
  select ${claimedColumns('$1::text[]')}
  from (
    select id, kind, payload::text as payload, body, content_type, attempts, max_attempts, lease_token, priority, run_at,
           created_at, headers, progress, dedupe_key, source, retry_policy, ordering_key
    from taken
  ) as claimed
) as job`;

/** A retry or a snooze counts from the given time, not from the database's clock. */
export const putOffText = (s: string): string =>
  `update ${s}.jobs set run_at = to_timestamp($2::float8 / 1000) where id = $1 and state = 'ready'`;

/**
 * Rows that are visible although the transaction that wrote them is in progress are this one's own, savepoints included.
 * xmin has 32 bits: the rest is that of the current transaction, or one less.
 */
export const enqueuedText = (s: string): string => `
with clock as (select txid_current() as now), mine as (
  select j.*, (clock.now >> 32 << 32) + j.xmin::text::bigint as low, clock.now
  from ${s}.jobs j, clock
  where j.cron is null and j.state = 'ready' and ($1::text is null or j.kind = $1)
)
select id::text, kind, ${sent('payload')} as payload, priority, ${epochMs('run_at')} as "runAt", max_attempts as "maxAttempts",
       dedupe_key as "dedupeKey", ordering_key as "orderingKey", ${sent('headers')} as headers, source
from mine
where created_at >= now() and attempts = 0
  and txid_status(case when low > now + 1000000 then low - (1::bigint << 32) else low end) = 'in progress'
order by mine.id
limit 1000`;
