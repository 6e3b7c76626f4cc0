-- The table's checks as one: what most rows look like is told in place, everything else by a function.
--
-- A check is kept as text. Postgres reads it anew for each statement that writes (14 ns a word of it, and half as much again
-- to plan and set it up), so what counts is how many words it has, not how clever they are. The six checks had 1,170
-- words, 23 us of the 42 that an insert of one row takes inside the server; this one has 730 and takes 14. It is enough, not exact:
-- whoever it does not vouch for is asked about in full by job_fits, which says which rule is broken, under the names
-- that these rules always had. That costs a row 1.2 us: rows with an ordering key or a failure, the dead and cancelled, jobs that
-- park, schedules, and those with a kind or key or number of attempts beyond 200.
--
-- All in the function would be set up in 3 us, but cost each row of a batch those 1.2, three times in a job's life.
-- Workers and callers of the version before go on: for them the rules are the same. Not validated, as in 018_checks.sql.

-- True, or the error. The whole row, so that the check which calls it is short.
create or replace function {schema}.job_fits(job {schema}.jobs)
returns boolean
language plpgsql
immutable
parallel safe
as $$
declare
  broken text := case
    -- A lease exactly while running, an end exactly in the final states.
    when not case when job.lease_token is not null
      then job.state = 'running' and job.locked_until is not null and job.locked_by is not null and job.finished_at is null
      else job.locked_until is null and job.locked_by is null and job.on_lease_expired is null
        and case when job.finished_at is null then job.state = 'ready' else job.state in ('done', 'dead', 'cancelled') end
      end then 'jobs_state'
    when not length(job.kind) between 1 and 200 then 'jobs_kind'
    -- An empty one is a caller's mistake that would swallow every later job.
    when not coalesce(length(job.dedupe_key) between 1 and 500, true) then 'jobs_dedupe_key'
    when not (job.attempts >= 0 and job.max_attempts between 1 and 1000) then 'jobs_attempts'
    when job.payload is null and job.body is null then 'jobs_input'
    when not coalesce(length(job.ordering_key) between 1 and 500, true) then 'jobs_ordering_key'
    -- The reaper appends to errors: one row with something else there would stop every sweep.
    when not coalesce(jsonb_typeof(job.errors) = 'array', true) then 'jobs_errors'
    when job.misfire is not null and not coalesce(
      job.misfire in ('skip', 'once', 'all') and length(job.cron) <= 500 and length(job.time_zone) <= 64
      and job.slots_until is not null and starts_with(job.dedupe_key, 'schedule:')
      and job.state in ('ready', 'done'), false) then 'jobs_schedule'
  end;
begin
  if broken is not null then
    raise exception using errcode = 'check_violation', schema = trim(both '"' from '{schema}'), table = 'jobs', constraint = broken,
      message = 'new row for relation "jobs" violates check constraint "' || broken || '"';
  end if;
  return true;
end
$$;

alter table {schema}.jobs
  drop constraint jobs_state,
  drop constraint jobs_kind,
  drop constraint jobs_dedupe_key,
  drop constraint jobs_attempts,
  drop constraint jobs_input,
  drop constraint jobs_rare,
  add constraint jobs_row check (
    -- The end counts four times, the parts of the lease once each, so that each number of nulls is one thing only: 7 is
    -- no lease and no end, 4 a whole lease and no end, 3 an end and no lease.
    state = ('[3:7]={done,running,null,null,ready}'::text[])[num_nulls(
      lease_token, locked_until, locked_by, finished_at, finished_at, finished_at, finished_at)]
    -- The bits of attempts and max_attempts together make a negative number if either is one.
    and '[1,200]'::int4range @> all (array[
      length(kind), length(coalesce(dedupe_key, kind)), max_attempts, attempts | max_attempts])
    and (payload is not null or body is not null)
    and coalesce(ordering_key, misfire, on_lease_expired) is null and errors is null
    or {schema}.job_fits(jobs)) not valid;
