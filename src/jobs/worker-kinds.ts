/**
 * The kinds that a worker has handlers for: what each may still take, and from which a claim begins. It counts what it is
 * told and asks nobody.
 */

import type { KindDemand, KindRule } from './claim-store.js';
import type { KindOptions } from './handler.js';
import { FailureRamp } from './ramp.js';

export interface Kind {
  readonly options: KindOptions;
  readonly rule: KindRule | undefined;
  readonly keepDone: boolean;
  readonly ramp: FailureRamp;
  /** Its own `concurrency` is no more than its share, so it goes first and starves nobody. */
  readonly small: boolean;
  /** More of it may be claimed than there are slots: nothing else counts them. */
  readonly early: boolean;
  /** When one of its jobs was last claimed for its last attempt (monotonic ms). */
  lastAttemptAt: number;
  /** Claimed and not yet ended. */
  running: number;
  /** It has fewer slots than the worker, and the last claim that asked for it brought all it asked for. */
  mayHaveMore: boolean;
}

/** So long after a job was claimed for its last attempt, none waits for a slot. */
const LAST_ATTEMPT_MS = 10_000;

export interface KindDefaults {
  /** Of the worker: no kind has more slots. */
  readonly concurrency: number;
  readonly keepDone: boolean;
}

export class Kinds {
  readonly #kinds: ReadonlyMap<string, Kind>;
  readonly #limited: boolean;
  #rotation = 0;

  /** `limits`: across all workers, by kind. */
  constructor(
    kinds: Iterable<readonly [string, KindOptions]>,
    limits: ReadonlyMap<string, KindRule>,
    private readonly defaults: KindDefaults,
  ) {
    const all = [...kinds];
    const share = defaults.concurrency / all.length;
    this.#limited = all.some(([kind]) => limits.has(kind));
    this.#kinds = new Map(
      all.map(([kind, options]) => [kind, newKind(options, limits.get(kind), defaults, share)]),
    );
  }

  get names(): string[] {
    return [...this.#kinds.keys()];
  }

  /** One of them has a limit across all workers, which frees up without a word. */
  get limited(): boolean {
    return this.#limited;
  }

  /** May one more of it be claimed, as far as its own slots go? */
  hasRoom(name: string): boolean {
    const kind = this.#kinds.get(name);
    return kind !== undefined && kind.running < kind.ramp.slots;
  }

  /** Claims ask for known kinds only. */
  of(name: string): Kind {
    return this.#kinds.get(name) as Kind;
  }

  /**
   * What each kind may still take, beginning with another kind each time so that none starves behind another. Small ones go before
   * all others: of 50 slots that slow jobs left all at once, a kind of 20 ms with two of its own got its two in every second claim,
   * and ended 18 jobs in 5 s instead of 420. `early`: so many may come before there is a slot.
   */
  demands(early: number): KindDemand[] {
    const kinds = [...this.#kinds];
    this.#rotation = (this.#rotation + 1) % kinds.length;
    const turned = [...kinds.slice(this.#rotation), ...kinds.slice(0, this.#rotation)];
    return [...turned.filter(([, { small }]) => small), ...turned.filter(([, { small }]) => !small)]
      .map(([kind, entry]) => {
        const { ramp, running } = entry;
        return demandOf(kind, entry, ramp.slots - running + (this.#mayTakeMore(entry) ? early : 0));
      })
      .filter((demand) => demand.limit > 0);
  }

  /**
   * May jobs wait here for a slot? Not while there is a kind whose jobs must not: it would come to nothing beside others that take each
   * slot as it frees up.
   */
  mayLookAhead(nowMs: number): boolean {
    let some = false;
    for (const entry of this.#kinds.values()) {
      if (entry.options.onLeaseExpired === 'park' || nowMs - entry.lastAttemptAt < LAST_ATTEMPT_MS)
        return false;
      some ||= this.#mayTakeMore(entry);
    }
    return some;
  }

  /** A claim of these brought so many of each. True when one that may have more has room for it already. */
  brought(demands: readonly KindDemand[], count: () => ReadonlyMap<string, number>): boolean {
    let counts: ReadonlyMap<string, number> | undefined;
    let some = false;
    for (const { kind, limit } of demands) {
      const entry = this.of(kind);
      // One that may have every slot is not full before the worker is.
      entry.mayHaveMore = false;
      if (entry.ramp.slots >= this.defaults.concurrency) continue;
      counts ??= count();
      entry.mayHaveMore = (counts.get(kind) ?? 0) >= limit;
      some ||= entry.mayHaveMore && entry.running < entry.ramp.slots;
    }
    return some;
  }

  #mayTakeMore({ early, ramp }: Kind): boolean {
    return early && ramp.slots >= this.defaults.concurrency;
  }

  /** One of each, whatever runs. */
  oneOfEach(): KindDemand[] {
    return [...this.#kinds].map(([kind, entry]) => demandOf(kind, entry, 1));
  }
}

function newKind(
  options: KindOptions,
  limits: KindRule | undefined,
  { concurrency, keepDone }: KindDefaults,
  share: number,
): Kind {
  const rule = options.onDeadHead === 'block' ? { ...limits, holds: true } : limits;
  return {
    ...{ options, rule },
    keepDone: options.keepDone ?? keepDone,
    ramp: new FailureRamp(options.concurrency ?? concurrency),
    small: options.concurrency !== undefined && options.concurrency <= share,
    early: options.concurrency === undefined && rule === undefined,
    lastAttemptAt: Number.NEGATIVE_INFINITY,
    running: 0,
    mayHaveMore: false,
  };
}

function demandOf(kind: string, { options, rule }: Kind, limit: number): KindDemand {
  const demand = { kind, limit, park: options.onLeaseExpired === 'park' };
  return rule === undefined ? demand : { ...demand, rule };
}
