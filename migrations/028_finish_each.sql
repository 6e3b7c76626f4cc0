-- Jobs that end by themselves, each in a statement and a transaction of its own, in one call. A commit that waits for its place in
-- the log to be on disk is 90 us of server CPU, and a job that ended alone cost 313 with 88 of the worker's; so all but the last
-- commit at once, the last one waits, and what is on disk then holds those before it. Nothing is answered before that: who has the
-- answer has what it says. 98 and 12 us a job, 24 at a time.
--
-- answers: a letter for each. w written; s stale, as the fence says; e refused, to be asked again by itself, which says why.
create procedure {schema}.finish_each(ended bigint[], ended_tokens bigint[], results text[], inout answers text)
language plpgsql
as $$
declare
  answer text;
  last constant integer := cardinality(ended);
begin
  answers := '';
  for i in 1 .. last loop
    if i < last then
      perform set_config('synchronous_commit', 'off', true);
    end if;
    begin
      answer := case when {schema}.finish_one(ended[i], ended_tokens[i], results[i]) then 'w' else 's' end;
    exception when query_canceled or others then
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
