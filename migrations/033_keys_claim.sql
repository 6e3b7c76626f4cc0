-- Claims of jobs with an ordering key, on the indexes of 032_keys.sql; and `turn` kept by the table itself.
--
-- turn, of rows with an ordering key. null: never started, as far as anybody knows the next. waits: another job of its key goes
-- first. begun: it was started, so it keeps its key until it is over. holds: the same, and when it is dead, too. While it runs:
-- runs and runs-holds. Dead, and keeps its key: stops.

-- What becomes of it in a state. Nothing, in most.
create function {schema}.turn_in(state text, turn text)
returns text
language sql
immutable
as $$
  select case
    when state in ('done', 'cancelled') then null
    when state = 'dead' and turn in ('holds', 'runs-holds') then 'stops'
    when state in ('ready', 'dead') and turn = 'runs' then 'begun'
    when state = 'ready' and turn in ('runs-holds', 'stops') then 'holds'
    else turn end
$$;

-- As in 026_rules_by_trigger.sql, and the turn: every statement that ends a lease or brings back a dead job changes the state, and
-- not all of them know of turns (those of workers of the version before, an operator's own). One that was left as it
-- runs would stop its key for good.
create or replace function {schema}.job_must_fit()
returns trigger
language plpgsql
as $$
begin
  -- Within, so that who only puts jobs in needs no right to the function.
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
  end if;
  return null;
end
$$;

-- Leases up to `wanted` jobs with an ordering key, the first of their keys each; their ids. Called by the claims, whose settings
-- it runs under. First of a key is the lowest id among what is due or was begun: a job that is put off to the future
-- and was never started keeps nobody waiting, one that failed and comes again does.
--
-- Three steps for the rows of a level. Lock some. Then, in a statement that sees whatever was committed before they were
-- locked, tell those whose key is free. Then lease those and take the others out of the index until it is their turn: each
-- is met once, however long it waits. promote() brings the next one back; it locks the same row, so the two cannot miss
-- each other. Whatever still goes wrong (a row with a lower id that was committed in between), the unique index
-- refuses, and this claim does without.
create or replace function {schema}.claim_ordered(
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
  token bigint;            -- one for all of them
  ends constant timestamptz := clock_timestamp() + lease;
begin
  -- Bounded: who puts in a million jobs of one key must not make a single claim walk them.
  while wanted > 0 and rounds < 20 loop
    part := wanted;
    if reserve then
      part := greatest(1, wanted / 10);
      with recursive head as (
        (select j.priority, j.run_at
         from {schema}.jobs j
         where j.state = 'ready' and j.finished_at is null and j.cron is null and not j.solo and j.ordering_key is not null
           and coalesce(j.turn, 'begun') in ('begun', 'holds') and j.kind = wanted_kind
         order by j.priority desc, j.run_at, j.id limit 1)
        union all
        select next.priority, next.run_at
        from head cross join lateral (
          select j.priority, j.run_at
          from {schema}.jobs j
          where j.state = 'ready' and j.finished_at is null and j.cron is null and not j.solo and j.ordering_key is not null
            and coalesce(j.turn, 'begun') in ('begun', 'holds') and j.kind = wanted_kind and j.priority < head.priority
          order by j.priority desc, j.run_at, j.id limit 1) next
      )
      select head.priority into level from head where head.run_at <= now() order by head.run_at limit 1;
    elsif not again then
      select j.priority into level
      from {schema}.jobs j
      where j.state = 'ready' and j.finished_at is null and j.cron is null and not j.solo and j.ordering_key is not null
        and coalesce(j.turn, 'begun') in ('begun', 'holds') and j.kind = wanted_kind
        and j.priority < coalesce(level::integer, 32768)
      order by j.priority desc
      limit 1;
    end if;
    exit when level is null;
    select array_agg(candidate.id) into met
    from (
      select j.id
      from {schema}.jobs j
      where j.state = 'ready' and j.finished_at is null and j.cron is null and not j.solo and j.ordering_key is not null
        and coalesce(j.turn, 'begun') in ('begun', 'holds') and j.kind = wanted_kind and j.priority = level
        and j.run_at <= now()
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
          where b.kind = j.kind and b.ordering_key = j.ordering_key and b.turn in ('runs', 'runs-holds')
          limit 1) is null
        and (
          select b.id from {schema}.jobs b
          where b.kind = j.kind and b.ordering_key = j.ordering_key and b.cron is null
            and (b.finished_at is null or b.turn = 'stops')
            and b.id < j.id and (b.run_at <= now() or b.turn <> 'waits')
          order by b.id limit 1) is null);
    taken := array(
      select one.id from unnest(met) with ordinality as one (id, position)
      where one.id = any (free) order by one.position limit part);
    begin
      if cardinality(taken) > 0 then
        token := coalesce(token, nextval('{schema}.lease_tokens'));
        update {schema}.jobs j
        set state = 'running',
            attempts = j.attempts + 1,
            lease_token = token,
            locked_until = ends,
            locked_by = worker,
            on_lease_expired = case when park then 'park' end,
            turn = case when holds then 'runs-holds' else 'runs' end
        where j.id = any (taken) and j.state = 'ready';
      end if;
      update {schema}.jobs j
      set turn = 'waits'
      where j.id = any (met) and j.state = 'ready' and not j.id = any (free);
      again := found;
      rounds := rounds + again::integer;
    exception when unique_violation then
      exit;
    end;
    ids := ids || taken;
    wanted := wanted - cardinality(taken);
    if reserve then
      reserve := false;
      again := false;
      level := null;
    end if;
  end loop;
  if cardinality(ids) > 0 then
    insert into {schema}.claims (token, ends_at, remaining, ids)
    values (token, ends, cardinality(ids), ids);
  end if;
  return ids;
end
$$;

-- Whoever is next of these keys (kinds[i], keys[i]) need not wait any more. Called after the one before has ended and
-- that is committed; upkeep calls it for what was missed. In the order of the keys: it waits for locks.
create or replace function {schema}.promote(kinds text[], keys text[])
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
    -- Where triggers are off (a session that replicates), a lease may have ended and its turn may not.
    update {schema}.jobs j
    set turn = {schema}.turn_in(j.state, j.turn)
    where j.kind = kinds[i] and j.ordering_key = keys[i] and j.turn in ('runs', 'runs-holds') and j.state <> 'running';
    select j.id into next
    from {schema}.jobs j
    where j.kind = kinds[i] and j.ordering_key = keys[i] and j.cron is null
      and (j.finished_at is null or j.turn = 'stops') and j.state = 'ready' and j.run_at <= now()
    order by j.id
    for update
    limit 1;
    update {schema}.jobs j set turn = null where j.id = next and j.state = 'ready' and j.turn = 'waits';
  end loop;
end
$$;

-- Marks dead rows for the index that lists them (034_open.sql), those that nobody marked: of before it, and whatever came past the
-- triggers. A drain's way back goes by who wrote a row last, so the mark is no change to it.
create function {schema}.mark_dead()
returns void
language plpgsql
as $$
begin
  with unmarked as materialized (
    select j.id, j.xmin as written from {schema}.jobs j where j.state = 'dead' and j.dead is not true order by j.id for update
  ), stamped as (
    update {schema}.drain_ledger l
    set written_by = pg_current_xact_id()::xid
    from unmarked u
    where l.job = u.id and coalesce(l.written_by, l.xmin) = u.written
  )
  update {schema}.jobs j set dead = true from unmarked u where j.id = u.id;
end
$$;

-- What is dead and keeps its key. Before the lock, since it may be much; and after it what died meanwhile.
update {schema}.jobs set turn = 'stops' where state = 'dead' and turn = 'holds';

drop trigger jobs_row_moved on {schema}.jobs;
create trigger jobs_row_moved after update of
    state, attempts, lease_token, locked_until, locked_by, on_lease_expired, finished_at
  on {schema}.jobs
  for each row when (
    new.state is distinct from ('[3:7]={done,running,null,null,ready}'::text[])[num_nulls(
      new.lease_token, new.locked_until, new.locked_by,
      new.finished_at, new.finished_at, new.finished_at, new.finished_at)]
    or new.attempts < 0
    or coalesce(new.on_lease_expired, new.misfire, new.turn) is not null)
  execute function {schema}.job_must_fit();

-- By the index jobs_prune: nobody can look at the table meanwhile.
update {schema}.jobs set turn = 'stops' where state = 'dead' and turn = 'holds' and finished_at > now() - interval '1 minute';

-- What runs; what a claim that is under way here leases as it always did, a later migration takes.
update {schema}.jobs
set turn = case turn when 'holds' then 'runs-holds' else 'runs' end
where state = 'running' and ordering_key is not null and turn in ('begun', 'holds');

call {schema}.grant_as_before();
