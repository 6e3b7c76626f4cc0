/**
 * Which finished rows are kept, and in what order they are looked at. A walk goes from the newest to the oldest, since "the newest
 * thousand of a kind" is then known on the way without an index by kind, which every job would pay for. It may take days, so what
 * has grown old meanwhile is followed from the other side: each row is seen once as it reaches an age that is somebody's. Pure: reading
 * and removing is pruning.ts's. Several processes may walk at once: each of them counts what it sees, so at least the promised number is
 * kept.
 */
import type { JobState } from './job.js';

/** Without either: kept for ever. With both, a row goes when one of them says so. */
export interface Keep {
  /** Finished rows older than this are removed. */
  readonly maxAgeMs?: number | undefined;
  /** Of done jobs, the newest so many stay. Dead and cancelled ones go by age alone: somebody may want to look. */
  readonly maxCount?: number | undefined;
}

export interface Retention {
  /** For kinds without an entry, and for what an entry leaves out. */
  readonly default?: Keep | undefined;
  readonly kinds?: Readonly<Record<string, Keep>> | undefined;
}

export interface FinishedRow {
  readonly id: string;
  readonly kind: string;
  readonly state: JobState;
  /** Exact; the walk goes on below it. */
  readonly finishedAtText: string;
  readonly ageMs: number;
}

/** Where a walk has come to. */
export type WalkPosition = Pick<FinishedRow, 'id' | 'finishedAtText'>;

/** What is kept of each kind. */
export class KeepRules {
  readonly #kinds: ReadonlyMap<string, Keep>;
  readonly #default: Keep;
  /** Distinct ones at which something may go, in ms. */
  readonly agesMs: readonly number[];
  /** Of some kind so many stay, whatever their age. */
  readonly counts: boolean;
  /** No younger row can go. Infinite when nothing goes. */
  readonly minAgeMs: number;

  constructor(retention: Retention) {
    this.#default = retention.default ?? {};
    this.#kinds = new Map(
      Object.entries(retention.kinds ?? {}).map(([kind, { maxAgeMs, maxCount }]) => [
        kind,
        { maxAgeMs: maxAgeMs ?? this.#default.maxAgeMs, maxCount: maxCount ?? this.#default.maxCount },
      ]),
    );
    const all = [this.#default, ...this.#kinds.values()];
    this.agesMs = [...new Set(all.flatMap(({ maxAgeMs }) => maxAgeMs ?? []))];
    this.counts = all.some(({ maxCount }) => maxCount !== undefined);
    this.minAgeMs = this.counts ? 0 : Math.min(...this.agesMs, Number.POSITIVE_INFINITY);
  }

  isTooOld({ kind, ageMs }: FinishedRow): boolean {
    const { maxAgeMs } = this.#of(kind);
    return maxAgeMs !== undefined && ageMs > maxAgeMs;
  }

  /** Null: as many as there are. */
  maxCountOf({ kind, state }: FinishedRow): number | null {
    return (state === 'done' ? this.#of(kind).maxCount : null) ?? null;
  }

  #of(kind: string): Keep {
    return this.#kinds.get(kind) ?? this.#default;
  }
}

/** From the newest that may go to the oldest. */
export class RetentionWalk {
  /** Null at the beginning. */
  position: WalkPosition | null = null;
  readonly #rules: KeepRules;
  readonly #done = new Map<string, number>();

  /** `tooOld`: false where what is too old was looked at a while ago, and only what is beyond a count may go. */
  constructor(
    rules: KeepRules,
    readonly tooOld = true,
  ) {
    this.#rules = rules;
  }

  /** The next rows on the way, in order; those that may go. */
  take(rows: readonly FinishedRow[]): FinishedRow[] {
    this.position = rows.at(-1) ?? this.position;
    return rows.filter((row) => this.#mayGo(row));
  }

  #mayGo(row: FinishedRow): boolean {
    if (this.#rules.isTooOld(row)) return this.tooOld;
    const maxCount = this.#rules.maxCountOf(row);
    if (maxCount === null) return false;
    const newer = this.#done.get(row.kind) ?? 0;
    this.#done.set(row.kind, newer + 1);
    return newer >= maxCount;
  }
}
