/**
 * The books of an undo: what was in the queues, what went back, what stayed and why. Pure arithmetic; it explains a
 * difference and never smooths one over.
 */
import type { KeptRow } from './undo-ledger.js';

export interface UndoBooks {
  /** Ready messages over the group before the first was published. */
  readonly initial: number;
  readonly moved: number;
  /** In the queues in the end. */
  readonly remaining: number;
  /** remaining - initial - moved. */
  readonly difference: number;
  readonly balanced: boolean;
  /** Jobs that stayed because somebody has begun, finished, edited or removed them, with the first ids. */
  readonly kept: readonly KeptRow[];
  /** Messages that could go and stayed, by reason. */
  readonly refused: Readonly<Record<string, number>>;
  /** What of messages was changed, by word. */
  readonly stripped: Readonly<Record<string, number>>;
  readonly remarks: readonly string[];
}

export interface UndoBooksInput {
  readonly initial: number;
  readonly moved: number;
  readonly remaining: number;
  readonly kept: readonly KeptRow[];
  readonly refused: Readonly<Record<string, number>>;
  readonly stripped: readonly { readonly word: string; readonly count: number }[];
  /** Jobs that somebody else ended although their message went back. */
  readonly takenMeanwhile: number;
  /** Of a bridge: given back, and perhaps the second row of one message. */
  readonly possibleDoubles: number;
  readonly ambiguous: boolean;
}

export function closeUndoBooks(input: UndoBooksInput): UndoBooks {
  const { initial, moved, remaining, kept, refused, stripped } = input;
  const difference = remaining - initial - moved;
  return {
    ...{ initial, moved, remaining, difference, balanced: difference === 0, kept, refused },
    stripped: Object.fromEntries(stripped.map(({ word, count }) => [word, count])),
    remarks: remarksOf(input, difference),
  };
}

/** After a rehearsal those that would go are among those that nobody touched. */
export function withoutGoing(kept: readonly KeptRow[], going: number): KeptRow[] {
  return kept
    .map((row) => (row.reason === 'left' ? { ...row, count: row.count - going } : row))
    .filter(({ count }) => count > 0);
}

const STAYED: Readonly<Record<KeptRow['reason'], string>> = {
  finished: 'are finished',
  running: 'run at this moment',
  edited: 'were begun, retried or edited since the drain',
  pruned: 'are no longer there (finished and pruned)',
  left: 'stayed as they are',
};

function remarksOf(input: UndoBooksInput, difference: number): string[] {
  const { kept, takenMeanwhile, possibleDoubles, ambiguous } = input;
  const remarks = kept.map(({ reason, count }) => `${count} jobs ${STAYED[reason]}: not given back.`);
  if (takenMeanwhile > 0) {
    remarks.push(
      `${takenMeanwhile} jobs were taken out of our hands while their messages went back: look for doubles.`,
    );
  }
  if (possibleDoubles > 0) {
    remarks.push(
      `${possibleDoubles} of those that went back could be doubles: a bridge was interrupted and they have no id.`,
    );
  }
  if (ambiguous) remarks.push('A person chose what became of messages whose fate the counts could not tell.');
  if (difference > 0) {
    remarks.push(`${difference} more are in the queues than were there and went back: somebody publishes.`);
  }
  if (difference < 0) {
    remarks.push(
      `${-difference} fewer are in the queues than were there and went back: taken by a consumer, expired out of the group, dropped by a limit, or transient and lost in a broker restart.`,
    );
  }
  return remarks;
}
