/**
 * The way back: jobs of a drain that nobody has touched go to the queues that their messages came from, from the bytes
 * of the ledger. A message is marked as moved after the broker's confirm, never before; what an interruption leaves
 * unmarked is settled by counting, as in a drain. What numbers cannot decide ends as `undo-ambiguous`.
 */
import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Queryable } from '../../src/jobs/job.js';
import { patient } from '../../src/jobs/patience.js';
import { errorFields, type Log } from '../../src/log.js';
import { closeBooks } from './books.js';
import { type Broker, connectBroker } from './broker.js';
import { createLedger, type Ledger, type RunKey, type RunRow } from './ledger.js';
import { leaseLost, RunLease } from './run-lease.js';
import { stableCount } from './totals.js';
import { closeUndoBooks, type UndoBooks, type UndoBooksInput, withoutGoing } from './undo-books.js';
import { drainOpen, groupMissing, held, isTransient, translate, withReason } from './undo-errors.js';
import { type CandidateFilter, createUndoLedger, type DrainedGroup, type UndoLedger } from './undo-ledger.js';
import { UndoMessages } from './undo-messages.js';
import { findUndoPosition, type UndoPosition, type WhenUndoAmbiguous } from './undo-position.js';
import { Refusals } from './undo-refusals.js';
import { UndoSender, type UndoStep } from './undo-sender.js';
import { Suspects } from './undo-suspects.js';
import { UndoWalk } from './undo-walk.js';

export interface UndoOptions {
  readonly amqpUrl: string;
  /** At least three clients: two writes and the lease. */
  readonly pool: Queryable;
  readonly schema: string;
  /** A group's name, as the drain had it. */
  readonly group: string;
  readonly log: Log;
  /** Jobs of these kinds alone. */
  readonly kinds?: readonly string[] | undefined;
  /** Jobs that are not due yet: return (default), with what is left of their delay where they lay in a wait queue; or keep. */
  readonly delayed?: 'return' | 'keep';
  /** Queues in which messages wait for their TTL. */
  readonly waitQueues?: ReadonlySet<string>;
  /**
   * own (default): a message that came with another routing key than its queue's name keeps it, through an exchange that leads
   * to this queue alone. default: all through the default exchange.
   */
  readonly via?: 'own' | 'default';
  /** Messages per second. */
  readonly rate?: number | undefined;
  /** Default 500; 1 to 1,000. */
  readonly maxBatch?: number;
  /** Messages that are published and not yet marked. Default 4,000; at least a batch. */
  readonly maxOnTheWay?: number;
  /** Default 30,000. */
  readonly leaseMs?: number;
  readonly signal?: AbortSignal | undefined;
  readonly whenAmbiguous?: WhenUndoAmbiguous;
  readonly maxConsumerWaitMs?: number;
  readonly unacked?: ((queues: readonly string[]) => Promise<number | null>) | undefined;
  /** Counts and reads, publishes and writes nothing. */
  readonly dryRun?: boolean;
  /**
   * How long the servers may take: default 120,000 for a confirm, 15,000 for an answer of the broker, 10,000 for a connection,
   * 300,000 for an answer of the database.
   */
  readonly answerWithinMs?: number;
  /** Attempts in a row that mark nothing. Default 6. */
  readonly maxFruitlessAttempts?: number;
  readonly onProgress?: (progress: { readonly taken: number; readonly initial: number }) => void;
  readonly onStep?: (step: UndoStep) => void;
}

export interface UndoResult {
  readonly group: string;
  /** Null: there was nothing to give back, so nothing was begun; or a dry run. */
  readonly runId: string | null;
  readonly dryRun: boolean;
  readonly interrupted: boolean;
  readonly books: UndoBooks;
}

const LEASE_MS = 30_000;
const MAX_BATCH = 500;
/** A classic queue confirms up to 200 ms late: so many are needed to keep it busy at 10,000 a second. */
const MAX_ON_THE_WAY = 4_000;
/** A peer that says nothing for twice this is dropped, and with it the name that it holds. */
const HEARTBEAT_S = 10;
const HOLD_WITHIN_MS = 90_000;
const POLL_MS = 500;
const CONFIRM_WITHIN_MS = 120_000;
/** The first count reads the whole ledger. */
const DATABASE_WITHIN_MS = 300_000;
const MAX_FRUITLESS_ATTEMPTS = 6;
const FIRST_BACKOFF_MS = 500;
const MAX_BACKOFF_MS = 10_000;
const NOTHING = { initial: 0, moved: 0, remaining: 0, possibleDoubles: 0 } as const;

