-- What operators did to jobs from the command line: who, when, to which, to how many. A bulk act is done in chunks, each in
-- one transaction with its line here, so that it can be interrupted and gone on with.
create table {schema}.operations (
  id          bigint generated always as identity primary key,
  act         text        not null,
  filter      jsonb       not null,                    -- {"ids": [...]}, or what was asked for
  options     jsonb       not null default '{}',
  by          text        not null,                    -- user and host of the command, and the database role
  upto        bigint      not null,                    -- jobs up to this id: what comes later is left alone
  position    bigint      not null default 0,          -- jobs up to this id are dealt with
  changed     bigint      not null default 0,
  started_at  timestamptz not null default now(),
  finished_at timestamptz,

  constraint operations_act check (act in ('retry', 'discard', 'cancel')),
  constraint operations_lengths check (length(by) <= 500 and pg_column_size(filter) <= 65536)
);
