-- Levels of which nothing is due are left behind all at once: beside jobs of the future in ten priorities a claim looked at each of them by
-- a statement of its own, and 20 jobs a second cost the server 5.8 % of a core; now 5.35, and 5.0 where there is nothing but them.

-- As in 042_claim_lines.sql, but for that.
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
  skipped boolean;         -- a level of which nothing is due
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
      skipped := false;
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
          if not skipped then
            skipped := true;
            level := next_level;
            continue;
          end if;
          -- The second such level: there may be many. The first behind it that is due, all in one statement.
          next_level := (
            with recursive levels (priority, run_at) as (
              values (next_level, first_time)
              union all
              select behind.priority, behind.run_at
              from levels l cross join lateral (
                select j.priority::integer, j.run_at
                from {schema}.jobs j
                where j.finished_at is null and j.cron is null and not j.solo and j.ordering_key is null and j.kind = kinds[i]
                  and j.priority < l.priority and j.priority > floor_level
                order by j.priority desc, j.run_at, j.id
                limit 1) as behind
              where l.run_at > now()
            )
            select l.priority from levels l where l.run_at <= now());
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

call {schema}.grant_as_before();
