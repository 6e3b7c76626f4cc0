-- A list of jobs through a function, for the reason that one job goes through one (015_enqueue_one.sql): to read and plan the
-- statement anew for each list was 230 us of the 380 that three jobs cost the server.
--
-- Lists are null where no job has the field. Neither function reads the table, so a plan that was made while it was empty
-- is as good later.

-- Their ids in the order given, as one text: they are drawn and handed on in the order of the insert.
create function {schema}.enqueue_many(
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
      kind, payload, priority, run_at, max_attempts, headers, source, retry_policy, ordering_key)
    select given.kind, given.payload::jsonb, coalesce(given.priority, 0),
           coalesce(given.run_at, now() + given.delay_ms * interval '1 millisecond', now()), coalesce(given.most, 20),
           given.header::jsonb, given.source, given.policy::jsonb, given.ordering_key
    from unnest(kinds, payloads, priorities, run_ats, delays_ms, enqueue_many.max_attempts, enqueue_many.headers, sources,
                retry_policies, ordering_keys)
      with ordinality as given (kind, payload, priority, run_at, delay_ms, most, header, source, policy, ordering_key, position)
    order by given.position
    returning j.id
  )
  select string_agg(inserted.id::text, ',') into ids from inserted;
  -- Only when somebody sleeps: see 006_sleepers.sql.
  perform pg_notify(left('jobs:' || trim(both '"' from '{schema}'), 63), '')
  from {schema}.sleepers where sleeps_until > clock_timestamp() limit 1;
  return ids;
end
$$;

-- The same, some with dedupe keys: the id of each that was inserted, nothing between the commas for the others. Ids are drawn
-- in the order given, rows are inserted in the order of their keys: two callers that wait for each other's keys in opposite
-- orders deadlock.
create function {schema}.enqueue_many_once(
  kinds text[], payloads text[], priorities smallint[], run_ats timestamptz[], delays_ms double precision[],
  max_attempts integer[], headers text[], sources text[], retry_policies text[], ordering_keys text[], dedupe_keys text[])
returns text
language plpgsql
as $$
declare
  ids text;
begin
  with input as materialized (
    select nextval((select pg_get_serial_sequence('{schema}.jobs', 'id')::regclass)) as id, given.*
    from unnest(kinds, payloads, priorities, run_ats, delays_ms, enqueue_many_once.max_attempts, enqueue_many_once.headers,
                sources, retry_policies, ordering_keys, dedupe_keys)
      with ordinality as given (
        kind, payload, priority, run_at, delay_ms, most, header, source, policy, ordering_key, dedupe_key, position)
    order by given.position
  ),
  inserted as (
    insert into {schema}.jobs as j (
      id, kind, payload, priority, run_at, max_attempts, headers, source, retry_policy, ordering_key, dedupe_key)
    overriding system value
    select given.id, given.kind, given.payload::jsonb, coalesce(given.priority, 0),
           coalesce(given.run_at, now() + given.delay_ms * interval '1 millisecond', now()), coalesce(given.most, 20),
           given.header::jsonb, given.source, given.policy::jsonb, given.ordering_key, given.dedupe_key
    from input given
    order by given.kind, given.dedupe_key, given.position
    on conflict (kind, dedupe_key) where dedupe_key is not null do nothing
    returning j.id
  )
  select string_agg(coalesce(inserted.id::text, ''), ',' order by input.position) into ids
  from input left join inserted on inserted.id = input.id;
  -- Some were inserted, and somebody sleeps.
  if ids ~ '[0-9]' then
    perform pg_notify(left('jobs:' || trim(both '"' from '{schema}'), 63), '')
    from {schema}.sleepers where sleeps_until > clock_timestamp() limit 1;
  end if;
  return ids;
end
$$;
