/**
 * Every statement of a worker that looks for work, in the form of statements.ts: THE CLAIM, whose turn is next, who sleeps.
 * The claim itself is a function, migrations/038_claim_in_place.sql, because its plan must be pinned without session
 * state; `finishAndClaim` calls it. claim-store.ts is the only file that runs these.
 */
import { claimedColumns } from './claimed.js';
import { quoteSchema } from './schema-name.js';
import { wakeChannel } from './statements.js';

/** Rows that take part in the order of a key: what the index jobs_keys holds. */
const hasTurn = `j.ordering_key is not null and j.cron is null and (j.finished_at is null or j.turn = 'stops')`;

export function createClaimStatements(schema: string) {
  const s = quoteSchema(schema);
  const jobs = `${s}.jobs`;
  return {
    /**
     * THE CLAIM. Leases up to $7 due jobs to worker $8 for $9 ms, at most $5[i] of kind $4[i], behind the floors $10 to $13.
     * $14: what kinds ask for beyond the usual; $15: a part of them from what has waited longest. Before that, running ->
     * done for $1 to $3 as `finish` does (migrations/038_claim_in_place.sql).
     */
    finishAndClaim: `
select id, payload as "payloadText", body, numbers, rest, finished
from ${s}.finish_and_claim($1, $2, $3, $4, $5, $6, $7, $8, $9 * interval '1 millisecond', $10, $11, $12, $13, $14, $15)`,

    /** Is a due job of the kinds $1 before one of the floors $2 to $5? */
    late: `
select ${s}.late($1, $2, $3, $4, $5) as late`,

    /**
     * The claim of many, with nothing to finish, answered as one text: $1 to $12 are the $4 to $15 of finishAndClaim
     * (migrations/042_claim_lines.sql).
     */
    claimMany: `
select n, lines as text, body, token::text
from ${s}.claim_lines($1, $2, $3, $4, $5, $6 * interval '1 millisecond', $7, $8, $9, $10, $11, $12)`,

    /** Leases one job whose last lease expired; only for a worker that runs nothing else. */
    claimSolo: `
select ${claimedColumns('$1::text[]')}
from ${s}.claim_solo($1::text[], $2::boolean[], $3, $4 * interval '1 millisecond', $5::jsonb)`,

    /** Is a job of these kinds waiting to be claimed alone? */
    soloWaiting: `
select exists (
  select from ${jobs}
  where finished_at is null and state = 'ready' and cron is null and solo and kind = any ($1::text[]) and run_at <= now()
) as waiting`,

    /** The next of each kind and ordering key need not wait any more: the one before has ended, and that is committed. */
    promote: `
select ${s}.promote($1::text[], $2::text[])::text`,

    /**
     * Up to $3 ordering keys after the key $1, $2 (a loose index scan), and of each whether its next job waits although
     * nobody goes first any more: an operator cancelled that one, or its worker died before it could say. Or whether one
     * is said to run that does not.
     */
    turns: `
with recursive held (kind, key, depth) as (
  (
    select j.kind, j.ordering_key, 1
    from ${jobs} j
    where ${hasTurn} and (j.kind, j.ordering_key) > ($1, $2)
    order by j.kind, j.ordering_key, j.id
    limit 1
  )
  union all
  select next.kind, next.ordering_key, held.depth + 1
  from held cross join lateral (
    select j.kind, j.ordering_key
    from ${jobs} j
    where ${hasTurn} and (j.kind, j.ordering_key) > (held.kind, held.key)
    order by j.kind, j.ordering_key, j.id
    limit 1
  ) as next
  where held.depth < $3
)
select held.kind, held.key,
       case when runs.state is null then coalesce(first.turn = 'waits', false) else runs.state <> 'running' end as stuck
from held left join lateral (
  select j.turn
  from ${jobs} j
  where ${hasTurn} and j.kind = held.kind and j.ordering_key = held.key and (j.run_at <= now() or j.turn <> 'waits')
  order by j.id
  limit 1
) as first on true left join lateral (
  select j.state
  from ${jobs} j
  where j.kind = held.kind and j.ordering_key = held.key and j.turn in ('runs', 'runs-holds')
  limit 1
) as runs on true
order by held.kind, held.key`,

    /** This worker sleeps for the next $2 ms: wake it for these kinds. And its seat among those that sleep and have them, too. */
    sleepUntil: `
insert into ${s}.sleepers as w (worker, sleeps_until, kinds)
values ($1, clock_timestamp() + $2 * interval '1 millisecond', $3)
on conflict (worker) do update set sleeps_until = excluded.sleeps_until, kinds = excluded.kinds
returning
  (select count(*) from ${s}.sleepers o where o.sleeps_until > clock_timestamp() and o.kinds @> $3 and o.worker < $1)::int as before,
  (select count(*) from ${s}.sleepers o where o.sleeps_until > clock_timestamp() and o.kinds @> $3 and o.worker > $1)::int as behind,
  extract(epoch from clock_timestamp())::float8 as at`,

    /** The same, for every kind. */
    sleepUntilAny: `
insert into ${s}.sleepers as w (worker, sleeps_until)
values ($1, clock_timestamp() + $2 * interval '1 millisecond')
on conflict (worker) do update set sleeps_until = excluded.sleeps_until`,

    /** This worker is awake; rows of workers that died go with it. */
    stopSleeping: `
delete from ${s}.sleepers where worker = $1 or sleeps_until < clock_timestamp() - interval '1 minute'`,

    /** A notification: one that only its sender understands, or for all that sleep (''). */
    notify: `
select pg_notify('${wakeChannel(schema)}', $1)::text`,
  } as const;
}
