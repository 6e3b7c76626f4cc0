/**
 * A job whose last lease expired may be what killed its process, so it runs alone: its worker claims nothing until it
 * is empty. Here is for how long, so that neither side starves: after a wait in vain (a long job ran beside), or a
 * lease's length of such jobs, ordinary work goes on for as long; and each wait in vain doubles the next, until it is
 * longer than the long job. Pure: it is told the time (monotonic ms) and asks nobody.
 */
export class SoloPatience {
  /** Since when claims stand back; undefined while they do not. */
  #since: number | undefined;
  /** When the first and the last of such jobs were claimed since then. */
  #firstAt: number | undefined;
  #lastAt: number | undefined;
  #maxWaitMs: number;
  #restUntil = Number.NEGATIVE_INFINITY;
  #lookAt = Number.NEGATIVE_INFINITY;

  constructor(private readonly leaseMs: number) {
    this.#maxWaitMs = leaseMs;
  }

  /** True while ordinary claims stand back. */
  get waiting(): boolean {
    return this.#since !== undefined;
  }

  /** Whether it is time to ask the table again. */
  shouldLook(now: number): boolean {
    return now >= this.#lookAt;
  }

  /** A look found one, or none. `idle`: no ordinary work would be held up, so there is nothing to rest for. */
  looked(now: number, found: boolean, idle: boolean): void {
    this.#lookAt = now + LOOK_EVERY_MS;
    if (found && (idle || now >= this.#restUntil)) this.#since ??= now;
  }

  /** Called while waiting, `busy` as long as anything runs here. False: ordinary work again. */
  goOn(now: number, busy: boolean): boolean {
    if (this.#since === undefined) return false;
    if (this.#firstAt === undefined) {
      if (now - this.#since <= this.#maxWaitMs) return true;
      if (busy) this.#maxWaitMs = Math.min(this.#maxWaitMs * 2, MAX_WAIT_MS);
      return this.#rest(now, now - this.#since);
    }
    // One that has run for a whole lease hardly kills its process; one more is claimed only within the first's.
    const from = busy ? (this.#lastAt as number) : this.#firstAt;
    return now - from <= this.leaseMs || this.#rest(now, now - this.#firstAt);
  }

  /** The worker was empty and asked for one: it got it, or there was none left. */
  claimed(now: number, got: boolean): void {
    this.#maxWaitMs = this.leaseMs;
    if (!got) {
      this.#rest(now, 0);
      return;
    }
    this.#firstAt ??= now;
    this.#lastAt = now;
  }

  #rest(now: number, forMs: number): false {
    this.#since = undefined;
    this.#firstAt = undefined;
    this.#lastAt = undefined;
    this.#restUntil = now + forMs;
    return false;
  }
}

/** How often a worker looks for a job that must run alone: one look at an index that is nearly always empty. */
const LOOK_EVERY_MS = 1_000;
const MAX_WAIT_MS = 86_400_000;
