-- As in 031_claims.sql, but for how the jobs of claims are found.
create or replace function {schema}.reap(most integer)
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
  named bigint[];          -- of the claims that are looked at
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
    -- By their ids, not by a join: where its plan was made while the table was small, a sweep read the whole index.
    named := array(select unnest(c.ids) from {schema}.claims c where c.token = any (met.tokens));
    expired := array(
      select j.id
      from {schema}.jobs j
      where j.id = any (named) and j.state = 'running' and j.lease_token = any (met.tokens)
        and j.locked_until < clock_timestamp()
      order by j.id
      for update skip locked
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
      select j.lease_token as token, min(j.locked_until) as ends_at, array_agg(j.id) as ids
      from {schema}.jobs j
      where j.id = any (named) and j.state = 'running' and j.lease_token = any (met.tokens)
      group by j.lease_token
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

-- 038_claim_in_place.sql put another one in its place. Not there: a claim that was under way would have missed it.
drop function {schema}.pick(
  text[], integer[], boolean[], integer, text, interval, integer[], integer[], bigint[], bigint[], jsonb, boolean);

call {schema}.grant_as_before();
