/**
 * Ends whose row somebody else has locked, or that the server cuts short though each is asked by itself: tried again beside all
 * others, which do not wait for them. When, and for how long, is decided here; how they are written is the settler's.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Run } from './handler.js';
import type { Settlement } from './settlement.js';

export interface AsideOptions {
  /** Writes without waiting for a lock; answers what could not be asked, and puts back what is held. Never throws. */
  readonly write: (settlements: readonly Settlement[]) => Promise<readonly Settlement[]>;
  /** Tried for too long: its lease runs out, and the reaper decides. */
  readonly giveUp: (settlement: Settlement) => void;
}

const FIRST_PAUSE_MS = 20;
/** How late the end of a row comes that has been held for long. */
const MAX_PAUSE_MS = 500;
/**
 * Longer than a lease: while the row is locked nobody takes the job back, and the fence says whether it is ours once it is
 * free. To stop when the lease ends would run again what is done.
 */
const MAX_ASIDE_MS = 600_000;

export class Aside {
  #waiting = new Set<Settlement>();
  /** Since when, also of one that went back to the others meanwhile. */
  readonly #since = new WeakMap<Run, number>();
  #loop: Promise<void> | undefined;
  #closed = false;
  readonly #options: AsideOptions;

  constructor(options: AsideOptions) {
    this.#options = options;
  }

  put(settlements: readonly Settlement[]): void {
    for (const settlement of settlements) {
      this.#waiting.add(settlement);
      if (!this.#since.has(settlement.run)) this.#since.set(settlement.run, performance.now());
    }
    if (this.#waiting.size > 0 && !this.#closed) this.#loop ??= this.#run();
  }

  /** Nothing waits here. */
  get empty(): boolean {
    return this.#loop === undefined;
  }

  /** Resolves when nothing waits here any more. */
  async drained(): Promise<void> {
    await this.#loop;
  }

  /** Nothing is tried any more. */
  close(): void {
    this.#closed = true;
  }

  async #run(): Promise<void> {
    let pauseMs = FIRST_PAUSE_MS;
    while (this.#waiting.size > 0 && !this.#closed) {
      // Keeps no process alive: whoever stops waits for it by a timer of its own.
      await sleep(pauseMs, undefined, { ref: false });
      const taken = this.#take();
      this.put(await this.#options.write(taken));
      pauseMs = this.#waiting.size < taken.length ? FIRST_PAUSE_MS : Math.min(pauseMs * 2, MAX_PAUSE_MS);
    }
    this.#loop = undefined;
  }

  /** All but those that waited for too long. */
  #take(): readonly Settlement[] {
    const oldest = performance.now() - MAX_ASIDE_MS;
    const taken = [...this.#waiting];
    this.#waiting = new Set();
    return taken.filter((settlement) => {
      if ((this.#since.get(settlement.run) ?? 0) > oldest) return true;
      this.#options.giveUp(settlement);
      return false;
    });
  }
}
