/**
 * Every statement on the schedules, which are rows of the jobs table that are never claimed: in the form of statements.ts.
 * schedule-store.ts is the only file that runs these.
 */
import { quoteSchema } from './schema-name.js';
import { exact, jobColumns, wakes } from './statements.js';
import { epochMs } from './times.js';

const scheduleColumns = `
    j.id::text, substr(j.dedupe_key, 10) as name, j.kind, j.payload::text as "payloadText", j.priority,
    j.max_attempts as "maxAttempts", j.headers, j.retry_policy as "retryPolicy", j.source, j.cron,
    j.time_zone as "timeZone", j.misfire, j.paused, ${epochMs(`case when j.state = 'ready' then j.run_at end`)} as "nextRunAt",
    ${epochMs('j.ends_at')} as "endAt", ${epochMs('j.slots_until')} as "slotsUntil", ${epochMs('j.created_at')} as "createdAt"`;

/** The headers of a job that a schedule fires: its own, and which slot of which schedule this is. */
const slotHeaders = (at: string, more = ''): string => `
    case when jsonb_typeof(j.headers) = 'object' then j.headers else '{}' end || jsonb_build_object('schedule',
      jsonb_build_object('name', substr(j.dedupe_key, 10), 'at',
        to_char(${at} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')${more}))`;

