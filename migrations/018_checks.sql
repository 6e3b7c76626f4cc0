-- The table's checks with fewer functions in them, and an enqueue of the plain job.
--
-- Postgres reads, plans and sets up every check anew for each statement that writes, whatever it writes: 41 us of the 59 that
-- an insert of one row takes inside the server, about one for each function or operator (tests for null are nearly free). A
-- call of one function with all the rules in it is set up in 3 us, but costs each row of a batch 2 more, three times in a
-- job's life. So: what every row has is checked in place, with as few operators as it takes; what few rows have
-- (ordering keys, failures, schedules) in one function that only those rows call. 41 became 21.
--
-- The lengths of source, content_type and locked_by are left to the doors, which hold them anyway.
-- Workers and callers of the version before go on: for them the rules are the same. Not validated: what these replace said
-- the same or more of the rows that are there, and a scan of a large table would bring nothing.

-- True, or the error. The whole row, so that the check which calls it is short.
create function {schema}.job_fits(job {schema}.jobs)
returns boolean
language plpgsql
immutable
parallel safe
as $$
declare
  broken text := case
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
  drop constraint jobs_lease,
  drop constraint jobs_finished,
  drop constraint jobs_on_lease_expired,
  drop constraint jobs_kind,
  drop constraint jobs_lengths,
  drop constraint jobs_errors,
  drop constraint jobs_schedule,
  -- A lease exactly while running, an end exactly in the final states.
  add constraint jobs_state check (
    case when lease_token is not null
      then state = 'running' and locked_until is not null and locked_by is not null and finished_at is null
      else locked_until is null and locked_by is null and on_lease_expired is null
        and case when finished_at is null then state = 'ready' else state = any ('{done,dead,cancelled}') end
    end) not valid,
  add constraint jobs_kind check (kind <> '' and length(kind) <= 200) not valid,
  -- An empty one is a caller's mistake that would swallow every later job.
  add constraint jobs_dedupe_key check (dedupe_key <> '' and length(dedupe_key) <= 500) not valid,
  add constraint jobs_rare check (
    coalesce(ordering_key, misfire) is null and errors is null or {schema}.job_fits(jobs)) not valid;

-- One job of which no more is said than this: most of them. What enqueue_one says of the plan that is kept and of JSON as text
-- holds here, too; without the other columns it is cheaper by 14 us of 95.
create function {schema}.enqueue_plain(kind text, payload text, priority integer, headers text)
returns text
language plpgsql
as $$
#variable_conflict use_variable
declare
  job bigint;
begin
  insert into {schema}.jobs as j (kind, payload, priority, headers)
  values (kind, payload::jsonb, coalesce(priority, 0), headers::jsonb)
  returning j.id into job;
  -- Only when somebody sleeps: see 006_sleepers.sql.
  perform pg_notify(left('jobs:' || trim(both '"' from '{schema}'), 63), '')
  from {schema}.sleepers where sleeps_until > clock_timestamp() limit 1;
  return job::text;
end
$$;
