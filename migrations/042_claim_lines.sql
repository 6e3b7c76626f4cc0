-- A claim of many says of each job only what is not as usual: its id, when it is due, its payload. Most jobs start for the first time,
-- at once, with the usual attempts and priority, and all that came with one claim have one token. Without those seven numbers a line
-- costs the server a tenth less of what a claim takes, and the worker 0.3 us instead of 1.2 to read.

-- Of a job claimed under `token`, what a worker reads (src/jobs/claimed.ts): the numbers where one of them is unusual, else the place of
-- its kind where there are several (with all its numbers such a job cost the server 5 % more than before, not less); and the rest
-- where there is one.
create function {schema}.job_brief(j {schema}.jobs, kinds text[], token bigint)
returns text
language sql
stable
as $$
  select concat_ws(e'\x1f', j.id, date_part('epoch', j.run_at) * 1000, coalesce(j.payload::text, ''),
                   case
                     when j.attempts <> 1 or j.max_attempts <> 20 or j.priority <> 0 or j.created_at <> j.run_at
                       or j.lease_token is distinct from token then {schema}.job_numbers(j, kinds)
                     when cardinality(kinds) > 1 then array_position(kinds, j.kind)::text
                   end,
                   {schema}.job_rest(j))
$$;

-- As in 038_claim_in_place.sql, but a level of which nothing is due is left for the next one without a look of its own: beside jobs of the
-- future in ten priorities, 20 jobs a second cost the server 5.5 % of a core instead of 6.0.
create or replace function {schema}.pick_places(
  kinds text[], limits integer[], parks boolean[], total integer, worker text, lease interval,
  floor_kinds integer[], floor_levels integer[], floor_times bigint[], floor_ids bigint[], rules jsonb, oldest boolean,
  out locked bigint[], out places tid[], out leased bigint[], out used bigint[])
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
  at tid[];                -- beside ids, where their rows are
  spent bigint[];          -- what this kind got
  -- One look at an index that is empty unless ordering keys are used.
  ordered boolean;
begin
  locked := '{}';
  places := '{}';
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
        -- Its first row says whether anything is due there at all.
        select j.priority, j.run_at into next_level, first_time
        from {schema}.jobs j
        where j.finished_at is null and j.cron is null and not j.solo and j.ordering_key is null and j.kind = kinds[i]
          and j.priority < level and j.priority > floor_level
        order by j.priority desc, j.run_at, j.id
        limit 1;
        if first_time > now() then
          level := next_level;
          continue;
        end if;
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
        select coalesce(array_agg(taken.id), '{}'), coalesce(array_agg(taken.ctid), '{}') into ids, at
        from (
          select j.id, j.ctid
          from {schema}.jobs j
          where j.finished_at is null and j.state = 'ready' and j.cron is null and not j.solo and j.ordering_key is null
            and j.kind = kinds[i] and j.priority = level and j.run_at <= now()
            and (j.run_at, j.id) > (from_time, from_id)
            -- Only beside a reserve: what this very statement has locked is not skipped.
            and not (oldest and j.id = any (locked))
          order by j.run_at, j.id
          for update skip locked
          limit wanted) as taken;
        locked := locked || ids;
        places := places || at;
        spent := spent || ids;
        wanted := wanted - cardinality(ids);
      end loop;
      if pass = 1 and waits_since is not null then
        select coalesce(array_agg(taken.id), '{}'), coalesce(array_agg(taken.ctid), '{}') into ids, at
        from (
          select j.id, j.ctid
          from {schema}.jobs j
          where j.finished_at is null and j.state = 'ready' and j.cron is null and not j.solo and j.ordering_key is null
            and j.kind = kinds[i] and j.priority = reserve_level and j.run_at <= now()
            and (j.run_at, j.id) > (reserve_time, reserve_id)
          order by j.run_at, j.id
          for update skip locked
          limit greatest(1, wanted / 10)) as taken;
        locked := locked || ids;
        places := places || at;
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

-- As claim_many in 038_claim_in_place.sql, which is left to older workers.
create function {schema}.claim_lines(
  kinds text[], limits integer[], parks boolean[], total integer, worker text, lease interval,
  floor_kinds integer[] default '{}', floor_levels integer[] default '{}', floor_times bigint[] default '{}',
  floor_ids bigint[] default '{}', rules jsonb default '{}', oldest boolean default false)
returns table (n integer, lines text, body bytea, token bigint)
language plpgsql
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_sort = off
set enable_tidscan = on
set max_parallel_workers_per_gather = 0
set extra_float_digits = 1
as $$
#variable_conflict use_variable
declare
  locked bigint[];
  places tid[];
  leased bigint[];
  used bigint[];
  until timestamptz;
  got integer;
  long text[];
  bodies bytea[];
begin
  select * into locked, places, leased, used
  from {schema}.pick_places(kinds, limits, parks, total, worker, lease, floor_kinds, floor_levels, floor_times, floor_ids, rules, oldest);
  if cardinality(locked) > 0 then
    token := nextval('{schema}.lease_tokens');
    until := clock_timestamp() + lease;
  end if;
  with claimed as (
    update {schema}.jobs j
    set state = 'running',
        attempts = j.attempts + 1,
        lease_token = token,
        locked_until = until,
        locked_by = worker,
        on_lease_expired = case when parks[array_position(kinds, j.kind)] then 'park' end
    where j.ctid = any (places) and j.state = 'ready'
    returning j.body, {schema}.job_brief(j, kinds, token) as job
  ),
  keyed as (
    select j.body, {schema}.job_brief(j, kinds, token) as job
    -- Not by a join: where its plan was made while the table was empty, as that of a worker that waits for the first jobs, each
    -- claim read the whole index (80 ms beside 200,000 jobs), also when no job had a key.
    from {schema}.jobs j where j.id = any (leased)
  ),
  together as (
    select * from keyed union all select * from claimed
  )
  select (select count(*) from claimed), count(*) filter (where t.body is null and octet_length(t.job) <= 2000),
         string_agg(t.job, e'\x1e') filter (where t.body is null and octet_length(t.job) <= 2000),
         array_agg(t.job) filter (where t.body is not null or octet_length(t.job) > 2000),
         array_agg(t.body) filter (where t.body is not null or octet_length(t.job) > 2000)
  into got, n, lines, long, bodies
  from together t (body, job);
  if cardinality(locked) > 0 then
    insert into {schema}.claims (token, ends_at, remaining, ids) values (token, until, got, locked);
  end if;
  return next;
  n := 1;
  for i in 1 .. coalesce(cardinality(long), 0) loop
    lines := long[i];
    body := bodies[i];
    return next;
  end loop;
  -- After the rows say that they run: that is what it counts.
  if cardinality(used) > 0 then
    perform {schema}.spend_all(kinds, rules, used);
  end if;
end
$$;

-- Where a role or a database says extra_float_digits = 0, the times of claimed jobs were rounded to 10 us, and the next claim, which
-- starts behind the last of them, passed over what was due at the same moment: 24 slots took more than a minute, not 0.6 s, for
-- 4,000 jobs of one insert.
alter function {schema}.finish_and_claim set extra_float_digits = 1;
alter function {schema}.claim_many set extra_float_digits = 1;

call {schema}.grant_as_before();
