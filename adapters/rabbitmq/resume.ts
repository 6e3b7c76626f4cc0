/**
 * Where a group stands when a drain begins: a first count, or, after an interruption, which of the written messages the
 * broker holds again. Counting decides; where it cannot, nothing is changed and `drain-ambiguous` is thrown.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { EXIT, UnbrokerError } from '../../src/errors.js';
import type { Queryable } from '../../src/jobs/job.js';
import { findBack, type OpenBatch } from './batches.js';
import { type Totals, taken } from './books.js';
import type { Broker } from './broker.js';
import { ExpectedRows } from './expected.js';
import type { Ledger, RunRow } from './ledger.js';
import { leaseLost } from './run-lease.js';
import { type GroupCount, stableCount } from './totals.js';

/** When counts cannot tell which rows came back: stop, or one of the two ways on. */
export type WhenAmbiguous = 'stop' | 'keep' | 'absorb';

export interface PositionOptions {
  readonly pool: Queryable;
  readonly ledger: Ledger;
  readonly broker: Broker;
  readonly holder: string;
  readonly whenAmbiguous: WhenAmbiguous;
  readonly signal: AbortSignal | undefined;
  readonly maxConsumerWaitMs: number | undefined;
  /** Unacknowledged messages as the management API sees them; null = unknown. */
  readonly unacked: ((queues: readonly string[]) => Promise<number | null>) | undefined;
}

export interface Position {
  /** With initial and before filled in. */
  readonly run: RunRow;
  readonly initial: number;
  readonly totals: Totals;
  readonly expected: ExpectedRows;
}

/** The management API's numbers may be this old. */
const UNACKED_WAIT_MS = 15_000;
const POLL_MS = 500;

/** Throws `drain-not-frozen`, `drain-ambiguous`, `drain-lease-lost`. */
export async function findPosition(run: RunRow, options: PositionOptions): Promise<Position> {
  const count = await countGroup(run, options);
  const totals = await options.ledger.totals(options.pool, run.id);
  return run.initial === null
    ? start(run, totals, count, options)
    : resume(run, run.initial, totals, count, options);
}

function countGroup(
  run: RunRow,
  { broker, signal, maxConsumerWaitMs }: PositionOptions,
): Promise<GroupCount> {
  return stableCount(broker, run.queues, {
    signal,
    ...(maxConsumerWaitMs === undefined ? {} : { maxConsumerWaitMs }),
  });
}

async function start(
  run: RunRow,
  totals: Totals,
  first: GroupCount,
  options: PositionOptions,
): Promise<Position> {
  const unacked = await settledUnacked(run.queues, options);
  if (unacked !== null && unacked > 0) throw unackedError(unacked);
  // What was unacked a moment ago is ready now.
  const { byQueue, total } = unacked === null ? first : await countGroup(run, options);
  const { ledger, pool, holder } = options;
  if (!(await ledger.setInitial(pool, run.id, holder, byQueue, total))) throw leaseLost();
  return {
    run: { ...run, initial: total, before: byQueue },
    initial: total,
    totals,
    expected: new ExpectedRows([]),
  };
}

/** Waits for the management API to say zero; its numbers lag. Null = unknown. */
export async function settledUnacked(
  queues: readonly string[],
  { unacked, signal, maxConsumerWaitMs }: Pick<PositionOptions, 'unacked' | 'signal' | 'maxConsumerWaitMs'>,
): Promise<number | null> {
  if (unacked === undefined) return null;
  const deadline = performance.now() + (maxConsumerWaitMs ?? UNACKED_WAIT_MS);
  for (;;) {
    const now = await unacked(queues);
    if (now === null || now === 0 || performance.now() > deadline) return now;
    await sleep(POLL_MS, undefined, { signal });
  }
}

async function resume(
  run: RunRow,
  initial: number,
  totals: Totals,
  first: GroupCount,
  options: PositionOptions,
): Promise<Position> {
  const { pool, ledger, holder, whenAmbiguous } = options;
  let open = await ledger.committedBatches(pool, run.id);
  const waiting = (await ledger.expectedRows(pool, run.id)).length;
  const backOf = (remaining: number) => taken(totals) - (initial - remaining) - waiting;
  let count = first;
  let search = findBack(open, backOf(count.total));
  if (search.type === 'ambiguous') {
    // Perhaps somebody holds messages unacked: wait until nobody does, and count again.
    await settledUnacked(run.queues, options);
    count = await countGroup(run, options);
    search = findBack(open, backOf(count.total));
  }
  const everything = search.type === 'ambiguous' && isEverything(totals, initial, count.total);
  if (everything) open = await ledger.allBatches(pool, run.id);
  if (search.type === 'ambiguous' && !everything && whenAmbiguous === 'stop') {
    throw ambiguous(initial, taken(totals), count.total, open, waiting, search.ways);
  }
  const all = open.map(({ id }) => id);
  const back = search.type === 'found' ? search.back : everything || whenAmbiguous === 'absorb' ? all : [];
  const acked = all.filter((id) => !back.includes(id));
  if (!(await ledger.settleBatches(pool, run.id, holder, back, acked))) throw leaseLost();
  const guessed = search.type === 'ambiguous' && !everything;
  if (guessed && whenAmbiguous === 'keep') await ledger.forgetExpected(pool, run.id, holder);
  await ledger.setInterrupted(pool, run.id, holder, guessed);
  const expected = new ExpectedRows(await ledger.expectedRows(pool, run.id));
  return { run: { ...run, interrupted: true }, initial, totals, expected };
}

/**
 * A broker that was killed may have forgotten every acknowledgement of a drain. When as many written messages are there
 * again as were written at all, they are all of them, also those of batches that were proved.
 */
function isEverything(totals: Totals, initial: number, remaining: number): boolean {
  return taken(totals) > 0 && remaining === initial;
}

export function unackedError(unacked: number): UnbrokerError {
  return new UnbrokerError(
    'drain-not-frozen',
    `${unacked} messages are delivered to somebody and not acknowledged`,
    {
      hint: 'Stop the consumers and close their connections; the messages then return to their queues.',
    },
  );
}

function ambiguous(
  initial: number,
  written: number,
  remaining: number,
  open: readonly OpenBatch[],
  waiting: number,
  ways: number,
): UnbrokerError {
  const back = written - (initial - remaining);
  const known = waiting > 0 ? ` (${waiting} were known to be)` : '';
  const fits = ways === 0 ? 'no combination' : 'more than one combination';
  return new UnbrokerError(
    'drain-ambiguous',
    `AMBIGUOUS: ${initial} were there, ${written} are written, ${remaining} remain, so ${back} written ones should be among them${known}, but ${fits} of the ${open.length} unproved batches adds up to that`,
    {
      hint: 'Nothing was changed. Go on with --when-ambiguous keep (imports all of them: doubles at worst) or --when-ambiguous absorb (takes alike for the same: gaps at worst).',
      exitStatus: EXIT.unbalanced,
    },
  );
}
