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
import { Sweeper } from './sweeper.js';
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
  #firingTimer: NodeJS.Timeout | undefined;
  #stopped = true;
  readonly #options: UpkeepOptions;
  readonly #firing: Firing;
  readonly #turns = new TurnWalk();
  readonly #pruning: Pruning | undefined;
  readonly #sweepers: readonly Sweeper[];

  constructor(options: UpkeepOptions) {
    this.#options = options;
    this.#firing = new Firing(options);
    const { retention, everyMs = 5_000, onError = () => {} } = options;
    this.#pruning = retention === undefined ? undefined : new Pruning({ ...options, retention });
    const sweeps = [() => within(this.sweep(), MAX_SWEEP_MS)];
    // Apart: a million rows to remove put off no lease that has ended.
    const pruning = this.#pruning;
    if (pruning !== undefined) sweeps.push(() => pruning.sweep());
    this.#sweepers = sweeps.map((sweep) => new Sweeper({ sweep, everyMs, onError }));
  }

  /** First sweep at once: after a crash its jobs should not wait longer than they must. */
  start(): void {
    this.#stopped = false;
    for (const sweeper of this.#sweepers) sweeper.start();
    void this.#fire();
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#firingTimer);
    for (const sweeper of this.#sweepers) sweeper.stop();
    this.#pruning?.stop();
  }

  /**
   * One sweep. True: more leases have ended than it may take back at once; with a pause after each ten thousand a fleet's that crashed
   * would take minutes. Throws what the database throws.
   */
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

  #sweepMs(): number {
    return (this.#options.everyMs ?? 5_000) * (0.875 + Math.random() / 4);
  }
}

/** Until `step` says that it was the last. False: there is more, for the next sweep. */
async function inRounds(step: () => Promise<boolean>): Promise<boolean> {
  for (let round = 0; round < MAX_ROUNDS; round += 1) if (await step()) return true;
  return false;
}
