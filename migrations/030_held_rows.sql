-- Ends of rows that somebody else has locked, in a transaction left open or a report with `for update`. They waited without a limit
-- in the server, also when their worker had hung up long before: each try was one more backend that waited, and whatever else was
-- to be written by the same call waited with it.

-- As 025_finish_one.sql has it, and no longer than 500 ms for the lock, as finish_soon.
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
      on_lease_expired = null
  where j.id = job and j.state = 'running' and j.lease_token = token;
  return found;
end
$$;

-- The same without waiting at all. w written; s stale, as the fence says; h held locked by somebody.
create function {schema}.finish_one_free(job bigint, token bigint, outcome text default null)
returns text
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
begin
  perform from {schema}.jobs j where j.id = job for no key update skip locked;
  if found then
    return case when {schema}.finish_one(job, token, outcome) then 'w' else 's' end;
  end if;
  return case when exists (select from {schema}.jobs j where j.id = job and j.lease_token = token) then 'h' else 's' end;
end
$$;

-- As 028_finish_each.sql has it, but for rows that are held: the first of them costs the others of the call 500 ms, more of them
-- nothing.
--
-- answers: a letter for each. w written; s stale, as the fence says; h held locked by somebody; e refused, to be asked again by
-- itself, which says why.
create or replace procedure {schema}.finish_each(ended bigint[], ended_tokens bigint[], results text[], inout answers text)
language plpgsql
as $$
declare
  answer text;
  waits boolean := true;
  last constant integer := cardinality(ended);
begin
  answers := '';
  for i in 1 .. last loop
    if i < last then
      perform set_config('synchronous_commit', 'off', true);
    end if;
    begin
      if waits then
        answer := case when {schema}.finish_one(ended[i], ended_tokens[i], results[i]) then 'w' else 's' end;
      else
        answer := {schema}.finish_one_free(ended[i], ended_tokens[i], results[i]);
      end if;
    exception
      when lock_not_available then
        answer := 'h';
        waits := false;
      when query_canceled or others then
        answer := 'e';
    end;
    answers := answers || answer;
    if i = last and answer <> 'w' then
      -- A commit of nothing does not wait, so something is written for those before it.
      perform pg_logical_emit_message(true, 'unbroker', '');
    end if;
    commit;
  end loop;
end
$$;

-- running -> done and gone at once (src/jobs/settle.ts says when), and no longer than 500 ms for the lock. The ids as one text.
create function {schema}.remove_soon(ended bigint[], ended_tokens bigint[])
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
begin
  with removed as (
    delete from {schema}.jobs j
    where j.id = any (ended) and j.state = 'running' and j.lease_token = ended_tokens[width_bucket(j.id, ended)]
    returning j.id
  )
  select string_agg(removed.id::text, ',') into answer from removed;
  return answer;
end
$$;
