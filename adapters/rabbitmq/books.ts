/**
 * A drain's books: what was there, what became of it, and whether the two agree. Pure arithmetic; it explains a
 * difference and never smooths one over.
 */

/** Messages by what became of them. `absorbed` came twice and were written once; they are not part of the sum. */
export interface Totals {
  readonly rows: number;
  readonly unmapped: number;
  readonly excluded: number;
  readonly expired: number;
  readonly absorbed: number;
  /** Jobs whose run_at is only the end of its bounds. */
  readonly inexact: number;
}

export interface Books extends Totals {
  /** Ready messages over the group before the first was taken. */
  readonly initial: number;
  /** Came after the count. Known only when nothing was delivered twice: an uninterrupted drain. */
  readonly arrived: number;
  /** Still in the broker. */
  readonly remaining: number;
  /** rows + unmapped + excluded + expired + remaining - initial - arrived. */
  readonly difference: number;
  readonly balanced: boolean;
  /** One sentence each, for a person. */
  readonly remarks: readonly string[];
}

export interface BooksInput {
  readonly initial: number;
  readonly totals: Totals;
  readonly remaining: number;
  /** The drain was resumed at least once. */
  readonly interrupted: boolean;
  /** Rows whose messages were expected again and did not come. */
  readonly expectedLeft: number;
  /** Message ids that came with different bodies. */
  readonly doubtfulIds: number;
}

/** Messages that have a ledger row. */
export function taken(totals: Totals): number {
  return totals.rows + totals.unmapped + totals.excluded + totals.expired;
}

export function closeBooks(input: BooksInput): Books {
  const { initial, totals, remaining, interrupted } = input;
  const surplus = taken(totals) + remaining - initial;
  // In one go each delivery was acked once and nothing came back, so a surplus can only be new messages.
  const arrived = interrupted ? 0 : Math.max(0, surplus);
  const difference = surplus - arrived;
  return {
    initial,
    arrived,
    ...totals,
    remaining,
    difference,
    balanced: difference === 0,
    remarks: remarksOf(input, arrived, difference),
  };
}

function remarksOf(
  { totals, expectedLeft, doubtfulIds }: BooksInput,
  arrived: number,
  difference: number,
): string[] {
  const remarks: string[] = [];
  if (arrived > 0) {
    remarks.push(
      `${arrived} arrived after the count: somebody still publishes. Find the publisher and drain again.`,
    );
  }
  if (difference > 0) {
    const twice = expectedLeft > 0 ? ` (${expectedLeft} rows were expected back and not recognised)` : '';
    remarks.push(
      `${difference} more than were there: they arrived meanwhile or are rows made twice${twice}.`,
    );
  }
  if (difference < 0) {
    remarks.push(
      `${-difference} fewer than were there: taken by another consumer, expired, dropped by a limit, dead-lettered out of the group, or transient and lost in a broker restart.`,
    );
  }
  if (totals.unmapped > 0) {
    remarks.push(
      `${totals.unmapped} have no kind: they wait as dead jobs of kind unmapped. Add rules, see drain.rules.`,
    );
  }
  if (totals.inexact > 0) {
    remarks.push(
      `${totals.inexact} start at the latest time they could have been due: the broker does not say when.`,
    );
  }
  if (doubtfulIds > 0)
    remarks.push(`${doubtfulIds} message ids came with different contents: all of them are kept.`);
  return remarks;
}
