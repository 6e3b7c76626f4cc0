/**
 * What the statements on the jobs table have in common, and where they are. Each side has its texts in one file and one
 * file that runs them, and nobody else does:
 *
 *     enqueue-statements.ts    enqueue-store.ts     put jobs in
 *     claim-statements.ts      claim-store.ts       lease due jobs (THE CLAIM), whose turn is next, who sleeps
 *     settle-statements.ts     settle-store.ts      prolong a lease, say how a job ended
 *     upkeep-statements.ts     upkeep-store.ts      take expired leases back, remove old rows
 *     schedule-statements.ts   schedule-store.ts    schedules, and what they fire
 *     operator-statements.ts   operator-store.ts    look, list, count; retry, discard, cancel, edit
 *
 * Each statement has a name and a sentence. Its text is constant once the schema is known; values travel as parameters.
 * What must be planned without a session's state, or is one call for a client, is a function in migrations/.
 */
import { LIMITS } from './job.js';
import { quoteSchema } from './schema-name.js';
import { epochMs } from './times.js';

/** An entry appended to `errors`, the oldest dropped when the list is full. */
export const appendError = (entry: string): string => `
      case when jsonb_array_length(coalesce(j.errors, '[]')) >= ${LIMITS.errorsKept}
        then j.errors - 0 else coalesce(j.errors, '[]') end
      || ${entry}`;

/** One entry of `errors`. */
export const failure = (name: string, message: string): string =>
  `jsonb_build_object('at', clock_timestamp(), 'attempt', j.attempts, 'name', ${name}, 'message', ${message})`;

/** The turn of a job with an ordering key that ran, as turn_in says it: then the table need not write the row once more. */
const turnIn = {
  ready: `case j.turn when 'runs' then 'begun' when 'runs-holds' then 'holds' else j.turn end`,
  dead: `case j.turn when 'runs' then 'begun' when 'runs-holds' then 'stops' else j.turn end`,
  done: 'null',
} as const;

/** What ends a lease, in every statement that leaves the running state for another. */
export const becomes = (state: keyof typeof turnIn): string =>
  `state = '${state}', locked_until = null, locked_by = null, lease_token = null, on_lease_expired = null,
    turn = ${turnIn[state]}${state === 'dead' ? ', dead = true' : ''}`;

/** A row as a Job (answers.ts makes it one). */
export const jobColumns = `
    j.id::text, j.kind, j.state, j.priority, ${epochMs('j.run_at')} as "runAt", j.attempts, j.max_attempts as "maxAttempts",
    ${epochMs('j.locked_until')} as "lockedUntil", j.locked_by as "lockedBy", j.dedupe_key as "dedupeKey",
    j.ordering_key as "orderingKey", coalesce(j.state = 'ready' and j.turn = 'waits', false) as "waitsForTurn",
    j.payload::text as "payloadText", length(j.body) as "bodyBytes", j.content_type as "contentType",
    j.headers, j.source, j.progress, coalesce(j.errors, '[]') as errors, j.result,
    ${epochMs('j.created_at')} as "createdAt", ${epochMs('j.finished_at')} as "finishedAt"`;

/** To the microsecond, in any session: what a compare-and-set compares with. */
export const exact = (column: string): string =>
  `to_char(${column} at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US+00')`;

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

/** The same, evaluated for each row: for statements that write one. */
export const wakesOne =
  (schema: string) =>
  (condition: string): string =>
    `case
  when ${condition} and exists (select from ${quoteSchema(schema)}.sleepers where sleeps_until > clock_timestamp())
  then pg_notify('${wakeChannel(schema)}', '')::text is not null end as woke`;

/**
 * The same, but it names two of those that sleep and have a handler for this kind: see migrations/047_wake_two.sql. Null only when
 * nobody sleeps at all.
 */
export const wakesTwo =
  (schema: string) =>
  (kind: string): string =>
    `case when exists (select from ${quoteSchema(schema)}.sleepers where sleeps_until > clock_timestamp()) then (
  select case
    when some_old then pg_notify('${wakeChannel(schema)}', '')::text is not null
    when w is not null then pg_notify('${wakeChannel(schema)}',
      w[1 + id % cardinality(w)] || ',' || w[1 + (id + cardinality(w) / 2) % cardinality(w)] || ' ' || ${kind})::text is not null
    else true end
  from (
    select bool_or(kinds is null) as some_old, array_agg(worker) filter (where ${kind} = any (kinds)) as w
    from ${quoteSchema(schema)}.sleepers where sleeps_until > clock_timestamp()) as asleep) end as woke`;
