-- no transaction
-- Ordering keys: jobs of one kind that share a key run one at a time. Built beside a running worker; the claim changes over
-- in the next migration.

-- turn, of rows with an ordering key. waits: another job of its key goes first. begun: it was started, so it keeps its key
-- until it is done. holds: the same, and when it is dead, too. Nullable and without a default: no table is rewritten.
do $$ begin set local lock_timeout = '500ms'; alter table {schema}.jobs add column if not exists turn text; end $$;

-- claim, without the rows that have a key: those that wait for their turn would be walked by every claim.
drop index concurrently if exists {schema}.jobs_claim_unordered;

create index concurrently jobs_claim_unordered on {schema}.jobs (kind, priority desc, run_at, id)
  where state = 'ready' and cron is null and not solo and ordering_key is null;

-- claim, rows with a key that may be the next of it.
drop index concurrently if exists {schema}.jobs_claim_ordered;

create index concurrently jobs_claim_ordered on {schema}.jobs (kind, priority desc, run_at, id)
  where state = 'ready' and cron is null and not solo and ordering_key is not null and turn is distinct from 'waits';

-- turns: who of a key goes first.
drop index concurrently if exists {schema}.jobs_turns;

create index concurrently jobs_turns on {schema}.jobs (kind, ordering_key, state, id)
  where ordering_key is not null and cron is null and state in ('ready', 'running', 'dead');

-- The promise itself: whatever two claims believed, two of a key do not run at once.
drop index concurrently if exists {schema}.jobs_one_of_a_key;

create unique index concurrently jobs_one_of_a_key on {schema}.jobs (kind, ordering_key)
  where state = 'running' and ordering_key is not null and turn is not null;
