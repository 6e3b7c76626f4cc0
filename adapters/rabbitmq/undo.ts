/**
 * The way back: jobs of a drain that nobody has touched go to the queues that their messages came from, from the bytes
 * of the ledger. A message is marked as moved after the broker's confirm, never before; what an interruption leaves
 * unmarked is settled by counting, as in a drain: one batch is on its way at a time, and a broker takes what comes over one
 * channel in order, so the count tells how far it got. What numbers cannot decide ends as `undo-ambiguous`.
 */
import { createHash } from 'node:crypto';
import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { EXIT, UnbrokerError } from '../../src/errors.js';
import type { Queryable } from '../../src/jobs/job.js';
import { errorFields, type Log } from '../../src/log.js';
import { closeBooks } from './books.js';
import { type Broker, connectBroker } from './broker.js';
import { readDelivery } from './delivery.js';
import { fingerprint } from './fingerprint.js';
import { leadingExchange } from './leading-exchange.js';
import { createLedger, type Ledger, type RunKey, type RunRow } from './ledger.js';
import type { Publisher, RawMessage } from './publisher.js';
import { settledUnacked, unackedError } from './resume.js';
import { leaseLost, RunLease } from './run-lease.js';
import { stableCount } from './totals.js';
import { closeUndoBooks, type UndoBooks } from './undo-books.js';
import {
  type Candidate,
  type CandidateFilter,
  createUndoLedger,
  type DrainedGroup,
  type UndoLedger,
} from './undo-ledger.js';
import { type WayBackContext, wayBack } from './way-back.js';

/** Where an undo is, for whoever wants to watch it or end it there. */
export type UndoStep = 'claimed' | 'published' | 'confirmed' | 'marked';

/** When counts cannot tell what was taken: stop, publish it again (doubles at worst), or leave it (gaps at worst). */
export type WhenUndoAmbiguous = 'stop' | 'resend' | 'assume';

export interface UndoOptions {
  readonly amqpUrl: string;
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
  /** Default 30,000. */
  readonly leaseMs?: number;
  readonly signal?: AbortSignal | undefined;
  readonly whenAmbiguous?: WhenUndoAmbiguous;
  readonly maxConsumerWaitMs?: number;
  readonly unacked?: ((queues: readonly string[]) => Promise<number | null>) | undefined;
  /** Counts and reads, publishes and writes nothing. */
  readonly dryRun?: boolean;
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
const MAX_BATCH_BYTES = 8 * 1_048_576;
/** A peer that says nothing for twice this is dropped, and with it the name that it holds. */
const HEARTBEAT_S = 10;
const HOLD_WITHIN_MS = 90_000;
const POLL_MS = 500;
const MAX_FRUITLESS_ATTEMPTS = 6;
const FIRST_BACKOFF_MS = 500;
const MAX_BACKOFF_MS = 10_000;
/** Of a server since 4.0, and before, unless configured. */
const MAX_MESSAGE_BYTES = { since4: 16 * 1_048_576, before: 128 * 1_048_576 } as const;
/** How a broker ends the channel or connection of who publishes what it cannot take. */
const POISON_CODES: readonly unknown[] = [406, 501, 502, 505, 541];
const MAX_PAGE = 1_000;

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

/** Throws `undo-ambiguous` (exit 3), `undo-group-missing`, `undo-interrupted`, `undo-forbidden`, `drain-…`, `amqp-…`. */
export async function undoGroup(options: UndoOptions): Promise<UndoResult> {
  const undo = new GroupUndo(options);
  const { signal, log, group } = options;
  let fruitless = 0;
  for (;;) {
    const before = undo.marked;
    try {
      return await undo.attempt();
    } catch (error) {
      if (signal?.aborted && (error as { name?: unknown }).name === 'AbortError') return undo.aborted();
      fruitless = undo.marked > before || undo.learned ? 0 : fruitless + 1;
      if (!isTransient(error) || fruitless >= MAX_FRUITLESS_ATTEMPTS) throw translate(error);
      log.warn({ group, attempt: fruitless, ...errorFields(error) }, 'a connection was lost, trying again');
      const pauseMs = Math.min(FIRST_BACKOFF_MS * 2 ** fruitless, MAX_BACKOFF_MS);
      await sleep(pauseMs, undefined, { signal }).catch(() => undefined);
    }
  }
}

interface Prepared {
  readonly row: Candidate;
  readonly message: RawMessage;
  readonly hash: bigint;
  readonly stripped: readonly string[];
}

interface Work {
  readonly broker: Broker;
  readonly publisher: Publisher;
  readonly group: DrainedGroup;
  readonly run: { readonly id: string; readonly holder: string; readonly leaseMs: number };
  /** Exchanges of ours that are there. */
  readonly leading: Set<string>;
}

class GroupUndo {
  readonly #ledger: Ledger;
  readonly #undo: UndoLedger;
  readonly #lease: RunLease;
  #run: RunRow | undefined;
  /** Messages that went back, over all attempts of this process. */
  #moved = 0;
  #wanted = 0;
  /** Of messages that stay, by reason. */
  readonly #refused = new Map<string, string>();
  #strippedInDryRun = new Map<string, number>();
  #takenMeanwhile = 0;
  /** Batches of one message, this many more: among them is one that the broker ends the connection for. */
  #careful = 0;
  /** What was sent last, and how it ended. */
  #sent: readonly Prepared[] = [];
  #poison: unknown;
  #notBefore = 0;
  /** Batches marked, and whether the last attempt found out which message is to blame. */
  marked = 0;
  learned = false;

