-- no transaction
-- Indexes that a claim leaves alone. An update stays within its page and writes no index at all (heap-only) when no column that
-- it changes stands in any index of the table, as a key, in an expression or in a condition. So none says state, attempts,
-- lease_token, locked_until, locked_by or on_lease_expired any more: a job that runs stays in the index of those that are to be
-- claimed until it has ended, and claims step over it. 14 us of server CPU a job, claimed and ended a thousand at a time, became
-- 10; beside an open snapshot 19 became 10.5. The claims change over in the next migration, the old indexes go in the one after.

-- Set on dead rows, by whoever makes them so; job_must_fit sees to it. For the index only: state says what a row is.
do $$ begin set local lock_timeout = '500ms'; alter table {schema}.jobs add column if not exists dead boolean; end $$;

-- Those that die from here to the next migration are marked once more at the end.
select {schema}.mark_dead();

-- claim: a kind's jobs that have not ended, level by level of priority, oldest due first.
drop index concurrently if exists {schema}.jobs_open;

create index concurrently jobs_open on {schema}.jobs (kind, priority desc, run_at, id)
  where finished_at is null and cron is null and not solo and ordering_key is null;

-- claim_solo: rows whose last lease expired. Nearly always empty.
drop index concurrently if exists {schema}.jobs_alone;

create index concurrently jobs_alone on {schema}.jobs (kind, run_at, id)
  where finished_at is null and cron is null and solo;

-- list: what an operator looks for.
drop index concurrently if exists {schema}.jobs_died;

create index concurrently jobs_died on {schema}.jobs (kind, id) where dead;

-- schedule: firing.
drop index concurrently if exists {schema}.jobs_schedule_due;

create index concurrently jobs_schedule_due on {schema}.jobs (run_at, id)
  where misfire is not null and finished_at is null and not paused;