/** What is drained from the broker behind the URL, by group. */
export async function drainedGroups(
  amqpUrl: string,
  pool: Queryable,
  schema: string,
): Promise<readonly DrainedGroup[]> {
  const broker = await connectBroker(amqpUrl);
  try {
    return await createUndoLedger(schema).groups(pool, broker.cluster, broker.vhost);
  } finally {
    await broker.close();
  }
}

/**
 * Throws `undo-ambiguous` (exit 3), `undo-group-missing`, `undo-interrupted`, `undo-unconfirmed`, `undo-forbidden`, `drain-…`,
 * `amqp-…`.
 */
export async function undoGroup(options: UndoOptions): Promise<UndoResult> {
  const undo = new GroupUndo(options);
  const { signal, log, group, maxFruitlessAttempts = MAX_FRUITLESS_ATTEMPTS } = options;
  let fruitless = 0;
  for (;;) {
    const before = undo.marked;
    try {
      return await undo.attempt();
    } catch (error) {
      if (signal?.aborted && (error as { name?: unknown }).name === 'AbortError') return undo.aborted();
      fruitless = undo.marked > before || undo.learned ? 0 : fruitless + 1;
      if (!isTransient(error) || fruitless >= maxFruitlessAttempts) throw translate(error);
      log.warn({ group, attempt: fruitless, ...errorFields(error) }, 'a connection was lost, trying again');
      const pauseMs = Math.min(FIRST_BACKOFF_MS * 2 ** fruitless, MAX_BACKOFF_MS);
      await sleep(pauseMs, undefined, { signal }).catch(() => undefined);
    }
  }
}

class GroupUndo {
  readonly #pool: Queryable;
  readonly #ledger: Ledger;
  readonly #undo: UndoLedger;
  readonly #lease: RunLease;
  readonly #refusals = new Refusals();
  readonly #suspects = new Suspects();
  #run: RunRow | undefined;
  /** Messages that went back, over all attempts and processes. */
  #moved = 0;
  #wanted = 0;
  #takenMeanwhile = 0;
  #nextNumber = 1;
  /** Batches marked, and whether the last attempt found out which message is to blame. */
  marked = 0;
  learned = false;

  constructor(private readonly options: UndoOptions) {
    const { pool, schema, signal, leaseMs = LEASE_MS, answerWithinMs = DATABASE_WITHIN_MS } = options;
    this.#pool = patient(pool, answerWithinMs);
    this.#ledger = createLedger(schema);
    this.#undo = createUndoLedger(schema);
    const { renew } = this.#undo;
    this.#lease = new RunLease(this.#pool, { ...this.#ledger, renew }, leaseMs, signal);
  }

  async attempt(): Promise<UndoResult> {
    const { group: name, dryRun = false } = this.options;
    this.learned = false;
    this.#refusals.begin();
    const broker = await this.#connect();
    let sender: UndoSender | undefined;
    let stopRenewing = (): void => undefined;
    try {
      const groups = await this.#undo.groups(this.#pool, broker.cluster, broker.vhost);
      const group = groups.find((each) => each.group === name);
      if (group === undefined) throw groupMissing(name, groups);
      const filter = this.#filter(group);
      const open = await this.#undo.openRun(this.#pool, broker.cluster, broker.vhost, name);
      const going = await this.#countGoing(group, filter);
      const walk = this.#walk(broker, group, filter);
      this.#wanted = going;
      if (dryRun) return await this.#rehearse(group, walk);
      if (this.#run === undefined && open?.mode !== 'undo' && going === 0) return await this.#nothing(group);
      const key: RunKey = { broker: broker.cluster, vhost: broker.vhost, group: name };
      await this.#hold(broker);
      if (open?.mode === 'drain') await this.#closeDrain(broker, key, group, open.unproved);
      const run = await this.#lease.take(key, group.queues, 'undo');
      if (this.#run !== undefined && this.#run.id !== run.id) throw leaseLost();
      this.#run = run;
      stopRenewing = this.#lease.keep(run.id);
      const { initial, moved, released } = await this.#position(broker, group, run);
      this.#moved = moved;
      this.#wanted = moved + released + going;
      sender = await this.#sender(broker, run);
      this.#report();
      await walk.send(sender);
      return await this.#finish(broker, group, run, initial);
    } catch (error) {
      const { reason, poison } = await withReason(broker, error);
      this.#suspects.ended(sender?.onTheWay ?? [], poison);
      throw reason;
    } finally {
      stopRenewing();
      await broker.close();
      this.#nextNumber = sender?.nextNumber ?? this.#nextNumber;
      await sender?.quiet();
      if (this.#run !== undefined) await this.#lease.release(this.#run.id);
    }
  }

  #connect(): Promise<Broker> {
    const { amqpUrl, log, group, answerWithinMs } = this.options;
    return connectBroker(amqpUrl, {
      ...{ frameMax: 0, heartbeatS: HEARTBEAT_S },
      ...(answerWithinMs === undefined ? {} : { answerWithinMs }),
      onBlocked: (reason) =>
        log.warn({ group, blocked: reason }, reason ? 'the broker takes no messages' : 'it goes on'),
    });
  }

  #filter({ runs, timed }: DrainedGroup): CandidateFilter {
    const { kinds, delayed = 'return' } = this.options;
    return { runs, kinds: kinds ?? null, delayed: delayed === 'return' && !timed };
  }

  /** A stream keeps what was read of it: nothing goes back there. */
  async #countGoing({ queues }: DrainedGroup, filter: CandidateFilter): Promise<number> {
    const counts = await this.#undo.countCandidates(this.#pool, filter);
    return counts.filter(({ queue }) => queues.includes(queue)).reduce((sum, { count }) => sum + count, 0);
  }

