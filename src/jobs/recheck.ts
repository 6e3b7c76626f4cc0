/**
 * What a row says of an end that a statement found nothing to write for: written before by one whose answer was lost, held by
 * somebody else's transaction, or no longer ours. Pure; what follows is the settler's.
 */
import type { ClaimedJob } from './job.js';
import type { Outcome } from './settle.js';

/** A row as it is now. */
export interface RowNow {
  readonly id: string;
  readonly state: string;
  readonly leaseToken: string | null;
  readonly attempts: number;
  readonly errors: readonly { readonly attempt?: number; readonly name?: string }[];
}

/** `held`: ours still, so it was locked when it was asked for. */
export type Became = 'written' | 'held' | 'lost';

/**
 * Attempts rise with each claim, so what has ours of them ended under our lease. A snooze gives its attempt back and a row that
 * was removed is gone: of those nothing is known, and they count as lost, as before.
 */
export function became(job: ClaimedJob, outcome: Outcome, row: RowNow | undefined): Became {
  if (row === undefined) return 'lost';
  if (isHeldBy(job, row)) return 'held';
  return isWritten(job.attempt, outcome, row) ? 'written' : 'lost';
}

/** Has this lease the row? */
export function isHeldBy({ leaseToken }: Pick<ClaimedJob, 'leaseToken'>, row: RowNow | undefined): boolean {
  return row?.state === 'running' && row.leaseToken === leaseToken;
}

function isWritten(attempt: number, outcome: Outcome, row: RowNow): boolean {
  switch (outcome.type) {
    case 'complete':
      return row.state === 'done' && row.attempts === attempt;
    case 'snooze':
      return false;
    default:
      // The reaper's entry has the same attempt and another name.
      return row.errors.some((entry) => entry.attempt === attempt && entry.name === outcome.name);
  }
}
