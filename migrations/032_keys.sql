-- no transaction
-- Ordering keys without the state in an index: an update that changes a column of any index of the table writes an entry into
-- each of them, so the claim of a plain job paid for keys that it does not have. `turn` says it instead; it changes only in rows
-- with a key. The functions change over in the next migration. Values that are new: runs and runs-holds, while a job
-- runs (what it is afterwards, begun or holds); stops, when it is dead and keeps its key.

-- claim, rows with a key that may be the next of it: not those that wait for their turn, not those that run.
drop index concurrently if exists {schema}.jobs_claim_keyed;

create index concurrently jobs_claim_keyed on {schema}.jobs (kind, priority desc, run_at, id)
  where finished_at is null and cron is null and not solo and ordering_key is not null
    and coalesce(turn, 'begun') in ('begun', 'holds');

-- Who of a key goes first: what is not over, and what is dead and stops the others.
drop index concurrently if exists {schema}.jobs_keys;

create index concurrently jobs_keys on {schema}.jobs (kind, ordering_key, id)
  where ordering_key is not null and cron is null and (finished_at is null or turn = 'stops');

-- The promise itself: whatever two claims believed, two of a key do not run at once.
drop index concurrently if exists {schema}.jobs_key_runs;

create unique index concurrently jobs_key_runs on {schema}.jobs (kind, ordering_key)
  where turn in ('runs', 'runs-holds');
