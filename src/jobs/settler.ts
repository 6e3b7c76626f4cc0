/**
 * Writes outcomes, many at a time: while one write is under way the next batch gathers. A few completions go with the
 * worker's next claim when that is about to come. What the fence refuses is looked at once more and, unless an earlier try wrote
 * it, reported as lost; what the database could not be asked is tried again until the lease's local deadline. No end waits for
 * the row of another (aside.ts).
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Aside } from './aside.js';
import { Fitting } from './fitting.js';
import type { ClaimedJob, Queryable } from './job.js';
import { became, type RowNow } from './recheck.js';
import type { EachAnswer } from './settle-store.js';
import {
  completionsOf,
  FREE,
  isInTransaction,
  isRefusal,
  ofWholeClaims,
  rowOf,
  type Settlement,
  type StoreWrite,
  WRITES,
  type Write,
  withoutText,
} from './settlement.js';
import { isCutShort, isHeld } from './sqlstate.js';
import type { Store } from './store.js';

export interface SettlerOptions {
  readonly store: Store;
  readonly db: Queryable;
  /** `db`, but it may keep the plans of statements. Default `db`. */
  readonly keeping?: Queryable;
  /** Called once for each settlement: written, or lost. */
  readonly onSettled: (settlement: Settlement, written: boolean) => void;
  readonly onError: (error: unknown) => void;
  /** Whose rows go when they are done. */
  readonly removes: (job: ClaimedJob) => boolean;
  /** Rows of one statement. Default MAX_SETTLE. 1: none goes with a claim. */
  readonly batch?: number;
  /** Will the worker claim within some ms? Default: never. */
  readonly claimsSoon?: () => boolean;
}

/** Rows of one statement, as many as one claim brings; also bounds how long their locks are held. */
export const MAX_SETTLE = 1_000;
/** Statements under way at once when each has few rows: they share the log's flush. */
const LANES = 4;
/** Outcomes that each are a transaction, of one call: that many cost the server a third of what each alone does. */
const MAX_CALL = 24;
/** So many rows are enough for one statement at a time. */
const MANY = 100;
const FIRST_BACKOFF_MS = 20;
const MAX_BACKOFF_MS = 1_000;
/** So many go with a claim: settling and claiming side by side is faster when both are long. */
const MAX_RIDERS = 100;
/** A completion waits for its claim so long at most: what a crash makes run again, too. */
const MAX_RIDE_MS = 20;

export class Settler {
  #queue: Settlement[] = [];
  /** Completions that wait for the next claim. */
  readonly #riders: Settlement[] = [];
  #ride: NodeJS.Timeout | undefined;
  /** Each writes batch after batch until the queue is empty. */
  readonly #lanes = new Set<{ ended?: Promise<void> }>();
  /** Of these, those that have taken nothing yet. */
  #starting = 0;
  readonly #maxLanes: number;
  readonly #batch: number;
  /** How much of a batch the server takes at once. */
  readonly #fitting = new Fitting();
  readonly #aside: Aside;
  /** What a lane takes at once. */
  readonly #take: number;
  /** False once the database took a call for part of a transaction. */
  #calls = true;
  #pending = 0;
  #closed = false;
  readonly #options: SettlerOptions;