  #walk(broker: Broker, { queues }: DrainedGroup, filter: CandidateFilter): UndoWalk {
    const { waitQueues = new Set(), via = 'own', rate = null, maxBatch = MAX_BATCH, signal } = this.options;
    const known = { pool: this.#pool, ledger: this.#undo, refusals: this.#refusals };
    const messages = new UndoMessages({ ...known, broker, filter, waitQueues, via });
    return new UndoWalk({
      ...{ broker, messages, queues, waitQueues, suspects: this.#suspects },
      ...{ maxBatch, rate, signal },
    });
  }

  /**
   * Until the connection of a killed or paused undo is gone: what it had sent and not confirmed could still arrive after we
   * have counted. The broker gives an exclusive queue's name to one connection at a time.
   */
  async #hold(broker: Broker): Promise<void> {
    const mark = createHash('sha256').update(this.options.group).digest('hex').slice(0, 12);
    const deadline = performance.now() + HOLD_WITHIN_MS;
    while (!(await broker.hold(`unbroker.undo.${mark}`))) {
      if (performance.now() > deadline) throw held();
      await sleep(POLL_MS, undefined, { signal: this.options.signal });
    }
  }

  /** A drain that was stopped in order is ended here: all of its acks are proved, so its books can be closed. */
  async #closeDrain(broker: Broker, key: RunKey, group: DrainedGroup, unproved: boolean): Promise<void> {
    const run = await this.#lease.take(key, group.queues, 'drain');
    try {
      const open = await this.#undo.openRun(this.#pool, key.broker, key.vhost, key.group);
      if (unproved || open?.unproved !== false) throw drainOpen(key.group);
      const totals = await this.#ledger.totals(this.#pool, run.id);
      const { total } = await this.#count(broker, run.queues, this.options.signal);
      const initial = run.initial ?? total;
      const known = { initial, totals, remaining: total, interrupted: true, expectedLeft: 0, doubtfulIds: 0 };
      await this.#ledger.finish(this.#pool, run.id, this.#lease.holder.name, closeBooks(known));
    } finally {
      await this.#lease.release(run.id);
    }
  }

  #count(broker: Broker, queues: readonly string[], signal: AbortSignal | undefined) {
    const { maxConsumerWaitMs } = this.options;
    return stableCount(broker, queues, {
      signal,
      ...(maxConsumerWaitMs === undefined ? {} : { maxConsumerWaitMs }),
    });
  }

  async #position(broker: Broker, { queues }: DrainedGroup, run: RunRow): Promise<UndoPosition> {
    const { whenAmbiguous = 'stop', signal, maxConsumerWaitMs, unacked, log, group } = this.options;
    const position = await findUndoPosition(run, {
      ...{ pool: this.#pool, ledger: this.#ledger, undo: this.#undo, broker, queues },
      ...{ run: this.#held(run), whenAmbiguous, signal, maxConsumerWaitMs, unacked, log, group },
    });
    this.#takenMeanwhile += position.takenMeanwhile;
    if (position.arrived !== null) this.learned = this.#suspects.blame(position.arrived, this.#refusals);
    return position;
  }

  #held({ id }: RunRow) {
    return { id, holder: this.#lease.holder.name, leaseMs: this.#lease.leaseMs };
  }

  async #sender(broker: Broker, run: RunRow): Promise<UndoSender> {
    const { maxBatch = MAX_BATCH, maxOnTheWay = MAX_ON_THE_WAY, answerWithinMs, onStep } = this.options;
    return new UndoSender({
      ...{ pool: this.#pool, ledger: this.#undo, publisher: await broker.publisher() },
      ...{ run: this.#held(run), refusals: this.#refusals, firstNumber: this.#nextNumber },
      maxOnTheWay: Math.max(maxOnTheWay, maxBatch),
      confirmWithinMs: answerWithinMs ?? CONFIRM_WITHIN_MS,
      onMarked: (moved, takenMeanwhile) => {
        this.#moved += moved;
        this.#takenMeanwhile += takenMeanwhile;
        this.marked += 1;
        this.#report();
      },
      onStep: (step) => onStep?.(step),
    });
  }

  #report(): void {
    this.options.onProgress?.({ taken: this.#moved, initial: this.#wanted });
  }

  async #finish(broker: Broker, group: DrainedGroup, run: RunRow, initial: number): Promise<UndoResult> {
    const { signal } = this.options;
    const { holder } = this.#lease;
    // Also after Ctrl-C: nothing is on its way, so the books can be closed and nothing is left open.
    await this.#releaseUnsent(run);
    const { total } = await this.#count(broker, group.queues, undefined);
    await this.#undo.forgetKeys(this.#pool, run.id);
    const moved = await this.#undo.countMoved(this.#pool, run.id);
    const stripped = await this.#undo.stripped(this.#pool, run.id);
    const possibleDoubles = await this.#undo.possibleDoubles(this.#pool, run.id);
    const books = await this.#books(group, { initial, moved, remaining: total, stripped, possibleDoubles });
    if (!(await this.#undo.finish(this.#pool, run.id, holder.name, books))) throw leaseLost();
    return this.#result(run.id, signal?.aborted === true, books);
  }

  /** Everything that was sent is marked; a lease that is left was taken by a statement whose answer never came, so nothing was sent. */
  async #releaseUnsent(run: RunRow): Promise<void> {
    const numbers = (await this.#undo.moving(this.#pool, run.id)).map(({ number }) => number);
    if (numbers.length === 0) return;
    if ((await this.#undo.settle(this.#pool, this.#held(run), [], numbers)) === null) throw leaseLost();
  }

  async #books(
    { runs }: DrainedGroup,
    counted: Omit<UndoBooksInput, 'kept' | 'refused' | 'takenMeanwhile' | 'ambiguous'>,
    stillThere = 0,
  ): Promise<UndoBooks> {
    const kept = await this.#undo.kept(this.#pool, runs);
    return closeUndoBooks({
      ...counted,
      kept: withoutGoing(kept, stillThere),
      refused: this.#refusals.byReason,
      takenMeanwhile: this.#takenMeanwhile,
      ambiguous: this.#run?.initial != null && counted.initial !== this.#run.initial,
    });
  }

  async #nothing(group: DrainedGroup): Promise<UndoResult> {
    const books = await this.#books(group, { ...NOTHING, stripped: [] });
    return this.#result(null, false, books);
  }

  async #rehearse(group: DrainedGroup, walk: UndoWalk): Promise<UndoResult> {
    const words = new Map<string, number>();
    await walk.rehearse((page) => {
      this.#moved += page.length;
      for (const word of page.flatMap(({ stripped }) => stripped))
        words.set(word, (words.get(word) ?? 0) + 1);
      this.#report();
    });
    const stripped = [...words].map(([word, count]) => ({ word, count }));
    const moved = this.#moved;
    const counted = { ...NOTHING, moved, remaining: moved, stripped };
    return this.#result(null, false, await this.#books(group, counted, moved));
  }

  aborted(): UndoResult {
    const { initial, moved } = { initial: this.#run?.initial ?? 0, moved: this.#moved };
    const books = closeUndoBooks({
      ...{ ...NOTHING, initial, moved, remaining: initial + moved, stripped: [], kept: [], refused: {} },
      ...{ takenMeanwhile: 0, ambiguous: false },
    });
    return this.#result(this.#run?.id ?? null, true, books);
  }

  #result(runId: string | null, interrupted: boolean, books: UndoBooks): UndoResult {
    return { group: this.options.group, runId, dryRun: this.options.dryRun === true, interrupted, books };
  }
}
