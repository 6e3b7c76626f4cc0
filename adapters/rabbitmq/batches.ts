/**
 * Arithmetic of exactly-once: sizes of batches whose sums tell them apart, and the search for those that came back. The
 * broker only tells how many messages it holds; from that number alone a resumed drain must know which batches those
 * are. Pure; it refuses to guess.
 */

/**
 * How far apart any two sums should lie. With 1 they are merely different; with 8 a count that is off by a few (somebody
 * took a message meanwhile) matches no sum at all and is reported, instead of pointing at the wrong batch.
 */
export const SUM_GAP = 8;
/** More unfenced batches than this are never open at once; the search stays at 2^MAX_OPEN sums. */
export const MAX_OPEN = 6;

/** All sums of subsets, the empty one included. */
function subsetSums(sizes: readonly number[]): number[] {
  let sums = [0];
  for (const size of sizes) sums = sums.concat(sums.map((sum) => sum + size));
  return sums;
}

/**
 * The largest batch size up to `available` that keeps every subset sum of `open` plus itself distinct, `gap` apart
 * where possible; 0 when there is none (wait until an open batch is settled).
 */
export function fitBatchSize(open: readonly number[], available: number, gap = SUM_GAP): number {
  if (available <= 0 || open.length >= MAX_OPEN) return 0;
  if (open.length === 0) return available;
  const sums = [...new Set(subsetSums(open))];
  const differences = new Set<number>();
  for (const a of sums) for (const b of sums) differences.add(Math.abs(a - b));
  for (const distance of gap > 1 ? [gap, 1] : [1]) {
    // Giving up a third of a batch for the distance is fine, more is not worth it.
    const least = distance === 1 ? 1 : Math.ceil(available * 0.66);
    for (let size = available; size >= least; size -= 1) {
      if (isApart(size, differences, distance)) return size;
    }
  }
  return 0;
}

function isApart(size: number, differences: ReadonlySet<number>, distance: number): boolean {
  for (let offset = 1 - distance; offset < distance; offset += 1) {
    if (differences.has(size + offset)) return false;
  }
  return true;
}

export interface OpenBatch {
  readonly id: string;
  /** Messages that its one ack covers. */
  readonly size: number;
}

export type BackSearch =
  | { readonly type: 'found'; readonly back: readonly string[] }
  /** `ways` subsets fit: 0 or at least 2 (the search stops at 2). */
  | { readonly type: 'ambiguous'; readonly ways: number };

/** The one subset of `open` whose sizes sum to `missing`, the number of committed messages that the broker has again. */
export function findBack(open: readonly OpenBatch[], missing: number): BackSearch {
  if (missing < 0 || open.length > MAX_OPEN) return { type: 'ambiguous', ways: 0 };
  let found: string[] | undefined;
  let ways = 0;
  for (let mask = 0; mask < 2 ** open.length && ways < 2; mask += 1) {
    const chosen = open.filter((_, index) => (mask & (1 << index)) !== 0);
    if (chosen.reduce((sum, batch) => sum + batch.size, 0) !== missing) continue;
    ways += 1;
    found = chosen.map((batch) => batch.id);
  }
  return ways === 1 && found !== undefined ? { type: 'found', back: found } : { type: 'ambiguous', ways };
}
