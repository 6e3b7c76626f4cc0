/**
 * Fires schedules whose slot has come: reads what is due, lets schedule.ts decide, writes both the jobs and the next slot
 * in one statement. Any number of processes may do it at once; none leads, the row's own run_at is the fence. It has no
 * timer: upkeep.ts calls it.
 */
import { UnbrokerError } from '../errors.js';
import type { Queryable } from './job.js';
import { decideFiring, nextAfter, parseRule, type Rule, SCHEDULE_LIMITS } from './schedule.js';
import type { DueRow, Fired, Move } from './schedule-store.js';
import type { Store } from './store.js';

export interface FiringOptions {
  readonly store: Store;
  readonly db: Queryable;
  readonly onFired?: (fired: readonly Fired[]) => void;
  /** A schedule that this process cannot read; said again once a minute. */
  readonly onUnreadable?: (id: string, error: UnbrokerError) => void;
  /** Version of the tzdata that `nextAfter` reads. Default: this process's. */
  readonly tzVersion?: string;
  /** Stands in for the database's clock, in tests. */
  readonly clock?: () => Date;
}

/** Schedules of one statement: deciding takes up to a millisecond each, and the event loop also extends leases. */
const BATCH = 100;
/** Jobs of one statement, unless one schedule alone has more (at most SCHEDULE_LIMITS.maxMissed). */
const MAX_SLOTS = SCHEDULE_LIMITS.maxMissed;
const MAX_ROUNDS = 20;
/** The longest wait between looks: how late a schedule made meanwhile may fire. */
export const MAX_WAIT_MS = 1_000;
/** How long an unreadable schedule is left alone. */
const PATIENCE_MS = 60_000;
const REBASE_EVERY_MS = 3_600_000;
const MAX_RULES = 2_000;

export class Firing {
  readonly #options: FiringOptions;
  readonly #tzVersion: string;
  /** Parsed rules: parsing costs thirty times what a slot costs. */
  readonly #rules = new Map<string, Rule>();
  /** Ids of schedules that this process cannot read (a zone that its ICU does not know): another may. */
  readonly #unreadable = new Set<string>();
  #forgetAt = 0;
  #rebaseAt = 0;

  constructor(options: FiringOptions) {
    this.#options = options;
    this.#tzVersion = options.tzVersion ?? process.versions['tz'] ?? '';
  }

  /** Fires what is due, at most 2,000 schedules; ms until it should be called again. Throws what the database throws. */
  async sweep(): Promise<number> {
    const { store, db, onFired, clock } = this.#options;
    const at = performance.now();
    if (at >= this.#forgetAt) {
      this.#unreadable.clear();
      this.#forgetAt = at + PATIENCE_MS;
    }
    if (at >= this.#rebaseAt) {
      await this.rebase();
      this.#rebaseAt = at + REBASE_EVERY_MS;
    }
    for (let round = 0; round < MAX_ROUNDS; round += 1) {
      const rows = await store.dueSchedules(db, BATCH, [...this.#unreadable], clock?.() ?? null);
      const nowMs = rows[0]?.nowMs ?? 0;
      const due = rows.filter((row) => row.runAtMs <= nowMs);
      if (due.length === 0)
        return Math.min((rows[0]?.runAtMs ?? Number.POSITIVE_INFINITY) - nowMs, MAX_WAIT_MS);
      const moves = this.#decide(due);
      if (moves.length === 0) continue;
      const fired = await store.fireSchedules(db, moves, nowMs, this.#tzVersion);
      // All of them moved by somebody else, or held by an open transaction: asking again at once would not help.
      if (fired.length === 0) return MAX_WAIT_MS;
      onFired?.(fired);
    }
    return 0;
  }

  /**
   * Schedules whose run_at was computed with an older tzdata get the one that keeps their wall time. Only newer replaces
   * older, so that processes of different versions do not take turns.
   */
  async rebase(): Promise<void> {
    const { store, db } = this.#options;
    for (let round = 0; round < MAX_ROUNDS * MAX_ROUNDS; round += 1) {
      const rows = await store.staleSchedules(db, this.#tzVersion, BATCH, [...this.#unreadable]);
      const moves = rows.flatMap((row) => {
        const rule = this.#rule(row);
        const nextMs = rule === null ? null : nextAfter(rule, row.slotsUntilMs);
        return nextMs === null ? [] : [{ row, nextMs }];
      });
      if (moves.length > 0) await store.rebaseSchedules(db, moves, this.#tzVersion);
      if (rows.length < BATCH || moves.length === 0) return;
    }
  }

  /** From the oldest on, until the statement has enough jobs to insert. */
  #decide(due: readonly DueRow[]): Move[] {
    const moves: Move[] = [];
    let slots = 0;
    for (const row of due) {
      const rule = this.#rule(row);
      if (rule === null) continue;
      const { slotsMs, nextMs } = decideFiring(rule, row);
      if (moves.length > 0 && slots + slotsMs.length > MAX_SLOTS) break;
      slots += slotsMs.length;
      moves.push({ row, slotsMs, nextMs });
    }
    return moves;
  }

  /** Null when this process cannot read it: then it is left alone for a while. */
  #rule(row: Pick<DueRow, 'id' | 'cron' | 'timeZone'>): Rule | null {
    const key = `${row.timeZone} ${row.cron}`;
    const known = this.#rules.get(key);
    if (known !== undefined) return known;
    try {
      const rule = parseRule(row.cron, row.timeZone);
      if (this.#rules.size >= MAX_RULES) this.#rules.clear();
      this.#rules.set(key, rule);
      return rule;
    } catch (error) {
      if (!(error instanceof UnbrokerError)) throw error;
      this.#unreadable.add(row.id);
      this.#options.onUnreadable?.(row.id, error);
      return null;
    }
  }
}
