/**
 * What must happen whoever works: expired leases are taken back, old finished rows removed. Each sweep is bounded and
 * safe to run from any number of processes at once; none of it knows or asks which kinds anybody registered.
 */
import type { Queryable } from './job.js';
import { within } from './signal.js';
import type { Reaped, Store } from './store.js';

export interface UpkeepOptions {
  readonly store: Store;
  readonly db: Queryable;
  /** Time between sweeps. Default 5,000; jittered by a quarter so that many workers do not sweep at once. */
  readonly everyMs?: number;
  /** Finished rows older than this are removed. Default: kept for ever. */
  readonly retentionMs?: number;
  readonly onReaped?: (reaped: readonly Reaped[]) => void;
  /** After each sweep that the database answered. */
  readonly onSwept?: () => void | Promise<void>;
  readonly onError?: (error: unknown) => void;
}

/** Rows of one statement; a sweep goes on while a statement comes back full, up to MAX_ROUNDS. */
const BATCH = 500;
const MAX_ROUNDS = 20;
const MAX_SWEEP_MS = 60_000;

export class Upkeep {
  #timer: NodeJS.Timeout | undefined;
  #stopped = true;
  readonly #options: UpkeepOptions;

  constructor(options: UpkeepOptions) {
    this.#options = options;
  }

  /** First sweep at once: after a crash its jobs should not wait longer than they must. */
  start(): void {
    this.#stopped = false;
    void this.#turn();
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  /** One sweep. Throws what the database throws. */
  async sweep(): Promise<void> {
    const { store, db, retentionMs, onReaped, onSwept } = this.#options;
    for (let round = 0; round < MAX_ROUNDS; round += 1) {
      const reaped = await store.reap(db, BATCH);
      if (reaped.length > 0) onReaped?.(reaped);
      if (reaped.length < BATCH) break;
    }
    for (let round = 0; retentionMs !== undefined && round < MAX_ROUNDS; round += 1) {
      if ((await store.prune(db, retentionMs, BATCH)) < BATCH) break;
    }
    await onSwept?.();
  }

  async #turn(): Promise<void> {
    try {
      await within(this.sweep(), MAX_SWEEP_MS);
    } catch (error) {
      this.#options.onError?.(error);
    }
    if (this.#stopped) return;
    const everyMs = this.#options.everyMs ?? 5_000;
    this.#timer = setTimeout(() => void this.#turn(), everyMs * (0.875 + Math.random() / 4));
  }
}
