-- What ended goes in and what is claimed comes out in one statement: one round trip and one commit for a worker that has
-- both to say. And a claim that costs less whatever it brings, see finish_and_claim. claim() stays for workers of the
-- version before.

-- running -> done, with the fence of every write of a worker (src/jobs/statements.ts); the ids that it changed, as one text.
-- ended is sorted; ended_tokens and results stand beside it; results is null when there are none. A function because its plan
-- is kept and pinned: to make it anew was 190 of the 1,030 us that the claim and the end of one job took the server.
create function {schema}.finish(ended bigint[], ended_tokens bigint[], results text[] default null)
returns text
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  answer text;
begin
  with completed as (
    update {schema}.jobs j
    set state = 'done',
        finished_at = clock_timestamp(),
        result = case when results is null then j.result else results[width_bucket(j.id, ended)]::jsonb end,
        locked_until = null,
        locked_by = null,
        lease_token = null,
        on_lease_expired = null
    where j.id = any (ended) and j.state = 'running' and j.lease_token = ended_tokens[width_bucket(j.id, ended)]
    returning j.id
  )
  select string_agg(completed.id::text, ',') into answer from completed;
  return answer;
end
$$;

-- The same before a claim: a row that somebody holds locked must not keep this worker from claiming. It then says the two apart.
create function {schema}.finish_soon(ended bigint[], ended_tokens bigint[], results text[])
returns text
language plpgsql
set lock_timeout = '500ms'
as $$
begin
  return {schema}.finish(ended, ended_tokens, results);
end
$$;

-- finish_soon() for what ended, then the claim: see 002_functions.sql for what is pinned and why, 011_claim.sql for ordering keys,
-- limits and the reserve.
--
-- First row: `finished`, all else null; only when there was something to finish. Then the jobs as a worker reads them
-- (src/jobs/claimed.ts), in no order. Rows of a level are locked by one statement a level, but updated by one for all, since to
-- set up an update (its indexes, its checks) is 100 us: ten jobs of five priorities cost 770 us instead of 1,320.
--
-- Floors: the place (kinds[i], priority, run_at in us since the epoch, id) behind which a level has something, sorted by kind and
-- falling priority. As values, not as ids, so that none has to be read. Every claim looks 500 ms back from now all the
-- same. late() finds what lies before them.
--
create function {schema}.finish_and_claim(
  ended bigint[], ended_tokens bigint[], results text[],
  kinds text[], limits integer[], parks boolean[], total integer, worker text, lease interval,
  floor_kinds integer[] default '{}', floor_levels integer[] default '{}', floor_times bigint[] default '{}',
  floor_ids bigint[] default '{}', rules jsonb default '{}', oldest boolean default false)
returns table (id text, payload text, body bytea, numbers text, rest json, finished text)
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
#variable_conflict use_variable
declare
  remaining integer := total;
  wanted integer;
  part integer;            -- of these, from one level
  level integer;           -- the priority that is claimed from
  next_level integer;
  floor_at integer := 1;   -- the next floor
  floor_level integer;
  from_time timestamptz;   -- where the level begins
  from_id bigint;
  latest constant timestamptz := now() - interval '500 milliseconds';
  waits_since timestamptz;
  first_time timestamptz;
  reserve_time timestamptz;
  reserve_id bigint;
  reserve_level integer;
  rule jsonb;
  limited boolean;
  ids bigint[];
  spent bigint[];          -- what this kind got
  used bigint[] := '{}';   -- what kinds with limits got
  locked bigint[] := '{}'; -- to be leased at the end
  leased bigint[] := '{}'; -- to be told at the end
  -- One look at an index that is empty unless ordering keys are used.
  ordered boolean;
