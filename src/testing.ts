/**
 * For a team's own tests, as `unbroker/testing`: what a transaction has enqueued, and the work done here and now, inside the
 * same transaction, so that a rollback takes all of it back. No worker, no waiting; the time is given. It starts nothing
 * and loads no test framework.
 */
import { suggestion } from './check.js';
import { EXIT, UnbrokerError } from './errors.js';
import { type ClaimedRow, claimedJob } from './jobs/claimed.js';
import { type Handler, type KindOptions, Run } from './jobs/handler.js';
import type { ClaimedJob, Json, Queryable } from './jobs/job.js';
import type { CheckedKind } from './jobs/kind.js';
import { DEFAULT_RETRY_POLICY } from './jobs/retry.js';
import { DEFAULT_SCHEMA, quoteSchema } from './jobs/schema-name.js';
import { type HandlerEnd, type Outcome, settle } from './jobs/settle.js';
import { createStore, type Store } from './jobs/store.js';
import { withDates } from './jobs/times.js';
import { checkHandlers } from './jobs/worker-options.js';
import { SILENT } from './log-face.js';
import { enqueuedText, putOffText, takeText } from './testing-statements.js';

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

export interface RunAllOptions {
  /** Until when; default: the database's clock, as it is. */
  readonly now?: Date | undefined;
  /** Starts in all. Default 1,000. */
  readonly max?: number | undefined;
}

export interface Testing {
  /** Jobs that this open transaction has put in, oldest first; at most 1,000. Throws `testing-invalid` for a pool, which has none. */
  enqueued(tx: Queryable, kind?: string | CheckedKind): Promise<EnqueuedJob[]>;
  /** Runs one job now, whatever its time. Throws `job-not-ready`. */
  runJob(tx: Queryable, id: string): Promise<RunReport>;
  /**
   * Runs what is due, one after the other as a worker would take them, also what is enqueued or comes back on the way, until
   * nothing is due. With `now` the time goes on from job to job until then, as if a worker had been there all along. Throws
   * `never-idle` after `max` starts.
   */
  runAll(tx: Queryable, options?: RunAllOptions): Promise<RunReport[]>;
}

const LEASE_MS = 3_600_000;

/** Throws `worker-invalid` for handlers that a worker would not take, `testing-invalid` for other options. */
export function createTesting(options: TestingOptions = {}): Testing {
  known('createTesting', options, ['schema', 'handlers']);
  const { schema = DEFAULT_SCHEMA, handlers = {} } = options;
  const s = quoteSchema(schema);
  const store = createStore(schema);
  const kinds = Object.keys(handlers).length === 0 ? new Map<string, KindOptions>() : checkHandlers(handlers);
  const names = [...kinds.keys()];

  const take = async (tx: Queryable, which: Which): Promise<ClaimedJob | null> => {
    if (names.length === 0)
      throw invalid(
        'no job can be run without handlers',
        'Give createTesting({ handlers }), as to a worker.',
      );
    const { id = null, untilMs = null, atMs = null } = which;
    const rows = await rowsOf(tx, takeText(s), [names, LEASE_MS, id, untilMs, atMs]);
    if (rows[0] === undefined) return null;
    const row = rows[0] as ClaimedRow & { readonly rest: string | null };
    const [payloadText, rest] = [asSent(row.payloadText), asSent(row.rest)];
    return claimedJob({ ...row, payloadText, rest: rest === null ? null : JSON.parse(rest) }, names);
  };

  /** `atMs`: the time that it is for this job; without it the database's clock says. */
  const run = async (tx: Queryable, job: ClaimedJob, atMs?: number): Promise<RunReport> => {
    const kind = kinds.get(job.kind) as KindOptions;
    const clocked: Store = atMs === undefined ? store : { ...store, clock: () => Promise.resolve(atMs) };
    const deadlineAt = performance.now() + LEASE_MS;
    const end = await apart(tx, job.kind, async () =>
      new Run(job, deadlineAt, SILENT, clocked, tx).execute(kind),
    );
    const outcome = settle(job, end, kind.retryPolicy ?? DEFAULT_RETRY_POLICY, Math.random());
    if (outcome.type === 'complete') await store.complete(tx, [{ ...job, ...outcome }]);
    else if (outcome.type === 'retry') await store.retry(tx, [{ ...job, ...outcome }]);
    else if (outcome.type === 'snooze') await store.snooze(tx, [{ ...job, ...outcome }]);
    else await store.discard(tx, [{ ...job, ...outcome }]);
    if (atMs !== undefined && (outcome.type === 'retry' || outcome.type === 'snooze'))
      await tx.query(putOffText(s), [job.id, atMs + outcome.delayMs]);
    const { id, kind: name, attempt } = job;
    const [result, error] = end.type === 'returned' ? [end.value, undefined] : [undefined, end.error];
    return { id, kind: name, attempt, outcome, result, error };
  };

  return {
    async enqueued(tx, kind) {
      // It would answer an empty list each time, which a test for "nothing was enqueued" takes for true.
      if (isPool(tx))
        throw invalid(
          'a pool has no open transaction to look into',
          'Give the client that the code under test enqueued with, before it commits.',
        );
      const name = typeof kind === 'object' ? kind.name : kind;
      const rows = await rowsOf(tx, enqueuedText(s), [name ?? null]);
      return withDates<EnqueuedJob>(rows, ['runAt']).map((job) => ({
        ...job,
        payload: parsed(job.payload),
        headers: parsed(job.headers) as Json,
      }));
    },
    async runJob(tx, id) {
      // Postgres would refuse it, and with it all that comes after in this transaction.
      if (typeof id !== 'string' || !/^\d{1,18}$/.test(id))
        throw invalid(
          'that is no id of a job',
          'Give the `id` of the answer of enqueue, a string of digits.',
        );
      const job = await take(tx, { id });
      if (job !== null) return run(tx, job);
      throw new UnbrokerError('job-not-ready', `Job ${id} cannot be run`, {
        hint: 'It must be there, ready, and of a kind that `handlers` has.',
      });
    },
    async runAll(tx, options = {}) {
      const { untilMs, max } = checkRunAll(options);
      const reports: RunReport[] = [];
      let atMs = untilMs === undefined ? undefined : Math.min(untilMs, await store.clock(tx));
      for (;;) {
        const job = await take(tx, { untilMs, atMs });
        if (job === null) return reports;
        if (reports.length >= max) {
          throw new UnbrokerError('never-idle', `After ${max} starts there is still something due`, {
            hint: 'A handler may enqueue itself again or snooze for no time; give an earlier `now`, or a larger `max`.',
          });
        }
        if (atMs !== undefined) atMs = Math.max(atMs, job.runAtMs);
        reports.push(await run(tx, job, atMs));
      }
    },
  };
}

