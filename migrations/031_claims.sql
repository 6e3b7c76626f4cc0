-- What claims took, by lease token: where to look for a job when its lease has ended. Running rows had an index for that, so each
-- claim and each end of a job wrote into it, and the claim of a job could not stay in the page of its row. Now each claim writes one
-- row, and no index of the jobs tells who runs.
--
-- A row is a hint; the job's own row is the truth. A hint may name jobs that do not run under its token any more, never leave out one
-- that does: whoever makes rows run writes theirs in the same transaction.
--
-- remaining: of the ids, those whose end was not counted; whoever ends the last takes the row away. 0: nobody counts, the reaper
-- looked at it or it was not there from the start; the reaper takes it away. Nobody waits for a row here: who meets a locked one
-- leaves the count too high, and the reaper makes it good.
create table {schema}.claims (
  token     bigint      primary key,
  ends_at   timestamptz not null,                      -- no lease of it ends before
  remaining integer     not null,
  ids       bigint[]    not null
) with (
  fillfactor = 50,
  -- A count is written in the page of its row, without the ids, where they are more than a few.
  toast_tuple_target = 256,
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);

alter table {schema}.claims alter column ids set storage external;

-- So many jobs of these tokens ended, one token for each. Pinned, since a plan that was made while the table was empty reads all of it.
create function {schema}.count_ends(tokens bigint[])
returns void
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
  counted record;
  last constant integer := cardinality(tokens);
begin
  if last > 0 and tokens[1] = all (tokens) then
    perform {schema}.count_ends_of(tokens[1], last);
  elsif last > 0 then
    for counted in select t.token, count(*)::integer as ended from unnest(tokens) as t (token) group by t.token loop
      perform {schema}.count_ends_of(counted.token, counted.ended);
    end loop;
  end if;
end
$$;

-- The same for one token. Called from functions that pin the plan.
create function {schema}.count_ends_of(claim bigint, ended integer)
returns void
language plpgsql
as $$
begin
  -- Where two writes of one row are an error, ends of two jobs would meet here that never met before.
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    return;
  end if;
  delete from {schema}.claims c
  where c.token = (
    select d.token from {schema}.claims d where d.token = claim and d.remaining between 1 and ended for update skip locked);
  if not found then
    update {schema}.claims c
    set remaining = c.remaining - ended
    where c.token = (
      select d.token from {schema}.claims d where d.token = claim and d.remaining > ended for update skip locked);
  end if;
end
$$;

-- running -> done as in 024_finish_and_claim.sql, with the count; the ids that it changed.
create function {schema}.finish_some(ended bigint[], ended_tokens bigint[], results text[])
returns bigint[]
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  done bigint[];
begin
  with completed as (
    update {schema}.jobs j
    set state = 'done',
        finished_at = clock_timestamp(),
        result = case when results is null then j.result else results[width_bucket(j.id, ended)]::jsonb end,
        locked_until = null,
        locked_by = null,
        lease_token = null,
        on_lease_expired = null,
        turn = null
    where j.id = any (ended) and j.state = 'running' and j.lease_token = ended_tokens[width_bucket(j.id, ended)]
    returning j.id
  )
  select array_agg(completed.id) into done from completed;
  -- Where some were not ours any more, and of which claim is not known at once, the reaper counts.
  if done is not null and ended_tokens[1] = all (ended_tokens) then
    perform {schema}.count_ends_of(ended_tokens[1], cardinality(done));
  elsif cardinality(done) = cardinality(ended) then
    perform {schema}.count_ends(ended_tokens);
  end if;
  return done;
end
$$;

create or replace function {schema}.finish(ended bigint[], ended_tokens bigint[], results text[] default null)
returns text
language plpgsql
as $$
begin
  return array_to_string({schema}.finish_some(ended, ended_tokens, results), ',');
end
$$;

-- The same of many, refused when somebody else holds one of the rows for longer: as text, '*' when it changed them all. To write a
-- thousand ids was half a microsecond a job.
create function {schema}.finish_batch(ended bigint[], ended_tokens bigint[], results text[])
returns text
language plpgsql
set lock_timeout = '500ms'
as $$
declare
  done bigint[];
begin
  done := {schema}.finish_some(ended, ended_tokens, results);
  return case when cardinality(done) = cardinality(ended) then '*' else array_to_string(done, ',') end;
end
$$;

-- As in 030_held_rows.sql, with the count.
create or replace function {schema}.finish_one(job bigint, token bigint, outcome text default null)
returns boolean
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set lock_timeout = '500ms'
as $$
begin
  update {schema}.jobs j
  set state = 'done',
      finished_at = clock_timestamp(),
      result = coalesce(outcome::jsonb, j.result),
      locked_until = null,
      locked_by = null,
      lease_token = null,
      on_lease_expired = null,
      turn = null
  where j.id = job and j.state = 'running' and j.lease_token = token;
  if not found then
    return false;
  end if;
  perform {schema}.count_ends_of(token, 1);
  return true;
end
$$;

