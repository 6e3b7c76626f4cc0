-- What all workers must know of deliveries: who wants no mail, how a provider is doing, how much one recipient got.

-- Checked when a notification is sent, not when it is accepted. recipient is in lower case.
create table {schema}.suppressions (
  channel    text        not null,
  recipient  text        not null,
  reason     text,
  created_at timestamptz not null default now(),
  primary key (channel, recipient),
  constraint suppressions_values check (
    length(channel) between 1 and 20 and length(recipient) between 1 and 2000 and recipient = lower(recipient))
);

-- One row a provider, made when it is first used. It is rewritten for each delivery that is counted, so room is left.
create table {schema}.providers (
  name         text             primary key,        -- channel and provider, as email.smtp
  tokens       double precision not null default 0, -- of its rate limit, at refilled_at
  refilled_at  timestamptz      not null default now(),
  failures     integer          not null default 0, -- in a row
  open_until   timestamptz,                         -- the circuit breaker: not called before
  paused_until timestamptz,                         -- it refused our login: not called before
  constraint providers_name check (length(name) between 1 and 100)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- Deliveries begun to one recipient in one window; recipient is a hash: this is no list of addresses.
create table {schema}.recipient_counts (
  channel   text        not null,
  recipient bytea       not null,
  ends_at   timestamptz not null,
  count     integer     not null,
  primary key (channel, recipient, ends_at)
);

create index recipient_counts_ended on {schema}.recipient_counts (ends_at);
