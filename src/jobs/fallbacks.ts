/**
 * What a store asks of functions and columns that a schema may not have yet, or not grant: the older way is taken there. Each question in vain
 * is an ERROR in the server's log, and there was one for each claim of a worker that is newer than its schema; so it is asked once,
 * then no more than once a minute, and a migration or a grant is found while workers run.
 */
import { isOutOfReach } from './sqlstate.js';

const LOOK_AGAIN_MS = 60_000;

export class Fallbacks {
  /** When each function was missed, or last looked for. */
  readonly #missedAt = new Map<string, number>();

  constructor(private readonly nowMs: () => number) {}

  /** `newer` calls the function of this name; `older` does without. */
  async ask<T>(name: string, newer: () => Promise<T>, older: () => Promise<T>): Promise<T> {
    const missedAt = this.#missedAt.get(name);
    if (missedAt !== undefined) {
      if (this.nowMs() - missedAt < LOOK_AGAIN_MS) return older();
      // Whoever comes meanwhile need not look, too.
      this.#missedAt.set(name, this.nowMs());
    }
    try {
      const answer = await newer();
      this.#missedAt.delete(name);
      return answer;
    } catch (error) {
      if (!isOutOfReach(error)) throw error;
    }
    const answer = await older();
    // Not before that has gone well: it may be a caller's trigger that misses something of its own.
    this.#missedAt.set(name, this.nowMs());
    return answer;
  }
}