-- The same without the count, and without waiting unless it `waits`. w written; s stale, as the fence says; h held locked by somebody.
create function {schema}.finish_uncounted(job bigint, token bigint, outcome text, waits boolean)
returns text
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set lock_timeout = '500ms'
as $$
begin
  if not waits then
    perform from {schema}.jobs j where j.id = job for no key update skip locked;
    if not found then
      return case when exists (select from {schema}.jobs j where j.id = job and j.lease_token = token) then 'h' else 's' end;
    end if;
  end if;
  update {schema}.jobs j
  set state = 'done',
      finished_at = clock_timestamp(),
      result = coalesce(outcome::jsonb, j.result),
      locked_until = null,
      locked_by = null,
      lease_token = null,
      on_lease_expired = null,
      turn = null
  where j.id = job and j.state = 'running' and j.lease_token = token;
  return case when found then 'w' else 's' end;
end
$$;

-- As in 030_held_rows.sql. What ended is counted once, at the end: between two of its commits the reaper may have looked, but
-- then nobody counts any more.
create or replace procedure {schema}.finish_each(ended bigint[], ended_tokens bigint[], results text[], inout answers text)
language plpgsql
as $$
declare
  answer text;
  waits boolean := true;
  counted bigint[] := '{}';
  last constant integer := cardinality(ended);
begin
  answers := '';
  for i in 1 .. last loop
    if i < last then
      perform set_config('synchronous_commit', 'off', true);
    end if;
    begin
      answer := {schema}.finish_uncounted(ended[i], ended_tokens[i], results[i], waits);
    exception
      when lock_not_available then
        answer := 'h';
        waits := false;
      when query_canceled or others then
        answer := 'e';
    end;
    answers := answers || answer;
    if answer = 'w' then
      counted := counted || ended_tokens[i];
    end if;
    if i = last then
      begin
        perform {schema}.count_ends(counted);
      exception when query_canceled or others then
        -- The reaper's to clear away.
        null;
      end;
      if answer <> 'w' then
        -- A commit of nothing does not wait, so something is written for those before it.
        perform pg_logical_emit_message(true, 'unbroker', '');
      end if;
    end if;
    commit;
  end loop;
end
$$;

-- As in 030_held_rows.sql, with the count.
create or replace function {schema}.remove_soon(ended bigint[], ended_tokens bigint[])
returns text
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
set lock_timeout = '500ms'
as $$
declare
  answer text;
  counted bigint[];
begin
  with removed as (
    delete from {schema}.jobs j
    where j.id = any (ended) and j.state = 'running' and j.lease_token = ended_tokens[width_bucket(j.id, ended)]
    returning j.id
  )
  select string_agg(removed.id::text, ','), array_agg(ended_tokens[width_bucket(removed.id, ended)])
  into answer, counted
  from removed;
  perform {schema}.count_ends(counted);
  return answer;
end
$$;

-- Takes back up to `most` jobs whose leases have ended: ready again (alone next time), or dead when attempts are used up or the kind
-- parks. Blind to which kinds anybody registered. Looks where claims ought to have ended, the longest ago first, and leaves
-- each with those that still run and the next end among them. The update repeats the tests under the lock, so a job that
-- finished or was extended meanwhile is left as it is.
create function {schema}.reap(most integer)
returns table (id text, kind text, state text)
language plpgsql
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set max_parallel_workers_per_gather = 0
as $$
#variable_conflict use_column
declare
  began constant timestamptz := clock_timestamp();
  met record;
  last_end timestamptz := '-infinity';
  last_token bigint := 0;
  looked integer := 0;     -- at so many claims
  weighed bigint := 0;     -- which name so many ids
  expired bigint[];
  taken integer;
  wanted integer := most;
