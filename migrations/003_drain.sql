-- The drain's ledger: every message that was taken from RabbitMQ, byte for byte, in the transaction that made its job.
-- What is counted here decides, after a crash, which messages the broker still holds
-- (docs/understand/count-conservation.md).

-- One drain of one group of queues, from its first count to its books. Open while finished_at is null.
create table {schema}.drain_runs (
  id               bigint generated always as identity primary key,
  broker           text        not null,               -- cluster name
  vhost            text        not null,
  group_name       text        not null,
  queues           text[]      not null,               -- the group, fixed at the start
  before           jsonb,                              -- ready messages by queue at the start
  initial          bigint,                             -- their sum; null until counted
  interrupted      boolean     not null default false, -- resumed at least once: `arrived` can then not be told apart
  ambiguous        boolean     not null default false,
  books            jsonb,                              -- at the end
  holder           text        not null,               -- the one drainer; fences every write
  holder_host      text        not null,
  holder_pid       integer     not null,
  lease_expires_at timestamptz not null,
  started_at       timestamptz not null default now(),
  finished_at      timestamptz
);

-- open: one unfinished drain of a group.
create unique index drain_runs_open on {schema}.drain_runs (broker, vhost, group_name) where finished_at is null;

-- What one ack covered.
create table {schema}.drain_batches (
  id         bigint generated always as identity primary key,
  run        bigint      not null references {schema}.drain_runs (id),
  queue      text        not null,
  state      text        not null default 'committed',
  size       integer     not null,                     -- messages acked by it
  rows       integer     not null,                     -- of these: jobs made,
  unmapped   integer     not null,                     -- jobs of kind unmapped,
  excluded   integer     not null,                     -- no job,
  expired    integer     not null,                     -- cancelled jobs,
  absorbed   integer     not null,                     -- and rows that were there already
  inexact    integer     not null,                     -- rows whose run_at is only the end of its bounds
  created_at timestamptz not null default now(),

  -- committed: the ack's fate is unknown. acked: the broker has let go of it. back: the broker has it again.
  constraint drain_batches_state check (state in ('committed', 'acked', 'back')),
  constraint drain_batches_size check (size = rows + unmapped + excluded + expired + absorbed)
);

-- books and resume: a run's batches.
create index drain_batches_run on {schema}.drain_batches (run, state);

-- A message. It belongs to the batch that took it from the broker last; its order in a queue is (batch, position).
create table {schema}.drain_ledger (
  batch       bigint   not null,                       -- no foreign key: its check would cost more than the insert
  position    integer  not null,
  job         bigint,                                  -- null when excluded
  redelivered boolean  not null,
  outcome     text     not null,
  queue       text     not null,                       -- where it was found: the way back goes there
  exchange    text     not null,
  routing_key text     not null,
  message_id  text,
  note        text,
  fingerprint bytea    not null,
  properties  bytea    not null,                       -- flags, properties and header table as they were on the wire
  body        bytea    not null,

  primary key (batch, position),
  constraint drain_ledger_outcome check (outcome in ('row', 'unmapped', 'excluded', 'expired'))
);
