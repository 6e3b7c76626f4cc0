-- no transaction
-- The indexes that said what a claim changes: see 034_open.sql. While one of them is there, no claim is heap-only. Each of these
-- statements waits for who was under way before; so after the first nobody claims as the functions before 035_claim_open.sql did.

drop index concurrently if exists {schema}.jobs_claim;

drop index concurrently if exists {schema}.jobs_claim_ordered;

drop index concurrently if exists {schema}.jobs_turns;

drop index concurrently if exists {schema}.jobs_solo;

drop index concurrently if exists {schema}.jobs_due;

-- What died while the functions changed over.
select {schema}.mark_dead();
