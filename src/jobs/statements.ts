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

const jobColumns = `
    j.id::text, j.kind, j.state, j.priority, j.run_at as "runAt", j.attempts, j.max_attempts as "maxAttempts",
    j.locked_until as "lockedUntil", j.locked_by as "lockedBy", j.dedupe_key as "dedupeKey",
    j.ordering_key as "orderingKey", coalesce(j.state = 'ready' and j.turn = 'waits', false) as "waitsForTurn",
    j.payload::text as "payloadText", length(j.body) as "bodyBytes", j.content_type as "contentType",
    j.headers, j.source, j.progress, coalesce(j.errors, '[]') as errors, j.result,
    j.created_at as "createdAt", j.finished_at as "finishedAt"`;

const scheduleColumns = `
    j.id::text, substr(j.dedupe_key, 10) as name, j.kind, j.payload::text as "payloadText", j.priority,
    j.max_attempts as "maxAttempts", j.headers, j.retry_policy as "retryPolicy", j.source, j.cron,
    j.time_zone as "timeZone", j.misfire, j.paused, case when j.state = 'ready' then j.run_at end as "nextRunAt",
    j.ends_at as "endAt", j.slots_until as "slotsUntil", j.created_at as "createdAt"`;

/** To the microsecond, in any session: what a compare-and-set compares with. */
const exact = (column: string): string =>
  `to_char(${column} at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US+00')`;

/** The headers of a job that a schedule fires: its own, and which slot of which schedule this is. */
const slotHeaders = (at: string, more = ''): string => `
    case when jsonb_typeof(j.headers) = 'object' then j.headers else '{}' end || jsonb_build_object('schedule',
      jsonb_build_object('name', substr(j.dedupe_key, 10), 'at',
        to_char(${at} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')${more}))`;

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