  constructor(options: SettlerOptions) {
    this.#options = options;
    this.#batch = options.batch ?? MAX_SETTLE;
    this.#maxLanes = this.#batch >= MANY ? 1 : LANES;
    this.#take = this.#batch === 1 ? MAX_CALL : this.#batch;
    this.#aside = new Aside({
      write: (settlements) => this.#writeFree(settlements),
      giveUp: (settlement) => this.#settled(settlement, false),
    });
  }

  /** Settlements not yet written. */
  get pending(): number {
    return this.#pending;
  }

  push(settlement: Settlement): void {
    settlement.run.settling = true;
    this.#pending += 1;
    const { claimsSoon } = this.#options;
    if (this.#batch === 1 || !claimsSoon?.() || this.#writeOf(settlement) !== 'complete') {
      this.#enqueue([settlement]);
      return;
    }
    this.#riders.push(settlement);
    if (this.#riders.length >= Math.min(MAX_RIDERS, this.#batch, this.#fitting.most)) this.flush();
    else this.#ride ??= setTimeout(() => this.flush(), MAX_RIDE_MS);
  }

  /** Those that go with the claim that is about to be sent. The caller says what became of them: `wrote` or `putBack`. */
  take(): Settlement[] {
    this.#endRide();
    // Out of the list first: what begins in the place of an expired one may end at once, and rides with the next claim.
    return this.#withoutExpired(this.#riders.splice(0));
  }

  /** A claim that took these along has answered, with the ids that were written; the others are asked for by themselves. */
  wrote(taken: readonly Settlement[], ids: readonly string[]): void {
    this.#enqueue(this.#settledOf(taken, ids));
  }

  /** The claim that took them along failed: they are written by themselves. */
  putBack(taken: readonly Settlement[], error: unknown): void {
    if (isCutShort(error)) this.#fitting.cutShort(taken.length);
    // Not known whose: one of them would keep the next claim waiting, too.
    if (isHeld(error)) this.#aside.put(taken);
    else this.#enqueue(taken);
  }

  /** No claim will come soon: what waits for it is written now. */
  flush(): void {
    this.#endRide();
    this.#enqueue(this.#riders.splice(0));
  }

  /** Resolves when all that was pushed is written or lost. */
  async drained(): Promise<void> {
    this.flush();
    while (this.#lanes.size > 0 || !this.#aside.empty)
      await Promise.all([...this.#lanes].map(({ ended }) => ended).concat(this.#aside.drained()));
  }

  /** What is not written by now is left to the reaper. */
  close(): void {
    this.#closed = true;
    this.#aside.close();
  }

  #enqueue(settlements: readonly Settlement[]): void {
    if (settlements.length === 0) return;
    this.#queue.push(...settlements);
    while (this.#lanes.size < this.#maxLanes && this.#starting * this.#take < this.#queue.length) {
      const lane: { ended?: Promise<void> } = {};
      this.#lanes.add(lane);
      this.#starting += 1;
      lane.ended = this.#lane(() => this.#lanes.delete(lane));
    }
  }

  #settled(settlement: Settlement, written: boolean): void {
    this.#pending -= 1;
    this.#options.onSettled(settlement, written);
  }

  #endRide(): void {
    clearTimeout(this.#ride);
    this.#ride = undefined;
  }

  /** `ended` is called in the same turn as the last look at the queue: what comes after it wants another lane. */
  async #lane(ended: () => void): Promise<void> {
    // One turn of the event loop: jobs that end together are written together.
    await new Promise((resolve) => setImmediate(resolve));
    this.#starting -= 1;
    let backoffMs = FIRST_BACKOFF_MS;
    while (this.#queue.length > 0 && !this.#closed) {
      const taken = this.#withoutExpired(this.#queue.splice(0, ofWholeClaims(this.#queue, this.#take)));
      const left = await this.#write(taken);
      if (left.length > 0) {
        this.#queue.unshift(...left);
        await sleep(backoffMs * (0.5 + Math.random()));
        backoffMs = Math.min(backoffMs * 2, MAX_BACKOFF_MS);
      } else backoffMs = FIRST_BACKOFF_MS;
    }
    ended();
  }

  /** Past its deadline a job may be somebody else's: the reaper decides, not we. */
  #withoutExpired(settlements: Settlement[]): Settlement[] {
    const now = performance.now();
    const expired = settlements.filter(({ run }) => run.lost || run.deadlineAt <= now);
    if (expired.length === 0) return settlements;
    const gone = new Set(expired);
    const left = settlements.filter((s) => !gone.has(s));
    for (const settlement of expired) this.#settled(settlement, false);
    return left;
  }

  /** Writes a batch, a statement for each kind of outcome; answers what could not be asked. */
  async #write(batch: readonly Settlement[]): Promise<Settlement[]> {
    const left: Settlement[] = [];
    for (const [as, same] of this.#bySort(batch)) {
      const write =
        this.#batch === 1
          ? this.#writeEach(as, same)
          : this.#inParts(same, (part) => this.#writeSame(as, part));
      left.push(...(await write));
    }
    return left;
  }

  /** As much at once as the server takes, which may be less after each. Answers what is left of all. */
  async #inParts(
    same: readonly Settlement[],
    write: (part: readonly Settlement[]) => Promise<readonly Settlement[]>,
  ): Promise<readonly Settlement[]> {
    if (same.length <= this.#fitting.most) return write(same);
    const left: Settlement[] = [];
    for (let at = 0; at < same.length; ) {
      const part = same.slice(at, at + this.#fitting.most);
      at += part.length;
      left.push(...(await write(part)));
    }
    return left;
  }

  /** In the order in which they are written. */
  #bySort(batch: readonly Settlement[]): (readonly [Write, readonly Settlement[]])[] {
    const same = new Map<Write, Settlement[]>();
    for (const settlement of batch) {
      const write = this.#writeOf(settlement);
      const group = same.get(write);
      if (group === undefined) same.set(write, [settlement]);
      else group.push(settlement);
    }
    return WRITES.flatMap((as) => {
      const group = same.get(as);
      return group === undefined ? [] : [[as, group] as const];
    });
  }

  /** Each in a transaction of its own. */
  async #writeEach(as: Write, same: readonly Settlement[]): Promise<Settlement[]> {
    if (as !== 'complete' || same.length < 2 || !this.#calls) return this.#oneByOne(as, same);
    const { store, db, keeping = db, onError } = this.#options;
    try {
      const answers = await store.completeEach(keeping, completionsOf(same));
      const which = (answer: EachAnswer) => same.filter((_, i) => answers[i] === answer);
      for (const settlement of which('written')) this.#settled(settlement, true);
      this.#aside.put(which('held'));
      const left = await this.#recheck(which('stale'));
      return left.concat(await this.#oneByOne(as, which('refused')));
    } catch (error) {
      onError(error);
      if (!isInTransaction(error)) return [...same];
      this.#calls = false;
      return this.#oneByOne(as, same);
    }
  }

  #writeOf({ run, outcome }: Settlement): Write {
    return outcome.type === 'complete' && this.#options.removes(run.job) ? 'completeAndRemove' : outcome.type;
  }

  /** Answers what could not be asked. */
  async #writeSame(as: Write, same: readonly Settlement[]): Promise<Settlement[]> {
    const { store, db, keeping = db } = this.#options;
    let ids: readonly string[];
    try {
      // The rows of one call share the outcome's type, so each has what its statement needs.
      const write = store[as] as StoreWrite;
      ids = await write(db, same.map(rowOf), keeping);
    } catch (error) {
      return this.#failed(as, same, error);
    }
    this.#fitting.written(same.length);
    return this.#recheck(this.#settledOf(same, ids));
  }

  /** Those that are held, or cut short by themselves, go aside. */
  async #failed(as: Write, same: readonly Settlement[], error: unknown): Promise<Settlement[]> {
    this.#options.onError(error);
    if (isHeld(error)) this.#aside.put(same);
    else if (isCutShort(error)) {
      this.#fitting.cutShort(same.length);
      // The next try has half as many in a statement.
      if (same.length > 1) return [...same];
      this.#aside.put(same);
    } else if (!isRefusal(error)) return [...same];
    else if (same.length > 1) return this.#oneByOne(as, same);
    // A caller's table refers to the row: the work is done all the same, and the row stays.
    else if (as === 'completeAndRemove') return this.#writeSame('complete', same);
    else return this.#withoutText(same[0] as Settlement);
    return [];
  }

  /** Settles those that were written; answers the others. */
  #settledOf(same: readonly Settlement[], ids: readonly string[]): readonly Settlement[] {
    const written = ids.length < same.length ? new Set(ids) : undefined;
    const missing: Settlement[] = [];
    for (const settlement of same)
      if (written === undefined || written.has(settlement.run.job.id)) this.#settled(settlement, true);
      else missing.push(settlement);
    return missing;
  }

  /** Nothing was found to write for these: why? Answers what could not be asked. */
  async #recheck(missing: readonly Settlement[]): Promise<Settlement[]> {
    if (missing.length === 0) return [];
    const { store, db, onError } = this.#options;
    const ids = missing.map(({ run }) => run.job.id);
    let rows: readonly RowNow[];
    try {
      rows = await store.rowsNow(db, ids);
    } catch (error) {
      onError(error);
      return [...missing];
    }
    const now = new Map(rows.map((row) => [row.id, row]));
    for (const settlement of missing) {
      const { job } = settlement.run;
      const what = became(job, settlement.outcome, now.get(job.id));
      if (what === 'held') this.#aside.put([settlement]);
      else this.#settled(settlement, what === 'written');
    }
    return [];
  }

  /** What was put aside, as far as that goes without waiting; answers what could not be asked. */
  async #writeFree(settlements: readonly Settlement[]): Promise<Settlement[]> {
    const left: Settlement[] = [];
    for (const [as, same] of this.#bySort(settlements))
      left.push(...(await this.#inParts(same, (part) => this.#writeFreePart(as, part))));
    return left;
  }

  async #writeFreePart(as: Write, part: readonly Settlement[]): Promise<readonly Settlement[]> {
    const { store, db, onError } = this.#options;
    let ids: readonly string[];
    try {
      ids = await (store[FREE[as]] as StoreWrite)(db, part.map(rowOf), db);
    } catch (error) {
      onError(error);
      if (isCutShort(error)) this.#fitting.cutShort(part.length);
      if (!isRefusal(error)) return part;
      // Refused for what is in it: as any other.
      this.#enqueue(part);
      return [];
    }
    return this.#recheck(this.#settledOf(part, ids));
  }

  /** One row that the server refuses must not hold up the others. */
  async #oneByOne(as: Write, same: readonly Settlement[]): Promise<Settlement[]> {
    const left: Settlement[] = [];
    for (const settlement of same) left.push(...(await this.#writeSame(as, [settlement])));
    return left;
  }

  /**
   * The server refuses this very row. The outcome counts more than its text (a message that the database's encoding does
   * not have); what is refused even so is given up: its lease runs out, and the reaper and max_attempts decide. Trying
   * for ever would keep it running for ever.
   */
  async #withoutText({ run, outcome }: Settlement): Promise<Settlement[]> {
    const bare = withoutText(outcome);
    if (bare !== null) return this.#writeSame(bare.type, [{ run, outcome: bare }]);
    this.#settled({ run, outcome }, false);
    return [];
  }
}
