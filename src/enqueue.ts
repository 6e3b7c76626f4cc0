/**
 * The public client: put a job in, inside the caller's own transaction. No third-party import, so that a caller's
 * service pays nothing for it; `unbroker/enqueue` is this file, as ESM and as CommonJS.
 *
 * `tx` is anything with `query(text, values)`: pg's Client, PoolClient or Pool, or a wrapping from
 * adapters/transactions. The job exists if and only if that transaction commits.
 */
import { suggestion } from './check.js';
import { behind } from './jobs/behind.js';
import { isDirect } from './jobs/direct.js';
import { enqueueStore } from './jobs/enqueue-store.js';
import { checkHandle } from './jobs/handle.js';
import {
  type Enqueued,
  type EnqueueOptions,
  LIMITS,
  type NewJob,
  type PreparedJob,
  type Queryable,
} from './jobs/job.js';
import { type CheckedKind, checkPayload, type Kind, type KindJob } from './jobs/kind.js';
import { checkJson, tooLarge } from './jobs/payload-json.js';
import { Prepared } from './jobs/prepared.js';
import { parseRetryPolicy } from './jobs/retry.js';
import { DEFAULT_SCHEMA } from './jobs/schema-name.js';
import { isStorable } from './jobs/text.js';

export type { Enqueued, EnqueueOptions, NewJob, Queryable } from './jobs/job.js';
export { defineKind, type Kind, type KindJob, PayloadInvalid } from './jobs/kind.js';
export type { PayloadIssue, PayloadSchema } from './jobs/payload-schema.js';

/** What a kind's schema takes; anything for a kind that is only a name. */
export type PayloadOf<K> = K extends Kind<infer Input, infer _> ? Input : unknown;

/** The two functions, bound to a schema. Default schema `unbroker`. */
export interface EnqueueClient {
  /** With a kind of `defineKind` the payload is checked by its schema first, and stored as it was given. */
  enqueue<K extends string | CheckedKind>(
    tx: Queryable,
    kind: K,
    payload?: PayloadOf<K>,
    options?: EnqueueOptions,
  ): Promise<Enqueued>;
  enqueueMany(tx: Queryable, jobs: readonly (NewJob | KindJob)[]): Promise<Enqueued[]>;
}

export interface EnqueueClientOptions {
  /**
   * Whether a connection plans an enqueue's statement once and keeps it under a name, a quarter of what a job costs the
   * server. Behind a pooler in transaction mode the name may be unknown. Default: on a client of pg whose connection
   * is seen to end at the server itself, from its second call on. True: always, for pg's clients and pools whose
   * connections are direct or pooled by session. False: never, for code that discards what its sessions have prepared.
   */
  readonly prepared?: boolean | undefined;
}

const ENQUEUE = { what: 'enqueue', by: 'an enqueuer, worker or admin' };

/** For a schema other than `unbroker`, or with other options. Throws UnbrokerError `schema-invalid`. */
export function createEnqueue(
  schema: string = DEFAULT_SCHEMA,
  { prepared }: EnqueueClientOptions = {},
): EnqueueClient {
  const store = enqueueStore(schema);
  /** The same connection where it may keep plans; known at once, but for its second call. */
  const keeping = (tx: Queryable): Prepared | undefined | Promise<Prepared | undefined> => {
    const kept = (direct: boolean): Prepared | undefined => (direct ? new Prepared(tx) : undefined);
    const direct = prepared ?? isDirect(tx);
    return typeof direct === 'boolean' ? kept(direct) : direct.then(kept);
  };
  return {
    async enqueue(
      tx: Queryable,
      kind: string | CheckedKind,
      payload?: unknown,
      options: EnqueueOptions = {},
    ) {
      checkHandle(tx);
      const job =
        typeof kind === 'string'
          ? jobOf(kind, payload, options)
          : await prepareChecked({ ...options, kind, payload });
      try {
        const kept = keeping(tx);
        return await store.enqueue(tx, job, kept instanceof Promise ? await kept : kept);
      } catch (error) {
        throw behind(error, schema, ENQUEUE);
      }
    },
    async enqueueMany(tx, jobs) {
      checkHandle(tx);
      checkList(jobs);
      const answers: Enqueued[] = [];
      const checked: PreparedJob[] = [];
      // All are checked before the first is sent.
      for (const job of jobs) checked.push(isChecked(job) ? await prepareChecked(job) : prepare(job));
      if (checked.length === 0) return answers;
      const kept = await keeping(tx);
      try {
        for (const batch of batches(checked)) answers.push(...(await store.enqueueMany(tx, batch, kept)));
        return answers;
      } catch (error) {
        throw behind(error, schema, ENQUEUE);
      }
    },
  };
}

