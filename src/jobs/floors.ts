/**
 * Where a claim may start: behind the jobs that this worker claimed last, instead of at the head of the index, where the
 * entries of claimed jobs lie until vacuum may remove them. Only a matter of speed: once in a while a claim starts at the
 * head all the same, for jobs that came late with an old run_at. No clock, no I/O.
 */
import type { ClaimedJob } from './job.js';

/** Time between claims that start at the head: how long a job that came late may wait for a busy worker. */
const FULL_LOOK_MS = 500;
/** More where such a claim is slow, so that it takes a twentieth of the time at most. */
const FULL_LOOK_SHARE = 20;
/** A worker that meets more kinds and priorities than this starts some of them at the head. */
const MAX_FLOORS = 100;

export class Floors {
  /** The last job of each kind and priority. */
  readonly #last = new Map<string, string>();
  #fullLookAt = 0;

  /** For a claim at this time (monotonic ms): ids, or none when it shall start at the head. */
  at(nowMs: number): string[] {
    return nowMs < this.#fullLookAt ? [...this.#last.values()] : [];
  }

  /** What a claim that was sent with `floors` at `sentAt` brought by `nowMs`, in its order. */
  claimed(jobs: readonly ClaimedJob[], floors: readonly string[], sentAt: number, nowMs: number): void {
    if (floors.length === 0) {
      this.#last.clear();
      this.#fullLookAt = nowMs + Math.max(FULL_LOOK_MS, FULL_LOOK_SHARE * (nowMs - sentAt));
    }
    this.more(jobs);
  }

  /** Further jobs of the claim of which `claimed` was told. */
  more(jobs: readonly ClaimedJob[]): void {
    for (let i = 0; i < jobs.length; i += 1) {
      const job = jobs[i] as ClaimedJob;
      // Jobs with an ordering key stand in an index of their own, and come in another order.
      if (job.orderingKey !== null) continue;
      const next = jobs[i + 1];
      // Jobs of one kind and priority come together, so mostly the last one says it all.
      if (next?.orderingKey === null && next.kind === job.kind && next.priority === job.priority) continue;
      const key = `${job.priority} ${job.kind}`;
      if (this.#last.size < MAX_FLOORS || this.#last.has(key)) this.#last.set(key, job.id);
    }
  }
}