interface Which {
  readonly id?: string | undefined;
  readonly untilMs?: number | undefined;
  readonly atMs?: number | undefined;
}

/**
 * Beside a worker a handler has a transaction of its own: a statement of it that fails takes back what it wrote, and leaves
 * this one usable, so that its job can be written as failed.
 */
async function apart(tx: Queryable, kind: string, execute: () => Promise<HandlerEnd>): Promise<HandlerEnd> {
  const saved = !isPool(tx) && (await succeeds(tx, 'savepoint unbroker_run'));
  const end = await execute();
  if (!saved) return end;
  try {
    await tx.query('release savepoint unbroker_run', []);
  } catch (error) {
    // Only where a statement failed is the savepoint still there.
    const back = 'rollback to savepoint unbroker_run';
    if (!((await succeeds(tx, back)) && (await succeeds(tx, 'release savepoint unbroker_run'))))
      throw new UnbrokerError(
        'transaction-ended',
        `The handler of ${kind} ended the transaction of the test`,
        {
          hint: 'Let it begin and commit on a client of its own, or give runAll a pool, for jobs that are committed.',
          cause: end.type === 'threw' ? end.error : error,
        },
      );
  }
  return end;
}

/** A library whose query answers otherwise (a list, a pair) would show no jobs, and tell nobody. */
async function rowsOf(tx: Queryable, text: string, values: readonly unknown[]): Promise<unknown[]> {
  const answer: Partial<Awaited<ReturnType<Queryable['query']>>> | undefined =
    typeof tx?.query === 'function' ? await tx.query(text, [...values]) : undefined;
  if (Array.isArray(answer?.rows)) return answer.rows;
  throw invalid(
    'that is no client of pg, nor anything whose query answers { rows }',
    "Give the test's client, or wrap your library's transaction: fromKnex(trx) and the others of unbroker/transactions.",
  );
}

async function succeeds(tx: Queryable, statement: string): Promise<boolean> {
  try {
    await tx.query(statement, []);
    return true;
  } catch {
    return false;
  }
}

/** pg's, whose every query may go to another connection. */
function isPool(tx: Queryable): boolean {
  return typeof tx === 'object' && tx !== null && 'totalCount' in tx && 'connect' in tx;
}

function checkRunAll(options: RunAllOptions): { readonly untilMs: number | undefined; readonly max: number } {
  known('runAll', options, ['now', 'max']);
  const { now, max = 1_000 } = options;
  // By its tag: a Date of a test runner's own realm, or of fake timers, is no instance of this Date.
  const isDate = Object.prototype.toString.call(now) === '[object Date]' && Number.isFinite(now?.getTime());
  if (now !== undefined && !isDate) throw invalid('now is no Date', 'Give `now` as a valid Date.');
  if (!Number.isInteger(max) || max < 1)
    throw invalid('max is no number of starts', 'Give a whole number from 1.');
  return { untilMs: now?.getTime(), max };
}

function known(of: string, options: object, names: readonly string[]): void {
  if (typeof options !== 'object' || options === null)
    throw invalid(`the options of ${of} are not an object`, `Options are ${names.join(' and ')}.`);
  const odd = Object.keys(options).find((name) => !names.includes(name));
  if (odd === undefined) return;
  const hint = `Options are ${names.join(' and ')}${suggestion(odd, names) || '.'}`;
  throw invalid(`${odd.slice(0, 60)} is no option of ${of}`, hint);
}

function invalid(what: string, hint: string): UnbrokerError {
  return new UnbrokerError('testing-invalid', `unbroker/testing: ${what}`, {
    hint,
    exitStatus: EXIT.badInput,
  });
}

/** What `sent` (testing-statements.ts) has written. */
const asSent = (text: string | null): string | null => text?.slice(1) ?? null;
const parsed = (text: unknown): unknown => (typeof text === 'string' ? JSON.parse(text.slice(1)) : null);
