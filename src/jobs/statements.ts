/**
 * Every statement on the jobs table, by name, each with one sentence. Text is constant once the schema is known;
 * values travel as parameters. The claim itself is a function, migrations/024_finish_and_claim.sql, because its plan must be
 * pinned without session state; `finishAndClaim` below calls it. store.ts is the only file that runs these.
 *
 * Every write by a worker is fenced: `id and state = 'running' and lease_token = mine` (`held` below). No row back means
 * the lease is lost; the write must not be repeated.
 */
import { claimedColumns, claimedText } from './claimed.js';
import { LIMITS } from './job.js';
import { quoteSchema } from './schema-name.js';

export type Statements = ReturnType<typeof createStatements>;

/** An entry appended to `errors`, the oldest dropped when the list is full. */
const appendError = (entry: string): string => `
      case when jsonb_array_length(coalesce(j.errors, '[]')) >= ${LIMITS.errorsKept}
        then j.errors - 0 else coalesce(j.errors, '[]') end
      || ${entry}`;

/** One entry of `errors`. */
const failure = (name: string, message: string): string =>
  `jsonb_build_object('at', clock_timestamp(), 'attempt', j.attempts, 'name', ${name}, 'message', ${message})`;

/** What ends a lease, in every statement that leaves the running state. */
const lease = 'locked_until = null, locked_by = null, lease_token = null, on_lease_expired = null';

/** Of array parameter $n, which stands beside the ids in $1, the element of this row. The ids come sorted (store.ts). */
const nth = (parameter: number, type: string): string =>
  `($${parameter}::${type}[])[width_bucket(j.id, $1::bigint[])]`;

/**
 * The fence: rows whose id is in $1 and which run under the token beside it in $2. No join with the parameters, because
 * its plan follows the statistics of an index that is empty at quiet hours: it then reads every running row (48 ms
 * beside 100,000 of them) or pairs all with all (95 ms for 500), where this reads 500 index entries (2 ms).
 */
const held = `j.id = any ($1::bigint[]) and j.state = 'running' and j.lease_token = ${nth(2, 'bigint')}`;

/** A row as a Job. */
export const jobColumns = `
    j.id::text, j.kind, j.state, j.priority, j.run_at as "runAt", j.attempts, j.max_attempts as "maxAttempts",
    j.locked_until as "lockedUntil", j.locked_by as "lockedBy", j.dedupe_key as "dedupeKey",
    j.ordering_key as "orderingKey", coalesce(j.state = 'ready' and j.turn = 'waits', false) as "waitsForTurn",
    j.payload::text as "payloadText", length(j.body) as "bodyBytes", j.content_type as "contentType",
    j.headers, j.source, j.progress, coalesce(j.errors, '[]') as errors, j.result,
    j.created_at as "createdAt", j.finished_at as "finishedAt"`;

/** To the microsecond, in any session: what a compare-and-set compares with. */
export const exact = (column: string): string =>
  `to_char(${column} at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US+00')`;

/** A dead row of kind $1, whose last error is $2, whose source starts with $3, that died from $4 and before $5. */
const deadWhere = `j.state = 'dead' and j.cron is null
  and ($1::text is null or j.kind = $1)
  and ($2::text is null or j.errors -> -1 ->> 'name' = $2)
  and ($3::text is null or starts_with(j.source, $3))
  and ($4::timestamptz is null or j.finished_at >= $4)
  and ($5::timestamptz is null or j.finished_at < $5)`;

/** What enqueueMany gives: a list a field. */
const manyLists = `$1::text[], $2::text[], $3::smallint[], $4::timestamptz[], $5::float8[], $6::integer[], $7::text[],
  $8::text[], $9::text[], $10::text[]`;

/** What one job brings along, as parameters; and whether it is due now. */
const oneColumns =
  'kind, payload, priority, run_at, max_attempts, headers, source, retry_policy, ordering_key';
const oneValues = `$1, $2::text::jsonb, coalesce($3, 0), coalesce($4, now() + $5 * interval '1 millisecond', now()),
        coalesce($6, 20), $7::text::jsonb, $8, $9::text::jsonb, $10`;
const oneIsDue = '$4::timestamptz is null and $5::float8 is null';

/** Rows that take part in the order of a key: what the index jobs_turns holds. */
const hasTurn = `j.ordering_key is not null and j.cron is null and j.state in ('ready', 'running', 'dead')`;

