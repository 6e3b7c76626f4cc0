-- no transaction
-- What the HTTP doors need: the answers to requests that carried an Idempotency-Key, and a notification found by the
-- client's own reference.

-- One row per principal and key, written in the transaction that stores the job: a repeat within the day gets the first
-- answer, whatever happened to the connection. answer is null only inside that transaction.
create table if not exists {schema}.requests (
  principal  text        not null,
  key        text        not null,
  body_hash  bytea       not null,                                -- sha-256 of method, path and body
  status     smallint,
  headers    jsonb,
  answer     text,
  expires_at timestamptz not null,
  primary key (principal, key),
  constraint requests_lengths check (length(principal) <= 200 and length(key) <= 255)
);

-- prune: by age.
create index if not exists requests_expired on {schema}.requests (expires_at);

-- searchReference: only notifications that carry one pay for it. Dropped first: an index that a cancelled build left
-- behind is invalid, and "if not exists" would keep it.
drop index concurrently if exists {schema}.jobs_reference;

create index concurrently jobs_reference on {schema}.jobs ((payload ->> 'reference'), id)
  where kind like 'notify.%' and payload ? 'reference';
