-- The claim of many looked for jobs with an ordering key by a join. Where its plan was made while the table was empty, as that of a
-- worker that waits for the first jobs, each claim read the whole index of the jobs, also when no job had a key: 6,700 pages and
-- 80 ms beside 200,000 jobs, until the table was analyzed. By their ids there is no such plan. Else as in 038_claim_in_place.sql.

create or replace function {schema}.claim_many(
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
set enable_tidscan = on
set max_parallel_workers_per_gather = 0
as $$
#variable_conflict use_variable
declare
  locked bigint[];
  places tid[];
  leased bigint[];
  used bigint[];
  token bigint;
  until timestamptz;
  got integer;
  texts text[];
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
    returning j.body, {schema}.job_line(j, kinds) as job
  ),
  keyed as (
    select j.body, {schema}.job_line(j, kinds) as job
    from {schema}.jobs j where j.id = any (leased)
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
    insert into {schema}.claims (token, ends_at, remaining, ids) values (token, until, got, locked);
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
