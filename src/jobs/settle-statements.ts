/**
 * Every statement of a worker on the jobs that it runs, in the form of statements.ts. Every write is fenced: `id and state =
 * 'running' and lease_token = mine` (`held` below). No row back means the lease is lost; the write must not be repeated.
 * settle-store.ts is the only file that runs these.
 */
import { quoteSchema } from './schema-name.js';
import { appendError, becomes, failure } from './statements.js';

/** Of array parameter $n, which stands beside the ids in $1, the element of this row. The ids come sorted (held.ts). */
const nth = (parameter: number, type: string): string =>
  `($${parameter}::${type}[])[width_bucket(j.id, $1::bigint[])]`;

/**
 * The fence: rows whose id is in $1 and which run under the token beside it in $2. No join with the parameters, because
 * its plan follows the statistics of an index that is empty at quiet hours: it then reads every running row (48 ms
 * beside 100,000 of them) or pairs all with all (95 ms for 500), where this reads 500 index entries (2 ms).
 */
const held = `j.id = any ($1::bigint[]) and j.state = 'running' and j.lease_token = ${nth(2, 'bigint')}`;

/**
 * The fence without the rows that somebody else has locked just now: they would keep all the others of the statement waiting,
 * and leases run out meanwhile. An array, not a join, for the same reason.
 */
const free = (jobs: string, strength = 'no key update'): string => `j.id = any (array(
  select j.id from ${jobs} j
  where ${held}
  order by j.id
  for ${strength} skip locked))`;

export function createSettleStatements(schema: string) {
  const s = quoteSchema(schema);
  const jobs = `${s}.jobs`;
  const heldAndFree = free(jobs);
  /** A write that ends leases, and that their claims have so many jobs less (migrations/031_claims.sql); answers as `ids` says. */
  const ending = (write: string, ids = 'id::text'): string => `
with ended as (${write}
  returning j.id, ${nth(2, 'bigint')} as token
), counted as (
  select ${s}.count_ends(array_agg(ended.token)) from ended
)
select ${ids} from ended cross join counted`;
  return {
    /** Prolongs leases. A heap-only update: no index holds locked_until. */
    extend: `
update ${jobs} j
set locked_until = clock_timestamp() + $3 * interval '1 millisecond'
where ${heldAndFree}
returning j.id::text`,

    /**
     * running -> done, with each job's result where there is one. Their ids come as one text: a thousand rows cost this side
     * more than the rest of the answer.
     */
    finish: `
select ${s}.finish($1, $2, $3) as ids`,

    /** The same, '*' for all of them; refused (55P03) when somebody else holds one of the rows for more than 500 ms. */
    finishBatch: `
select ${s}.finish_batch($1, $2, $3) as ids`,

    /** The same of jobs that came with one claim and have no results (migrations/038_claim_in_place.sql). */
    finishOf: `
select ${s}.finish_of($1, $2) as ids`,

    /** The same without the rows that somebody else holds. */
    finishFree: ending(
      `
update ${jobs} j
set ${becomes('done')}, finished_at = clock_timestamp(), result = coalesce(${nth(3, 'text')}::jsonb, j.result)
where ${heldAndFree}`,
      `string_agg(id::text, ',') as ids`,
    ),

    /** What has become of rows whose end found nothing to write (recheck.ts). */
    rowsNow: `
select j.id::text, j.state, j.lease_token::text as "leaseToken", j.attempts, coalesce(j.errors, '[]') as errors
from ${jobs} j where j.id = any ($1::bigint[])`,

    /** The same for one job (migrations/031_claims.sql). */
    finishOne: `
select ${s}.finish_one($1, $2, $3) as written`,

    /**
     * The same for each of them in a transaction of its own (migrations/031_claims.sql); a letter for each: w written,
     * s stale, h held by somebody else, e refused. Not inside a transaction.
     */
    finishEach: `
call ${s}.finish_each($1, $2, $3, null)`,

    /** running -> done and gone at once: a row that nobody asks for again (settle.ts). Refused as finishBatch is. */
    removeSoon: `
select ${s}.remove_soon($1, $2) as ids`,

    /** The same of jobs that came with one claim; '*' for all of them. */
    removeOf: `
select ${s}.remove_of($1, $2) as ids`,

    /** The same without the rows that somebody else holds, also by a key that refers to them. */
    removeFree: ending(
      `
delete from ${jobs} j
where ${free(jobs, 'update')}`,
      `string_agg(id::text, ',') as ids`,
    ),

    /**
     * running -> ready, after a delay, the failure noted. The attempt was counted at the claim. Not solo any more: it came
     * back by itself, so it does not kill processes.
     */
    retry: ending(`
update ${jobs} j
set ${becomes('ready')}, solo = false, run_at = clock_timestamp() + ${nth(3, 'float8')} * interval '1 millisecond',
    errors =${appendError(failure(nth(4, 'text'), nth(5, 'text')))}
where ${heldAndFree}`),

    /** running -> ready, after a delay, without spending an attempt. */
    snooze: ending(`
update ${jobs} j
set ${becomes('ready')}, solo = false, run_at = clock_timestamp() + ${nth(3, 'float8')} * interval '1 millisecond',
    attempts = j.attempts - 1
where ${heldAndFree}`),

    /** running -> dead, with the reason. */
    discard: ending(`
update ${jobs} j
set ${becomes('dead')}, finished_at = clock_timestamp(),
    errors =${appendError(failure(nth(3, 'text'), nth(4, 'text')))}
where ${heldAndFree}`),

    /** running -> ready, unharmed: given back at shutdown, the attempt with it. */
    release: ending(`
update ${jobs} j
set ${becomes('ready')}, attempts = j.attempts - 1
where ${heldAndFree}`),

    /** What a handler wants to find again on its next start. */
    checkpoint: `
update ${jobs} j
set progress = $3::jsonb
where j.id = $1 and j.state = 'running' and j.lease_token = $2
returning j.id::text`,
  } as const;
}
