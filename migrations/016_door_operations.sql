-- What clients do to jobs, schedules and templates that are there already, through the HTTP doors, stands beside what
-- operators do: "by" is the principal, filter names the rows ({"ids"}, {"schedule"} or {"template"}). Such a line is
-- written with the act, in its transaction; it is finished at once.
alter table {schema}.operations
  drop constraint operations_act,
  add constraint operations_act check (act in (
    'retry', 'discard', 'cancel', 'run-now', 'dismiss', 'edit', 'pause', 'resume', 'trigger', 'delete'));
