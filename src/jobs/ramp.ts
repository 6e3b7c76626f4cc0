/**
 * How many jobs may start after an outage. A provider that comes back, or a database, meets everything that waited for it at
 * once: so slots open as a slow start does. Pure: it is told what happened and when (monotonic ms).
 */

/** Of a kind whose jobs keep failing: a whole round of failures halves its slots, each success gives one back. */
export class FailureRamp {
  #slots: number;
  /** Failures in a row since the slots last changed. */
  #failures = 0;

  /** `most`: its slots in ordinary times. */
  constructor(private readonly most: number) {
    this.#slots = most;
  }

  get slots(): number {
    return this.#slots;
  }

  /** To be tried again. Dead at once (a payload that does not fit) says nothing about an outage. */
  failed(): void {
    this.#failures += 1;
    if (this.#failures < Math.max(this.#slots, MIN_ROUND)) return;
    this.#failures = 0;
    this.#slots = Math.max(1, Math.floor(this.#slots / 2));
  }

  /** From one slot each round of successes doubles them. */
  succeeded(): void {
    this.#failures = 0;
    if (this.#slots < this.most) this.#slots += 1;
  }
}

/** Fewer failures in a row are bad luck. */
const MIN_ROUND = 10;

/** Of a worker whose database was away: a tenth of its slots, doubled every second. */
export class ReturnRamp {
  #lost = false;
  #backAt = Number.NEGATIVE_INFINITY;

  lost(): void {
    this.#lost = true;
  }

  /** The database answered. */
  answered(nowMs: number): void {
    if (!this.#lost) return;
    this.#lost = false;
    this.#backAt = nowMs;
  }

  /** How many of these slots may be filled. */
  slots(most: number, nowMs: number): number {
    const share = FIRST_SHARE * 2 ** ((nowMs - this.#backAt) / DOUBLE_MS);
    return share >= 1 ? most : Math.max(1, Math.floor(most * share));
  }
}

const FIRST_SHARE = 0.1;
const DOUBLE_MS = 1_000;
