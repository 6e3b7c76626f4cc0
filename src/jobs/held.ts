/**
 * What fences a worker's write: a job's id under a lease's token, as parameters of the statements. That the lease still holds
 * is the statement's to say.
 */

/** A fence: this job, under this lease. */
export interface Held {
  readonly id: string;
  readonly leaseToken: string;
}

/** A job that is done; its result as JSON, or null. */
export interface Completion extends Held {
  readonly resultText: string | null;
}

/** A bigint[] literal, written here: pg would quote and escape each element (a tenth of this process's time a job). */
export const ids = (held: readonly Held[]): string => `{${held.map((h) => h.id).join(',')}}`;
export const tokens = (held: readonly Held[]): string => `{${held.map((h) => h.leaseToken).join(',')}}`;

/** The token of all of them when they came with one claim, as most do that end together; null otherwise. */
export function sharedToken(held: readonly Held[]): string | null {
  const token = held[0]?.leaseToken ?? null;
  return held.every(({ leaseToken }) => leaseToken === token) ? token : null;
}

/**
 * By id, then by token: the statements look up what stands beside an id by its place (a job that is there twice counts
 * under its newer token), and two that lock the same rows in different orders deadlock, as an extension and a
 * settlement of one worker could. Settlements mostly come in order already.
 */
export function inOrder<T extends Held>(held: readonly T[]): readonly T[] {
  for (let i = 1; i < held.length; i += 1)
    if (byLease(held[i - 1] as T, held[i] as T) > 0) return [...held].sort(byLease);
  return held;
}

const byLease = (a: Held, b: Held): number =>
  compareNumbers(a.id, b.id) || compareNumbers(a.leaseToken, b.leaseToken);

/** Decimal strings without leading zeros: the longer is the larger. */
export function compareNumbers(a: string, b: string): number {
  return a.length - b.length || (a < b ? -1 : a > b ? 1 : 0);
}

/** Ids, tokens and results as the function finish takes them. */
export function completions(ended: readonly Completion[]): unknown[] {
  const mine = inOrder(ended);
  const results = mine.some((h) => h.resultText !== null) ? mine.map((h) => h.resultText) : null;
  return [ids(mine), tokens(mine), results];
}
