-- Retention removes what may be removed, row by row where it must. One row that a caller's table refers to, or that a trigger of the
-- caller's kept, failed the statement for all of its batch, so that nothing was removed any more.

-- Removes those of these rows that finished at these times, not anew since; a row that somebody holds is passed by. Nulls while another
-- session is at it: of twenty workers that have a million rows to remove, one does.
create function {schema}.remove_finished(old bigint[], ended timestamptz[], out gone integer, out refused integer)
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set lock_timeout = '500ms'
as $$
begin
  if not pg_try_advisory_xact_lock(hashtextextended('remove_finished:{schema}', 0)) then
    return;
  end if;
  refused := 0;
  -- A deferred reference would be told at the commit, for all of them.
  set constraints all immediate;
  begin
    -- By arrays: a join was planned the wrong way round while the table had grown since it was analyzed, 2 s for 500 rows.
    with held as materialized (
      select j.id
      from {schema}.jobs j
      where j.id = any (old) and j.finished_at = ended[array_position(old, j.id)]
      order by j.id
      for update skip locked
    )
    delete from {schema}.jobs j where j.id = any (array(select h.id from held h));
    get diagnostics gone = row_count;
    return;
  exception
    when integrity_constraint_violation or raise_exception or lock_not_available then
      gone := 0;
  end;
  for i in 1 .. cardinality(old) loop
    begin
      perform from {schema}.jobs j where j.id = old[i] and j.finished_at = ended[i] for update skip locked;
      if found then
        delete from {schema}.jobs j where j.id = old[i];
        gone := gone + found::integer;
        refused := refused + (not found)::integer;
      end if;
    exception
      when integrity_constraint_violation or raise_exception then
        refused := refused + 1;
      when lock_not_available then
        -- Somebody holds what refers to it. So may the next, and each would wait as long.
        exit;
    end;
  end loop;
end
$$;

call {schema}.grant_as_before();
