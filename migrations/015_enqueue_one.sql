-- One job without a dedupe key, as the library puts it in. A function because its plan is kept: a client behind a pooler may not
-- prepare its statement, and making the plan anew for each job was a third of what an enqueue cost the server (260 us, 167 so;
-- 120 for a prepared insert of kind and payload alone). JSON comes as text: some clients serialise a jsonb parameter
-- once more.
create function {schema}.enqueue_one(
  kind text, payload text, priority integer, run_at timestamptz, delay_ms double precision, max_attempts integer,
  headers text, source text, retry_policy text, ordering_key text)
returns text
language plpgsql
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_variable
declare
  job bigint;
begin
  insert into {schema}.jobs as j (kind, payload, priority, run_at, max_attempts, headers, source, retry_policy, ordering_key)
  values (kind, payload::jsonb, coalesce(priority, 0),
          coalesce(run_at, now() + delay_ms * interval '1 millisecond', now()), coalesce(max_attempts, 20),
          headers::jsonb, source, retry_policy::jsonb, ordering_key)
  returning j.id into job;
  if run_at is null and delay_ms is null then
    -- Only when somebody sleeps: see 006_sleepers.sql.
    perform pg_notify(left('jobs:' || trim(both '"' from '{schema}'), 63), '')
    from {schema}.sleepers where sleeps_until > clock_timestamp() limit 1;
  end if;
  return job::text;
end
$$;