begin
  if cardinality(ended) > 0 then
    finished := {schema}.finish_soon(ended, ended_tokens, results);
    return next;
  end if;
  ordered := remaining > 0 and exists (
    select from {schema}.jobs j
    where j.state = 'ready' and j.cron is null and not j.solo and j.ordering_key is not null
      and j.turn is distinct from 'waits' and j.kind = any (kinds));
  for i in 1 .. cardinality(kinds) loop
    exit when remaining <= 0;
    wanted := least(limits[i], remaining);
    rule := rules -> kinds[i];
    limited := rule is not null and (rule ? 'maxRunning' or rule ? 'rate');
    spent := '{}';
    if limited then
      wanted := least(wanted, {schema}.allowance(kinds[i], rule));
    end if;
    remaining := remaining - wanted;  -- what is left of it comes back below
    if ordered and wanted > 0 then
      -- Half for jobs with a key, half for those without; what one half leaves the other takes.
      ids := {schema}.claim_ordered(
        kinds[i], floor(wanted / 2.0 + random())::integer, parks[i], coalesce((rule ->> 'holds')::boolean, false), worker,
        lease, oldest);
      wanted := wanted - cardinality(ids);
      leased := leased || ids;
      spent := ids;
    end if;
    -- Level by level; when a reserve is asked for, once before to find the level whose first job has waited longest.
    for pass in (case when oldest then 1 else 2 end) .. 2 loop
      level := 32768;
      waits_since := null;
      while floor_at > 1 and floor_kinds[floor_at - 1] = i loop
        floor_at := floor_at - 1;
      end loop;
      while wanted > 0 loop
        while floor_kinds[floor_at] < i or floor_kinds[floor_at] = i and floor_levels[floor_at] >= level loop
          floor_at := floor_at + 1;
        end loop;
        floor_level := case when floor_kinds[floor_at] = i then floor_levels[floor_at] else -32769 end;
        -- A loose index scan over the kind's priorities: never across them, or a million scheduled rows of a higher
        -- priority would be walked for each claim (61 ms; by level 2.3 ms).
        next_level := (
          select j.priority
          from {schema}.jobs j
          where j.state = 'ready' and j.cron is null and not j.solo and j.ordering_key is null and j.kind = kinds[i]
            and j.priority < level and j.priority > floor_level
          order by j.priority desc
          limit 1);
        from_time := '-infinity';
        from_id := 0;
        if next_level is null then
          exit when floor_level = -32769;
          next_level := floor_level;
          from_time := 'epoch'::timestamptz + floor_times[floor_at] * interval '1 microsecond';
          from_id := floor_ids[floor_at];
          if from_time > latest then
            from_time := latest;
            from_id := 0;
          end if;
        end if;
        level := next_level;
        if pass = 1 then
          first_time := (
            select j.run_at
            from {schema}.jobs j
            where j.state = 'ready' and j.cron is null and not j.solo and j.ordering_key is null
              and j.kind = kinds[i] and j.priority = level and j.run_at <= now()
              and (j.run_at, j.id) > (from_time, from_id)
            order by j.run_at, j.id
            limit 1);
          if first_time < coalesce(waits_since, 'infinity') then
            waits_since := first_time;
            reserve_level := level;
            reserve_time := from_time;
            reserve_id := from_id;
          end if;
          continue;
        end if;
        ids := array(
          select j.id
          from {schema}.jobs j
          where j.state = 'ready' and j.cron is null and not j.solo and j.ordering_key is null
            and j.kind = kinds[i] and j.priority = level and j.run_at <= now()
            and (j.run_at, j.id) > (from_time, from_id)
            -- Only beside a reserve: what this very statement has locked is not skipped.
            and not (oldest and j.id = any (locked))
          order by j.run_at, j.id
          for update skip locked
          limit wanted);
        locked := locked || ids;
        spent := spent || ids;
        wanted := wanted - cardinality(ids);
      end loop;
      if pass = 1 and waits_since is not null then
        ids := array(
          select j.id
          from {schema}.jobs j
          where j.state = 'ready' and j.cron is null and not j.solo and j.ordering_key is null
            and j.kind = kinds[i] and j.priority = reserve_level and j.run_at <= now()
            and (j.run_at, j.id) > (reserve_time, reserve_id)
          order by j.run_at, j.id
          for update skip locked
          limit greatest(1, wanted / 10));
        locked := locked || ids;
        spent := spent || ids;
        wanted := wanted - cardinality(ids);
      end if;
    end loop;
    if ordered and wanted > 0 then
      ids := {schema}.claim_ordered(
        kinds[i], wanted, parks[i], coalesce((rule ->> 'holds')::boolean, false), worker, lease, false);
      wanted := wanted - cardinality(ids);
      leased := leased || ids;
      spent := spent || ids;
    end if;
    remaining := remaining + wanted;
    if limited then
      used := used || spent;
    end if;
  end loop;
  if cardinality(locked) > 0 then
    return query
    update {schema}.jobs j
    set state = 'running',
        attempts = j.attempts + 1,
        lease_token = (select nextval('{schema}.lease_tokens')),
        locked_until = clock_timestamp() + lease,
        locked_by = worker,
        on_lease_expired = case when parks[array_position(kinds, j.kind)] then 'park' end
    where j.id = any (locked) and j.state = 'ready'
    returning j.id::text, j.payload::text, j.body,
        concat_ws(' ', array_position(kinds, j.kind), j.attempts, j.max_attempts, j.lease_token, j.priority,
                  date_part('epoch', j.run_at) * 1000, date_part('epoch', j.created_at) * 1000),
        case when num_nonnulls(j.content_type, j.headers, j.progress, j.dedupe_key, j.source, j.retry_policy,
                               j.ordering_key) > 0 then
          json_build_object('contentType', j.content_type, 'headers', j.headers, 'progress', j.progress,
                            'dedupeKey', j.dedupe_key, 'source', j.source, 'retryPolicy', j.retry_policy,
                            'orderingKey', j.ordering_key)
        end,
        null::text;
  end if;
  if cardinality(leased) > 0 then
    return query
    select j.id::text, j.payload::text, j.body,
        concat_ws(' ', array_position(kinds, j.kind), j.attempts, j.max_attempts, j.lease_token, j.priority,
                  date_part('epoch', j.run_at) * 1000, date_part('epoch', j.created_at) * 1000),
        case when num_nonnulls(j.content_type, j.headers, j.progress, j.dedupe_key, j.source, j.retry_policy,
                               j.ordering_key) > 0 then
          json_build_object('contentType', j.content_type, 'headers', j.headers, 'progress', j.progress,
                            'dedupeKey', j.dedupe_key, 'source', j.source, 'retryPolicy', j.retry_policy,
                            'orderingKey', j.ordering_key)
        end,
        null::text
    from {schema}.jobs j where j.id = any (leased);
  end if;
  -- After the rows say that they run: that is what it counts.
  if cardinality(used) > 0 then
    for i in 1 .. cardinality(kinds) loop
      rule := rules -> kinds[i];
      if rule ? 'maxRunning' or rule ? 'rate' then
        spent := array(select j.id from {schema}.jobs j where j.id = any (used) and j.kind = kinds[i]);
        if cardinality(spent) > 0 then
          perform {schema}.spend(kinds[i], rule, spent);
        end if;
      end if;
    end loop;
  end if;
