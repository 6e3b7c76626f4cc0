/**
 * For a team's own tests, as `unbroker/testing`: what a transaction has enqueued, and the work done here and now, inside the
 * same transaction, so that a rollback takes all of it back. No worker, no waiting; the time is given. It starts nothing
 * and loads no test framework.
 */
import { UnbrokerError } from './errors.js';
import { type ClaimedRow, claimedColumns, claimedJob } from './jobs/claimed.js';
import { type Handler, type KindOptions, Run } from './jobs/handler.js';
import type { ClaimedJob, Json, Queryable } from './jobs/job.js';
import { DEFAULT_RETRY_POLICY } from './jobs/retry.js';
import { DEFAULT_SCHEMA, quoteSchema } from './jobs/schema-name.js';
import { type HandlerEnd, type Outcome, settle } from './jobs/settle.js';
import { createStore } from './jobs/store.js';
import { epochMs, withDates } from './jobs/times.js';
import { checkHandlers } from './jobs/worker-options.js';
import { SILENT } from './log-face.js';

export interface TestingOptions {
  /** Default `unbroker`. */
  readonly schema?: string | undefined;
  /** As a worker takes them; needed to run jobs. */
  readonly handlers?: Readonly<Record<string, Handler>> | undefined;
}

export interface EnqueuedJob {
  readonly id: string;
  readonly kind: string;
  readonly payload: unknown;
  readonly priority: number;
  readonly runAt: Date;
  readonly maxAttempts: number;
  readonly dedupeKey: string | null;
  readonly orderingKey: string | null;
  readonly headers: Json;
  readonly source: string | null;
}

export interface RunReport {
  readonly id: string;
  readonly kind: string;
  /** This start, counted from 1. */
  readonly attempt: number;
  /** What was written: complete, retry, snooze or discard. */
  readonly outcome: Outcome;
  /** What the handler returned; undefined when it threw. */
  readonly result: unknown;
  /** What it threw; undefined when it returned. */
  readonly error: unknown;
}

export interface Testing {
  /** Jobs that this open transaction has put in, oldest first; at most 1,000. Without one: none. */
  enqueued(tx: Queryable, kind?: string): Promise<EnqueuedJob[]>;
  /** Runs one job now, whatever its time. Throws `job-not-ready`. */
  runJob(tx: Queryable, id: string): Promise<RunReport>;
  /**
   * Runs what is due at `now` (default: the database's), one after the other as a worker would take them, also what is
   * enqueued or comes back on the way, until nothing is due. Throws `never-idle` after `max` starts (default 1,000).
   */
  runAll(
    tx: Queryable,
    options?: { readonly now?: Date | undefined; readonly max?: number | undefined },
  ): Promise<RunReport[]>;
}

const LEASE_MS = 3_600_000;

