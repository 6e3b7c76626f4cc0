-- What 040_checked.sql left out: one job with options (enqueue_one) or with a dedupe key (enqueue_once), as a client that may not
-- prepare puts it in, says `checked`, too: 316 us of server CPU a job become 298, 280 become 263 (with a dedupe key). An ordering key is
-- left to the trigger, as with enqueue_many.

-- As in 015_enqueue_one.sql, but for that.
create or replace function {schema}.enqueue_one(
  kind text, payload text, priority integer, run_at timestamptz, delay_ms double precision, max_attempts integer,
  headers text, source text, retry_policy text, ordering_key text)
returns text
language plpgsql
as $$
#variable_conflict use_variable
declare
  job bigint;
begin
  insert into {schema}.jobs as j (
    kind, payload, priority, run_at, max_attempts, headers, source, retry_policy, ordering_key, checked)
  values (kind, payload::jsonb, coalesce(priority, 0),
          coalesce(run_at, now() + delay_ms * interval '1 millisecond', now()), coalesce(max_attempts, 20),
          headers::jsonb, source, retry_policy::jsonb, ordering_key,
          payload is not null and length(kind) between 1 and 200 and coalesce(max_attempts, 20) between 1 and 1000
            and ordering_key is null)
  returning j.id into job;
  if run_at is null and delay_ms is null then
    -- Only when somebody sleeps: see 006_sleepers.sql.
    perform pg_notify(left('jobs:' || trim(both '"' from '{schema}'), 63), '')
    from {schema}.sleepers where sleeps_until > clock_timestamp() limit 1;
  end if;
  return job::text;
end
$$;

-- As in 023_enqueue_once.sql, but for that.
create or replace function {schema}.enqueue_once(
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
    kind, payload, priority, run_at, max_attempts, headers, source, retry_policy, ordering_key, dedupe_key, checked)
  values (kind, payload::jsonb, coalesce(priority, 0),
          coalesce(run_at, now() + delay_ms * interval '1 millisecond', now()), coalesce(max_attempts, 20),
          headers::jsonb, source, retry_policy::jsonb, ordering_key, key,
          payload is not null and length(kind) between 1 and 200 and coalesce(max_attempts, 20) between 1 and 1000
            and ordering_key is null and length(key) between 1 and 500)
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
