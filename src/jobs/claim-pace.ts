/**
 * How many jobs a claim asks for, and how long the next one waits: many at once while there is a backlog, seldom while nothing
 * comes. It is told what claims brought and when they were sent (monotonic ms); it sends none and waits for nothing.
 */

import { ClaimSize } from './claim-size.js';
import type { KindDemand } from './claim-store.js';

/** With few free slots, claims come at most this often: each costs a statement, and slots free up one by one. */
export const MIN_CLAIM_MS = 5;
/** Of a backlog of short jobs a claim waits for half the slots, so long at most. */
const MAX_GATHER_MS = 20;
/** Rows of one claim; also bounds what one lost reply puts at risk. With 500 each job costs 10 % more CPU (measured). */
const MAX_CLAIM = 1_000;
/** A claim of so many is answered as one text, and taken apart when the next one is on its way. */
const MANY = 250;
/** So many full claims in a row are a backlog. One alone says little: with one slot every claim is full. */
const BACKLOG_CLAIMS = 5;
/** While jobs come one after the other, claims come so often: fewer, of more jobs each, where they come fast. */
const MANY_AT_ONCE = 5;
export const MAX_BUSY_POLL_MS = 10;

/** What a claim asks for, and how many come at most. */
export interface Bounded {
  readonly demands: readonly KindDemand[];
  readonly total: number;
  readonly asked: number;
}

export class ClaimPace {
  /** Bounds what a claim may bring. */
  readonly size = new ClaimSize();
  /** Claims in a row that came back full. */
  #full = 0;
  #sentAt = Number.NEGATIVE_INFINITY;
  #idleMs = MIN_CLAIM_MS;

  /** `pollMs`: the longest wait while idle. */
  constructor(
    private readonly concurrency: number,
    private readonly pollMs: number,
  ) {}

  /** When the last claim was sent. */
  get sentAt(): number {
    return this.#sentAt;
  }

  /** The last claim came back full: there is more. */
  get full(): boolean {
    return this.#full > 0;
  }

  /** This full claim is the one that makes a backlog. */
  get backlogBegins(): boolean {
    return this.#full === BACKLOG_CLAIMS;
  }

  /** May more come than there are slots? Whoever claims many at once has the next ones soon enough. */
  get mayLookAhead(): boolean {
    return this.#full > 0 && this.concurrency < MANY;
  }

  /** Who claims many at once, writes what ended beside the claims: one after the other took twice as long. */
  get takesAlong(): boolean {
    return this.concurrency < 2 * MANY;
  }

  /**
   * How many to ask for, for `free` jobs of which `ahead` would wait for a slot. While jobs wait here, a claim is one of
   * few, which can take along what ended.
   */
  total(free: number, ahead: number): number {
    const most = Math.max(Math.ceil(this.concurrency / 2), 10) + ahead;
    return Math.min(free, most, ahead > 0 ? MANY - 1 : MAX_CLAIM);
  }

  /** So many may come before there is a slot, of which the present pace allows `most`. */
  ahead(most: number): number {
    return Math.min(most, this.size.most);
  }

  /** How many come at most of a claim of `total`, and of which kinds: as many as fit into its answer. */
  bounded(total: number, demands: readonly KindDemand[]): Bounded {
    const fitting = demands.map((demand) => {
      const most = this.size.mostOf(demand.kind);
      return most < demand.limit ? { ...demand, limit: most } : demand;
    });
    const asked = fitting.reduce((sum, { limit }) => sum + limit, 0);
    const most = Math.min(total, this.size.most);
    return { demands: fitting, total: most, asked: Math.min(most, asked) };
  }

  /** Is a claim of so many answered as one text? */
  isMany(total: number): boolean {
    return total >= MANY;
  }

  /** With few free slots and a backlog: so long until a claim is worth its while; 0 or less: it is. */
  gatherMs(nowMs: number): number {
    return this.#sentAt + MAX_GATHER_MS - nowMs;
  }

  /** With few free slots: so long until a claim may follow the last one; 0 or less: it may. */
  pauseMs(nowMs: number): number {
    return this.#sentAt + MIN_CLAIM_MS - nowMs;
  }

  sent(nowMs: number): void {
    this.#sentAt = nowMs;
  }

  /** A claim brought so many of `asked`. */
  brought(claimed: number, asked: number): void {
    this.#full = claimed >= asked ? this.#full + 1 : 0;
    if (this.#full === 0 && claimed > 0)
      this.#idleMs = claimed < MANY_AT_ONCE ? MIN_CLAIM_MS : MAX_BUSY_POLL_MS;
  }

  /** The database is away; `late`: or too slow for what was asked. */
  lost(late = false): void {
    this.#full = 0;
    if (late) this.size.late();
  }

  /** Until the next claim, when nothing calls for one sooner. */
  get idleMs(): number {
    return this.#idleMs;
  }

  /** That wait is over: the next one is twice as long. */
  waited(): void {
    this.#idleMs = Math.min(this.#idleMs * 2, this.pollMs);
  }

  /** There may be work. */
  hurry(): void {
    this.#idleMs = MIN_CLAIM_MS;
  }
}