end
$$;

-- Is there a due job before one of these floors (see above)? One that was committed late, or given back. Asked beside the
-- claims, twice a second: where a snapshot is open it steps over the entries of all that was claimed, and a claim that
-- did so kept those waiting that it was to bring (20 ms beside 50,000). What another claim has locked it takes for due.
create function {schema}.late(
  kinds text[], floor_kinds integer[], floor_levels integer[], floor_times bigint[], floor_ids bigint[])
returns boolean
language plpgsql
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set max_parallel_workers_per_gather = 0
as $$
declare
  latest constant timestamptz := now() - interval '500 milliseconds';
  floor_time timestamptz;
  floor_id bigint;
  found_id bigint;
begin
  for i in 1 .. cardinality(floor_kinds) loop
    floor_time := 'epoch'::timestamptz + floor_times[i] * interval '1 microsecond';
    floor_id := floor_ids[i];
    if floor_time > latest then
      floor_time := latest;
      floor_id := 0;
    end if;
    select j.id into found_id
    from {schema}.jobs j
    where j.state = 'ready' and j.cron is null and not j.solo and j.ordering_key is null
      and j.kind = kinds[floor_kinds[i]] and j.priority = floor_levels[i]
      and (j.run_at, j.id) <= (floor_time, floor_id)
    order by j.run_at, j.id
    limit 1;
    if found then
      return true;
    end if;
  end loop;
  return false;
end
$$;
