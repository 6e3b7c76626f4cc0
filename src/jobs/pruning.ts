/**
 * Removes the finished rows that retention names, some hundreds at a time. While much of what it looks at may go it goes on for half of
 * the time: 18,000 rows a second (two cores, beside other work; 15,000 beside an open snapshot), where 10,000 a sweep had been 2,000.
 * Otherwise it looks at a bounded part of the table a sweep. Which rows may go is retention.ts's answer.
 */
import type { Queryable } from './job.js';
import {
  type FinishedRow,
  KeepRules,
  type Retention,
  RetentionWalk,
  type WalkPosition,
} from './retention.js';
import { isCutShort } from './sqlstate.js';
import type { Store } from './store.js';
import type { Removed } from './upkeep-store.js';

export interface PruningOptions {
  readonly store: Store;
  readonly db: Queryable;
  readonly retention: Retention;
}

/** Rows of one statement that looks; and of one that removes, unless that is too many. */
const BATCH = 500;
/** Statements of one walk in one sweep. */
const MAX_STEPS = 20;
/** From the end of a walk over the finished rows to the beginning of the next, where a kind's newest are counted. */
const COUNT_EVERY_MS = 60_000;
/**
 * And where they are not, or some could not go: nothing but those and late commits is left behind by what follows each age. Beside an
 * open snapshot what is gone is still in the index.
 */
const WALK_EVERY_MS = 600_000;
/**
 * And for each that could not: a row that a table of the caller's refers to costs a transaction's number each time, and 330 bytes of
 * log. A million of them, tried every ten minutes, were 80 million numbers a day.
 */
const REFUSED_MS = 60;
const BEFORE_ALL: WalkPosition = { finishedAtText: '-infinity', id: '0' };

/** A page of a walk: looked at, and not yet done with. */
interface Page {
  readonly old: readonly FinishedRow[];
  readonly last: boolean;
}

/** `gone`: null while another session removes some, which is enough. */
interface Step {
  readonly full: boolean;
  readonly gone: number | null;
}

export class Pruning {
  readonly #options: PruningOptions;
  readonly #rules: KeepRules;
  /** By age: the newest row that has reached it and was seen. */
  readonly #reached = new Map<number, WalkPosition>();
  #walk: RetentionWalk | undefined;
  #page: Page | undefined;
  #nextWalkAt = Number.NEGATIVE_INFINITY;
  /** When a walk tries what is too old again. */
  #tooOldAt = Number.NEGATIVE_INFINITY;
  #refused = 0;
  /**
   * Rows that one statement removes: fewer, until the walk ends, where so many took longer than a statement_timeout lets them. With a
   * reference from 300,000 rows without an index, 500 took longer than a second, each time: nothing went any more.
   */
  #most = BATCH;
  #stopped = false;

  constructor(options: PruningOptions) {
    this.#options = options;
    this.#rules = new KeepRules(options.retention);
  }

  /** Some steps of each walk, going on where the last sweep left it. True: go on soon, much goes and there is more. */
  async sweep(): Promise<boolean> {
    let goOn = false;
    for (const ageMs of this.#rules.agesMs) goOn = (await this.#steps(() => this.#follow(ageMs))) || goOn;
    if (performance.now() < this.#nextWalkAt) return goOn;
    return (await this.#steps(() => this.#walkOn())) || goOn;
  }

  /** No statement is sent after the one that is under way. */
  stop(): void {
    this.#stopped = true;
  }

  async #steps(step: () => Promise<Step>): Promise<boolean> {
    let sum = 0;
    for (let count = 0; count < MAX_STEPS; count += 1) {
      if (this.#stopped) return false;
      const { full, gone } = await step();
      if (!full || gone === null) return false;
      sum += gone;
    }
    return sum >= (MAX_STEPS * BATCH) / 10;
  }

  /** What has reached this age since the last look. What had reached it before the first one is the walk's. */
  async #follow(ageMs: number): Promise<Step> {
    const { store, db } = this.#options;
    const from = this.#reached.get(ageMs);
    if (from === undefined) {
      const [newest] = await store.finishedBelow(db, null, ageMs, 1);
      this.#reached.set(ageMs, newest ?? BEFORE_ALL);
      return { full: false, gone: 0 };
    }
    const rows = await store.finishedAbove(db, from, ageMs, BATCH);
    const gone = await this.#remove(rows.filter((row) => this.#rules.isTooOld(row)));
    if (gone !== null) this.#reached.set(ageMs, rows.at(-1) ?? from);
    return { full: rows.length === BATCH, gone };
  }

  async #walkOn(): Promise<Step> {
    this.#walk ??= new RetentionWalk(this.#rules, performance.now() >= this.#tooOldAt);
    this.#page ??= await this.#nextPage(this.#walk);
    const { old, last } = this.#page;
    const gone = await this.#remove(old);
    if (gone === null) return { full: false, gone };
    this.#page = undefined;
    if (last) this.#walkEnds(this.#walk);
    return { full: !last, gone };
  }

  async #nextPage(walk: RetentionWalk): Promise<Page> {
    const { store, db } = this.#options;
    const rows = await store.finishedBelow(db, walk.position, this.#rules.minAgeMs, BATCH);
    return { old: walk.take(rows), last: rows.length < BATCH };
  }

  #walkEnds({ tooOld }: RetentionWalk): void {
    const { counts } = this.#rules;
    const now = performance.now();
    const jitter = 0.875 + Math.random() / 4;
    const restMs = this.#refused === 0 ? 0 : Math.max(WALK_EVERY_MS, this.#refused * REFUSED_MS);
    if (tooOld) this.#tooOldAt = now + restMs * jitter;
    // What is beyond a count does not wait for what is too old.
    const everyMs = tooOld && counts ? Math.min(restMs, WALK_EVERY_MS) : restMs;
    this.#nextWalkAt = now + (everyMs || (counts ? COUNT_EVERY_MS : WALK_EVERY_MS)) * jitter;
    this.#walk = undefined;
    this.#refused = 0;
    this.#most = BATCH;
  }

  async #remove(old: readonly FinishedRow[]): Promise<number | null> {
    let gone = 0;
    for (let at = 0; at < old.length; at += this.#most) {
      if (this.#stopped) return null;
      const removed = await this.#removeSome(old.slice(at, at + this.#most));
      if (removed === null) return null;
      this.#refused += removed.refused;
      gone += removed.gone;
    }
    return gone;
  }

  /** What was cut short is told, and asked with fewer rows at the next sweep. */
  async #removeSome(old: readonly FinishedRow[]): Promise<Removed | null> {
    const { store, db } = this.#options;
    try {
      return await store.removeFinished(db, old);
    } catch (error) {
      if (isCutShort(error)) this.#most = Math.ceil(this.#most / 10);
      throw error;
    }
  }
}