export function createStatements(schema: string) {
  const s = quoteSchema(schema);
  const jobs = `${s}.jobs`;
  // Only when somebody sleeps, and then once a statement: see migrations/006_sleepers.sql. As a boolean, since some
  // clients cannot read the type void.
  const wake = (condition = 'true'): string => `(
  select pg_notify('${wakeChannel(schema)}', '')::text is not null
  from ${s}.sleepers where ${condition} and sleeps_until > clock_timestamp() limit 1) as woke`;
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

    /** What a schedule's door asks first: the database's clock, and how Postgres spells one of these zones. */
    clockAndZone: `
select date_part('epoch', clock_timestamp()) * 1000 as "nowMs",
       (select name from pg_timezone_names where lower(name) = any ($1::text[])
        order by array_position($1::text[], lower(name)) limit 1) as "timeZone"`,

    /** The database's clock alone. */
    clock: `
select date_part('epoch', clock_timestamp()) * 1000 as "nowMs"`,

    /**
     * A schedule by its name ($8), made or changed. $12 = its next slot, null when it has ended. The same rule put again
     * keeps the slot that is there, so that a deploy does not lose one that was missed; not when it lies before $17
     * (startAt), after $12 (it was put off) or was passed while paused. $16 = paused, null leaves it.
     */
    putSchedule: `
insert into ${jobs} as j (kind, payload, priority, max_attempts, headers, source, retry_policy, dedupe_key, cron, time_zone,
                          misfire, run_at, ends_at, slots_until, tz_version, paused, state, finished_at, ordering_key)
select $1, $2::jsonb, coalesce($3, 0), coalesce($4, 20), $5::jsonb, $6, $7::jsonb, $8, $9, $10, $11,
       coalesce($12, now()), $13::timestamptz, $14::timestamptz, $15, coalesce($16, false),
       case when $12::timestamptz is null then 'done' else 'ready' end, case when $12 is null then now() end, $18
from (select pg_advisory_xact_lock(hashtextextended($8, 0))) as turn
on conflict (dedupe_key) where misfire is not null do update
set kind = excluded.kind, payload = excluded.payload, body = null, content_type = null, priority = excluded.priority,
    max_attempts = excluded.max_attempts, headers = excluded.headers, source = excluded.source,
    ordering_key = excluded.ordering_key, retry_policy = excluded.retry_policy, cron = excluded.cron, time_zone = excluded.time_zone,
    misfire = excluded.misfire, ends_at = excluded.ends_at, paused = coalesce($16, j.paused),
    (run_at, slots_until, tz_version, state, finished_at) = (
      select slot.run_at, slot.slots_until, slot.tz_version, slot.state, slot.finished_at
      from (values
        (true, j.run_at, j.slots_until, j.tz_version, j.state, j.finished_at),
        (false, excluded.run_at, excluded.slots_until, excluded.tz_version, excluded.state, excluded.finished_at)
      ) as slot (kept, run_at, slots_until, tz_version, state, finished_at)
      where slot.kept = (
        j.state = 'ready' and j.cron = excluded.cron and j.time_zone = excluded.time_zone
        and j.run_at between coalesce($17::timestamptz, j.run_at) and excluded.run_at
        and not (j.paused and not coalesce($16, true)))
    )
returning (j.xmax = 0) as created,${scheduleColumns}`,

    /** One schedule. */
    findSchedule: `
select ${scheduleColumns}
from ${jobs} j
where j.misfire is not null and j.dedupe_key = $1`,

    /** Schedules by name, of one kind, one source prefix, after a name; at most $4. */
    listSchedules: `
select ${scheduleColumns}
from ${jobs} j
where j.misfire is not null
  and ($1::text is null or j.kind = $1)
  and ($2::text is null or starts_with(j.source, $2))
  and ($3::text is null or j.dedupe_key > $3)
order by j.dedupe_key
limit $4`,

    /** Removes a schedule. Jobs that it fired stay. */
    deleteSchedule: `
delete from ${jobs} where misfire is not null and dedupe_key = $1
returning id::text`,

    /** No slot fires until it is resumed. */
    pauseSchedule: `
update ${jobs} j
set paused = true
where j.misfire is not null and j.dedupe_key = $1
returning ${scheduleColumns}`,

    /** Goes on with the slot $4 (null = none is left); those before were passed while paused. Fenced by the rule. */
    resumeSchedule: `
update ${jobs} j
set paused = false, run_at = coalesce($4, j.run_at), slots_until = $5, tz_version = $6,
    state = case when $4::timestamptz is null then 'done' else 'ready' end,
    finished_at = case when $4 is null then coalesce(j.finished_at, now()) end
where j.misfire is not null and j.dedupe_key = $1 and j.paused and j.cron = $2 and j.time_zone = $3
returning ${scheduleColumns}`,

    /** A job of a schedule now, beside its slots. */
    triggerSchedule: `
insert into ${jobs} (kind, payload, body, content_type, priority, max_attempts, ordering_key, headers, source, retry_policy)
select j.kind, j.payload, j.body, j.content_type, j.priority, j.max_attempts, j.ordering_key,
       ${slotHeaders('now()', `, 'triggered', true`)}, j.dedupe_key, j.retry_policy
from ${jobs} j
where j.misfire is not null and j.dedupe_key = $1
returning id::text, ${wake()}`,

    /** Jobs that a schedule fired, newest first, below an id; at most $3. jobs_fired is made for it. */
    scheduleHistory: `
select ${jobColumns}
from ${jobs} j
where j.cron is null and starts_with(j.source, 'schedule:') and j.source = $1
  and ($2::bigint is null or j.id < $2)
order by j.id desc
limit $3`,

    /**
     * Up to $2 schedules whose slot has come or comes within a second, but not those of $3. $1 stands in for the clock in
     * tests.
     */
    dueSchedules: `
select j.id::text, j.cron, j.time_zone as "timeZone", j.misfire, ${exact('j.run_at')} as "runAtText",
       date_part('epoch', j.run_at) * 1000 as "runAtMs", date_part('epoch', j.ends_at) * 1000 as "endAtMs",
       date_part('epoch', coalesce($1::timestamptz, now())) * 1000 as "nowMs"
from ${jobs} j
where j.misfire is not null and j.state = 'ready' and not j.paused
  and j.run_at <= coalesce($1::timestamptz, now()) + interval '1 second'
  and not (j.id = any ($3::bigint[]))
order by j.run_at, j.id
limit $2`,

    /**
     * THE FIRING. Moves schedules ($1) from the slot that was read ($2, and under the rule that was read, $3 and $4) to the
     * next one ($5, null = ended), and inserts the jobs of the slots between ($6 schedule, $7 time) in the same statement:
     * there is no moment between the two. Who comes second finds another run_at and inserts nothing; should a slot
     * come twice all the same (run_at set back by hand), its dedupe key is taken. A row that somebody holds is passed
     * by, so that a forgotten transaction stops one schedule and not all.
     */
    fireSchedules: `
with input as materialized (
  select * from unnest($1::bigint[], $2::timestamptz[], $3::text[], $4::text[], $5::timestamptz[])
    as input (id, run_at, cron, time_zone, next_at)
),
held as materialized (
  select j.id, input.run_at, input.next_at
  from input join ${jobs} j on j.id = input.id
  where j.run_at = input.run_at and j.cron = input.cron and j.time_zone = input.time_zone
    and j.misfire is not null and j.state = 'ready' and not j.paused
  order by j.id
  for update of j skip locked
),
moved as (
  update ${jobs} j
  set run_at = coalesce(held.next_at, j.run_at), slots_until = $8, tz_version = $9,
      state = case when held.next_at is null then 'done' else 'ready' end,
      finished_at = case when held.next_at is null then clock_timestamp() end
  from held
  where j.id = held.id and j.run_at = held.run_at and j.state = 'ready' and not j.paused
  returning j.*
),
fired as (
  insert into ${jobs} (kind, payload, body, content_type, priority, run_at, max_attempts, dedupe_key, ordering_key,
                       headers, source, retry_policy)
  select j.kind, j.payload, j.body, j.content_type, j.priority, slot.at, j.max_attempts,
         'slot:' || j.id || ':' || to_char(slot.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), j.ordering_key,
         ${slotHeaders('slot.at')}, j.dedupe_key, j.retry_policy
  from moved j join unnest($6::bigint[], $7::timestamptz[]) as slot (id, at) on slot.id = j.id
  order by slot.at, j.id
  on conflict (kind, dedupe_key) where dedupe_key is not null do nothing
  returning id, source
)
select moved.id::text, substr(moved.dedupe_key, 10) as name, moved.kind, moved.state = 'done' as ended,
       array(select fired.id::text from fired where fired.source = moved.dedupe_key order by fired.id) as jobs,
       ${wake('exists (select from fired)')}
from moved order by moved.id`,

    /** Up to $2 schedules that were computed with an older tzdata than $1. */
    staleSchedules: `
select j.id::text, j.cron, j.time_zone as "timeZone", ${exact('j.run_at')} as "runAtText",
       date_part('epoch', j.slots_until) * 1000 as "slotsUntilMs"
from ${jobs} j
where j.misfire is not null and j.state = 'ready' and (j.tz_version is null or j.tz_version < $1)
  and not (j.id = any ($3::bigint[]))
order by j.dedupe_key
limit $2`,

    /** The same wall time under newer tzdata ($5), unless the schedule moved on meanwhile. */
    rebaseSchedules: `
update ${jobs} j
set run_at = input.next_at, tz_version = $5
from unnest($1::bigint[], $2::timestamptz[], $3::text[], $4::timestamptz[]) as input (id, run_at, cron, next_at)
where j.id = input.id and j.run_at = input.run_at and j.cron = input.cron and j.misfire is not null
  and j.state = 'ready'
returning j.id::text`,
  } as const;
}
