-- The bridge: the drain kept running while publishers live. Counts are not conserved then, so what was taken is
-- remembered by key (docs/understand/count-conservation.md), and who published it is counted.

-- drain: until empty, exact by counting. bridge: until stopped, exact by keys. One open run of a group, of either kind.
alter table {schema}.drain_runs add column mode text not null default 'drain',
  add constraint drain_runs_mode check (mode in ('drain', 'bridge')) not valid;

-- What a bridge has taken. identity: a hash of broker, vhost, home queue, id and attempt, or of broker, vhost and group where
-- a message has no id. Kept beyond the run: its messages may come back to the next one.
create table {schema}.drain_keys (
  identity    bytea not null,
  fingerprint bytea not null,

  primary key (identity, fingerprint)
);

-- Where reading a stream goes on: the offset after the last one that has a row.
create table {schema}.drain_offsets (
  broker      text   not null,
  vhost       text   not null,
  queue       text   not null,
  next_offset bigint not null,

  primary key (broker, vhost, queue)
);

-- Who published late, by what the messages themselves say.
create table {schema}.drain_publishers (
  run              bigint      not null,               -- of drain_runs
  number           integer     not null,               -- within the run; the last one holds all that came after
  queue            text        not null,
  exchange         text        not null,
  routing_key      text        not null,
  user_id          text,
  app_id           text,
  messages         bigint      not null,               -- with a row in the ledger
  again            bigint      not null,               -- came back after an interruption and were recognised
  repeats          bigint      not null,               -- of these in the ledger: id and contents taken before, no second job
  other_contents   bigint      not null,               -- id taken before with other contents: both have their job
  possible_doubles bigint      not null,               -- came back without an id: may have two jobs
  first_at         timestamptz not null default clock_timestamp(),
  last_at          timestamptz not null default clock_timestamp(),

  primary key (run, number)
);
