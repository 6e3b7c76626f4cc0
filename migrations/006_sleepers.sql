-- Which workers sleep and want to be woken. An enqueue notifies only when this table names somebody: a NOTIFY takes one
-- instance-wide lock at commit and undoes group commit (fsyncs a transaction went from 0.5 to 1.0 at ten clients), so on
-- a busy system, where nobody sleeps, none may be sent. Unlogged: after a crash every worker says so again within seconds.
create unlogged table {schema}.sleepers (
  worker       text        primary key,
  sleeps_until timestamptz not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