export function createScheduleStatements(schema: string) {
  const jobs = `${quoteSchema(schema)}.jobs`;
  const wake = wakes(schema);
  return {
    /** What a schedule's door asks first: the database's clock, and how Postgres spells one of these zones. */
    clockAndZone: `
select date_part('epoch', clock_timestamp()) * 1000 as "nowMs",
       (select name from pg_timezone_names where lower(name) = any ($1::text[])
        order by array_position($1::text[], lower(name)) limit 1) as "timeZone"`,

    /** The database's clock alone. */
    clock: `
select date_part('epoch', clock_timestamp()) * 1000 as "nowMs"`,

    /**
     * A schedule by its name ($8), made or changed. $12 = its next slot, null when it has ended. The same rule put again
     * keeps the slot that is there, so that a deploy does not lose one that was missed; not when it lies before $17
     * (startAt), after $12 (it was put off) or was passed while paused. $16 = paused, null leaves it.
     */
    putSchedule: `
insert into ${jobs} as j (kind, payload, priority, max_attempts, headers, source, retry_policy, dedupe_key, cron, time_zone,
                          misfire, run_at, ends_at, slots_until, tz_version, paused, state, finished_at, ordering_key)
select $1, $2::jsonb, coalesce($3, 0), coalesce($4, 20), $5::jsonb, $6, $7::jsonb, $8, $9, $10, $11,
       coalesce($12, now()), $13::timestamptz, $14::timestamptz, $15, coalesce($16, false),
       case when $12::timestamptz is null then 'done' else 'ready' end, case when $12 is null then now() end, $18
from (select pg_advisory_xact_lock(hashtextextended($8, 0))) as turn
on conflict (dedupe_key) where misfire is not null do update
set kind = excluded.kind, payload = excluded.payload, body = null, content_type = null, priority = excluded.priority,
    max_attempts = excluded.max_attempts, headers = excluded.headers, source = excluded.source,
    ordering_key = excluded.ordering_key, retry_policy = excluded.retry_policy, cron = excluded.cron, time_zone = excluded.time_zone,
    misfire = excluded.misfire, ends_at = excluded.ends_at, paused = coalesce($16, j.paused),
    (run_at, slots_until, tz_version, state, finished_at) = (
      select slot.run_at, slot.slots_until, slot.tz_version, slot.state, slot.finished_at
      from (values
        (true, j.run_at, j.slots_until, j.tz_version, j.state, j.finished_at),
        (false, excluded.run_at, excluded.slots_until, excluded.tz_version, excluded.state, excluded.finished_at)
      ) as slot (kept, run_at, slots_until, tz_version, state, finished_at)
      where slot.kept = (
        j.state = 'ready' and j.cron = excluded.cron and j.time_zone = excluded.time_zone
        and j.run_at between coalesce($17::timestamptz, j.run_at) and excluded.run_at
        and not (j.paused and not coalesce($16, true)))
    )
returning (j.xmax = 0) as created,${scheduleColumns}`,

    /** One schedule. */
    findSchedule: `
select ${scheduleColumns}
from ${jobs} j
where j.misfire is not null and j.dedupe_key = $1`,

    /** Schedules by name, of one kind, one source prefix, after a name; at most $4. */
    listSchedules: `
select ${scheduleColumns}
from ${jobs} j
where j.misfire is not null
  and ($1::text is null or j.kind = $1)
  and ($2::text is null or starts_with(j.source, $2))
  and ($3::text is null or j.dedupe_key > $3)
order by j.dedupe_key
limit $4`,

    /** Removes a schedule. Jobs that it fired stay. */
    deleteSchedule: `
delete from ${jobs} where misfire is not null and dedupe_key = $1
returning id::text`,

    /** No slot fires until it is resumed. */
    pauseSchedule: `
update ${jobs} j
set paused = true
where j.misfire is not null and j.dedupe_key = $1
returning ${scheduleColumns}`,

    /** Goes on with the slot $4 (null = none is left); those before were passed while paused. Fenced by the rule. */
    resumeSchedule: `
update ${jobs} j
set paused = false, run_at = coalesce($4, j.run_at), slots_until = $5, tz_version = $6,
    state = case when $4::timestamptz is null then 'done' else 'ready' end,
    finished_at = case when $4 is null then coalesce(j.finished_at, now()) end
where j.misfire is not null and j.dedupe_key = $1 and j.paused and j.cron = $2 and j.time_zone = $3
returning ${scheduleColumns}`,

    /** A job of a schedule now, beside its slots. */
    triggerSchedule: `
insert into ${jobs} (kind, payload, body, content_type, priority, max_attempts, ordering_key, headers, source, retry_policy)
select j.kind, j.payload, j.body, j.content_type, j.priority, j.max_attempts, j.ordering_key,
       ${slotHeaders('now()', `, 'triggered', true`)}, j.dedupe_key, j.retry_policy
from ${jobs} j
where j.misfire is not null and j.dedupe_key = $1
returning id::text, ${wake()}`,

    /** Jobs that a schedule fired, newest first, below an id; at most $3. jobs_fired is made for it. */
    scheduleHistory: `
select ${jobColumns}
from ${jobs} j
where j.cron is null and starts_with(j.source, 'schedule:') and j.source = $1
  and ($2::bigint is null or j.id < $2)
order by j.id desc
limit $3`,

    /**
     * Up to $2 schedules whose slot has come or comes within a second, but not those of $3. $1 stands in for the clock in
     * tests.
     */
    dueSchedules: `
select j.id::text, j.cron, j.time_zone as "timeZone", j.misfire, ${exact('j.run_at')} as "runAtText",
       date_part('epoch', j.run_at) * 1000 as "runAtMs", date_part('epoch', j.ends_at) * 1000 as "endAtMs",
       date_part('epoch', coalesce($1::timestamptz, now())) * 1000 as "nowMs"
from ${jobs} j
where j.misfire is not null and j.finished_at is null and j.state = 'ready' and not j.paused
  and j.run_at <= coalesce($1::timestamptz, now()) + interval '1 second'
  and not (j.id = any ($3::bigint[]))
order by j.run_at, j.id
limit $2`,

    /**
     * THE FIRING. Moves schedules ($1) from the slot that was read ($2, and under the rule that was read, $3 and $4) to the
     * next one ($5, null = ended), and inserts the jobs of the slots between ($6 schedule, $7 time) in the same statement:
     * there is no moment between the two. Who comes second finds another run_at and inserts nothing; should a slot
     * come twice all the same (run_at set back by hand), its dedupe key is taken. A row that somebody holds is passed
     * by, so that a forgotten transaction stops one schedule and not all.
     */
    fireSchedules: `
with input as materialized (
  select * from unnest($1::bigint[], $2::timestamptz[], $3::text[], $4::text[], $5::timestamptz[])
    as input (id, run_at, cron, time_zone, next_at)
),
held as materialized (
  select j.id, input.run_at, input.next_at
  from input join ${jobs} j on j.id = input.id
  where j.run_at = input.run_at and j.cron = input.cron and j.time_zone = input.time_zone
    and j.misfire is not null and j.finished_at is null and j.state = 'ready' and not j.paused
  order by j.id
  for update of j skip locked
),
moved as (
  update ${jobs} j
  set run_at = coalesce(held.next_at, j.run_at), slots_until = $8, tz_version = $9,
      state = case when held.next_at is null then 'done' else 'ready' end,
      finished_at = case when held.next_at is null then clock_timestamp() end
  from held
  where j.id = held.id and j.run_at = held.run_at and j.state = 'ready' and not j.paused
  returning j.*
),
fired as (
  insert into ${jobs} (kind, payload, body, content_type, priority, run_at, max_attempts, dedupe_key, ordering_key,
                       headers, source, retry_policy)
  select j.kind, j.payload, j.body, j.content_type, j.priority, slot.at, j.max_attempts,
         'slot:' || j.id || ':' || to_char(slot.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), j.ordering_key,
         ${slotHeaders('slot.at')}, j.dedupe_key, j.retry_policy
  from moved j join unnest($6::bigint[], $7::timestamptz[]) as slot (id, at) on slot.id = j.id
  order by slot.at, j.id
  on conflict (kind, dedupe_key) where dedupe_key is not null do nothing
  returning id, source
)
select moved.id::text, substr(moved.dedupe_key, 10) as name, moved.kind, moved.state = 'done' as ended,
       array(select fired.id::text from fired where fired.source = moved.dedupe_key order by fired.id) as jobs,
       ${wake('exists (select from fired)')}
from moved order by moved.id`,

    /** Up to $2 schedules that were computed with an older tzdata than $1. */
    staleSchedules: `
select j.id::text, j.cron, j.time_zone as "timeZone", ${exact('j.run_at')} as "runAtText",
       date_part('epoch', j.slots_until) * 1000 as "slotsUntilMs"
from ${jobs} j
where j.misfire is not null and j.state = 'ready' and (j.tz_version is null or j.tz_version < $1)
  and not (j.id = any ($3::bigint[]))
order by j.dedupe_key
limit $2`,

    /** The same wall time under newer tzdata ($5), unless the schedule moved on meanwhile. */
    rebaseSchedules: `
update ${jobs} j
set run_at = input.next_at, tz_version = $5
from unnest($1::bigint[], $2::timestamptz[], $3::text[], $4::timestamptz[]) as input (id, run_at, cron, next_at)
where j.id = input.id and j.run_at = input.run_at and j.cron = input.cron and j.misfire is not null
  and j.state = 'ready'
returning j.id::text`,
  } as const;
}