/** A thousand payloads of a megabyte in one statement are more than the driver's text or the server's message holds. */
function batches(jobs: readonly PreparedJob[]): PreparedJob[][] {
  const out: PreparedJob[][] = [];
  let length = 0;
  for (const job of jobs) {
    const last = out.at(-1);
    length += job.payloadText.length;
    if (last !== undefined && last.length < LIMITS.enqueueBatch && length <= LIMITS.enqueueBatchLength)
      last.push(job);
    else {
      out.push([job]);
      length = job.payloadText.length;
    }
  }
  return out;
}

const standard = createEnqueue();

/**
 * Puts one job in. Payload: anything JSON holds exactly (default null). Throws TypeError, before any statement is
 * sent, for what it cannot hold: undefined in an array, BigInt, Date, Map, a function, a cycle, NaN, Infinity, NUL, a
 * lone surrogate, more than 1 MiB or 64 levels, for options out of range, and PayloadInvalid (a TypeError, too) for what
 * the kind's schema refuses. Inside a transaction a TypeError
 * therefore leaves the transaction usable.
 */
export const enqueue: EnqueueClient['enqueue'] = standard.enqueue;

/** Puts many in, 1,000 a statement; answers in the order given. In a transaction: all or none. */
export const enqueueMany: EnqueueClient['enqueueMany'] = standard.enqueueMany;

/** Anything that can be gone through, as a set or what a generator gives. */
function checkList(jobs: unknown): void {
  if (typeof jobs === 'object' && jobs !== null && Symbol.iterator in jobs) return;
  throw new TypeError('jobs must be a list of jobs, each an object with a kind; enqueue takes a single one');
}

const isChecked = (job: NewJob | KindJob): job is KindJob =>
  typeof job?.kind === 'object' && job.kind !== null;

/** The schema is asked first; without one, as from JavaScript with no kind at all, prepare says what is wrong. */
async function prepareChecked({ kind, ...job }: KindJob): Promise<PreparedJob> {
  if (kind?.schema !== undefined) await checkPayload(kind, job.payload);
  return prepare({ ...job, kind: kind?.name });
}

/** Checks a job and serialises its payload. Exported for the doors that build jobs from requests. */
export function prepare(job: NewJob): PreparedJob {
  if (typeof job !== 'object' || job === null) throw new TypeError('a job must be an object with a kind');
  return jobOf(job.kind, job.payload, job);
}

/** Every field is named: an object copied with spread and rest took longer than everything else here together. */
function jobOf(kind: string, payload: unknown, options: EnqueueOptions): PreparedJob {
  checkText('kind', kind, 1, LIMITS.kindLength);
  checkOptions(options);
  return {
    kind,
    payloadText: payloadTextOf(payload),
    priority: options.priority,
    runAt: options.runAt,
    delayMs: options.delayMs,
    maxAttempts: options.maxAttempts,
    dedupeKey: options.dedupeKey,
    orderingKey: options.orderingKey,
    headers: options.headers,
    source: options.source,
    retryPolicy: options.retryPolicy,
  };
}

function payloadTextOf(payload: unknown = null): string {
  checkJson(payload, 'payload');
  const text = JSON.stringify(payload);
  // A UTF-16 unit is three bytes at most.
  if (text.length * 3 > LIMITS.payloadBytes && Buffer.byteLength(text) > LIMITS.payloadBytes)
    throw tooLarge('payload');
  return text;
}

