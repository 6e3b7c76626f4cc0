/**
 * Which finished rows are kept: a walk over them from the newest to the oldest that counts each kind's and says which may
 * go. Newest first, because "the newest thousand of a kind" is then known on the way without an index by kind, which
 * every job would pay for. Pure: reading and removing is upkeep's. Several processes may walk at once: each of them
 * counts what it sees, so at least the promised number is kept.
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

/** The one age that says it all, when there is one: the index by age then finds the rows without a walk. */
export function plainAgeMs(retention: Retention): number | null {
  const { maxAgeMs, maxCount } = retention.default ?? {};
  const plain = maxCount === undefined && Object.keys(retention.kinds ?? {}).length === 0;
  return plain ? (maxAgeMs ?? null) : null;
}

export class RetentionWalk {
  /** Null at the beginning. */
  position: WalkPosition | null = null;
  /** No younger row can go, so the walk may begin there. */
  readonly minAgeMs: number;
  readonly #kinds: ReadonlyMap<string, Keep>;
  readonly #default: Keep;
  readonly #done = new Map<string, number>();

  constructor(retention: Retention) {
    this.#default = retention.default ?? {};
    this.#kinds = new Map(
      Object.entries(retention.kinds ?? {}).map(([kind, { maxAgeMs, maxCount }]) => [
        kind,
        { maxAgeMs: maxAgeMs ?? this.#default.maxAgeMs, maxCount: maxCount ?? this.#default.maxCount },
      ]),
    );
    const all = [this.#default, ...this.#kinds.values()];
    this.minAgeMs = all.some((keep) => keep.maxCount !== undefined)
      ? 0
      : Math.min(...all.map((keep) => keep.maxAgeMs ?? Number.POSITIVE_INFINITY));
  }

  /** The next rows on the way, in order; the ids of those that may go. */
  take(rows: readonly FinishedRow[]): string[] {
    this.position = rows.at(-1) ?? this.position;
    return rows.filter((row) => this.#mayGo(row)).map(({ id }) => id);
  }

  #mayGo({ kind, state, ageMs }: FinishedRow): boolean {
    const { maxAgeMs, maxCount } = this.#kinds.get(kind) ?? this.#default;
    if (maxAgeMs !== undefined && ageMs > maxAgeMs) return true;
    if (maxCount === undefined || state !== 'done') return false;
    const newer = this.#done.get(kind) ?? 0;
    this.#done.set(kind, newer + 1);
    return newer >= maxCount;
  }
}
