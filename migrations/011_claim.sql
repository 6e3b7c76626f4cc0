-- The claim once more (see 002_functions.sql for what is pinned and why), with ordering keys, limits of a kind across all
-- workers, and a reserve for low priorities.

-- What a kind with limits has used: its bucket of tokens, and the ids that were claimed under the limit and may still run.
-- A row is locked for the length of one claim.
create table {schema}.kind_limits (
  kind        text             primary key,
  tokens      double precision not null default 0,
  refilled_at timestamptz      not null default '-infinity',      -- so a new bucket is full
  claimed     bigint[]         not null default '{}'
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Tokens in a bucket now. rule.rate: {max, perMs, burst}.
create function {schema}.bucket(tokens double precision, refilled_at timestamptz, rate jsonb)
returns double precision
language sql
volatile
as $$
  select case when refilled_at = '-infinity' then (rate ->> 'burst')::double precision
    else least((rate ->> 'burst')::double precision,
               tokens + extract(epoch from clock_timestamp() - refilled_at)::double precision * 1000
                        * (rate ->> 'max')::double precision / (rate ->> 'perMs')::double precision)
    end
$$;

-- How many jobs of the kind may start now, with its row locked until the claim is through; 0 while another claim has it.
create function {schema}.allowance(limited text, rule jsonb)
returns integer
language plpgsql
as $$
declare
  used record;
  allowed double precision := 2147483647;
begin
  -- Only when it is not there: "on conflict" waits for whoever has it locked.
  if not exists (select from {schema}.kind_limits l where l.kind = limited) then
    insert into {schema}.kind_limits (kind) values (limited) on conflict do nothing;
  end if;
  select l.tokens, l.refilled_at, l.claimed into used
  from {schema}.kind_limits l where l.kind = limited for update skip locked;
  if not found then
    return 0;
  end if;
  if rule ? 'rate' then
    allowed := floor({schema}.bucket(used.tokens, used.refilled_at, rule -> 'rate'));
  end if;
  if rule ? 'maxRunning' then
    -- A statement of its own: it sees whatever was committed before the row was locked.
    allowed := least(allowed, (rule ->> 'maxRunning')::integer - (
      select count(*) from {schema}.jobs j
      where j.id = any (used.claimed) and j.state = 'running' and j.kind = limited));
  end if;
  return greatest(allowed, 0)::integer;
end
$$;

-- These were claimed under the allowance.
create function {schema}.spend(limited text, rule jsonb, ids bigint[])
returns void
language sql
as $$
  update {schema}.kind_limits l
  set tokens = case when rule ? 'rate'
        then {schema}.bucket(l.tokens, l.refilled_at, rule -> 'rate') - cardinality(ids) else l.tokens end,
      refilled_at = case when rule ? 'rate' then clock_timestamp() else l.refilled_at end,
      claimed = case when rule ? 'maxRunning' then array(
        select j.id from {schema}.jobs j
        where j.id = any (l.claimed || ids) and j.state = 'running' and j.kind = limited) else '{}' end
  where l.kind = limited
$$;

-- Leases up to `wanted` jobs with an ordering key, the first of their keys each; their ids. Called by claim, whose settings
-- it runs under. First of a key is the lowest id among what is due or was begun: a job that is put off to the future
-- and was never started keeps nobody waiting, one that failed and comes again does.
--
-- Three steps for the rows of a level. Lock some. Then, in a statement that sees whatever was committed before they were
-- locked, tell those whose key is free. Then lease those and take the others out of the index until it is their turn: each
-- is met once, however long it waits. promote() brings the next one back; it locks the same row, so the two cannot miss
-- each other. Whatever still goes wrong (a row with a lower id that was committed in between), the unique index
-- refuses, and this claim does without.
create function {schema}.claim_ordered(
  wanted_kind text, wanted integer, park boolean, holds boolean, worker text, lease interval, oldest boolean)
returns bigint[]
language plpgsql
as $$
declare
  ids bigint[] := '{}';
  met bigint[];
  free bigint[];           -- of these, whose key nobody has
  taken bigint[];          -- of these, as many as are wanted
  level smallint;
  part integer;
  reserve boolean := oldest;
  again boolean := false;  -- rows were taken out of the way: more may stand behind them
  rounds integer := 0;
begin
  -- Bounded: who puts in a million jobs of one key must not make a single claim walk them.
  while wanted > 0 and rounds < 20 loop
    part := wanted;
    if reserve then
      part := greatest(1, wanted / 10);
      with recursive head as (
        (select j.priority, j.run_at
         from {schema}.jobs j
         where j.state = 'ready' and j.cron is null and not j.solo and j.ordering_key is not null
           and j.turn is distinct from 'waits' and j.kind = wanted_kind
         order by j.priority desc, j.run_at, j.id limit 1)
        union all
        select next.priority, next.run_at
        from head cross join lateral (
          select j.priority, j.run_at
          from {schema}.jobs j
          where j.state = 'ready' and j.cron is null and not j.solo and j.ordering_key is not null
            and j.turn is distinct from 'waits' and j.kind = wanted_kind and j.priority < head.priority
          order by j.priority desc, j.run_at, j.id limit 1) next
      )
      select head.priority into level from head where head.run_at <= now() order by head.run_at limit 1;
    elsif not again then
      select j.priority into level
      from {schema}.jobs j
      where j.state = 'ready' and j.cron is null and not j.solo and j.ordering_key is not null
        and j.turn is distinct from 'waits' and j.kind = wanted_kind
        and j.priority < coalesce(level::integer, 32768)
      order by j.priority desc
      limit 1;
    end if;
    exit when level is null;
    select array_agg(candidate.id) into met
    from (
      select j.id
      from {schema}.jobs j
      where j.state = 'ready' and j.cron is null and not j.solo and j.ordering_key is not null
        and j.turn is distinct from 'waits' and j.kind = wanted_kind and j.priority = level and j.run_at <= now()
      order by j.run_at, j.id
      for update skip locked
      limit greatest(part, 200)
    ) candidate;
    free := array(
      select j.id
      from {schema}.jobs j
      where j.id = any (met) and j.state = 'ready'
        -- Not "not exists": as a join it reads the other rows of the kind for each (2 s a claim beside 20,000).
        and (
          select b.id from {schema}.jobs b
          where b.kind = j.kind and b.ordering_key = j.ordering_key and b.cron is null and b.state = 'running'
          order by b.id limit 1) is null
        and (
          select b.id from {schema}.jobs b
          where b.kind = j.kind and b.ordering_key = j.ordering_key and b.cron is null and b.state = 'ready'
            and b.id < j.id and (b.run_at <= now() or b.turn in ('begun', 'holds'))
          order by b.id limit 1) is null
        and (
          select b.id from {schema}.jobs b
          where b.kind = j.kind and b.ordering_key = j.ordering_key and b.cron is null and b.state = 'dead'
            and b.id < j.id and b.turn = 'holds'
          order by b.id limit 1) is null);
    taken := array(
      select one.id from unnest(met) with ordinality as one (id, position)
      where one.id = any (free) order by one.position limit part);
    begin
      update {schema}.jobs j
      set state = 'running',
          attempts = j.attempts + 1,
          lease_token = (select nextval('{schema}.lease_tokens')),
          locked_until = clock_timestamp() + lease,
          locked_by = worker,
          on_lease_expired = case when park then 'park' end,
          turn = case when holds then 'holds' else 'begun' end
      where j.id = any (taken) and j.state = 'ready';
      update {schema}.jobs j
      set turn = 'waits'
      where j.id = any (met) and j.state = 'ready' and not j.id = any (free);
      again := found;
      rounds := rounds + again::integer;
    exception when unique_violation then
      return ids;
    end;
    ids := ids || taken;
    wanted := wanted - cardinality(taken);
    if reserve then
      reserve := false;
      again := false;
      level := null;
    end if;
  end loop;
  return ids;
end
$$;

-- Whoever is next of these keys (kinds[i], keys[i]) need not wait any more. Called after the one before has ended and
-- that is committed; upkeep calls it for what was missed. In the order of the keys: it waits for locks.
create function {schema}.promote(kinds text[], keys text[])
returns void
language plpgsql
set lock_timeout = '2s'
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
  next bigint;
begin
  for i in 1 .. cardinality(kinds) loop
    select j.id into next
    from {schema}.jobs j
    where j.kind = kinds[i] and j.ordering_key = keys[i] and j.cron is null and j.state = 'ready' and j.run_at <= now()
    order by j.id
    for update
    limit 1;
    update {schema}.jobs j set turn = null where j.id = next and j.state = 'ready' and j.turn = 'waits';
  end loop;
end
$$;

drop function {schema}.claim(text[], integer[], boolean[], integer, text, interval, bigint[]);

-- rules: what a kind asks for beyond the usual, by its name: maxRunning, rate, holds (its dead jobs keep their ordering key).
-- oldest: up to a tenth (at least one) of each kind comes from the priority whose first job has waited longest.
create function {schema}.claim(
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
  remaining integer := total;
  wanted integer;
  part integer;            -- of these, from one level
  got integer;
  level smallint;          -- the priority that is claimed from
  floor_level smallint;    -- the next one of which a floor is known
  floor_at timestamptz;
  floor_id bigint;
  reserve boolean;
  rule jsonb;
  limited boolean;
  ids bigint[];
  spent bigint[];          -- what a limited kind got
  -- One look at an index that is empty unless ordering keys are used.
  ordered boolean := exists (
    select from {schema}.jobs j
    where j.state = 'ready' and j.cron is null and not j.solo and j.ordering_key is not null
      and j.turn is distinct from 'waits' and j.kind = any (kinds));
begin
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
      spent := ids;
    end if;
    level := null;
    reserve := oldest;
    while wanted > 0 loop
      part := wanted;
      floor_at := '-infinity';
      floor_id := 0;
      if reserve then
        part := greatest(1, wanted / 10);
        with recursive head as (
          (select j.priority, j.run_at
           from {schema}.jobs j
           where j.state = 'ready' and j.cron is null and not j.solo and j.ordering_key is null and j.kind = kinds[i]
           order by j.priority desc, j.run_at, j.id limit 1)
          union all
          select next.priority, next.run_at
          from head cross join lateral (
            select j.priority, j.run_at
            from {schema}.jobs j
            where j.state = 'ready' and j.cron is null and not j.solo and j.ordering_key is null and j.kind = kinds[i]
              and j.priority < head.priority
            order by j.priority desc, j.run_at, j.id limit 1) next
        )
        select head.priority into level from head where head.run_at <= now() order by head.run_at limit 1;
        exit when level is null;
      else
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
        where j.state = 'ready' and j.cron is null and not j.solo and j.ordering_key is null and j.kind = kinds[i]
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
      end if;
      if limited then
        -- The same as below, its ids kept.
        with candidates as materialized (
          select j.id
          from {schema}.jobs j
          where j.state = 'ready' and j.cron is null and not j.solo and j.ordering_key is null
            and j.kind = kinds[i] and j.priority = level and j.run_at <= now()
            and (j.run_at, j.id) > (floor_at, floor_id)
          order by j.run_at, j.id
          for update skip locked
          limit part
        ),
        claimed as (
          update {schema}.jobs j
          set state = 'running',
              attempts = j.attempts + 1,
              lease_token = (select nextval('{schema}.lease_tokens')),
              locked_until = clock_timestamp() + lease,
              locked_by = worker,
              on_lease_expired = case when parks[i] then 'park' end
          from candidates c
          where j.id = c.id and j.state = 'ready'
          returning j.id
        )
        select coalesce(array_agg(claimed.id), '{}') into ids from claimed;
        got := cardinality(ids);
        spent := spent || ids;
      else
        return query
        with candidates as materialized (
          select j.id
          from {schema}.jobs j
          where j.state = 'ready' and j.cron is null and not j.solo and j.ordering_key is null
            and j.kind = kinds[i] and j.priority = level and j.run_at <= now()
            and (j.run_at, j.id) > (floor_at, floor_id)
          order by j.run_at, j.id
          for update skip locked
          limit part
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
                  j.priority, j.run_at, j.created_at, j.headers, j.progress, j.dedupe_key, j.source, j.retry_policy,
                  j.ordering_key;
        get diagnostics got = row_count;
      end if;
      wanted := wanted - got;
      if reserve then
        reserve := false;
        level := null;
      end if;
    end loop;
    if ordered and wanted > 0 then
      ids := {schema}.claim_ordered(
        kinds[i], wanted, parks[i], coalesce((rule ->> 'holds')::boolean, false), worker, lease, false);
      wanted := wanted - cardinality(ids);
      spent := spent || ids;
    end if;
    remaining := remaining + wanted;
    if cardinality(spent) > 0 then
      if limited then
        perform {schema}.spend(kinds[i], rule, spent);
      end if;
      return query
      select j.id, j.kind, j.payload::text, j.body, j.content_type, j.attempts, j.max_attempts, j.lease_token, j.priority,
             j.run_at, j.created_at, j.headers, j.progress, j.dedupe_key, j.source, j.retry_policy, j.ordering_key
      from {schema}.jobs j where j.id = any (spent);
    end if;
  end loop;
end
$$;

drop function {schema}.claim_solo(text[], boolean[], text, interval);

-- Takes one job whose last lease expired. A worker calls it only while it runs nothing else, so that a job which
-- kills its process disturbs nobody twice. Limits and ordering keys hold for it, too.
create function {schema}.claim_solo(
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
  allowed text[] := kinds;
  limited text;
  got bigint;
  got_kind text;
begin
  for limited in
    select distinct j.kind
    from {schema}.jobs j
    where rules <> '{}' and j.state = 'ready' and j.cron is null and j.solo and j.kind = any (kinds) and j.run_at <= now()
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
    where j.state = 'ready' and j.cron is null and j.solo and j.kind = any (allowed) and j.run_at <= now()
      and (j.ordering_key is null or not exists (
        select from {schema}.jobs b
        where b.kind = j.kind and b.ordering_key = j.ordering_key and b.cron is null and b.state = 'running'))
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
      on_lease_expired = case when parks[array_position(kinds, j.kind)] then 'park' end,
      turn = case when j.ordering_key is not null then
        case when (rules -> j.kind ->> 'holds')::boolean then 'holds' else 'begun' end end
  from candidate c
  where j.id = c.id and j.state = 'ready'
  returning j.id, j.kind into got, got_kind;
  if got is null then
    return;
  end if;
  if rules -> got_kind ?| array['maxRunning', 'rate'] then
    perform {schema}.spend(got_kind, rules -> got_kind, array[got]);
  end if;
  return query
  select j.id, j.kind, j.payload::text, j.body, j.content_type, j.attempts, j.max_attempts, j.lease_token, j.priority,
         j.run_at, j.created_at, j.headers, j.progress, j.dedupe_key, j.source, j.retry_policy, j.ordering_key
  from {schema}.jobs j where j.id = got;
end
$$;

drop function {schema}.enqueue(text, jsonb, timestamptz, integer, integer, text, jsonb, text);

-- select enqueue('notify.email', '{"to": "a@example.com"}', dedupe_key => 'receipt-17', ordering_key => 'customer-4')
-- Returns the job's id; with a dedupe key that is already there, the first job's id. Wakes a worker that sleeps.
create function {schema}.enqueue(
  kind text,
  payload jsonb default 'null',
  run_at timestamptz default now(),
  priority integer default 0,
  max_attempts integer default 20,
  dedupe_key text default null,
  headers jsonb default null,
  source text default null,
  ordering_key text default null)
returns bigint
language plpgsql
as $$
#variable_conflict use_variable
declare
  job bigint;
begin
  insert into {schema}.jobs as j (kind, payload, run_at, priority, max_attempts, dedupe_key, headers, source, ordering_key)
  values (kind, payload, run_at, priority, max_attempts, dedupe_key, headers, source, ordering_key)
  on conflict do nothing
  returning j.id into job;
  if job is null then
    -- A new statement, hence a new snapshot: it sees the row that won.
    select j.id into job from {schema}.jobs j where j.kind = enqueue.kind and j.dedupe_key = enqueue.dedupe_key;
  elsif run_at <= now() then
    perform pg_notify(left('jobs:' || trim(both '"' from '{schema}'), 63), '')
    from {schema}.sleepers where sleeps_until > clock_timestamp() limit 1;
  end if;
  return job;
end
$$;

-- Instant: the index that takes its place is there.
drop index {schema}.jobs_claim;
alter index {schema}.jobs_claim_unordered rename to jobs_claim;
