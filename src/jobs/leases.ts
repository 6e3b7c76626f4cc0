/**
 * The leases that this worker holds: extended together, each with a local deadline on the monotonic clock, counted
 * from before the request that granted it was sent. A deadline that passes ends the handler's right to run, whether or
 * not the database can be asked.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Run } from './handler.js';
import type { Queryable } from './job.js';
import { isHeldBy } from './recheck.js';
import { RunList } from './run-list.js';
import { within } from './signal.js';
import { isConflict } from './sqlstate.js';
import type { Store } from './store.js';

export interface LeasesOptions {
  readonly store: Store;
  readonly db: Queryable;
  readonly leaseMs: number;
  readonly onLost: (run: Run) => void;
  readonly onError: (error: unknown) => void;
}

/** Rows of one extension. */
const BATCH = 1_000;
/** Of those that somebody else holds for a moment, in half the time until the next extension. */
const MAX_TRIES = 5;
const MAX_PAUSE_MS = 100;

export class Leases {
  readonly #held = new RunList('leaseAt');
  #timers: NodeJS.Timeout[] = [];
  #extending = false;
  readonly #options: LeasesOptions;

  constructor(options: LeasesOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#held.size;
  }

  start(): void {
    const { leaseMs } = this.#options;
    const checkMs = Math.max(20, Math.min(1_000, leaseMs / 20));
    // A third: two extensions may fail before a lease ends.
    this.#timers = [
      setInterval(() => void this.extend(), Math.ceil(leaseMs / 3)),
      // Whoever would end before the next look ends at this one: never after the lease.
      setInterval(() => this.#checkDeadlines(performance.now() + checkMs), checkMs),
    ];
  }

  /** Timers run until here, shutdown included: a handler that is waited for keeps its lease. */
  stop(): void {
    for (const timer of this.#timers) clearInterval(timer);
    this.#timers = [];
  }

  add(run: Run): void {
    this.#held.add(run);
  }

  remove(run: Run): void {
    this.#held.delete(run);
  }

  /** The handler ended under a lease that a checkpoint found gone. */
  ended(run: Run): void {
    if (this.#held.has(run)) this.#lose(run);
  }

  runs(): Run[] {
    return this.#held.all();
  }

  async extend(): Promise<void> {
    // One at a time, and none longer than the time between two: one that hangs leaves the lease room for another.
    if (this.#extending) return;
    this.#extending = true;
    try {
      const runs = this.runs();
      for (let start = 0; start < runs.length; start += BATCH)
        await this.#extendSoon(runs.slice(start, start + BATCH));
    } catch (error) {
      this.#options.onError(error);
    } finally {
      this.#extending = false;
    }
  }

  /** The next extension is a third of the lease away: one that met another transaction does not wait for it. */
  async #extendSoon(runs: readonly Run[]): Promise<void> {
    try {
      await this.#extendBatch(runs);
    } catch (error) {
      if (!isConflict(error)) throw error;
      await this.#extendBatch(runs);
    }
  }

  /** Rows that somebody else holds are passed by, for their neighbours' sake, and asked for again shortly. */
  async #extendBatch(runs: readonly Run[]): Promise<void> {
    const { leaseMs } = this.#options;
    const until = performance.now() + leaseMs / 3;
    let left = await this.#extendFree(runs, until);
    for (let tries = 1; left.length > 0 && tries < MAX_TRIES; tries += 1) {
      await sleep(Math.min(leaseMs / 6 / MAX_TRIES, MAX_PAUSE_MS), undefined, { ref: false });
      left = await this.#extendFree(left, until);
    }
  }

  /** Answers those that are ours and were not to be had. */
  async #extendFree(runs: readonly Run[], until: number): Promise<readonly Run[]> {
    const { store, db, leaseMs } = this.#options;
    const sentAt = performance.now();
    const held = runs.map((run) => run.job);
    const kept = new Set(await within(store.extend(db, held, leaseMs), until - sentAt));
    for (const run of runs) if (kept.has(run.job.id)) run.deadlineAt = sentAt + leaseMs;
    const missing = runs.filter((run) => !kept.has(run.job.id) && this.#isOurs(run));
    if (missing.length === 0) return [];
    const asked = store.rowsNow(
      db,
      missing.map((run) => run.job.id),
    );
    const rows = new Map((await within(asked, until - performance.now())).map((row) => [row.id, row]));
    // One that began to settle meanwhile is the settler's.
    const ours = missing.filter((run) => this.#isOurs(run));
    const left = ours.filter((run) => isHeldBy(run.job, rows.get(run.job.id)));
    for (const run of ours) if (!left.includes(run)) this.#lose(run);
    return left;
  }

  #isOurs(run: Run): boolean {
    return !run.settling && this.#held.has(run);
  }

  #checkDeadlines(until: number): void {
    for (const run of this.runs()) if (run.deadlineAt <= until && this.#isOurs(run)) this.#lose(run);
  }

  #lose(run: Run): void {
    this.remove(run);
    run.lose();
    this.#options.onLost(run);
  }
}
