-- What was imported out of the table of a delayed-message exchange. It holds messages outside every queue, so neither
-- counting nor an acknowledgement says which of them have rows: their keys do.

-- delayed: the table's entries, exact by their keys. One open run of a virtual host.
alter table {schema}.drain_runs drop constraint drain_runs_mode,
  add constraint drain_runs_mode check (mode in ('drain', 'bridge', 'undo', 'delayed')) not valid;

-- An entry, written in the transaction that wrote its jobs. Kept: an entry that a killed broker brings back is then
-- removed there without a second row.
create table {schema}.drain_delayed (
  broker text        not null,                         -- cluster name
  vhost  text        not null,
  entry  text        not null,                         -- its key: node, due time and the reference that the node gave it
  run    bigint      not null references {schema}.drain_runs (id),
  batch  bigint      not null,                         -- of its ledger rows: one for each queue that it would have reached
  due_at timestamptz not null,

  primary key (broker, vhost, entry)
);

-- books: what a run has imported.
create index drain_delayed_run on {schema}.drain_delayed (run);
