/**
 * Jobs that are claimed and not yet started, so that a claim brings dozens where slots free up one by one: a claim costs the
 * server 400 us whatever it brings. Only as many as end within some ms at the present pace, so that none waits here for
 * long while another worker has nothing to do; and whoever has waited for too long is given back. It is told the time
 * (monotonic ms), claims nothing and starts nothing.
 */
import type { Run } from './handler.js';

/** As many jobs as end within this time. */
const AHEAD_MS = 25;
/**
 * Of the slots. With one of them none was left to begin while a claim was under way, which then could not take along what had
 * ended: 24 at once cost 159 us a job instead of 112.
 */
const MAX_SHARE = 2;
/** The pace is that of so long at least: the last jobs before it end in bursts. */
const PACE_MS = 10;
/** With fewer slots, what dies with this process disturbs no others. */
const MIN_SLOTS = 8;
/** Something holds up all slots: others may have what waits. */
export const MAX_AHEAD_MS = 1_000;

export class Ahead {
  readonly #waiting: Run[] = [];
  #ended = 0;
  /** Jobs a ms. */
  #pace = 0;
  #paceAt: number;
  /** When the last of them came. */
  #putAt = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly slots: number,
    nowMs: number,
  ) {
    this.#paceAt = nowMs;
  }

  get size(): number {
    return this.#waiting.length;
  }

  /** A job ended. */
  ended(): void {
    this.#ended += 1;
  }

  /** So many may wait now. */
  most(nowMs: number): number {
    if (this.slots < MIN_SLOTS) return 0;
    const sinceMs = nowMs - this.#paceAt;
    if (sinceMs >= PACE_MS) {
      this.#pace = this.#ended / sinceMs;
      this.#ended = 0;
      this.#paceAt = nowMs;
    }
    return Math.min(Math.floor(this.#pace * AHEAD_MS), MAX_SHARE * this.slots);
  }

  put(runs: readonly Run[], nowMs: number): void {
    if (runs.length === 0) return;
    this.#waiting.push(...runs);
    this.#putAt = nowMs;
  }

  /** The one to start next. */
  next(): Run | undefined {
    return this.#waiting.shift();
  }

  /** Do they wait for too long? */
  stale(nowMs: number): boolean {
    return this.#waiting.length > 0 && nowMs - this.#putAt >= MAX_AHEAD_MS;
  }

  /** All of them, to be given back. */
  empty(): Run[] {
    return this.#waiting.splice(0);
  }
}

/** Claimed on its last attempt: when its process dies, it is dead, begun or not. */
export const isLastAttempt = ({ job }: Run): boolean => job.attempt >= job.maxAttempts;

/**
 * Who begins now in `slots` of them, who waits for one, and who must not wait: those on their last attempt come first, since one
 * that waited when its process died would be dead without ever having been begun.
 */
export function parted(
  runs: readonly Run[],
  slots: number,
): { readonly begun: Run[]; readonly waiting: Run[]; readonly mustNotWait: Run[] } {
  const free = Math.max(0, slots);
  const last = runs.filter(isLastAttempt);
  const others = last.length === 0 ? runs : runs.filter((run) => !isLastAttempt(run));
  const forOthers = Math.max(0, free - last.length);
  return {
    begun: [...last.slice(0, free), ...others.slice(0, forOthers)],
    waiting: others.slice(forOthers),
    mustNotWait: last.slice(free),
  };
}
