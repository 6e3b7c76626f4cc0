/**
 * The nouns: what a job is, on its way in (NewJob), while a worker holds it (ClaimedJob) and at rest (Job). Each
 * field is documented here and nowhere else. No clock, no I/O, no SQL.
 */

/** `ready` waits for its run_at; `running` is leased; `done`, `dead` and `cancelled` are final. */
export type JobState = 'ready' | 'running' | 'done' | 'dead' | 'cancelled';

export const JOB_STATES: readonly JobState[] = ['ready', 'running', 'done', 'dead', 'cancelled'];

/** Anything JSON can hold exactly. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/**
 * The only thing we ask of a database handle: `pg`'s Client, PoolClient and Pool have it, and so does every wrapper
 * under adapters/transactions. `text` uses $1-style parameters.
 */
export interface Queryable {
  query(text: string, values?: unknown[]): Promise<{ rows: unknown[]; rowCount: number | null }>;
}

/** When to try again after a failure. Interpreted by retry.ts; stored as jsonb in `retry_policy`. */
export type RetryPolicy =
  | {
      readonly type: 'exponential';
      readonly baseMs: number;
      readonly factor: number;
      readonly maxMs: number;
      /** `full`: uniform in [0, delay]; `none`: exactly the delay. Default full. */
      readonly jitter?: 'full' | 'none' | undefined;
    }
  | { readonly type: 'fixed'; readonly delayMs: number }
  | { readonly type: 'ladder'; readonly delaysMs: readonly number[] };

/** Limits that hold at every door. The table's check constraints repeat those of kind, keys and attempts. */
export const LIMITS = {
  kindLength: 200,
  dedupeKeyLength: 500,
  orderingKeyLength: 500,
  sourceLength: 1_000,
  minPriority: -32_768,
  maxPriority: 32_767,
  maxAttempts: 1_000,
  /** Bytes of one payload through enqueue or HTTP. A drain keeps larger bodies in `body`. */
  payloadBytes: 1_048_576,
  payloadDepth: 64,
  /** Bytes of `headers`, as JSON. */
  headersBytes: 65_536,
  /** Rows of one multi-row insert; enqueueMany splits longer lists. */
  enqueueBatch: 1_000,
  /** UTF-16 units of payload in one of them, unless a single one is longer. */
  enqueueBatchLength: 8_388_608,
  /** Entries kept in `errors`; the oldest go first. */
  errorsKept: 10,
  errorMessageLength: 2_000,
  /** Bytes of a handler's `result`. */
  resultBytes: 16_384,
} as const;

/** Options of an enqueue. */
export interface EnqueueOptions {
  /** Higher runs first, as in RabbitMQ. Default 0; -32768 to 32767. */
  readonly priority?: number | undefined;
  /** Earliest start. Default: the database's now(). At most one of runAt and delayMs. */
  readonly runAt?: Date | undefined;
  /** Earliest start, counted by the database's clock from its now(). */
  readonly delayMs?: number | undefined;
  /** Starts allowed in all. Default 20; 1 to 1000. */
  readonly maxAttempts?: number | undefined;
  /** A second enqueue of the same kind and key is a no-op while the first row is kept. */
  readonly dedupeKey?: string | undefined;
  /**
   * Jobs of this kind that share it run one at a time, in the order in which they were enqueued. One that failed and comes
   * again keeps the others waiting; one put off by runAt or delayMs does not.
   */
  readonly orderingKey?: string | undefined;
  /** Trace context and the original message's properties. */
  readonly headers?: { readonly [key: string]: Json } | undefined;
  /** Which door, queue or legacy id it came from. */
  readonly source?: string | undefined;
  /** Default: the kind's policy in the worker. */
  readonly retryPolicy?: RetryPolicy | undefined;
}

/** One job to enqueue: `kind` names the handler, `payload` is its JSON input (default null). */
export interface NewJob extends EnqueueOptions {
  readonly kind: string;
  readonly payload?: unknown;
}

/** Answer of an enqueue: `inserted` is false when the dedupe key was already there; `id` is then the first job's. */
export interface Enqueued {
  /** bigint as a decimal string: ids may pass 2^53. */
  readonly id: string;
  readonly inserted: boolean;
}

