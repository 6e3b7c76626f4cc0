/**
 * What must happen whoever works: expired leases are taken back, ordering keys let go on, old finished rows removed,
 * schedules fired. Each sweep
 * is bounded and safe to run from any number of processes at once; none of it knows or asks which kinds anybody
 * registered.
 */
import type { UnbrokerError } from '../errors.js';
import { Firing } from './firing.js';
import type { Queryable } from './job.js';
import { Pruning } from './pruning.js';
import type { Retention } from './retention.js';
import type { Fired } from './schedule-store.js';
import { within } from './signal.js';
import { isConflict } from './sqlstate.js';
import type { Store } from './store.js';
import { TurnWalk } from './turns.js';
import type { Reaped } from './upkeep-store.js';

export interface UpkeepOptions {
  readonly store: Store;
  readonly db: Queryable;
  /** Time between sweeps. Default 5,000; jittered by a quarter so that many workers do not sweep at once. */
  readonly everyMs?: number;
  /** Which finished rows are removed, when. Default: kept for ever. */
  readonly retention?: Retention;
  readonly onReaped?: (reaped: readonly Reaped[]) => void;
  readonly onFired?: (fired: readonly Fired[]) => void;
  /** A schedule whose expression or zone this process cannot read. */
  readonly onUnreadable?: (id: string, error: UnbrokerError) => void;
  /** After each sweep that the database answered. */
  readonly onSwept?: () => void | Promise<void>;
  readonly onError?: (error: unknown) => void;
}

/** Rows of one statement; a sweep goes on while a statement comes back full, up to MAX_ROUNDS. */
const BATCH = 500;
const MAX_ROUNDS = 20;
const MAX_SWEEP_MS = 60_000;
const CONFLICT_PAUSE_MS = 50;

export class Upkeep {
  #timer: NodeJS.Timeout | undefined;
  #firingTimer: NodeJS.Timeout | undefined;
  #pruningTimer: NodeJS.Timeout | undefined;
  #stopped = true;
  readonly #options: UpkeepOptions;
  readonly #firing: Firing;
  readonly #turns = new TurnWalk();
  readonly #pruning: Pruning | undefined;

  constructor(options: UpkeepOptions) {
    this.#options = options;
    this.#firing = new Firing(options);
    const { retention } = options;
    this.#pruning = retention === undefined ? undefined : new Pruning({ ...options, retention });
  }

  /** First sweep at once: after a crash its jobs should not wait longer than they must. */
  start(): void {
    this.#stopped = false;
    void this.#turn();
    void this.#fire();
    if (this.#pruning !== undefined) void this.#prune(this.#pruning);
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
    clearTimeout(this.#firingTimer);
    clearTimeout(this.#pruningTimer);
    this.#pruning?.stop();
  }

  /** One sweep. True: more leases have ended than it may take back at once. Throws what the database throws. */
  async sweep(): Promise<boolean> {
    const { store, db, onReaped, onSwept } = this.#options;
    const reapedAll = await inRounds(async () => {
      const reaped = await store.reap(db, BATCH);
      if (reaped.length > 0) onReaped?.(reaped);
      return reaped.length < BATCH;
    });
    await inRounds(() => this.#turns.step(store, db, BATCH));
    await onSwept?.();
    return !reapedAll;
  }

  async #turn(): Promise<void> {
    const startAt = performance.now();
    let waitMs = this.#sweepMs();
    try {
      // Ten thousand a sweep would be a minute for what a fleet held that crashed.
      if (await within(this.sweep(), MAX_SWEEP_MS)) waitMs = performance.now() - startAt;
    } catch (error) {
      this.#options.onError?.(error);
    }
    if (this.#stopped) return;
    this.#timer = setTimeout(() => void this.#turn(), waitMs);
  }

  /** On a timer of its own: a schedule fires at its time, not at the next sweep. */
  async #fire(): Promise<void> {
    let waitMs: number;
    try {
      waitMs = await within(this.#firing.sweep(), MAX_SWEEP_MS);
    } catch (error) {
      this.#options.onError?.(error);
      // A slot is due: another transaction in the way puts it off by no more than it must.
      waitMs = isConflict(error) ? CONFLICT_PAUSE_MS : this.#sweepMs();
    }
    if (this.#stopped) return;
    // Not all at the same moment: one is enough to fire, the others would compute for nothing.
    this.#firingTimer = setTimeout(() => void this.#fire(), Math.ceil(waitMs) + Math.random() * 20);
  }

  /** On a timer of its own, too: a million rows to remove put off no lease that has ended. Half of the time, then, at most. */
  async #prune(pruning: Pruning): Promise<void> {
    const startAt = performance.now();
    let waitMs = this.#sweepMs();
    try {
      if (await pruning.sweep()) waitMs = performance.now() - startAt;
    } catch (error) {
      this.#options.onError?.(error);
    }
    if (this.#stopped) return;
    this.#pruningTimer = setTimeout(() => void this.#prune(pruning), waitMs);
  }

  #sweepMs(): number {
    return (this.#options.everyMs ?? 5_000) * (0.875 + Math.random() / 4);
  }
}

/** Until `step` says that it was the last. False: there is more, for the next sweep. */
async function inRounds(step: () => Promise<boolean>): Promise<boolean> {
  for (let round = 0; round < MAX_ROUNDS; round += 1) if (await step()) return true;
  return false;
}
