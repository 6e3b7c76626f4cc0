-- The way back of a drain: which messages of the ledger went back to their queues, and what was done to stop publishers.

-- The transaction that wrote the job beside this ledger row. While the job's xmin is the same, nobody has claimed, worked
-- or edited it: only such a job goes back. Null in rows from before this column.
alter table {schema}.drain_ledger add column written_by xid;
alter table {schema}.drain_ledger alter column written_by set default pg_current_xact_id()::xid;

-- undo: messages go back to their queues, exact by counting as a drain is. One open run of a group, of any kind.
alter table {schema}.drain_runs drop constraint drain_runs_mode,
  add constraint drain_runs_mode check (mode in ('drain', 'bridge', 'undo')) not valid;

-- A message of the ledger on its way back, or back. A row is written before its message is published, marked after the
-- broker's confirm, and removed when the message was not taken.
create table {schema}.drain_moves (
  batch           bigint   not null,                   -- of the ledger row
  position        integer  not null,
  undo            bigint   not null references {schema}.drain_runs (id),
  number          integer  not null,                   -- order of publishing, within what is moving at a time
  state           text     not null default 'moving',
  queue           text     not null,
  job             bigint,                              -- null: the message had none (excluded)
  lease_token     bigint,                              -- of the job, while it is moving
  was             text,                                -- the job's state before
  was_finished_at timestamptz,
  hash            bigint   not null,                   -- first half of the fingerprint of what was published
  stripped        text,                                -- space-separated words: what of the message was changed
  moved_at        timestamptz,

  primary key (batch, position),
  constraint drain_moves_state check (state in ('moving', 'moved'))
);

-- resume: what was on its way.
create index drain_moves_moving on {schema}.drain_moves (undo, number) where state = 'moving';

-- books: what an undo gave back.
create index drain_moves_undo on {schema}.drain_moves (undo);

-- What freezing changed on the broker, written before it is changed: thaw takes it back, also after a crash.
create table {schema}.drain_freezes (
  id         bigint generated always as identity primary key,
  vhost      text        not null,
  group_name text        not null,
  step       text        not null,                     -- what was changed
  target     text        not null,                     -- the queue's, user's or connection's name
  before     jsonb,                                    -- what it was
  state      text        not null default 'intended',
  created_at timestamptz not null default now(),
  thawed_at  timestamptz,

  constraint drain_freezes_step check (step in ('policy', 'permission', 'connection')),
  constraint drain_freezes_state check (state in ('intended', 'done'))
);

-- thaw: what is still changed.
create unique index drain_freezes_open on {schema}.drain_freezes (vhost, step, target)
  where thawed_at is null and step <> 'connection';