begin
  -- Bounded: whoever leaves a million claims behind must not make a single call walk them.
  while wanted > 0 and looked < 10000 and weighed < 50000 loop
    with due as materialized (
      select c.token, c.ends_at, cardinality(c.ids) as size
      from {schema}.claims c
      where c.ends_at < began and (c.ends_at, c.token) > (last_end, last_token)
      order by c.ends_at, c.token
      limit 200
    ), weighted as (
      select due.*, sum(due.size) over (order by due.ends_at, due.token) - due.size as before from due
    )
    select array_agg(w.token order by w.ends_at, w.token) as tokens, max(w.ends_at) as last_end,
           count(*)::integer as number, sum(w.size) as size
    into met
    from weighted w
    where w.before < 2 * wanted;
    exit when met.tokens is null;
    last_end := met.last_end;
    last_token := met.tokens[met.number];
    looked := looked + met.number;
    weighed := weighed + met.size;
    expired := array(
      select j.id
      from unnest(met.tokens) as t (token)
      join {schema}.claims c on c.token = t.token
      cross join lateral unnest(c.ids) as named (id)
      join {schema}.jobs j on j.id = named.id
      where j.state = 'running' and j.lease_token = c.token and j.locked_until < clock_timestamp()
      order by j.id
      for update of j skip locked
      limit wanted);
    return query
    update {schema}.jobs j
    set state = case when j.attempts >= j.max_attempts or j.on_lease_expired is not null then 'dead' else 'ready' end,
        finished_at = case when j.attempts >= j.max_attempts or j.on_lease_expired is not null then clock_timestamp() end,
        dead = case when j.attempts >= j.max_attempts or j.on_lease_expired is not null then true end,
        solo = not (j.attempts >= j.max_attempts or j.on_lease_expired is not null),
        turn = case j.turn
          when 'runs' then 'begun'
          when 'runs-holds' then
            case when j.attempts >= j.max_attempts or j.on_lease_expired is not null then 'stops' else 'holds' end
          else j.turn end,
        locked_until = null,
        locked_by = null,
        lease_token = null,
        on_lease_expired = null,
        -- A bounded list: the oldest goes when it is full.
        errors = case when jsonb_array_length(coalesce(j.errors, '[]')) >= 10
            then j.errors - 0 else coalesce(j.errors, '[]') end
          || jsonb_build_object('at', clock_timestamp(), 'attempt', j.attempts,
               'name', case when j.on_lease_expired is not null then 'lease-expired-parked' else 'lease-expired' end,
               'message', 'the lease of ' || j.locked_by || ' ran out before it settled')
    where j.id = any (expired) and j.state = 'running' and j.locked_until < clock_timestamp()
    returning j.id::text, j.kind, j.state;
    get diagnostics taken = row_count;
    wanted := wanted - taken;
    with still as materialized (
      select c.token, min(j.locked_until) as ends_at, array_agg(j.id) as ids
      from unnest(met.tokens) as t (token)
      join {schema}.claims c on c.token = t.token
      cross join lateral unnest(c.ids) as named (id)
      join {schema}.jobs j on j.id = named.id
      where j.state = 'running' and j.lease_token = c.token
      group by c.token
    ), free as materialized (
      -- Only to write them: a job must not wait for its lease's end because another one's end is not committed yet.
      select c.token from {schema}.claims c where c.token = any (met.tokens) order by c.token for update skip locked
    ), gone as (
      delete from {schema}.claims c
      where c.token in (select free.token from free) and not exists (select from still where still.token = c.token)
    )
    update {schema}.claims c
    set ends_at = still.ends_at,
        remaining = 0,
        -- The same list is not written again.
        ids = case when cardinality(still.ids) = cardinality(c.ids) then c.ids else still.ids end
    from still
    where c.token = still.token and c.token in (select free.token from free);
  end loop;
end
$$;

-- Notes running jobs that no claim names; how many. For what runs while the table is being made, and for a person whom the doctor
-- has told of some.
create function {schema}.note_running()
returns integer
language plpgsql
set enable_seqscan = off
as $$
declare
  found_some integer;
begin
  with unnamed as materialized (
    select j.id, j.lease_token, j.locked_until
    from {schema}.jobs j
    where j.state = 'running' and j.lease_token is not null and not exists (
      select from {schema}.claims c where c.token = j.lease_token and j.id = any (c.ids))
  ), noted as (
    insert into {schema}.claims as c (token, ends_at, remaining, ids)
    select u.lease_token, min(u.locked_until), 0, array_agg(u.id) from unnamed u group by u.lease_token order by 1
    on conflict (token) do update
    set ends_at = least(c.ends_at, excluded.ends_at), remaining = 0, ids = c.ids || excluded.ids
  )
  select count(*) into found_some from unnamed;
  return found_some;
end
$$;

-- Gives whoever may call finish(), or write jobs, the same right to what is new here: a worker of the version before calls
-- the functions that it knows, and those now need these. `unbroker roles` grants the same, but later.
create procedure {schema}.grant_as_before()
language plpgsql
as $$
declare
  given record;
begin
  for given in
    select a.grantee, a.privilege_type, case a.grantee when 0 then 'public' else a.grantee::regrole::text end as name
    from pg_class c cross join lateral aclexplode(c.relacl) a
    where c.oid = '{schema}.jobs'::regclass and a.grantee <> c.relowner
      and a.privilege_type in ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
  loop
    execute format('grant %s on {schema}.claims to %s', given.privilege_type, given.name);
  end loop;
  for given in
    select distinct p.oid::regprocedure::text as routine, case a.grantee when 0 then 'public' else a.grantee::regrole::text end as name
    from pg_proc known
    cross join lateral aclexplode(coalesce(known.proacl, acldefault('f', known.proowner))) a
    join pg_proc p on p.pronamespace = known.pronamespace and p.proowner = known.proowner
    where known.oid = '{schema}.finish(bigint[],bigint[],text[])'::regprocedure
      and a.grantee <> known.proowner and a.privilege_type = 'EXECUTE'
      and not exists (
        select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) b
        where b.grantee = a.grantee and b.privilege_type = 'EXECUTE')
  loop
    execute format('grant execute on routine %s to %s', given.routine, given.name);
  end loop;
end
$$;

call {schema}.grant_as_before();

-- What runs now. Who claims from here on waits for this to be committed. A claim that is under way in the old function is noted
-- once more when the functions have changed.
lock table {schema}.jobs in share row exclusive mode;

select {schema}.note_running();
