-- Who puts jobs in by this package has checked them already, and the rules' trigger asked once more: 13 us of what a job cost a
-- caller's transaction, by being called at all. Now it is called for rows that do not say `checked`: those written by hand, by
-- the version before, and whatever a function below does not vouch for.
--
-- A condition of one word, since a trigger's condition is text that each statement reads anew (026_rules_by_trigger.sql).
alter table {schema}.jobs add column checked boolean;

drop trigger jobs_row_inserted on {schema}.jobs;
create trigger jobs_row_inserted after insert on {schema}.jobs
  for each row when (new.checked is not true) execute function {schema}.job_must_fit();

-- Granted to everybody, since it lets nobody do anything: a row needs a kind, and who may not give one puts none in. Who may goes on
-- with the grants he has, also those that are given anew by a list that was written before; else the functions below, which
-- run with their caller's rights, would refuse him, and a session that goes from role to role would lose transactions.
grant insert (checked) on {schema}.jobs to public;

-- As in 035_claim_open.sql, but an update is not asked about what it found and left: who says `checked` vouches, and who
-- restores goes past the triggers. One such row, an empty ordering key, say, had stopped each claim, end or sweep that met it
-- together with all other jobs in the statement.
create or replace function {schema}.job_must_fit()
returns trigger
language plpgsql
as $$
declare
  asked {schema}.jobs;
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
    if tg_op = 'UPDATE' and (
      length(new.kind) between 1 and 200 and new.max_attempts between 1 and 1000
      and coalesce(length(new.dedupe_key) between 1 and 500, true)
      and coalesce(length(new.ordering_key) between 1 and 500, true)
      and (new.payload is not null or new.body is not null)) is not true
    then
      asked := new;
      if new.kind = old.kind then asked.kind := '-'; end if;
      if new.max_attempts = old.max_attempts then asked.max_attempts := 1; end if;
      if new.dedupe_key = old.dedupe_key and new.misfire is null then asked.dedupe_key := null; end if;
      if new.ordering_key = old.ordering_key then asked.ordering_key := null; end if;
      if old.payload is null and old.body is null then asked.payload := 'null'; end if;
      perform {schema}.job_fits(asked);
    else
      perform {schema}.job_fits(new);
    end if;
    if new.state = 'dead' and new.dead is not true then
      update {schema}.jobs j set dead = true where j.id = new.id and j.state = 'dead';
    end if;
  end if;
  return null;
end
$$;

-- As in 018_checks.sql; whoever calls it, a row says `checked` only where the rules hold.
create or replace function {schema}.enqueue_plain(kind text, payload text, priority integer, headers text)
returns text
language plpgsql
as $$
#variable_conflict use_variable
declare
  job bigint;
begin
  insert into {schema}.jobs as j (kind, payload, priority, headers, checked)
  values (kind, payload::jsonb, coalesce(priority, 0), headers::jsonb, payload is not null and length(kind) between 1 and 200)
  returning j.id into job;
  -- Only when somebody sleeps: see 006_sleepers.sql.
  perform pg_notify(left('jobs:' || trim(both '"' from '{schema}'), 63), '')
  from {schema}.sleepers where sleeps_until > clock_timestamp() limit 1;
  return job::text;
end
$$;

-- As in 029_enqueue_alike_once_read.sql. An element of a list is never SQL's null.
create or replace function {schema}.enqueue_alike(the_kind text, payloads text, the_priority integer, the_headers text)
returns text
language plpgsql
as $$
declare
  list constant jsonb := payloads;
  fits constant boolean := length(the_kind) between 1 and 200;
  ids bigint[];
begin
  with inserted as (
    insert into {schema}.jobs as j (kind, payload, priority, headers, checked)
    select the_kind, given.payload, coalesce(the_priority, 0), the_headers::jsonb, fits
    from jsonb_array_elements(list) as given (payload)
    returning j.id
  )
  select array_agg(inserted.id) into ids from inserted;
  -- Only when somebody sleeps: see 006_sleepers.sql.
  perform pg_notify(left('jobs:' || trim(both '"' from '{schema}'), 63), '')
  from {schema}.sleepers where sleeps_until > clock_timestamp() limit 1;
  if ids[cardinality(ids)] - ids[1] + 1 = cardinality(ids) then
    return ids[1] || '-' || ids[cardinality(ids)];
  end if;
  return array_to_string(ids, ',');
end
$$;

-- As in 027_enqueue_alike.sql.
create or replace function {schema}.enqueue_many(
  kinds text[], payloads text[], priorities smallint[], run_ats timestamptz[], delays_ms double precision[],
  max_attempts integer[], headers text[], sources text[], retry_policies text[], ordering_keys text[])
returns text
language plpgsql
as $$
declare
  ids text;
begin
  with inserted as (
    insert into {schema}.jobs as j (
      kind, payload, priority, run_at, max_attempts, headers, source, retry_policy, ordering_key, checked)
    select given.kind, given.payload::jsonb, coalesce(given.priority, 0),
           coalesce(given.run_at, now() + given.delay_ms * interval '1 millisecond', now()), coalesce(given.most, 20),
           given.header::jsonb, given.source, given.policy::jsonb, given.ordering_key,
           given.payload is not null and length(given.kind) between 1 and 200 and coalesce(given.most, 20) between 1 and 1000
             and given.ordering_key is null
    from unnest(kinds, payloads, priorities, run_ats, delays_ms, enqueue_many.max_attempts, enqueue_many.headers, sources,
                retry_policies, ordering_keys)
      as given (kind, payload, priority, run_at, delay_ms, most, header, source, policy, ordering_key)
    returning j.id
  )
  select array_to_string(array_agg(inserted.id), ',') into ids from inserted;
  -- Only when somebody sleeps: see 006_sleepers.sql.
  perform pg_notify(left('jobs:' || trim(both '"' from '{schema}'), 63), '')
  from {schema}.sleepers where sleeps_until > clock_timestamp() limit 1;
  return ids;
end
$$;
