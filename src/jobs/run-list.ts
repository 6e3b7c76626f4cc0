/**
 * Runs that come and go by the thousand. Not a Set: V8 gives a Set that grows or is full of holes a new table, and the old one goes on
 * pointing at it and at all it held. Once an old table has grown old itself, nothing that was ever in one after it is young garbage any
 * more: a third of whatever a worker allocated was copied and kept until the next full collection, 1.5 us of its 9.7 a job.
 */
import type { Run } from './handler.js';

/** Where a run keeps its index in a list of that name; -1 while it is not in it. */
export type Place = 'slotAt' | 'leaseAt';

export class RunList {
  readonly #runs: Run[] = [];
  readonly #place: Place;

  constructor(place: Place) {
    this.#place = place;
  }

  get size(): number {
    return this.#runs.length;
  }

  add(run: Run): void {
    if (this.has(run)) return;
    run[this.#place] = this.#runs.length;
    this.#runs.push(run);
  }

  /** The last one takes its index. */
  delete(run: Run): void {
    const at = run[this.#place];
    if (at < 0) return;
    const last = this.#runs.pop();
    if (last !== undefined && last !== run) {
      this.#runs[at] = last;
      last[this.#place] = at;
    }
    run[this.#place] = -1;
  }

  has(run: Run): boolean {
    return run[this.#place] >= 0;
  }

  /** A copy, in no order. */
  all(): Run[] {
    return this.#runs.slice();
  }
}