  constructor(private readonly options: UndoOptions) {
    const { pool, schema, signal, leaseMs = LEASE_MS } = options;
    this.#ledger = createLedger(schema);
    this.#undo = createUndoLedger(schema);
    const { renew } = this.#undo;
    this.#lease = new RunLease(pool, { ...this.#ledger, renew }, leaseMs, signal);
  }

  async attempt(): Promise<UndoResult> {
    const { pool, amqpUrl, log, group: name, dryRun = false } = this.options;
    this.learned = false;
    const broker = await connectBroker(amqpUrl, {
      ...{ frameMax: 0, heartbeatS: HEARTBEAT_S },
      onBlocked: (reason) =>
        log.warn({ group: name, blocked: reason }, reason ? 'the broker takes no messages' : 'it goes on'),
    });
    let stopRenewing = (): void => undefined;
    try {
      const groups = await this.#undo.groups(pool, broker.cluster, broker.vhost);
      const group = groups.find((each) => each.group === name);
      if (group === undefined) throw groupMissing(name, groups);
      const filter = this.#filter(group);
      const open = await this.#undo.openRun(pool, broker.cluster, broker.vhost, name);
      const counts = await this.#undo.countCandidates(pool, filter);
      this.#wanted = this.#moved + counts.reduce((sum, { count }) => sum + count, 0);
      if (dryRun) return await this.#rehearse(broker, group, filter);
      if (this.#run === undefined && open?.mode !== 'undo' && this.#wanted === 0)
        return await this.#nothing(group);
      const key: RunKey = { broker: broker.cluster, vhost: broker.vhost, group: name };
      await this.#hold(broker);
      if (open?.mode === 'drain') await this.#closeDrain(broker, key, group, open.unproved);
      const run = await this.#lease.take(key, group.queues, 'undo');
      if (this.#run !== undefined && this.#run.id !== run.id) throw leaseLost();
      this.#run = run;
      stopRenewing = this.#lease.keep(run.id);
      return await this.#giveBack(broker, group, filter, run);
    } catch (error) {
      throw await withReason(broker, error, (code) => {
        this.#poison = code;
      });
    } finally {
      stopRenewing();
      await broker.close();
      if (this.#run !== undefined) await this.#lease.release(this.#run.id);
    }
  }

  #filter({ runs }: DrainedGroup): CandidateFilter {
    const { kinds, delayed = 'return' } = this.options;
    return { runs, kinds: kinds ?? null, delayed: delayed === 'return' };
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
    const { pool } = this.options;
    const run = await this.#lease.take(key, group.queues, 'drain');
    try {
      const open = await this.#undo.openRun(pool, key.broker, key.vhost, key.group);
      if (unproved || open?.unproved !== false) throw drainOpen(key.group);
      const totals = await this.#ledger.totals(pool, run.id);
      const { total } = await this.#count(broker, run.queues);
      const initial = run.initial ?? total;
      const known = { initial, totals, remaining: total, interrupted: true, expectedLeft: 0, doubtfulIds: 0 };
      await this.#ledger.finish(pool, run.id, this.#lease.holder.name, closeBooks(known));
    } finally {
      await this.#lease.release(run.id);
    }
  }

  #count(broker: Broker, queues: readonly string[]) {
    const { signal, maxConsumerWaitMs } = this.options;
    return stableCount(broker, queues, {
      signal,
      ...(maxConsumerWaitMs === undefined ? {} : { maxConsumerWaitMs }),
    });
  }

  async #giveBack(
    broker: Broker,
    group: DrainedGroup,
    filter: CandidateFilter,
    run: RunRow,
  ): Promise<UndoResult> {
    const { signal, onProgress } = this.options;
    const { leaseMs, holder } = this.#lease;
    const publisher = await broker.publisher();
    const work: Work = {
      ...{ broker, publisher, group, leading: new Set() },
      run: { id: run.id, holder: holder.name, leaseMs },
    };
    const initial = await this.#position(work, run);
    onProgress?.({ taken: this.#moved, initial: this.#wanted });
    for (const queue of this.#inOrder(group.queues)) {
      if (signal?.aborted) break;
      await this.#giveBackQueue(work, filter, queue);
    }
    for (const exchange of work.leading) await publisher.release(exchange).catch(() => undefined);
    return this.#finish(work, initial);
  }

  /** Main queues first: what waits may become due and go on into them meanwhile. */
  #inOrder(queues: readonly string[]): string[] {
    const waits = (queue: string): number => (this.options.waitQueues?.has(queue) ? 1 : 0);
    return queues.toSorted((a, b) => waits(a) - waits(b));
  }

  /** The first count, or after an interruption what became of the batch that was on its way. */
  async #position(work: Work, run: RunRow): Promise<number> {
    const {
      pool,
      whenAmbiguous = 'stop',
      log,
      group,
      signal,
      unacked: ask,
      maxConsumerWaitMs,
    } = this.options;
    const { queues } = work.group;
    let { total, byQueue } = await this.#count(work.broker, queues);
    if (run.initial === null) {
      const unacked = await settledUnacked(queues, { unacked: ask, signal, maxConsumerWaitMs });
      if (unacked !== null && unacked > 0) throw unackedError(unacked);
      if (unacked !== null) ({ total, byQueue } = await this.#count(work.broker, queues));
      if (!(await this.#ledger.setInitial(pool, run.id, work.run.holder, byQueue, total))) throw leaseLost();
      return total;
    }
    const moving = await this.#undo.moving(pool, run.id);
    const moved = await this.#undo.countMoved(pool, run.id);
    this.#moved = moved;
    if (moving.length === 0) return run.initial;
    const arrived = total - run.initial - moved;
    const fits = arrived >= 0 && arrived <= moving.length;
    if (!fits && whenAmbiguous === 'stop') throw ambiguous(run.initial, moved, total, moving.length);
    const there = fits ? arrived : whenAmbiguous === 'assume' ? moving.length : 0;
    log.info({ group, run: run.id, moving: moving.length, arrived: there }, 'resuming');
    this.#blame(arrived);
    const numbers = moving.map(({ number }) => number);
    await this.#settle(work, numbers.slice(0, there), numbers.slice(there));
    if (fits) return run.initial;
    const initial = total - moved - there;
    if (!(await this.#undo.rebase(pool, run.id, work.run.holder, initial))) throw leaseLost();
    return initial;
  }

  /** Which message did the broker end the connection for? Alone in its batch it is known. */
  #blame(arrived: number): void {
    const [only, ...others] = this.#sent;
    if (this.#poison !== undefined && only !== undefined) {
      this.learned = true;
      if (others.length > 0) this.#careful = this.#sent.length;
      else if (arrived === 0) this.#refused.set(keyOf(only.row), `the-broker-refuses-it-${this.#poison}`);
    }
    this.#poison = undefined;
    this.#sent = [];
  }

  async #giveBackQueue(work: Work, filter: CandidateFilter, queue: string): Promise<void> {
    const { signal, maxBatch = MAX_BATCH, rate, onProgress } = this.options;
    if ((await work.broker.count(queue)) === null) {
      await this.#refuseQueue(filter, queue);
      return;
    }
    const size = rate === undefined ? maxBatch : Math.min(maxBatch, Math.max(1, Math.ceil(rate / 4)));
    for await (const page of this.#pages(filter, queue, () => (this.#careful > 0 ? 1 : size))) {
      if (this.#careful > 0) this.#careful -= 1;
      const prepared = page.map((row) => this.#prepare(work.broker, row)).filter((each) => each !== null);
      if (prepared.length === 0) continue;
      await this.#pace(prepared.length);
      if (signal?.aborted) return;
      await this.#moveBatch(work, prepared);
      onProgress?.({ taken: this.#moved, initial: this.#wanted });
      if (signal?.aborted) return;
    }
  }

  /** What may go of a queue, in order; `limit` is asked before each page. */
  async *#pages(
    filter: CandidateFilter,
    queue: string,
    limit: () => number,
  ): AsyncGenerator<readonly Candidate[]> {
    const { pool } = this.options;
    for (const batch of await this.#undo.batches(pool, filter.runs, queue)) {
      let position = 0;
      for (;;) {
        const limits = { rows: limit(), bytes: MAX_BATCH_BYTES };
        const page = await this.#undo.candidates(pool, filter, queue, { batch, position }, limits);
        const last = page.at(-1);
        if (last === undefined) break;
        ({ position } = last);
        yield page;
      }
    }
  }

  async #refuseQueue(filter: CandidateFilter, queue: string): Promise<void> {
    for await (const page of this.#pages(filter, queue, () => MAX_PAGE)) {
      for (const row of page) this.#refused.set(keyOf(row), 'its-queue-is-gone');
    }
  }

  /** Null: it stays, for the reason that is noted. */
  #prepare(broker: Broker, row: Candidate): Prepared | null {
    const { waitQueues, via = 'own' } = this.options;
    if (this.#refused.get(keyOf(row))?.startsWith('the-broker-refuses-it')) return null;
    const remainingMs = waitQueues?.has(row.queue) ? row.remainingMs : null;
    const way = wayBack(row.properties, row.body.length, remainingMs, contextOf(broker));
    if ('refused' in way) {
      this.#refused.set(keyOf(row), way.refused);
      return null;
    }
    const plain = via === 'default' || (row.exchange === '' && row.routingKey === row.queue);
    const route = plain
      ? { exchange: '', routingKey: row.queue }
      : { exchange: leadingExchange(row.queue, row.exchange), routingKey: row.routingKey };
    const message = { ...route, propertyBytes: way.bytes, body: row.body };
    return { row, message, hash: hashOf(message, row.queue), stripped: way.stripped };
  }

  /** Lease, publish, confirm, mark: in this order and no other. */
  async #moveBatch(work: Work, prepared: readonly Prepared[]): Promise<void> {
    const { pool, onStep } = this.options;
    for (const { message, row } of prepared) await this.#lead(work, message.exchange, row.queue);
    const worker = `undo ${hostname()} ${process.pid}`.slice(0, 255);
    const going = await this.#undo.claim(pool, work.run, prepared, worker);
    if (going === null) throw leaseLost();
    const sent = going.map((index) => prepared[index] as Prepared);
    if (sent.length === 0) return;
    this.#sent = sent;
    onStep?.('claimed');
    const answers = Promise.all(sent.map(({ message }) => work.publisher.publish(message)));
    onStep?.('published');
    const outcomes = await answers;
    onStep?.('confirmed');
    const moved: number[] = [];
    const released: number[] = [];
    outcomes.forEach((outcome, index) => {
      const number = (going[index] as number) + 1;
      if (outcome === 'taken') moved.push(number);
      else {
        released.push(number);
        const reason = outcome === 'returned' ? 'its-queue-is-gone' : 'its-queue-takes-no-more';
        this.#refused.set(keyOf((sent[index] as Prepared).row), reason);
      }
    });
    await this.#settle(work, moved, released);
    this.#moved += moved.length;
    this.#sent = [];
    this.marked += 1;
    onStep?.('marked');
  }

  async #lead(work: Work, exchange: string, queue: string): Promise<void> {
    if (exchange === '' || work.leading.has(exchange)) return;
    await work.publisher.lead(exchange, queue);
    work.leading.add(exchange);
  }

  async #settle(work: Work, moved: readonly number[], released: readonly number[]): Promise<void> {
    const takenMeanwhile = await this.#undo.settle(this.options.pool, work.run, moved, released);
    if (takenMeanwhile === null) throw leaseLost();
    this.#takenMeanwhile += takenMeanwhile;
  }

  async #finish(work: Work, initial: number): Promise<UndoResult> {
    const { pool, signal, maxConsumerWaitMs } = this.options;
    const { run, broker, group } = work;
    // Also after Ctrl-C: nothing is on its way, so the books can be closed and nothing is left open.
    const { total } = await stableCount(broker, group.queues, {
      ...(maxConsumerWaitMs === undefined ? {} : { maxConsumerWaitMs }),
    });
    await this.#undo.forgetKeys(pool, run.id);
    const moved = await this.#undo.countMoved(pool, run.id);
    const stripped = await this.#undo.stripped(pool, run.id);
    const books = await this.#books(group, { initial, moved, remaining: total, stripped });
    if (!(await this.#undo.finish(pool, run.id, run.holder, books))) throw leaseLost();
    return this.#result(run.id, signal?.aborted === true, books);
  }

  async #books(
    { runs }: DrainedGroup,
    counted: {
      initial: number;
      moved: number;
      remaining: number;
      stripped: readonly { word: string; count: number }[];
    },
  ): Promise<UndoBooks> {
    return closeUndoBooks({
      ...counted,
      kept: await this.#undo.kept(this.options.pool, runs),
      refused: [...this.#refused.values()],
      takenMeanwhile: this.#takenMeanwhile,
      ambiguous: this.#run?.initial != null && counted.initial !== this.#run.initial,
    });
  }

  async #nothing(group: DrainedGroup): Promise<UndoResult> {
    const books = await this.#books(group, { initial: 0, moved: 0, remaining: 0, stripped: [] });
    return this.#result(null, false, books);
  }

  /** Reads every message that would go, as it would go. */
  async #rehearse(broker: Broker, group: DrainedGroup, filter: CandidateFilter): Promise<UndoResult> {
    const { signal, onProgress } = this.options;
    let moved = 0;
    for (const queue of this.#inOrder(group.queues)) {
      if ((await broker.count(queue)) === null) await this.#refuseQueue(filter, queue);
      else {
        for await (const page of this.#pages(filter, queue, () => MAX_PAGE)) {
          signal?.throwIfAborted();
          for (const row of page) {
            const prepared = this.#prepare(broker, row);
            if (prepared === null) continue;
            moved += 1;
            for (const word of prepared.stripped) {
              this.#strippedInDryRun.set(word, (this.#strippedInDryRun.get(word) ?? 0) + 1);
            }
          }
          onProgress?.({ taken: moved, initial: this.#wanted });
        }
      }
    }
    const stripped = [...this.#strippedInDryRun].map(([word, count]) => ({ word, count }));
    const remaining = moved;
    return this.#result(null, false, await this.#books(group, { initial: 0, moved, remaining, stripped }));
  }

  aborted(): UndoResult {
    const { initial, moved } = { initial: this.#run?.initial ?? 0, moved: this.#moved };
    const books = closeUndoBooks({
      ...{ initial, moved, remaining: initial + moved, stripped: [], kept: [], refused: [] },
      ...{ takenMeanwhile: 0, ambiguous: false },
    });
    return this.#result(this.#run?.id ?? null, true, books);
  }

  #result(runId: string | null, interrupted: boolean, books: UndoBooks): UndoResult {
    return { group: this.options.group, runId, dryRun: this.options.dryRun === true, interrupted, books };
  }

  async #pace(messages: number): Promise<void> {
    const { rate, signal } = this.options;
    if (rate === undefined) return;
    const now = performance.now();
    const at = Math.max(this.#notBefore, now);
    this.#notBefore = at + (messages / rate) * 1_000;
    if (at > now) await sleep(at - now, undefined, { signal }).catch(() => undefined);
  }
}

const keyOf = ({ batch, position }: Candidate): string => `${batch}/${position}`;

function contextOf({ user, frameMax, version }: Broker): WayBackContext {
  const maxMessageBytes =
    Number.parseInt(version, 10) >= 4 ? MAX_MESSAGE_BYTES.since4 : MAX_MESSAGE_BYTES.before;
  return { user, frameMax, maxMessageBytes };
}

/** The first 64 bits of the fingerprint of what is sent, as a signed number: Postgres has no other. */
export function hashOf(
  { propertyBytes, body }: Pick<RawMessage, 'propertyBytes' | 'body'>,
  queue: string,
): bigint {
  const none = { exchange: '', routingKey: '', redelivered: false, deliveryTag: 0 };
  return hash64(fingerprint(readDelivery({ queue, ...none, propertyBytes, body })));
}

export function hash64(print: string): bigint {
  return Buffer.from(print.slice(0, 8), 'latin1').readBigInt64BE();
}

/** A channel's end says little; the connection's says why. */
async function withReason(
  broker: Broker,
  error: unknown,
  onPoison: (code: unknown) => void,
): Promise<unknown> {
  const codeOf = (of: unknown): unknown => (of as { code?: unknown }).code;
  let reason = error;
  if (codeOf(error) === undefined && /closed|channel|connection/i.test((error as Error).message ?? '')) {
    reason = (await Promise.race([broker.lost, sleep(1_000, undefined, { ref: false })])) ?? error;
  }
  if (POISON_CODES.includes(codeOf(reason))) onPoison(codeOf(reason));
  if (codeOf(reason) === 403) return forbidden(reason);
  return reason;
}

function isTransient(error: unknown): boolean {
  if (error instanceof UnbrokerError) return error.code === 'amqp-unreachable';
  const { code } = error as { code?: unknown };
  if (typeof code === 'number') return true;
  if (typeof code === 'string' && /^(08|57P|25P03|40|53300)/.test(code)) return true;
  if (typeof code === 'string' && /^E[A-Z]+$/.test(code)) return true;
  const message = error instanceof Error ? error.message : '';
  return /connection|channel|closed|heartbeat|terminat|timeout|socket/i.test(message);
}

function translate(error: unknown): unknown {
  if (error instanceof UnbrokerError || !isTransient(error)) return error;
  return new UnbrokerError('undo-interrupted', 'The undo lost a connection and could not go on', {
    hint: 'What is marked is safe. Check the broker and the database, then run the same command again: it resumes.',
    cause: error,
  });
}

function ambiguous(initial: number, moved: number, total: number, moving: number): UnbrokerError {
  return new UnbrokerError(
    'undo-ambiguous',
    `AMBIGUOUS: ${initial} were there, ${moved} are marked as given back, ${total} are there now, so ${total - initial - moved} of the ${moving} unmarked ones should have arrived, which cannot be`,
    {
      hint: 'Nothing was changed. Go on with --when-ambiguous resend (publishes them again: doubles at worst) or --when-ambiguous assume (takes them for arrived: gaps at worst).',
      exitStatus: EXIT.unbalanced,
    },
  );
}

function groupMissing(name: string, groups: readonly DrainedGroup[]): UnbrokerError {
  const names = groups.slice(0, LISTED).map(({ group }) => group);
  return new UnbrokerError('undo-group-missing', `Nothing of a group ${name} was drained from this broker`, {
    hint: names.length === 0 ? 'Check AMQP_URL and its virtual host.' : `There is ${names.join(', ')}.`,
    exitStatus: EXIT.badInput,
  });
}

const LISTED = 20;

function held(): UnbrokerError {
  return new UnbrokerError('undo-busy', 'Another undo of this group is still connected to the broker', {
    hint: 'Stop it, or close its connection, then run again.',
  });
}

function drainOpen(group: string): UnbrokerError {
  return new UnbrokerError(
    'drain-unfinished',
    `A drain of ${group} was interrupted: some of its acknowledgements are unproved`,
    {
      hint: 'Let it end first: unbroker drain run.',
    },
  );
}

function forbidden(cause: unknown): UnbrokerError {
  return new UnbrokerError(
    'undo-forbidden',
    'The user of AMQP_URL may not publish, or not declare what an undo needs',
    {
      hint: 'It needs write on amq.default and on ^unbroker\\., and configure on ^unbroker\\.; --via default declares no exchange.',
      exitStatus: EXIT.badInput,
      cause,
    },
  );
}