/** Where an enqueue says that there is work. A channel's name has 63 bytes at most; sharing one costs an idle look. */
export function wakeChannel(schema: string): string {
  return `jobs:${schema}`.slice(0, 63);
}

/**
 * Wakes whoever sleeps, as a column. Only when somebody does, and then once a statement: see migrations/006_sleepers.sql. As a
 * boolean, since some clients cannot read the type void.
 */
export const wakes =
  (schema: string) =>
  (condition = 'true'): string =>
    `(
  select pg_notify('${wakeChannel(schema)}', '')::text is not null
  from ${quoteSchema(schema)}.sleepers where ${condition} and sleeps_until > clock_timestamp() limit 1) as woke`;

export function createStatements(schema: string) {
  const s = quoteSchema(schema);
  const jobs = `${s}.jobs`;
  const wake = wakes(schema);
  // The same, evaluated for each row: for statements that write one.
  const wakeOne = (condition: string): string => `case
  when ${condition} and exists (select from ${s}.sleepers where sleeps_until > clock_timestamp())
  then pg_notify('${wakeChannel(schema)}', '')::text is not null end as woke`;
  const claim = `${s}.claim($1::text[], $2::integer[], $3::boolean[], $4::integer, $5, $6 * interval '1 millisecond',
  $7::bigint[], $8::jsonb, $9)`;
  return {
    /** One row of which no more is said than kind, payload, priority and headers (migrations/018_checks.sql). */
    enqueuePlain: `
select ${s}.enqueue_plain($1, $2, $3, $4) as id`,

    /** One row; no dedupe key, so it always inserts (migrations/015_enqueue_one.sql). */
    enqueue: `
select ${s}.enqueue_one($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) as id`,

    /** What enqueuePlain does, for connections that keep the plan themselves: 14 us of server CPU less. */
    insertPlain: `
insert into ${jobs} (kind, payload, priority, headers)
values ($1, $2::text::jsonb, coalesce($3, 0), $4::text::jsonb)
returning id::text, ${wakeOne('true')}`,

    /** The same without the look for a sleeper, a sixth of what it costs: for who looked just now (store.ts). */
    insertUnseen: `
insert into ${jobs} (kind, payload, priority, headers)
values ($1, $2::text::jsonb, coalesce($3, 0), $4::text::jsonb)
returning id::text`,

    /** What enqueue does, the same. */
    insertOne: `
insert into ${jobs} (${oneColumns})
values (${oneValues})
returning id::text, ${wakeOne(oneIsDue)}`,

    /**
     * One row unless its kind and dedupe key are there already, by unique index, never by looking first; its id or null
     * (migrations/023_enqueue_once.sql). JSON goes in as text: a client that asks the server for the types of parameters
     * (postgres.js) would serialise a jsonb one once more.
     */
    enqueueOnce: `
select ${s}.enqueue_once($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) as id`,

    /** The same, as insertOne; no row instead of null. */
    insertOnce: `
insert into ${jobs} (${oneColumns}, dedupe_key)
values (${oneValues}, $11)
on conflict (kind, dedupe_key) where dedupe_key is not null do nothing
returning id::text, ${wakeOne(oneIsDue)}`,

    /**
     * A job that was tried elsewhere before: attempts and the last error come along ($9 its name, $10 its message
     * or null); $11 = dead on arrival.
     */
    enqueueCarried: `
insert into ${jobs} (kind, payload, run_at, max_attempts, headers, source, retry_policy, attempts, errors, state, finished_at)
values ($1, $2::jsonb, now() + $3 * interval '1 millisecond', $4, $5::jsonb, $6, $7::jsonb, $8,
        case when $10::text is not null then jsonb_build_array(jsonb_build_object(
          'at', clock_timestamp(), 'attempt', $8::integer, 'name', $9::text, 'message', $10::text)) end,
        case when $11::boolean then 'dead' else 'ready' end, case when $11::boolean then clock_timestamp() end)
returning id::text`,

    /** This worker sleeps for the next $2 ms: wake it. */
    sleepUntil: `
insert into ${s}.sleepers as w (worker, sleeps_until)
values ($1, clock_timestamp() + $2 * interval '1 millisecond')
on conflict (worker) do update set sleeps_until = excluded.sleeps_until`,

    /** This worker is awake; rows of workers that died go with it. */
    stopSleeping: `
delete from ${s}.sleepers where worker = $1 or sleeps_until < clock_timestamp() - interval '1 minute'`,

    /** A notification that only its sender understands: does it come back? */
    notify: `
select pg_notify('${wakeChannel(schema)}', $1)::text`,

    /** The job that won a dedupe key. A statement of its own: it needs a snapshot later than the insert's. */
    findByDedupeKey: `
select id::text from ${jobs} where kind = $1 and dedupe_key = $2`,

    /**
     * Rows of one kind, priority and headers, of which no more is said, for a JSON list of payloads; their ids as 'first-last'
     * or one by one (migrations/027_enqueue_alike.sql, 029).
     */
    enqueueAlike: `
select ${s}.enqueue_alike($1, $2, $3, $4) as ids`,

    /**
     * Many rows without dedupe keys (migrations/022_enqueue_many.sql); their ids in the order given, as one text. A list may
     * be null where no job has the field.
     */
    enqueueMany: `
select ${s}.enqueue_many(${manyLists}) as ids`,

    /** The same, some with dedupe keys ($11): nothing between the commas for those whose key is taken. */
    enqueueManyOnce: `
select ${s}.enqueue_many_once(${manyLists}, $11::text[]) as ids`,

    /** The jobs that won these kinds and keys, in the order given; null where there is none (any more). */
    findByDedupeKeys: `
select j.id::text
from unnest($1::text[], $2::text[]) with ordinality as asked (kind, dedupe_key, position)
left join ${jobs} j on j.kind = asked.kind and j.dedupe_key = asked.dedupe_key
order by position`,

    /** Which of these texts the server takes as jsonb, in the order given. Asked only after a batch was refused. */
    probeJsonb: `
select ${s}.jsonb_or_null(input) is not null as ok
from unnest($1::text[]) with ordinality as input (input, position)
order by position`,

    /**
     * THE CLAIM. Leases up to $7 due jobs to worker $8 for $9 ms, at most $5[i] of kind $4[i], behind the floors $10 to $13.
     * $14: what kinds ask for beyond the usual; $15: a part of them from what has waited longest. Before that, running ->
     * done for $1 to $3 as `finish` does (migrations/024_finish_and_claim.sql).
     */
    finishAndClaim: `
select id, payload as "payloadText", body, numbers, rest, finished
from ${s}.finish_and_claim($1, $2, $3, $4, $5, $6, $7, $8, $9 * interval '1 millisecond', $10, $11, $12, $13, $14, $15)`,

    /** Is a due job of the kinds $1 before one of the floors $2 to $5? */
    late: `
select ${s}.late($1, $2, $3, $4, $5) as late`,

    /**
     * A claim of many, answered as one text: up to $4 jobs to worker $5 for $6 ms, at most $2[i] of kind $1[i], behind the jobs
     * $7; $8 and $9 as above (migrations/011_claim.sql).
     */
    claimMany: claimedText(claim, '$1::text[]'),

    /** Leases one job whose last lease expired; only for a worker that runs nothing else. */
    claimSolo: `
select ${claimedColumns('$1::text[]')}
from ${s}.claim_solo($1::text[], $2::boolean[], $3, $4 * interval '1 millisecond', $5::jsonb)`,

    /** The next of each kind and ordering key need not wait any more: the one before has ended, and that is committed. */
    promote: `
select ${s}.promote($1::text[], $2::text[])::text`,

    /**
     * Up to $3 ordering keys after the key $1, $2 (a loose index scan), and of each whether its next job waits although
     * nobody goes first any more: an operator cancelled that one, or its worker died before it could say.
     */
    turns: `
with recursive held (kind, key, depth) as (
  (
    select j.kind, j.ordering_key, 1
    from ${jobs} j
    where ${hasTurn} and (j.kind, j.ordering_key) > ($1, $2)
    order by j.kind, j.ordering_key, j.state, j.id
    limit 1
  )
  union all
  select next.kind, next.ordering_key, held.depth + 1
  from held cross join lateral (
    select j.kind, j.ordering_key
    from ${jobs} j
    where ${hasTurn} and (j.kind, j.ordering_key) > (held.kind, held.key)
    order by j.kind, j.ordering_key, j.state, j.id
    limit 1
  ) as next
  where held.depth < $3
)
select held.kind, held.key,
       coalesce(first.turn = 'waits', false)
       and not exists (
         select from ${jobs} j
         where ${hasTurn} and j.kind = held.kind and j.ordering_key = held.key and j.state = 'running')
       and not exists (
         select from ${jobs} j
         where ${hasTurn} and j.kind = held.kind and j.ordering_key = held.key and j.state = 'dead'
           and j.id < first.id and j.turn = 'holds') as stuck
from held left join lateral (
  select j.id, j.turn
  from ${jobs} j
  where ${hasTurn} and j.kind = held.kind and j.ordering_key = held.key and j.state = 'ready'
    and (j.run_at <= now() or j.turn in ('begun', 'holds'))
  order by j.id
  limit 1
) as first on true
order by held.kind, held.key`,

    /** Is a job of these kinds waiting to be claimed alone? */
    soloWaiting: `
select exists (
  select from ${jobs} where state = 'ready' and cron is null and solo and kind = any ($1::text[]) and run_at <= now()
) as waiting`,

    /** Prolongs leases. A heap-only update: no index holds locked_until. */
    extend: `
update ${jobs} j
set locked_until = clock_timestamp() + $3 * interval '1 millisecond'
where ${held}
returning j.id::text`,

    /**
     * running -> done, with each job's result where there is one. Their ids come as one text: a thousand rows cost this side
     * more than the rest of the answer.
     */
    finish: `
select ${s}.finish($1, $2, $3) as ids`,

    /** The same for one job (migrations/025_finish_one.sql). */
    finishOne: `
select ${s}.finish_one($1, $2, $3) as written`,

    /**
     * The same for each of them in a transaction of its own (migrations/028_finish_each.sql); a letter for each: w written,
     * s stale, e refused. Not inside a transaction.
     */
    finishEach: `
call ${s}.finish_each($1, $2, $3, null)`,

    /** running -> done and gone at once: a row that nobody asks for again (settle.ts). */
    completeAndRemove: `
with removed as (
  delete from ${jobs} j
  where ${held}
  returning j.id
)
select string_agg(removed.id::text, ',') as ids
from removed`,

    /**
     * running -> ready, after a delay, the failure noted. The attempt was counted at the claim. Not solo any more: it came
     * back by itself, so it does not kill processes.
     */
    retry: `
update ${jobs} j
set state = 'ready', solo = false, run_at = clock_timestamp() + ${nth(3, 'float8')} * interval '1 millisecond', ${lease},
    errors =${appendError(failure(nth(4, 'text'), nth(5, 'text')))}
where ${held}
returning j.id::text`,

    /** running -> ready, after a delay, without spending an attempt. */
    snooze: `
update ${jobs} j
set state = 'ready', solo = false, run_at = clock_timestamp() + ${nth(3, 'float8')} * interval '1 millisecond',
    attempts = j.attempts - 1, ${lease}
where ${held}
returning j.id::text`,

    /** running -> dead, with the reason. */
    discard: `
update ${jobs} j
set state = 'dead', finished_at = clock_timestamp(), ${lease},
    errors =${appendError(failure(nth(3, 'text'), nth(4, 'text')))}
where ${held}
returning j.id::text`,

    /** running -> ready, unharmed: given back at shutdown, the attempt with it. */
    release: `
update ${jobs} j
set state = 'ready', attempts = j.attempts - 1, ${lease}
where ${held}
returning j.id::text`,

    /** What a handler wants to find again on its next start. */
    checkpoint: `
update ${jobs} j
set progress = $3::jsonb
where j.id = $1 and j.state = 'running' and j.lease_token = $2
returning j.id::text`,

    /**
     * Takes back up to $1 expired leases: ready again (alone next time), or dead when attempts are used up or the kind
     * parks. One statement with row locks, ordered, blind to which kinds anybody registered; the outer update repeats
     * both tests, so a job that finished or extended meanwhile is left as it is.
     */
    reap: `
with expired as materialized (
  select id, attempts >= max_attempts as spent, on_lease_expired is not null as parked
  from ${jobs}
  where state = 'running' and locked_until < clock_timestamp()
  order by id
  for update skip locked
  limit $1
)
update ${jobs} j
set state = case when expired.spent or expired.parked then 'dead' else 'ready' end,
    finished_at = case when expired.spent or expired.parked then clock_timestamp() end,
    solo = not (expired.spent or expired.parked),
    ${lease},
    errors =${appendError(
      failure(
        `case when expired.parked then 'lease-expired-parked' else 'lease-expired' end`,
        `'the lease of ' || j.locked_by || ' ran out before it settled'`,
      ),
    )}
from expired
where j.id = expired.id and j.state = 'running' and j.locked_until < clock_timestamp()
returning j.id::text, j.kind, j.state`,

    /** Removes up to $2 finished rows older than $1 ms, oldest first. */
    prune: `
with old as materialized (
  select id from ${jobs}
  where finished_at < now() - $1 * interval '1 millisecond'
  order by finished_at
  for update skip locked
  limit $2
)
delete from ${jobs} j using old where j.id = old.id
returning j.id::text`,

    /** Up to $4 finished rows older than $1 ms, newest first, below the row $2 (its finished_at), $3 (its id). */
    finishedBelow: `
select j.id::text, j.kind, j.state, ${exact('j.finished_at')} as "finishedAtText",
       date_part('epoch', now() - j.finished_at) * 1000 as "ageMs"
from ${jobs} j
where j.finished_at <= coalesce($2::timestamptz, now() - $1 * interval '1 millisecond')
  and ($2::timestamptz is null or j.finished_at < $2 or j.id < $3::bigint)
order by j.finished_at desc, j.id desc
limit $4`,

    /** Removes these rows, unless one was retried and finished anew since $2. */
    removeFinished: `
with old as materialized (
  select id from ${jobs}
  where id = any ($1::bigint[]) and finished_at <= $2::timestamptz
  order by id
  for update skip locked
)
delete from ${jobs} j using old where j.id = old.id
returning j.id::text`,

    /** One row, for a person. */
    show: `
select ${jobColumns}
from ${jobs} j where j.id = $1`,

    /** A row by a key that a client or a message gave it. The kinds make the unique index usable. */
    showByDedupeKey: `
select ${jobColumns}
from ${jobs} j
where j.kind = any ($1::text[]) and j.dedupe_key = $2
order by j.id desc
limit 1`,

    /**
     * Newest first: what an HTTP client lists. Prefixes of kind and source or one whole source, any of some states,
     * retried or not yet, created before; at most $7.
     */
    search: `
select ${jobColumns}
from ${jobs} j
where j.cron is null
  and ($1::text is null or starts_with(j.kind, $1))
  and ($2::text is null or starts_with(j.source, $2))
  and ($3::text is null or j.source = $3)
  and ($4::text[] is null or j.state = any ($4))
  and ($5::boolean is null or (j.attempts > 0) = $5)
  and ($6::timestamptz is null or j.created_at < $6)
  and ($8::bigint is null or j.id < $8)
order by j.id desc
limit $7`,

    /** The same for one \`reference\` in the payload of notifications; jobs_reference is made for it. */
    searchReference: `
select ${jobColumns}
from ${jobs} j
where j.kind like 'notify.%' and j.payload ? 'reference' and j.payload ->> 'reference' = $1 and j.cron is null
  and ($2::text[] is null or j.state = any ($2))
  and ($3::boolean is null or (j.attempts > 0) = $3)
  and ($4::timestamptz is null or j.created_at < $4)
  and ($6::bigint is null or j.id < $6)
order by j.id desc
limit $5`,

    /** The same for one tag of notifications; jobs_tags is made for it. */
    searchTag: `
select ${jobColumns}
from ${jobs} j
where j.kind like 'notify.%' and j.payload ? 'tags' and j.payload -> 'tags' ? $1 and j.cron is null
  and ($2::text[] is null or j.state = any ($2))
  and ($3::boolean is null or (j.attempts > 0) = $3)
  and ($4::timestamptz is null or j.created_at < $4)
  and ($6::bigint is null or j.id < $6)
order by j.id desc
limit $5`,

    /** Dead rows by kind, last error, source prefix and time, below an id; at most $7. */
    searchDead: `
select ${jobColumns}
from ${jobs} j
where ${deadWhere} and ($6::bigint is null or j.id < $6)
order by j.id desc
limit $7`,

    /** How many there are, counted up to $7. */
    countDeadWhere: `
select count(*)::int as count
from (select from ${jobs} j where ${deadWhere} and ($6::bigint is null or j.id < $6) limit $7) as dead`,

    /** Dead rows by kind and last error, the largest group first; looks at the newest $7. */
    deadGroups: `
select j.kind, j.errors -> -1 ->> 'name' as error, count(*)::int as count, min(j.finished_at) as "firstAt",
       max(j.finished_at) as "lastAt", max(j.id)::text as "sampleId"
from (select j.kind, j.errors, j.finished_at, j.id from ${jobs} j
      where ${deadWhere} and ($6::bigint is null or j.id < $6) order by j.id desc limit $7) as j
group by 1, 2
order by 3 desc, 1, 2
limit 200`,

    /** One row, held until the transaction ends. */
    holdJob: `
select ${jobColumns}
from ${jobs} j where j.id = $1 and j.cron is null
for update`,

    /** What is not null replaces what is there; not while it runs. */
    editJob: `
update ${jobs} j
set kind = coalesce($2, j.kind), payload = coalesce($3::text::jsonb, j.payload),
    body = case when $3 is null then j.body end, content_type = case when $3 is null then j.content_type end,
    headers = coalesce($4::text::jsonb, j.headers),
    run_at = coalesce($5, now() + $6 * interval '1 millisecond', j.run_at),
    max_attempts = coalesce($7, j.max_attempts), retry_policy = coalesce($8::text::jsonb, j.retry_policy)
where j.id = $1 and j.state in ('ready', 'dead') and j.cron is null
returning j.id::text`,

    /** Rows whose input is bytes, in the order given; all start at most $9 times. */
    enqueueBodies: `
insert into ${jobs} (kind, payload, body, content_type, priority, run_at, headers, source, max_attempts)
select kind, null, body, content_type, priority, coalesce(to_timestamp(run_at_ms / 1000), now()), headers::jsonb, source, $9
from unnest($1::text[], $2::bytea[], $3::text[], $4::smallint[], $5::float8[], $6::text[], $7::text[], $8::integer[])
  as input (kind, body, content_type, priority, run_at_ms, headers, source, position)
order by position
returning id::text, ${wake()}`,

    /** How many rows of a kind are ready, counted up to $2. */
    countReady: `
select count(*)::int as count
from (select from ${jobs} where kind = $1 and state = 'ready' and cron is null limit $2) as ready`,

    /** How many rows are dead, counted up to $1. */
    countDead: `
select count(*)::int as count
from (select from ${jobs} where state = 'dead' and cron is null limit $1) as dead`,

    /** Newest first: rows by state, kind and source prefix, below an id; at most $5. */
    list: `
select ${jobColumns}
from ${jobs} j
where j.cron is null
  and ($1::text is null or j.state = $1)
  and ($2::text is null or j.kind = $2)
  and ($3::text is null or starts_with(j.source, $3))
  and ($4::bigint is null or j.id < $4)
order by j.id desc
limit $5`,

    /** Rows by kind and state. Counts the whole table: for an operator's question, never for a scrape. */
    stats: `
select kind, state, count(*)::int as count, min(run_at) filter (where state = 'ready') as "oldestRunAt"
from ${jobs} where cron is null
group by kind, state order by kind, state`,

    /**
     * dead or cancelled -> ready, now, with $2 more starts allowed. An operator's act, fenced by state. Who retries
     * vouches for an effect that was begun and never confirmed: `unconfirmed` leaves the progress.
     */
    operatorRetry: `
update ${jobs} j
set state = 'ready', run_at = now(), finished_at = null, solo = false,
    progress = case when jsonb_typeof(j.progress) = 'object' then j.progress - 'unconfirmed' else j.progress end,
    max_attempts = least(greatest(j.max_attempts, j.attempts + $2), ${LIMITS.maxAttempts})
where j.id = any ($1::bigint[]) and j.state in ('dead', 'cancelled') and j.attempts < ${LIMITS.maxAttempts}
returning j.id::text, ${wake()}`,

    /** ready -> dead, by an operator. */
    operatorDiscard: `
update ${jobs} j
set state = 'dead', finished_at = clock_timestamp(),
    errors =${appendError(failure(`'discarded'`, `'discarded by an operator'`))}
where j.id = any ($1::bigint[]) and j.state = 'ready' and j.cron is null
returning j.id::text`,

    /** ready -> cancelled: it will not run. A running job is left to its worker. */
    cancel: `
update ${jobs} j
set state = 'cancelled', finished_at = clock_timestamp()
where j.id = any ($1::bigint[]) and j.state = 'ready' and j.cron is null
returning j.id::text`,

    /** dead -> cancelled: looked at and put aside; no longer listed as dead. */
    dismiss: `
update ${jobs} j
set state = 'cancelled', finished_at = clock_timestamp()
where j.id = any ($1::bigint[]) and j.state = 'dead' and j.cron is null
returning j.id::text`,

    /** ready -> ready, due now. */
    runNow: `
update ${jobs} j
set run_at = now()
where j.id = any ($1::bigint[]) and j.state = 'ready' and j.cron is null
returning j.id::text, ${wake()}`,
  } as const;
}
