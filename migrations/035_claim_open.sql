-- The claims on the indexes of the migration before: what they take is found by one function, so that the three differ only in
-- how they answer. See 002_functions.sql for what is pinned and why, 011_claim.sql for ordering keys, limits and the reserve,
-- 031_claims.sql for what a lease leaves beside the row.

-- Dead rows are in an index of their own by a mark. Whoever makes a row dead sets it; a worker of the version before does not.
create or replace function {schema}.job_must_fit()
returns trigger
language plpgsql
as $$
begin
  -- See 033_keys_claim.sql.
  if new.turn is not null and tg_op = 'UPDATE' then
    if {schema}.turn_in(new.state, new.turn) is distinct from new.turn then
      update {schema}.jobs j set turn = {schema}.turn_in(j.state, j.turn) where j.id = new.id;
    end if;
  end if;
  if (new.state = 'ready' and new.lease_token is null and new.locked_until is null and new.locked_by is null
      and new.finished_at is null and new.on_lease_expired is null
      and new.kind <> '' and octet_length(new.kind) <= 200
      and (new.dedupe_key is null or octet_length(new.dedupe_key) between 1 and 200)
      and new.attempts >= 0 and new.max_attempts between 1 and 1000
      and (new.payload is not null or new.body is not null)
      and new.ordering_key is null and new.errors is null and new.misfire is null) is not true
  then
    perform {schema}.job_fits(new);
    if new.state = 'dead' and new.dead is not true then
      update {schema}.jobs j set dead = true where j.id = new.id and j.state = 'dead';
    end if;
  end if;
  return null;
end
$$;

-- Those of `used` were claimed under the limits of their kinds.
create function {schema}.spend_all(kinds text[], rules jsonb, used bigint[])
returns void
language plpgsql
as $$
declare
  spent bigint[];
begin
  for i in 1 .. cardinality(kinds) loop
    if rules -> kinds[i] ?| array['maxRunning', 'rate'] then
      spent := array(select j.id from {schema}.jobs j where j.id = any (used) and j.kind = kinds[i]);
      if cardinality(spent) > 0 then
        perform {schema}.spend(kinds[i], rules -> kinds[i], spent);
      end if;
    end if;
  end loop;
end
$$;

-- What a claim takes: `locked`, still to be leased, in the order of the claim; `leased` with an ordering key; of both, `used` by
-- kinds with limits. Called by the claims, whose settings it runs under.
--
-- Floors: the place (kinds[i], priority, run_at in us since the epoch, id) behind which a level has something, sorted by kind and
-- falling priority. As values, not as ids, so that none has to be read. Every claim looks 500 ms back from now all the
-- same. late() finds what lies before them.
create function {schema}.pick(
  kinds text[], limits integer[], parks boolean[], total integer, worker text, lease interval,
  floor_kinds integer[], floor_levels integer[], floor_times bigint[], floor_ids bigint[], rules jsonb, oldest boolean,
  out locked bigint[], out leased bigint[], out used bigint[])
language plpgsql
as $$
declare
  remaining integer := total;
  wanted integer;
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
  -- One look at an index that is empty unless ordering keys are used.
  ordered boolean;
begin
  locked := '{}';
  leased := '{}';
  used := '{}';
  ordered := remaining > 0 and exists (
    select from {schema}.jobs j
    where j.finished_at is null and j.state = 'ready' and j.cron is null and not j.solo and j.ordering_key is not null
      and coalesce(j.turn, 'begun') in ('begun', 'holds') and j.kind = any (kinds));
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
          where j.finished_at is null and j.cron is null and not j.solo and j.ordering_key is null and j.kind = kinds[i]
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
            where j.finished_at is null and j.state = 'ready' and j.cron is null and not j.solo and j.ordering_key is null
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
          where j.finished_at is null and j.state = 'ready' and j.cron is null and not j.solo and j.ordering_key is null
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
          where j.finished_at is null and j.state = 'ready' and j.cron is null and not j.solo and j.ordering_key is null
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
end
$$;

