-- The end of all jobs of one claim finds them where the claim left them. By their ids each was looked up in the table's largest index
-- once more: three pages to find and to lock for a job, a tenth of what its claim and its end take the server when two workers share it.

-- Where the claim left its rows, in no order; null where it did not say. A hint as the rest of the row: what an extended lease has
-- moved since then is found by its id.
alter table {schema}.claims add column places tid[];
alter table {schema}.claims alter column places set storage external;

-- Where the rows of this claim are, if these are all of its jobs, in any order: whatever runs there under its token is then one of
-- them. Only while none of them was counted as ended and no reaper has looked: it leaves the ids of those that still run, and a
-- restored table may hold another that runs under the same token.
create function {schema}.places_of(claim bigint, ended bigint[])
returns tid[]
language plpgsql
stable
as $$
begin
  return (
    select c.places
    from {schema}.claims c
    where c.token = claim and c.remaining = cardinality(ended) and cardinality(c.ids) = cardinality(ended)
      and (c.ids = ended
        or array(select i.id from unnest(c.ids) as i (id) order by i.id)
          = array(select e.id from unnest(ended) as e (id) order by e.id)));
end
$$;

-- As in 042_claim_lines.sql, and says where the claimed rows are.
create or replace function {schema}.claim_lines(
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
  now_at tid[];            -- where the versions are that this claim wrote
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
    returning j.ctid as place, j.body, {schema}.job_brief(j, kinds, token) as job
  ),
  keyed as (
    select j.body, {schema}.job_brief(j, kinds, token) as job
    -- Not by a join: where its plan was made while the table was empty, as that of a worker that waits for the first jobs, each
    -- claim read the whole index (80 ms beside 200,000 jobs), also when no job had a key.
    from {schema}.jobs j where j.id = any (leased)
  ),
  together as (
    select * from keyed union all select c.body, c.job from claimed c
  )
  select (select count(*) from claimed), (select array_agg(c.place) from claimed c),
         count(*) filter (where t.body is null and octet_length(t.job) <= 2000),
         string_agg(t.job, e'\x1e') filter (where t.body is null and octet_length(t.job) <= 2000),
         array_agg(t.job) filter (where t.body is not null or octet_length(t.job) > 2000),
         array_agg(t.body) filter (where t.body is not null or octet_length(t.job) > 2000)
  into got, now_at, n, lines, long, bodies
  from together t (body, job);
  if cardinality(locked) > 0 then
    insert into {schema}.claims (token, ends_at, remaining, ids, places) values (token, until, got, locked, now_at);
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

-- As in 038_claim_in_place.sql.
create or replace function {schema}.finish_of(ended bigint[], token bigint)
returns text
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_tidscan = on
set jit = off
set lock_timeout = '500ms'
as $$
declare
  done bigint[];
  rest bigint[];
  at tid[];
  moment constant timestamptz := clock_timestamp();
begin
  if cardinality(ended) >= 10 then
    at := {schema}.places_of(token, ended);
  end if;
  if at is not null then
    with completed as (
      update {schema}.jobs j
      set state = 'done',
          finished_at = moment,
          locked_until = null,
          locked_by = null,
          lease_token = null,
          on_lease_expired = null,
          turn = null
      where j.ctid = any (at) and j.state = 'running' and j.lease_token = token
      returning j.id
    )
    select array_agg(completed.id) into done from completed;
  end if;
  if done is null or cardinality(done) < cardinality(ended) then
    with completed as (
      update {schema}.jobs j
      set state = 'done',
          finished_at = moment,
          locked_until = null,
          locked_by = null,
          lease_token = null,
          on_lease_expired = null,
          turn = null
      where j.id = any (ended) and j.state = 'running' and j.lease_token = token
      returning j.id
    )
    select array_agg(completed.id) into rest from completed;
    done := done || rest;
  end if;
  if done is not null then
    perform {schema}.count_ends_of(token, cardinality(done));
  end if;
  return case when cardinality(done) = cardinality(ended) then '*' else array_to_string(done, ',') end;
end
$$;

-- The same, and their rows go with it.
create or replace function {schema}.remove_of(ended bigint[], token bigint)
returns text
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_tidscan = on
set jit = off
set lock_timeout = '500ms'
as $$
declare
  gone bigint[];
  rest bigint[];
  at tid[];
begin
  if cardinality(ended) >= 10 then
    at := {schema}.places_of(token, ended);
  end if;
  if at is not null then
    with removed as (
      delete from {schema}.jobs j
      where j.ctid = any (at) and j.state = 'running' and j.lease_token = token
      returning j.id
    )
    select array_agg(removed.id) into gone from removed;
  end if;
  if gone is null or cardinality(gone) < cardinality(ended) then
    with removed as (
      delete from {schema}.jobs j
      where j.id = any (ended) and j.state = 'running' and j.lease_token = token
      returning j.id
    )
    select array_agg(removed.id) into rest from removed;
    gone := gone || rest;
  end if;
  if gone is not null then
    perform {schema}.count_ends_of(token, cardinality(gone));
  end if;
  return case when cardinality(gone) = cardinality(ended) then '*' else array_to_string(gone, ',') end;
end
$$;

call {schema}.grant_as_before();
