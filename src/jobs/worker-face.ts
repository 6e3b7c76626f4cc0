/**
 * What a worker is given, what it does for whoever holds it, and what it tells. No code: worker.ts is the worker,
 * worker-options.ts what may be said to it.
 */
import type { Log } from '../log-face.js';
import type { Handler } from './handler.js';
import type { ClaimedJob, Queryable } from './job.js';
import type { KindLimits } from './kind-limits.js';
import type { Retention } from './retention.js';
import type { Fired } from './schedule-store.js';
import type { Outcome } from './settle.js';
import type { Reaped } from './upkeep-store.js';
import type { ListenClient } from './wake.js';

export interface WorkerOptions {
  /** A pool (pg.Pool, or anything with `query` that may be asked several things at once). At least 3 connections; of fewer the log warns. */
  readonly db: Queryable;
  /** Default `unbroker`. */
  readonly schema?: string | undefined;
  /** Kinds that this worker knows; jobs of other kinds are left alone. */
  readonly handlers: Readonly<Record<string, Handler>>;
  /**
   * Jobs at once, all kinds together. Default 10; 1 to 10,000. While there is a backlog of short ones, up to twice as many more
   * are claimed ahead of their slots (ahead.ts).
   */
  readonly concurrency?: number | undefined;
  /** Limits across all workers, by kind. Kinds without a handler here are passed over, and named in the log. Default: none. */
  readonly kinds?: Readonly<Record<string, KindLimits>> | undefined;
  /** How long a dead worker keeps its jobs. Default 30,000; 100 to 86,400,000. Extended every third of it. */
  readonly leaseMs?: number | undefined;
  /**
   * Outcomes written in one statement: what ends while one is under way goes with the next, and what is done with the next
   * claim if that comes within 20 ms. 1: each in a transaction of its own, up to 24 a call, so that a worker that dies takes as
   * few with it as can be, at twice the cost. Default 1,000; 1 to 1,000.
   */
  readonly settleBatch?: number | undefined;
  /** Longest wait between polls while idle. Default 200; 5 to 60,000. */
  readonly pollMs?: number | undefined;
  /**
   * Opens a connection to listen on, direct, not through a pooler: then an enqueue wakes a sleeping worker at once.
   * Default: polling alone.
   */
  readonly listen?: (() => Promise<ListenClient>) | undefined;
  /** Time between upkeep sweeps; 0 leaves upkeep to other workers. Default 5,000. */
  readonly upkeepMs?: number | undefined;
  /** What kinds say that do not say it: whether the rows of done jobs stay. Default true. */
  readonly keepDone?: boolean | undefined;
  /** Finished rows older than this are removed. Default: kept. */
  readonly retentionMs?: number | undefined;
  /** The same by kind, by age and by count; its default goes before retentionMs. */
  readonly retention?: Retention | undefined;
  /** Default: silent. */
  readonly log?: Log | undefined;
  /** For metrics and tests. What it throws is logged and forgotten. */
  readonly onEvent?: ((event: WorkerEvent) => void) | undefined;
}

/** Of each claimed job comes one of settled, lost and released. */
export type WorkerEvent =
  | { readonly type: 'claimed'; readonly jobs: readonly ClaimedJob[] }
  /** Its outcome is written. `heldMs`: since the claim that brought it was sent. */
  | { readonly type: 'settled'; readonly job: ClaimedJob; readonly outcome: Outcome; readonly heldMs: number }
  /** The lease ended before the outcome was written: another start may follow or have followed. */
  | { readonly type: 'lost'; readonly job: ClaimedJob }
  /** Given back before an outcome, the attempt with it: the worker stops, or no slot came. */
  | { readonly type: 'released'; readonly jobs: readonly ClaimedJob[] }
  | { readonly type: 'reaped'; readonly jobs: readonly Reaped[] }
  | { readonly type: 'fired'; readonly schedules: readonly Fired[] }
  | { readonly type: 'idle' }
  | { readonly type: 'database-error'; readonly error: unknown };

export interface Worker {
  start(): void;
  /**
   * Stops claiming, waits up to `deadlineMs` (default 30,000) for handlers, aborts the rest and gives their jobs back
   * without spending an attempt. End the process after it: an aborted handler that goes on runs beside the next start.
   */
  stop(options?: { readonly deadlineMs?: number | undefined }): Promise<void>;
  /** Looks for work now instead of at the next poll. */
  wake(): void;
  /** True while the database answers. */
  readonly ready: boolean;
  /** Handlers now running. */
  readonly running: number;
}