create or replace function {schema}.finish_and_claim(
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
  locked bigint[];
  leased bigint[];
  used bigint[];
  token bigint;
  got integer;
begin
  if cardinality(ended) > 0 then
    finished := {schema}.finish_soon(ended, ended_tokens, results);
    return next;
  end if;
  select * into locked, leased, used
  from {schema}.pick(kinds, limits, parks, total, worker, lease, floor_kinds, floor_levels, floor_times, floor_ids, rules, oldest);
  if cardinality(locked) > 0 then
    token := nextval('{schema}.lease_tokens');
    return query
    update {schema}.jobs j
    set state = 'running',
        attempts = j.attempts + 1,
        lease_token = token,
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
    get diagnostics got = row_count;
    insert into {schema}.claims (token, ends_at, remaining, ids) values (token, clock_timestamp() + lease, got, locked);
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
    perform {schema}.spend_all(kinds, rules, used);
  end if;
end
$$;

-- The claim of many, as one text: each job's fields with 0x1F between them, 0x1E between jobs, since a thousand rows cost a worker more
-- than all else in the answer. First row: `n` is how many the text has. Then a row for each other job, one with bytes or of more than 2,000
-- bytes: who runs for long shall not keep the whole text in memory. In no order.
create function {schema}.claim_many(
  kinds text[], limits integer[], parks boolean[], total integer, worker text, lease interval,
  floor_kinds integer[] default '{}', floor_levels integer[] default '{}', floor_times bigint[] default '{}',
  floor_ids bigint[] default '{}', rules jsonb default '{}', oldest boolean default false)
returns table (n integer, jobs text, body bytea)
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
  locked bigint[];
  leased bigint[];
  used bigint[];
  token bigint;
  got integer;
  texts text[];
  bodies bytea[];
begin
  select * into locked, leased, used
  from {schema}.pick(kinds, limits, parks, total, worker, lease, floor_kinds, floor_levels, floor_times, floor_ids, rules, oldest);
  if cardinality(locked) > 0 then
    token := nextval('{schema}.lease_tokens');
  end if;
  with claimed as (
    update {schema}.jobs j
    set state = 'running',
        attempts = j.attempts + 1,
        lease_token = token,
        locked_until = clock_timestamp() + lease,
        locked_by = worker,
        on_lease_expired = case when parks[array_position(kinds, j.kind)] then 'park' end
    from unnest(locked) as picked (id)
    where j.id = picked.id and j.state = 'ready'
    returning j.body,
        concat_ws(e'\x1f', j.id, array_position(kinds, j.kind), j.attempts, j.max_attempts, j.lease_token, j.priority,
                  date_part('epoch', j.run_at) * 1000, date_part('epoch', j.created_at) * 1000,
                  coalesce(j.payload::text, ''),
        case when num_nonnulls(j.content_type, j.headers, j.progress, j.dedupe_key, j.source, j.retry_policy,
                               j.ordering_key) > 0 then
          json_build_object('contentType', j.content_type, 'headers', j.headers, 'progress', j.progress,
                            'dedupeKey', j.dedupe_key, 'source', j.source, 'retryPolicy', j.retry_policy,
                            'orderingKey', j.ordering_key)
        end) as job
  ),
  keyed as (
    select j.body,
        concat_ws(e'\x1f', j.id, array_position(kinds, j.kind), j.attempts, j.max_attempts, j.lease_token, j.priority,
                  date_part('epoch', j.run_at) * 1000, date_part('epoch', j.created_at) * 1000,
                  coalesce(j.payload::text, ''),
        case when num_nonnulls(j.content_type, j.headers, j.progress, j.dedupe_key, j.source, j.retry_policy,
                               j.ordering_key) > 0 then
          json_build_object('contentType', j.content_type, 'headers', j.headers, 'progress', j.progress,
                            'dedupeKey', j.dedupe_key, 'source', j.source, 'retryPolicy', j.retry_policy,
                            'orderingKey', j.ordering_key)
        end) as job
    from unnest(leased) as picked (id) join {schema}.jobs j on j.id = picked.id
  ),
  together as (
    select * from keyed union all select * from claimed
  )
  select (select count(*) from claimed), count(*) filter (where t.body is null and octet_length(t.job) <= 2000),
         string_agg(t.job, e'\x1e') filter (where t.body is null and octet_length(t.job) <= 2000),
         array_agg(t.job) filter (where t.body is not null or octet_length(t.job) > 2000),
         array_agg(t.body) filter (where t.body is not null or octet_length(t.job) > 2000)
  into got, n, jobs, texts, bodies
  from together t (body, job);
  if cardinality(locked) > 0 then
    insert into {schema}.claims (token, ends_at, remaining, ids) values (token, clock_timestamp() + lease, got, locked);
  end if;
  return next;
  n := 1;
  for i in 1 .. coalesce(cardinality(texts), 0) loop
    jobs := texts[i];
    body := bodies[i];
    return next;
  end loop;
  -- After the rows say that they run: that is what it counts.
  if cardinality(used) > 0 then
    perform {schema}.spend_all(kinds, rules, used);
  end if;
end
$$;

-- For workers of the version before.
create or replace function {schema}.claim(
  kinds text[], limits integer[], parks boolean[], total integer, worker text, lease interval,
  floors bigint[] default '{}', rules jsonb default '{}', oldest boolean default false)
returns table (
  id bigint, kind text, payload text, body bytea, content_type text, attempts integer, max_attempts integer,
  lease_token bigint, priority smallint, run_at timestamptz, created_at timestamptz, headers jsonb, progress jsonb,
  dedupe_key text, source text, retry_policy jsonb, ordering_key text)
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
  found record;
  token bigint;
  got integer;
begin
  select * into found
  from {schema}.pick(kinds, limits, parks, total, worker, lease, '{}', '{}', '{}', '{}', rules, oldest);
  if cardinality(found.locked) > 0 then
    token := nextval('{schema}.lease_tokens');
    return query
    update {schema}.jobs j
    set state = 'running',
        attempts = j.attempts + 1,
        lease_token = token,
        locked_until = clock_timestamp() + lease,
        locked_by = worker,
        on_lease_expired = case when parks[array_position(kinds, j.kind)] then 'park' end
    from unnest(found.locked) as picked (id)
    where j.id = picked.id and j.state = 'ready'
    returning j.id, j.kind, j.payload::text, j.body, j.content_type, j.attempts, j.max_attempts, j.lease_token,
              j.priority, j.run_at, j.created_at, j.headers, j.progress, j.dedupe_key, j.source, j.retry_policy,
              j.ordering_key;
    get diagnostics got = row_count;
    insert into {schema}.claims (token, ends_at, remaining, ids)
    values (token, clock_timestamp() + lease, got, found.locked);
  end if;
  if cardinality(found.leased) > 0 then
    return query
    select j.id, j.kind, j.payload::text, j.body, j.content_type, j.attempts, j.max_attempts, j.lease_token, j.priority,
           j.run_at, j.created_at, j.headers, j.progress, j.dedupe_key, j.source, j.retry_policy, j.ordering_key
    from {schema}.jobs j where j.id = any (found.leased);
  end if;
  if cardinality(found.used) > 0 then
    perform {schema}.spend_all(kinds, rules, found.used);
  end if;
end
$$;

-- Is there a due job before one of these floors (see above)? One that was committed late, or given back. Asked beside the
-- claims, twice a second: where a snapshot is open it steps over the entries of all that was claimed, and a claim that
-- did so kept those waiting that it was to bring (20 ms beside 50,000). What another claim has locked it takes for due.
create or replace function {schema}.late(
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
    where j.finished_at is null and j.state = 'ready' and j.cron is null and not j.solo and j.ordering_key is null
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

-- Takes one job whose last lease expired. A worker calls it only while it runs nothing else, so that a job which
-- kills its process disturbs nobody twice. Limits and ordering keys hold for it, too.
create or replace function {schema}.claim_solo(
  kinds text[], parks boolean[], worker text, lease interval, rules jsonb default '{}')
returns table (
  id bigint, kind text, payload text, body bytea, content_type text, attempts integer, max_attempts integer,
  lease_token bigint, priority smallint, run_at timestamptz, created_at timestamptz, headers jsonb, progress jsonb,
  dedupe_key text, source text, retry_policy jsonb, ordering_key text)
language plpgsql
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  token bigint := nextval('{schema}.lease_tokens');
  allowed text[] := kinds;
  limited text;
  got bigint;
  got_kind text;
begin
  for limited in
    select distinct j.kind
    from {schema}.jobs j
    where rules <> '{}' and j.finished_at is null and j.state = 'ready' and j.cron is null and j.solo and j.kind = any (kinds) and j.run_at <= now()
      and (rules -> j.kind ? 'maxRunning' or rules -> j.kind ? 'rate')
    order by j.kind
  loop
    if {schema}.allowance(limited, rules -> limited) < 1 then
      allowed := array_remove(allowed, limited);
    end if;
  end loop;
  with candidate as materialized (
    select j.id
    from {schema}.jobs j
    where j.finished_at is null and j.state = 'ready' and j.cron is null and j.solo and j.kind = any (allowed) and j.run_at <= now()
      and (j.ordering_key is null or (
        select b.id from {schema}.jobs b
        where b.kind = j.kind and b.ordering_key = j.ordering_key and b.turn in ('runs', 'runs-holds')
        limit 1) is null)
    order by j.run_at, j.id
    for update skip locked
    limit 1
  )
  update {schema}.jobs j
  set state = 'running',
      attempts = j.attempts + 1,
      lease_token = token,
      locked_until = clock_timestamp() + lease,
      locked_by = worker,
      on_lease_expired = case when parks[array_position(kinds, j.kind)] then 'park' end,
      turn = case when j.ordering_key is not null then
        case when (rules -> j.kind ->> 'holds')::boolean then 'runs-holds' else 'runs' end end
  from candidate c
  where j.id = c.id and j.state = 'ready'
  returning j.id, j.kind into got, got_kind;
  if got is null then
    return;
  end if;
  insert into {schema}.claims (token, ends_at, remaining, ids) values (token, clock_timestamp() + lease, 1, array[got]);
  if rules -> got_kind ?| array['maxRunning', 'rate'] then
    perform {schema}.spend(got_kind, rules -> got_kind, array[got]);
  end if;
  return query
  select j.id, j.kind, j.payload::text, j.body, j.content_type, j.attempts, j.max_attempts, j.lease_token, j.priority,
         j.run_at, j.created_at, j.headers, j.progress, j.dedupe_key, j.source, j.retry_policy, j.ordering_key
  from {schema}.jobs j where j.id = got;
end
$$;

call {schema}.grant_as_before();

-- What was leased by the functions of the version before since claims are noted.
select {schema}.note_running();
