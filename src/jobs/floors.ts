/**
 * Where a claim may start: behind the jobs that this worker claimed last, instead of at the head of the index, where the
 * entries of claimed jobs lie until vacuum may remove them. Only a matter of speed: once in a while somebody looks before
 * the floors, for jobs that came late with an old run_at. No clock, no I/O.
 */
import type { ClaimedJob } from './job.js';

/** The place of a job in the order of its kind and priority. */
export type Floor = Pick<ClaimedJob, 'id' | 'kind' | 'priority' | 'runAtMs'>;

/** Time between looks before the floors: how long a job that came late may wait for a busy worker. */
const LOOK_MS = 300;
/** More where such a look takes longer than a claim, so that it is a tenth of the time at most. */
const LOOK_SHARE = 10;
/** However slow. */
const MAX_LOOK_MS = 10_000;
/** One that took no longer goes with a claim: it keeps nobody waiting. */
const CHEAP_LOOK_MS = 4;
/** From 1830 to 2109 a run_at in float8 ms is exact to the us. A floor that was rounded up would hide what is due with it. */
const MAX_EXACT_MS = 2 ** 42;
/** A worker that meets more kinds and priorities than this starts some of them at the head. */
const MAX_FLOORS = 100;

export class Floors {
  /** Of each kind and priority. */
  readonly #known = new Map<string, Floor>();
  #fromHead = true;
  #lookAt = 0;
  #lookMs = 0;
  /** Of the last claim behind floors: what a statement takes on this machine now. */
  #claimMs = 0;

  /** For a claim that is sent now; none when it shall start at the head, as the one after it does not. */
  next(): Floor[] {
    const floors = this.#fromHead ? [] : [...this.#known.values()];
    this.#fromHead = false;
    return floors;
  }

  /** Is it time to look before the floors (monotonic ms)? A claim from the head is such a look. */
  shouldLook(nowMs: number): boolean {
    return nowMs >= this.#lookAt;
  }

  /** The last look was over in no time. */
  get cheap(): boolean {
    return this.#lookMs <= this.#claimMs + CHEAP_LOOK_MS;
  }

  /** Somebody looked, and found a job or none. */
  looked(sentAt: number, nowMs: number, found: boolean): void {
    this.#lookMs = nowMs - sentAt;
    const costMs = Math.max(0, this.#lookMs - this.#claimMs);
    this.#lookAt = nowMs + Math.min(Math.max(LOOK_MS, LOOK_SHARE * costMs), MAX_LOOK_MS);
    if (found) this.#fromHead = true;
  }

  /** A claim behind floors took so long. */
  took(ms: number): void {
    this.#claimMs = ms;
  }

  /** The next claim starts at the head. */
  startAtHead(): void {
    this.#fromHead = true;
  }

  /**
   * What a claim brought, in the order of the table. `all`: nothing was left that is due. Else there may be more behind the last
   * job of a level, even where that lies before its floor.
   */
  claimed(jobs: readonly ClaimedJob[], all: boolean): void {
    for (let i = 0; i < jobs.length; i += 1) {
      const job = jobs[i] as ClaimedJob;
      // Jobs with an ordering key stand in an index of their own, and come in another order.
      if (job.orderingKey !== null) continue;
      const next = jobs[i + 1];
      // Jobs of one kind and priority come together, so mostly the last one says it all.
      if (next?.orderingKey === null && next.kind === job.kind && next.priority === job.priority) continue;
      const key = `${job.priority} ${job.kind}`;
      const known = this.#known.get(key);
      if (known === undefined && this.#known.size >= MAX_FLOORS) continue;
      if (known !== undefined && all && known.runAtMs > job.runAtMs) continue;
      // Nor is what was known one any more: of jobs put in with run_at '-infinity' 12 came with each look, a thousand in 26 s.
      if (!(Math.abs(job.runAtMs) < MAX_EXACT_MS)) this.#known.delete(key);
      else this.#known.set(key, { id: job.id, kind: job.kind, priority: job.priority, runAtMs: job.runAtMs });
    }
  }
}
