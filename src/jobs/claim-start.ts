/**
 * Where a claim starts: behind the floors or at the head, with somebody looking before the floors beside it, and now and then
 * with some of what has waited longest. It learns from what claims bring; when they are sent is the worker's.
 */

import type { ClaimOrder } from './claim-store.js';
import { type Floor, Floors } from './floors.js';
import type { ClaimedJob, Queryable } from './job.js';
import { within } from './signal.js';
import type { Store } from './store.js';

export interface ClaimStartOptions {
  readonly store: Store;
  readonly db: Queryable;
  readonly onError: (error: unknown) => void;
  /** A job lies before the floors: the next claim will start at the head. */
  readonly onFound: () => void;
}

/** One claim of so many may take some of what has waited longest, so that a low priority never starves. */
const RESERVE_EVERY = 10;
const RESERVE_MS = 500;
/** For the look before the floors. */
const MAX_LOOK_MS = 10_000;

export class ClaimStart {
  readonly #floors = new Floors();
  /** A look before the floors is under way. */
  #looking = false;
  /** Claims since the last one that took some of what had waited longest, and when that was. */
  #sinceReserve = 0;
  #reserveAt = Number.NEGATIVE_INFINITY;
  #lastJobAt = Number.NEGATIVE_INFINITY;
  readonly #options: ClaimStartOptions;

  constructor(options: ClaimStartOptions) {
    this.#options = options;
  }

  /** When a claim last brought something (monotonic ms). */
  get lastJobAt(): number {
    return this.#lastJobAt;
  }

  /** Of a claim that is sent now, the last of which was sent at `lastClaimAt`. `backlog`: that one came back full. */
  next(lastClaimAt: number, backlog: boolean): Pick<ClaimOrder, 'floors' | 'oldest'> {
    const now = performance.now();
    const look = this.#floors.shouldLook(now);
    // After a claim that found nothing nobody waits for this one.
    if (look && (this.#floors.cheap || this.#lastJobAt < lastClaimAt)) this.#floors.startAtHead();
    const floors = this.#floors.next();
    if (look && floors.length > 0) void this.#lookBefore(floors);
    this.#sinceReserve += 1;
    const oldest = backlog && this.#sinceReserve >= RESERVE_EVERY && now - this.#reserveAt >= RESERVE_MS;
    if (oldest) {
      this.#sinceReserve = 0;
      this.#reserveAt = now;
    }
    return { floors, oldest };
  }

  /** The answer of a claim; `all`: nothing was left that is due. */
  learned(
    { floors }: Pick<ClaimOrder, 'floors'>,
    jobs: readonly ClaimedJob[],
    all: boolean,
    sentAt: number,
  ): void {
    const now = performance.now();
    if (jobs.length > 0) this.#lastJobAt = now;
    if (floors.length === 0) this.#floors.looked(sentAt, now, false);
    else this.#floors.took(now - sentAt);
    this.#floors.claimed(jobs, all);
  }

  /** The rest of an answer that was taken apart later. */
  learnedMore(jobs: readonly ClaimedJob[]): void {
    this.#floors.claimed(jobs, false);
  }

  /** A claim failed. `order`: it started there. */
  failed({ floors }: Pick<ClaimOrder, 'floors'>): void {
    if (floors.length === 0) this.#floors.startAtHead();
  }

  /** Whatever was known may be wrong: the next claim starts at the head. */
  forget(): void {
    this.#floors.startAtHead();
  }

  /** Beside the claims: beside an open snapshot it takes its time, and nobody shall wait for it. */
  async #lookBefore(floors: readonly Floor[]): Promise<void> {
    if (this.#looking) return;
    this.#looking = true;
    const { store, db, onError, onFound } = this.#options;
    const sentAt = performance.now();
    try {
      const found = await within(store.late(db, floors), MAX_LOOK_MS);
      this.#floors.looked(sentAt, performance.now(), found);
      if (found) onFound();
    } catch (error) {
      this.#floors.looked(sentAt, performance.now(), true);
      onError(error);
    } finally {
      this.#looking = false;
    }
  }
}