/** All that a job may have; `satisfies` keeps the list whole. */
const OPTIONS = {
  ...{ kind: true, payload: true, priority: true, runAt: true, delayMs: true, maxAttempts: true },
  ...{ dedupeKey: true, orderingKey: true, headers: true, source: true, retryPolicy: true },
} satisfies Record<keyof NewJob, true>;
const OPTION_NAMES: ReadonlySet<string> = new Set(Object.keys(OPTIONS));

/** `delay` for `delayMs` would start the job at once and say nothing. */
function checkNames(options: object): void {
  if (typeof options !== 'object' || options === null) throw new TypeError('options must be an object');
  // for in: a list of names and values, made for each job, took as long as all other checks of it.
  for (const name in options) {
    if (!OPTION_NAMES.has(name) && (options as Record<string, unknown>)[name] !== undefined) {
      const names = [...OPTION_NAMES];
      const near = suggestion(name, names);
      throw new TypeError(`${name.slice(0, 60)} is no option; a job has ${names.join(', ')}${near}`);
    }
  }
}

function checkOptions(options: EnqueueOptions): void {
  checkNames(options);
  const { priority, runAt, delayMs, maxAttempts, dedupeKey, orderingKey, headers, source, retryPolicy } =
    options;
  if (dedupeKey !== undefined) checkText('dedupeKey', dedupeKey, 1, LIMITS.dedupeKeyLength);
  if (orderingKey !== undefined) checkText('orderingKey', orderingKey, 1, LIMITS.orderingKeyLength);
  if (source !== undefined) checkText('source', source, 0, LIMITS.sourceLength);
  if (priority !== undefined) checkInteger('priority', priority, LIMITS.minPriority, LIMITS.maxPriority);
  if (maxAttempts !== undefined) checkInteger('maxAttempts', maxAttempts, 1, LIMITS.maxAttempts);
  if (runAt !== undefined && delayMs !== undefined) throw new TypeError('give runAt or delayMs, not both');
  // Postgres knows no year before 4713 BC nor after 294276; its refusal would cost the caller the transaction.
  if (runAt !== undefined && !(runAt instanceof Date && runAt >= MIN_RUN_AT && runAt <= MAX_RUN_AT)) {
    throw new TypeError('runAt must be a valid Date of the years 1 to 9999');
  }
  if (delayMs !== undefined && !(typeof delayMs === 'number' && delayMs >= 0 && delayMs <= MAX_DELAY_MS)) {
    throw new TypeError(`delayMs must be 0 to ${MAX_DELAY_MS}`);
  }
  if (headers !== undefined) checkHeaders(headers);
  if (retryPolicy !== undefined && parseRetryPolicy(retryPolicy) === null) {
    throw new TypeError(
      'retryPolicy must be an exponential, fixed or ladder policy with delays of 0 to 30 days',
    );
  }
}

/** Ten years: longer is a unit mistaken. */
const MAX_DELAY_MS = 10 * 366 * 24 * 3_600_000;
const MIN_RUN_AT = new Date('0001-01-01T00:00:00Z');
const MAX_RUN_AT = new Date('9999-12-31T23:59:59.999Z');

function checkHeaders(headers: unknown): void {
  if (typeof headers !== 'object' || headers === null || Array.isArray(headers)) {
    throw new TypeError('headers must be an object');
  }
  checkJson(headers, 'headers');
  if (Buffer.byteLength(JSON.stringify(headers)) > LIMITS.headersBytes) {
    throw new TypeError(`headers are larger than ${LIMITS.headersBytes} bytes`);
  }
}

function checkText(name: string, value: unknown, min: number, max: number): void {
  if (typeof value !== 'string' || value.length < min || value.length > max || !isStorable(value)) {
    throw new TypeError(
      `${name} must be a string of ${min} to ${max} characters without NUL or lone surrogates`,
    );
  }
}

function checkInteger(name: string, value: unknown, min: number, max: number): void {
  if (!Number.isInteger(value) || (value as number) < min || (value as number) > max) {
    throw new TypeError(`${name} must be a whole number from ${min} to ${max}`);
  }
}
