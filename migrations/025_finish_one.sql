-- A job that ends by itself, in a statement and a commit of its own: as finish(), for one. Of 300 us that it took the server 90
-- were the list's. A function although it is one update, because a plan is kept that was made while the table was empty: a scan
-- of all of it.
create function {schema}.finish_one(job bigint, token bigint, outcome text default null)
returns boolean
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
begin
  update {schema}.jobs j
  set state = 'done',
      finished_at = clock_timestamp(),
      result = coalesce(outcome::jsonb, j.result),
      locked_until = null,
      locked_by = null,
      lease_token = null,
      on_lease_expired = null
  where j.id = job and j.state = 'running' and j.lease_token = token;
  return found;
end
$$;
