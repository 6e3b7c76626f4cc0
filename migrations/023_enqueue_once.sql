-- One job with a dedupe key through a function, as one without (015_enqueue_one.sql): 148 us of server CPU instead of 240, since
-- the plan of an insert that may conflict was made anew for each.

-- Its id; null when the kind has the key already.
create function {schema}.enqueue_once(
  kind text, payload text, priority integer, run_at timestamptz, delay_ms double precision, max_attempts integer,
  headers text, source text, retry_policy text, ordering_key text, key text)
returns text
language plpgsql
as $$
#variable_conflict use_column
declare
  job bigint;
begin
  insert into {schema}.jobs as j (
    kind, payload, priority, run_at, max_attempts, headers, source, retry_policy, ordering_key, dedupe_key)
  values (kind, payload::jsonb, coalesce(priority, 0),
          coalesce(run_at, now() + delay_ms * interval '1 millisecond', now()), coalesce(max_attempts, 20),
          headers::jsonb, source, retry_policy::jsonb, ordering_key, key)
  on conflict (kind, dedupe_key) where dedupe_key is not null do nothing
  returning j.id into job;
  if job is not null and run_at is null and delay_ms is null then
    -- Only when somebody sleeps: see 006_sleepers.sql.
    perform pg_notify(left('jobs:' || trim(both '"' from '{schema}'), 63), '')
    from {schema}.sleepers where sleeps_until > clock_timestamp() limit 1;
  end if;
  return job::text;
end
$$;

-- To set and to take back what pins a plan costs each call 6 us; left to itself the plan is kept from the sixth call on.
alter function {schema}.enqueue_one(
  text, text, integer, timestamptz, double precision, integer, text, text, text, text) reset plan_cache_mode;
