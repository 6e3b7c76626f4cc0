-- no transaction
-- Schedules: rows of jobs with a cron and a misfire policy. They are never claimed; each slot becomes a job of its own.

-- misfire, ends_at (no slot at or after it), slots_until (slots up to here are fired or dropped) and tz_version (the
-- tzdata that run_at was computed with) are for schedules only. Nullable and without a default: no table is rewritten,
-- the lock is held for an instant, and one that does not come in time is given up and tried again.
do $$ begin set local lock_timeout = '500ms'; alter table {schema}.jobs
  add column if not exists misfire text,
  add column if not exists ends_at timestamptz,
  add column if not exists slots_until timestamptz,
  add column if not exists tz_version text; end $$;

-- Not checked against the rows that are there: that would scan them, and the column is new.
do $$ begin set local lock_timeout = '500ms'; alter table {schema}.jobs
  drop constraint if exists jobs_schedule,
  add constraint jobs_schedule check (misfire is null or (
    misfire in ('skip', 'once', 'all') and cron is not null and length(cron) <= 500
    and time_zone is not null and length(time_zone) <= 64 and slots_until is not null
    and dedupe_key is not null and starts_with(dedupe_key, 'schedule:') and state in ('ready', 'done'))) not valid; end $$;

-- fire: schedules by their next slot.
drop index concurrently if exists {schema}.jobs_due;

create index concurrently jobs_due on {schema}.jobs (run_at, id)
  where misfire is not null and state = 'ready' and not paused;

-- schedule: one row per name, and listed by it.
drop index concurrently if exists {schema}.jobs_schedule_name;

create unique index concurrently jobs_schedule_name on {schema}.jobs (dedupe_key) where misfire is not null;

-- history: the jobs that a schedule fired. Only they pay for it.
drop index concurrently if exists {schema}.jobs_fired;

create index concurrently jobs_fired on {schema}.jobs (source, id) where cron is null and starts_with(source, 'schedule:');
