/**
 * What a handler is given and what a kind may say about itself; and the run of one job, from its lease to how it
 * ended. It writes nothing but checkpoints: what follows from the end is settle.ts's answer.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Log } from '../log-face.js';
import { expiryOfOrigin, refuseExpiredAt } from './expiry.js';
import type { ClaimedJob, Json, Queryable, RetryPolicy } from './job.js';
import { LIMITS } from './job.js';
import { type PayloadSchema, placesOf, validatePayload } from './payload-schema.js';
import { Discard, type HandlerEnd, Snooze } from './settle.js';
import { isConflict } from './sqlstate.js';
import type { Store } from './store.js';
import { isStorableJson } from './text.js';

/** A claimed job with its payload parsed; numbers past 2^53 are exact only in `payloadText`. */
export type HandlerJob<Payload = unknown> = ClaimedJob & { readonly payload: Payload };

export interface HandlerContext {
  /** Aborted when the lease is lost or the worker must end: stop, the result will not be written. */
  readonly signal: AbortSignal;
  /**
   * Saves progress (JSON up to 16 KiB) under the lease, committed when it resolves. Throws LeaseLost when the job is no
   * longer ours, TypeError for what jsonb cannot hold.
   */
  readonly checkpoint: (progress: Json) => Promise<void>;
  /** Epoch ms by the database's clock, which decides over what is due and what has expired. */
  readonly databaseNow: () => Promise<number>;
  /** Ends the handler: the job runs again after `delayMs` (0 or more) without spending an attempt. Throws Snooze, TypeError for what is no delay. */
  readonly snooze: (delayMs: number) => never;
  readonly log: Log;
}

interface Handles {
  handle(job: HandlerJob, context: HandlerContext): unknown;
}

/**
 * Its return value is stored as `result` (JSON up to 16 KiB); what it throws fails the attempt. The type is that of a
 * method, so that a function of `HandlerJob<Receipt>` is one, too: what it says of the payload is its own word, and only
 * a schema checks it.
 */
export type HandlerFunction = Handles['handle'];

export interface KindOptions {
  readonly handle: HandlerFunction;
  /** Jobs of this kind at once in this worker. Default: the worker's concurrency. */
  readonly concurrency?: number | undefined;
  /** Default exponential, 1 s doubling to 1 h, full jitter. A job's own policy goes first. */
  readonly retryPolicy?: RetryPolicy | undefined;
  /** `park`: a job whose worker died goes dead for a person to look at. Default `retry`. */
  readonly onLeaseExpired?: 'retry' | 'park' | undefined;
  /**
   * What becomes of the jobs behind a dead one with the same ordering key. `pass`: they go on. `block`: they wait until
   * it is retried and done, or cancelled, or dismissed. Default `pass`.
   */
  readonly onDeadHead?: 'pass' | 'block' | undefined;
  /**
   * False: a job that is done is removed at once, its result with it, unless it has a dedupe key, an ordering key or a
   * source; those stay for as long as retention says. Default: the worker's.
   */
  readonly keepDone?: boolean | undefined;
  /**
   * Any Standard Schema validator: its answer is the handler's `payload`, and a payload that fails it makes the job dead
   * at once. Default: none, the handler gets what the row holds.
   */
  readonly schema?: PayloadSchema | undefined;
}

export type Handler = HandlerFunction | KindOptions;

/** The job belongs to somebody else by now; end the handler, nothing it does will be recorded. */
export class LeaseLost extends Error {
  constructor() {
    super('the lease of this job is lost');
    this.name = 'LeaseLost';
  }
}

const MAX_CHECKPOINT_TRIES = 10;

/** One job in this process: its lease's local deadline, its signal, whether it is still ours. */
export class Run implements HandlerContext {
  /** Monotonic ms, counted from before the claim or extension was sent: never later than the database's own. */
  deadlineAt: number;
  lost = false;
  /** Its handler was called, or is about to be. */
  begun = false;
  /** Handed to the settler: an extension that finds it gone means settled, not lost. */
  settling = false;
  /** Its handler called `snooze`: if it returns none the less, it caught what that threw. */
  snoozed = false;
  /** What became of it was told: settled, lost or released, one of the three. */
  over = false;
  /** Monotonic ms: when the claim that brought it was sent. */
  sentAt = 0;
  /** Its index among those that have a slot, and among the leases (run-list.ts). */
  slotAt = -1;
  leaseAt = -1;
  #controller: AbortController | undefined;

  constructor(
    readonly job: ClaimedJob,
    deadlineAt: number,
    readonly log: Log,
    private readonly store: Store,
    private readonly db: Queryable,
  ) {
    this.deadlineAt = deadlineAt;
  }

  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    if (this.lost && !this.#controller.signal.aborted) this.#controller.abort(new LeaseLost());
    return this.#controller.signal;
  }

  /** The lease is gone: tell the handler, write nothing more. */
  lose(): void {
    this.lost = true;
    this.#controller?.abort(new LeaseLost());
  }

