-- The claim, and an enqueue for callers in any language.
--
-- The claim is a function because its plan must be pinned without session state (PgBouncer in transaction mode): a
-- plan prepared on an empty, freshly vacuumed table is two sequential scans, and it stays; unknown limits raise the
-- estimate until JIT starts, which cost 187 ms a claim. So the function switches off, for itself alone, every plan
-- but "walk the index". test/db/claim-plan.test.ts starts from the empty table and reads the plan.

-- Takes up to `total` due jobs, at most limits[i] of kinds[i], and leases them to `worker` for `lease`.
-- Two steps each: lock the candidates (skip locked: nobody waits, no two workers get the same row), then update
-- those. `materialized` and the repeated state test are load-bearing: the bare "where id in (select ... limit n)" form
-- took 50 rows for a limit of 1 under some plans.
-- run_at <= now() is stable and bounds the index scan; clock_timestamp() there would only filter. What is written
-- uses clock_timestamp(), since now() is the start of a transaction that may have waited.
-- The token is drawn once for the rows of one update, by a subquery, so not at all when there are none: a fence compares
-- it together with the id, and one draw a row was 0.6 us of 10 a job.
create function {schema}.claim(
  kinds text[], limits integer[], parks boolean[], total integer, worker text, lease interval,
  floors bigint[] default '{}')
returns table (
  id bigint, kind text, payload text, body bytea, content_type text, attempts integer, max_attempts integer,
  lease_token bigint, priority smallint, run_at timestamptz, created_at timestamptz, headers jsonb, progress jsonb,
  dedupe_key text, source text, retry_policy jsonb)
language plpgsql
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_sort = off
set max_parallel_workers_per_gather = 0
as $$
#variable_conflict use_column
declare
  remaining integer := total;
  wanted integer;
  got integer;
  level smallint;          -- the priority that is claimed from
  floor_level smallint;    -- the next one of which a floor is known
  floor_at timestamptz;
  floor_id bigint;
begin
  for i in 1 .. cardinality(kinds) loop
    wanted := least(limits[i], remaining);
    exit when remaining <= 0;
    level := null;
    while wanted > 0 loop
      select j.priority, j.run_at, j.id into floor_level, floor_at, floor_id
      from {schema}.jobs j
      where j.id = any (floors) and j.kind = kinds[i] and j.state <> 'ready'
        and j.priority < coalesce(level::integer, 32768)
      order by j.priority desc
      limit 1;
      -- A loose index scan over the kind's priorities: never across them, or a million scheduled rows of a higher
      -- priority would be walked for each claim (61 ms; by level 2.3 ms).
      select j.priority into level
      from {schema}.jobs j
      where j.state = 'ready' and j.cron is null and not j.solo and j.kind = kinds[i]
        and j.priority < coalesce(level::integer, 32768) and j.priority > coalesce(floor_level::integer, -32769)
      order by j.priority desc
      limit 1;
      if level is not null or floor_level is null then
        floor_at := '-infinity';
        floor_id := 0;
      elsif floor_at > now() - interval '500 milliseconds' then
        floor_at := now() - interval '500 milliseconds';
        floor_id := 0;
      end if;
      level := coalesce(level, floor_level);
      exit when level is null;
      return query
      with candidates as materialized (
        select j.id
        from {schema}.jobs j
        where j.state = 'ready' and j.cron is null and not j.solo
          and j.kind = kinds[i] and j.priority = level and j.run_at <= now()
          and (j.run_at, j.id) > (floor_at, floor_id)
        order by j.run_at, j.id
        for update skip locked
        limit wanted
      )
      update {schema}.jobs j
      set state = 'running',
          attempts = j.attempts + 1,
          lease_token = (select nextval('{schema}.lease_tokens')),
          locked_until = clock_timestamp() + lease,
          locked_by = worker,
          on_lease_expired = case when parks[i] then 'park' end
      from candidates c
      where j.id = c.id and j.state = 'ready'
      returning j.id, j.kind, j.payload::text, j.body, j.content_type, j.attempts, j.max_attempts, j.lease_token,
                j.priority, j.run_at, j.created_at, j.headers, j.progress, j.dedupe_key, j.source, j.retry_policy;
      get diagnostics got = row_count;
      wanted := wanted - got;
      remaining := remaining - got;
    end loop;
  end loop;
end
$$;

-- Takes one job whose last lease expired. A worker calls it only while it runs nothing else, so that a job which
-- kills its process disturbs nobody twice.
create function {schema}.claim_solo(kinds text[], parks boolean[], worker text, lease interval)
returns table (
  id bigint, kind text, payload text, body bytea, content_type text, attempts integer, max_attempts integer,
  lease_token bigint, priority smallint, run_at timestamptz, created_at timestamptz, headers jsonb, progress jsonb,
  dedupe_key text, source text, retry_policy jsonb)
language sql
set jit = off
as $$
  with candidate as materialized (
    select j.id
    from {schema}.jobs j
    where j.state = 'ready' and j.cron is null and j.solo and j.kind = any (kinds) and j.run_at <= now()
    order by j.run_at, j.id
    for update skip locked
    limit 1
  )
  update {schema}.jobs j
  set state = 'running',
      attempts = j.attempts + 1,
      lease_token = nextval('{schema}.lease_tokens'),
      locked_until = clock_timestamp() + lease,
      locked_by = worker,
      on_lease_expired = case when parks[array_position(kinds, j.kind)] then 'park' end
  from candidate c
  where j.id = c.id and j.state = 'ready'
  returning j.id, j.kind, j.payload::text, j.body, j.content_type, j.attempts, j.max_attempts, j.lease_token,
            j.priority, j.run_at, j.created_at, j.headers, j.progress, j.dedupe_key, j.source, j.retry_policy
$$;

-- select enqueue('notify.email', '{"to": "a@example.com"}', dedupe_key => 'receipt-17')
-- Returns the job's id; with a dedupe key that is already there, the first job's id.
create function {schema}.enqueue(
  kind text,
  payload jsonb default 'null',
  run_at timestamptz default now(),
  priority integer default 0,
  max_attempts integer default 20,
  dedupe_key text default null,
  headers jsonb default null,
  source text default null)
returns bigint
language plpgsql
as $$
#variable_conflict use_variable
declare
  job bigint;
begin
  insert into {schema}.jobs as j (kind, payload, run_at, priority, max_attempts, dedupe_key, headers, source)
  values (kind, payload, run_at, priority, max_attempts, dedupe_key, headers, source)
  on conflict do nothing
  returning j.id into job;
  if job is null then
    -- A new statement, hence a new snapshot: it sees the row that won.
    select j.id into job from {schema}.jobs j where j.kind = enqueue.kind and j.dedupe_key = enqueue.dedupe_key;
  end if;
  return job;
end
$$;

-- Text that this server takes as jsonb, or null. A drain asks it row by row only after a batch was refused, since
-- each call costs a subtransaction; Postgres 16 has pg_input_is_valid, 13 to 15 have not.
create function {schema}.jsonb_or_null(input text)
returns jsonb
language plpgsql
immutable
as $$
begin
  return input::jsonb;
exception when others then
  return null;
end
$$;
