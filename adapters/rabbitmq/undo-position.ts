/**
 * Where an undo stands when it begins: a first count, or after an interruption what became of the messages that were on their
 * way. Counting decides, since a broker takes what comes over one channel in order; where it cannot, nothing is changed and
 * `undo-ambiguous` is thrown.
 */
import type { Queryable } from '../../src/jobs/job.js';
import type { Log } from '../../src/log.js';
import type { Broker } from './broker.js';
import type { Ledger, RunRow } from './ledger.js';
import { settledUnacked, unackedError } from './resume.js';
import { leaseLost } from './run-lease.js';
import { type GroupCount, stableCount } from './totals.js';
import { ambiguous } from './undo-errors.js';
import type { UndoLedger, UndoRun } from './undo-ledger.js';

/** When counts cannot tell what was taken: stop, publish it again (doubles at worst), or leave it (gaps at worst). */
export type WhenUndoAmbiguous = 'stop' | 'resend' | 'assume';

export interface UndoPositionOptions {
  readonly pool: Queryable;
  readonly ledger: Ledger;
  readonly undo: UndoLedger;
  readonly broker: Broker;
  readonly queues: readonly string[];
  readonly run: UndoRun;
  readonly whenAmbiguous: WhenUndoAmbiguous;
  readonly signal: AbortSignal | undefined;
  readonly maxConsumerWaitMs: number | undefined;
  readonly unacked: ((queues: readonly string[]) => Promise<number | null>) | undefined;
  readonly log: Log;
  readonly group: string;
}

export interface UndoPosition {
  /** The count from which the rest is reckoned. */
  readonly initial: number;
  /** Given back so far. */
  readonly moved: number;
  /** What was on its way and did not arrive: it goes again. */
  readonly released: number;
  /** What the count says of what was on its way; null = nothing was. May be out of range after a person's choice. */
  readonly arrived: number | null;
  /** Jobs that somebody else ended although their message went back. */
  readonly takenMeanwhile: number;
}

/** Throws `undo-ambiguous`, `drain-not-frozen`, `drain-lease-lost`. */
export async function findUndoPosition(
  { id, initial }: Pick<RunRow, 'id' | 'initial'>,
  options: UndoPositionOptions,
): Promise<UndoPosition> {
  const counted = await count(options);
  const start = { moved: 0, released: 0, arrived: null, takenMeanwhile: 0 };
  if (initial === null) return { ...start, initial: await first(id, counted, options) };
  const { pool, undo, run, whenAmbiguous, log, group } = options;
  const moving = await undo.moving(pool, id);
  const moved = await undo.countMoved(pool, id);
  if (moving.length === 0) return { ...start, initial, moved };
  const { total } = counted;
  const arrived = total - initial - moved;
  const fits = arrived >= 0 && arrived <= moving.length;
  if (!fits && whenAmbiguous === 'stop') throw ambiguous({ initial, moved, total, moving: moving.length });
  const there = fits ? arrived : whenAmbiguous === 'assume' ? moving.length : 0;
  log.info({ group, run: id, moving: moving.length, arrived: there }, 'resuming');
  const numbers = moving.map(({ number }) => number);
  const takenMeanwhile = await undo.settle(pool, run, numbers.slice(0, there), numbers.slice(there));
  if (takenMeanwhile === null) throw leaseLost();
  const known = { moved: moved + there, released: moving.length - there, arrived, takenMeanwhile };
  if (fits) return { ...known, initial };
  const rebased = total - moved - there;
  if (!(await undo.rebase(pool, id, run.holder, rebased))) throw leaseLost();
  return { ...known, initial: rebased };
}

async function first(id: string, counted: GroupCount, options: UndoPositionOptions): Promise<number> {
  const { pool, ledger, queues, run, unacked: ask, signal, maxConsumerWaitMs } = options;
  const unacked = await settledUnacked(queues, { unacked: ask, signal, maxConsumerWaitMs });
  if (unacked !== null && unacked > 0) throw unackedError(unacked);
  // What was unacknowledged a moment ago is ready by now.
  const { total, byQueue } = unacked === null ? counted : await count(options);
  if (!(await ledger.setInitial(pool, id, run.holder, byQueue, total))) throw leaseLost();
  return total;
}

function count({ broker, queues, signal, maxConsumerWaitMs }: UndoPositionOptions): Promise<GroupCount> {
  return stableCount(broker, queues, {
    signal,
    ...(maxConsumerWaitMs === undefined ? {} : { maxConsumerWaitMs }),
  });
}
