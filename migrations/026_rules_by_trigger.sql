-- The table's rules are asked by triggers: a check constraint is text that Postgres reads, plans and sets up anew for each
-- statement that writes, 14 us of the 36 that an insert of one row took inside the server. A trigger without a condition is
-- text to nobody, and the plan of its function is kept: 1.5 us, or 0.6 more than the check for each row of a batch.
--
-- After, not before: a trigger before an insert takes COPY from it to write many rows at once, one before an update
-- locks each row once more. An update asks only what its columns can break: what a worker changes is told by a condition of
-- few words, since here it is text again, but a claim and an end are mostly of many.
--
-- The rules and their names are those of job_fits (021_one_check.sql). Workers and callers of the version before go on.

-- What most new rows look like is told in place, everything else by job_fits, which raises.
create function {schema}.job_must_fit()
returns trigger
language plpgsql
as $$
begin
  if (new.state = 'ready' and new.lease_token is null and new.locked_until is null and new.locked_by is null
      and new.finished_at is null and new.on_lease_expired is null
      and new.kind <> '' and octet_length(new.kind) <= 200
      and (new.dedupe_key is null or octet_length(new.dedupe_key) between 1 and 200)
      and new.attempts >= 0 and new.max_attempts between 1 and 1000
      and (new.payload is not null or new.body is not null)
      and new.ordering_key is null and new.errors is null and new.misfire is null) is not true
  then
    perform {schema}.job_fits(new);
  end if;
  return null;
end
$$;

alter table {schema}.jobs drop constraint jobs_row;

create trigger jobs_row_inserted after insert on {schema}.jobs
  for each row execute function {schema}.job_must_fit();

create trigger jobs_row_edited after update of
    kind, payload, body, max_attempts, dedupe_key, ordering_key, errors, cron, time_zone, misfire, slots_until
  on {schema}.jobs
  for each row execute function {schema}.job_must_fit();

-- The end counts four times, the parts of the lease once each, so that each number of nulls is one thing only: 7 is no lease and
-- no end, 4 a whole lease and no end, 3 an end and no lease. Who is dead, parks or is a schedule is asked about in full.
create trigger jobs_row_moved after update of
    state, attempts, lease_token, locked_until, locked_by, on_lease_expired, finished_at
  on {schema}.jobs
  for each row when (
    new.state is distinct from ('[3:7]={done,running,null,null,ready}'::text[])[num_nulls(
      new.lease_token, new.locked_until, new.locked_by,
      new.finished_at, new.finished_at, new.finished_at, new.finished_at)]
    or new.attempts < 0
    or coalesce(new.on_lease_expired, new.misfire) is not null)
  execute function {schema}.job_must_fit();