/** Throws `worker-invalid` for handlers that a worker would not take. */
export function createTesting({ schema = DEFAULT_SCHEMA, handlers = {} }: TestingOptions = {}): Testing {
  const s = quoteSchema(schema);
  const store = createStore(schema);
  const kinds = Object.keys(handlers).length === 0 ? new Map<string, KindOptions>() : checkHandlers(handlers);
  const names = [...kinds.keys()];

  /** The job of an id, or null; the next that is due, or null. */
  const take = async (tx: Queryable, id: string | null, now: Date | null): Promise<ClaimedJob | null> => {
    const { rows } = await tx.query(takeText(s), [names, LEASE_MS, id, now]);
    return rows[0] === undefined ? null : claimedJob(rows[0] as ClaimedRow, names);
  };

  const run = async (tx: Queryable, job: ClaimedJob): Promise<RunReport> => {
    const kind = kinds.get(job.kind) as KindOptions;
    const deadlineAt = performance.now() + LEASE_MS;
    const end: HandlerEnd = await new Run(job, deadlineAt, SILENT, store, tx).execute(kind);
    const outcome = settle(job, end, kind.retryPolicy ?? DEFAULT_RETRY_POLICY, Math.random());
    if (outcome.type === 'complete') await store.complete(tx, [{ ...job, ...outcome }]);
    else if (outcome.type === 'retry') await store.retry(tx, [{ ...job, ...outcome }]);
    else if (outcome.type === 'snooze') await store.snooze(tx, [{ ...job, ...outcome }]);
    else await store.discard(tx, [{ ...job, ...outcome }]);
    const { id, kind: name, attempt } = job;
    const [result, error] = end.type === 'returned' ? [end.value, undefined] : [undefined, end.error];
    return { id, kind: name, attempt, outcome, result, error };
  };

  return {
    async enqueued(tx, kind) {
      return withDates<EnqueuedJob>((await tx.query(enqueuedText(s), [kind ?? null])).rows, ['runAt']);
    },
    async runJob(tx, id) {
      const job = await take(tx, id, null);
      if (job !== null) return run(tx, job);
      throw new UnbrokerError('job-not-ready', `Job ${id} cannot be run`, {
        hint: 'It must be there, ready, and of a kind that `handlers` has.',
      });
    },
    async runAll(tx, { now, max = 1_000 } = {}) {
      const reports: RunReport[] = [];
      for (
        let job = await take(tx, null, now ?? null);
        job !== null;
        job = await take(tx, null, now ?? null)
      ) {
        if (reports.length >= max) {
          throw new UnbrokerError('never-idle', `After ${max} starts there is still something due`, {
            hint: 'A handler may enqueue itself again or snooze for no time; give an earlier `now`, or a larger `max`.',
          });
        }
        reports.push(await run(tx, job));
      }
      return reports;
    },
  };
}

/** As a claim does it, for one row: $3 the id, or else the next of the kinds $1 that is due at $4. */
const takeText = (s: string): string => `
with candidate as materialized (
  select j.id
  from ${s}.jobs j
  where j.state = 'ready' and j.cron is null and j.kind = any ($1::text[])
    and case when $3::bigint is null then j.run_at <= coalesce($4::timestamptz, clock_timestamp()) else j.id = $3 end
  order by j.priority desc, j.run_at, j.id
  limit 1
  for update skip locked
), taken as (
  update ${s}.jobs j
  set state = 'running', attempts = j.attempts + 1, lease_token = nextval('${s}.lease_tokens'), locked_by = 'test',
      locked_until = clock_timestamp() + $2 * interval '1 millisecond'
  from candidate c
  where j.id = c.id
  returning j.*
), noted as (
  insert into ${s}.claims (token, ends_at, remaining, ids)
  select lease_token, locked_until, 1, array[id] from taken
)
select ${claimedColumns('$1::text[]')}
from (
  select id, kind, payload::text as payload, body, content_type, attempts, max_attempts, lease_token, priority, run_at,
         created_at, headers, progress, dedupe_key, source, retry_policy, ordering_key
  from taken
) as claimed`;

/**
 * Rows that are visible although the transaction that wrote them is in progress are this one's own, savepoints included.
 * xmin has 32 bits: the rest is that of the current transaction, or one less.
 */
const enqueuedText = (s: string): string => `
with clock as (select txid_current() as now), mine as (
  select j.*, (clock.now >> 32 << 32) + j.xmin::text::bigint as low, clock.now
  from ${s}.jobs j, clock
  where j.cron is null and j.state = 'ready' and ($1::text is null or j.kind = $1)
)
select id::text, kind, payload, priority, ${epochMs('run_at')} as "runAt", max_attempts as "maxAttempts", dedupe_key as "dedupeKey",
       ordering_key as "orderingKey", headers, source
from mine
where created_at >= now() and attempts = 0
  and txid_status(case when low > now + 1000000 then low - (1::bigint << 32) else low end) = 'in progress'
order by mine.id
limit 1000`;