  /** Handlers take it out of the context, so it needs no `this`; most never look at it, so it is made when they do. */
  get checkpoint(): (progress: Json) => Promise<void> {
    return (progress) => this.#checkpoint(progress);
  }

  get databaseNow(): () => Promise<number> {
    return () => this.store.clock(this.db);
  }

  async #checkpoint(progress: Json): Promise<void> {
    const text = progressText(progress);
    if (this.lost || !(await this.#saved(text))) {
      this.lose();
      throw new LeaseLost();
    }
  }

  /** Asked again while another transaction is in the way: that is no reason to fail an attempt. */
  async #saved(text: string): Promise<boolean> {
    for (let tries = 1; ; tries += 1) {
      try {
        return await this.store.checkpoint(this.db, this.job, text);
      } catch (error) {
        if (!isConflict(error) || tries === MAX_CHECKPOINT_TRIES) throw error;
        await sleep(tries * 5 * Math.random());
      }
    }
  }

  /** Without `this`, as `checkpoint`. */
  get snooze(): (delayMs: number) => never {
    return (delayMs) => {
      this.snoozed = true;
      throw new Snooze(delayMs);
    };
  }

  /** Runs the handler to its end; answers that at once where it does not wait for anything. Never throws, nor rejects. */
  execute(kind: KindOptions): HandlerEnd | Promise<HandlerEnd> {
    this.begun = true;
    try {
      const expiresAt = expiryOfOrigin(this.job.headers);
      if (kind.schema !== undefined || expiresAt !== undefined) return this.#checkAndExecute(kind, expiresAt);
      const value = kind.handle(handed(this.job, this.#payload()), this);
      // A promise for each job that needs none was a quarter of what this process allocates.
      return isPromise(value) ? settled(value) : returned(value);
    } catch (error) {
      return { type: 'threw', error };
    }
  }

  async #checkAndExecute(kind: KindOptions, expiresAt: string | undefined): Promise<HandlerEnd> {
    let before: 'expiry' | 'schema' | undefined = 'expiry';
    try {
      if (expiresAt !== undefined) await refuseExpiredAt(expiresAt, this.databaseNow);
      before = 'schema';
      const payload =
        kind.schema === undefined ? this.#payload() : await parsed(kind.schema, this.#payload());
      before = undefined;
      return returned(await kind.handle(handed(this.job, payload), this));
    } catch (error) {
      return before === undefined ? { type: 'threw', error } : { type: 'threw', error, before };
    }
  }

  #payload(): unknown {
    const { payloadText } = this.job;
    return payloadText === null ? null : JSON.parse(payloadText);
  }
}

const NOTHING: HandlerEnd = { type: 'returned', value: undefined };

const returned = (value: unknown): HandlerEnd =>
  value === undefined ? NOTHING : { type: 'returned', value };

/** As await sees it. */
const isPromise = (value: unknown): value is PromiseLike<unknown> =>
  ((typeof value === 'object' && value !== null) || typeof value === 'function') &&
  typeof (value as { readonly then?: unknown }).then === 'function';

async function settled(promise: PromiseLike<unknown>): Promise<HandlerEnd> {
  try {
    return returned(await promise);
  } catch (error) {
    return { type: 'threw', error };
  }
}

/** A copy, since what a handler does to it must not change what is settled. Named: a spread took 1.9 us of 4.9 a job more. */
function handed(job: ClaimedJob, payload: unknown): HandlerJob {
  return {
    id: job.id,
    kind: job.kind,
    payloadText: job.payloadText,
    body: job.body,
    contentType: job.contentType,
    attempt: job.attempt,
    maxAttempts: job.maxAttempts,
    leaseToken: job.leaseToken,
    priority: job.priority,
    runAtMs: job.runAtMs,
    createdAtMs: job.createdAtMs,
    headers: job.headers,
    progress: job.progress,
    dedupeKey: job.dedupeKey,
    source: job.source,
    retryPolicy: job.retryPolicy,
    orderingKey: job.orderingKey,
    payload,
  };
}

function progressText(progress: Json): string {
  const text: string | undefined = JSON.stringify(progress);
  if (text === undefined || !isStorableJson(text)) {
    throw new TypeError('progress is not JSON that jsonb can hold (NUL and lone surrogates it cannot)');
  }
  if (Buffer.byteLength(text) > LIMITS.resultBytes)
    throw new TypeError(`progress is larger than ${LIMITS.resultBytes} bytes`);
  return text;
}

/** The schema's answer is what the handler gets. Names the places, not the values. */
async function parsed(schema: PayloadSchema, payload: unknown): Promise<unknown> {
  const answer = await validatePayload(schema, payload);
  if ('value' in answer) return answer.value;
  const places = placesOf(answer.issues);
  throw new Discard(`the payload does not fit the kind's schema at: ${places}`, 'payload-invalid');
}
