-- A notification named nobody, so one job woke each worker that slept, and all of them claimed: ten workers at 90 jobs a second cost
-- the server half a core, and made each other wait. A worker says now which kinds it has handlers for, and an enqueue of one job names
-- two that sleep and have its kind, in turn by the job's id: `worker,worker kind` (twice the same where there is one). Two, since one
-- may be dead, stand still or be full just then; all others look by themselves as often as ever. Null: a worker that does not know of
-- this and wakes for an empty payload alone, so that all are told. In turn, since sorting at random cost each enqueue 20 us.
alter table {schema}.sleepers add column kinds text[];

-- As in 040_checked.sql, but for that.
create or replace function {schema}.enqueue_plain(kind text, payload text, priority integer, headers text)
returns text
language plpgsql
as $$
#variable_conflict use_variable
declare
  job bigint;
begin
  insert into {schema}.jobs as j (kind, payload, priority, headers, checked)
  values (kind, payload::jsonb, coalesce(priority, 0), headers::jsonb, payload is not null and length(kind) between 1 and 200)
  returning j.id into job;
  -- Only when somebody sleeps: see 006_sleepers.sql.
  if exists (select from {schema}.sleepers where sleeps_until > clock_timestamp()) then
    perform pg_notify(left('jobs:' || trim(both '"' from '{schema}'), 63), case
        when some_old then ''
        else w[1 + job % cardinality(w)] || ',' || w[1 + (job + cardinality(w) / 2) % cardinality(w)] || ' ' || kind end)
    from (
      select bool_or(s.kinds is null) as some_old, array_agg(s.worker) filter (where kind = any (s.kinds)) as w
      from {schema}.sleepers s where s.sleeps_until > clock_timestamp()
    ) as asleep
    where some_old or w is not null;
  end if;
  return job::text;
end
$$;

-- As in 046_checked_one.sql, but for that.
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
    if exists (select from {schema}.sleepers where sleeps_until > clock_timestamp()) then
      perform pg_notify(left('jobs:' || trim(both '"' from '{schema}'), 63), case
          when some_old then ''
          else w[1 + job % cardinality(w)] || ',' || w[1 + (job + cardinality(w) / 2) % cardinality(w)] || ' ' || kind end)
      from (
        select bool_or(s.kinds is null) as some_old, array_agg(s.worker) filter (where kind = any (s.kinds)) as w
        from {schema}.sleepers s where s.sleeps_until > clock_timestamp()
      ) as asleep
      where some_old or w is not null;
    end if;
  end if;
  return job::text;
end
$$;

-- The same.
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
    if exists (select from {schema}.sleepers where sleeps_until > clock_timestamp()) then
      perform pg_notify(left('jobs:' || trim(both '"' from '{schema}'), 63), case
          when some_old then ''
          else w[1 + job % cardinality(w)] || ',' || w[1 + (job + cardinality(w) / 2) % cardinality(w)] || ' ' || kind end)
      from (
        select bool_or(s.kinds is null) as some_old, array_agg(s.worker) filter (where kind = any (s.kinds)) as w
        from {schema}.sleepers s where s.sleeps_until > clock_timestamp()
      ) as asleep
      where some_old or w is not null;
    end if;
  end if;
  return job::text;
end
$$;