/** One failed attempt. */
export interface JobError {
  /** ISO 8601, the database's clock. */
  readonly at: string;
  readonly attempt: number;
  /** The error's class or our code: `Error`, `lease-expired`, `payload-invalid`. */
  readonly name: string;
  /** Cut to 2,000 characters; NUL and lone surrogates replaced (jsonb refuses them). */
  readonly message: string;
}

/**
 * A row as a drain imports it: any state, history brought along. `payloadText` is the original JSON text, never
 * re-serialised (JSON.parse would round 9007199254740993); null when the bytes are kept in `body` instead.
 */
export interface ImportedJob {
  readonly kind: string;
  readonly payloadText: string | null;
  readonly body: Buffer | null;
  readonly contentType: string | null;
  readonly state: 'ready' | 'dead' | 'cancelled';
  readonly priority: number;
  /** Epoch ms; null = the database's now(). */
  readonly runAtMs: number | null;
  readonly attempts: number;
  /** null = the table's default. */
  readonly maxAttempts: number | null;
  readonly dedupeKey: string | null;
  readonly headers: Json;
  readonly source: string;
  /** Why it is dead or cancelled; becomes the one entry of `errors`. */
  readonly error: { readonly name: string; readonly message: string } | null;
}

/** What a worker holds under a lease. */
export interface ClaimedJob {
  readonly id: string;
  readonly kind: string;
  /** The exact JSON text; null when the job carries `body` instead. */
  readonly payloadText: string | null;
  readonly body: Buffer | null;
  readonly contentType: string | null;
  /** This start, counted from 1. */
  readonly attempt: number;
  readonly maxAttempts: number;
  /** Rises with every claim, the same for the jobs of one; together with the id it fences every later write. */
  readonly leaseToken: string;
  readonly priority: number;
  /** Epoch ms, as createdAtMs; numbers because parsing two dates was a fifth of this process's time a job. */
  readonly runAtMs: number;
  readonly createdAtMs: number;
  readonly headers: Json;
  readonly progress: Json;
  readonly dedupeKey: string | null;
  readonly source: string | null;
  readonly retryPolicy: RetryPolicy | null;
  readonly orderingKey: string | null;
}

/** A row at rest, as `jobs show` prints it. */
export interface Job {
  readonly id: string;
  readonly kind: string;
  readonly state: JobState;
  readonly priority: number;
  readonly runAt: Date;
  readonly attempts: number;
  readonly maxAttempts: number;
  readonly lockedUntil: Date | null;
  readonly lockedBy: string | null;
  readonly dedupeKey: string | null;
  readonly orderingKey: string | null;
  /** True while another job of its ordering key goes first. Noted when a worker meets it, so a little late. */
  readonly waitsForTurn: boolean;
  readonly payloadText: string | null;
  readonly bodyBytes: number | null;
  readonly contentType: string | null;
  readonly headers: Json;
  readonly source: string | null;
  readonly progress: Json;
  readonly errors: readonly JobError[];
  readonly result: Json;
  readonly createdAt: Date;
  readonly finishedAt: Date | null;
}

/** What happens to slots that passed while nobody fired them: dropped, one job for all of them, one job each. */
export type Misfire = 'skip' | 'once' | 'all';

/** A schedule at rest. Its priority, attempts, headers and policy are those of the jobs that it fires. */
export interface Schedule {
  readonly id: string;
  /** Unique in the schema. */
  readonly name: string;
  readonly kind: string;
  readonly payloadText: string | null;
  readonly priority: number;
  readonly maxAttempts: number;
  readonly headers: Json;
  readonly retryPolicy: RetryPolicy | null;
  /** Which door made it; the jobs it fires have `schedule:` and its name instead. */
  readonly source: string | null;
  /** A cron expression or `@every 90s`. */
  readonly cron: string;
  readonly timeZone: string;
  readonly misfire: Misfire;
  readonly paused: boolean;
  /** Null once it has ended. May lie in the past: missed, or passed while paused. */
  readonly nextRunAt: Date | null;
  /** No slot at or after it. */
  readonly endAt: Date | null;
  /** Slots up to here are fired or dropped. */
  readonly slotsUntil: Date;
  readonly createdAt: Date;
}

/** A prepared new job: payload already serialised and vetted (enqueue.ts does both). */
export interface PreparedJob extends EnqueueOptions {
  readonly kind: string;
  readonly payloadText: string;
}
