/**
 * One attempt at emptying a group over one broker connection and two database clients: consume, prepare, commit, ack,
 * fence, mark. While one batch commits, the next is inserted on the other client and the one after it prepared; acks go
 * out in the order of the batches. On any error it throws and leaves everything to the next attempt, which starts by
 * counting.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { UnbrokerError } from '../../src/errors.js';
import type { Queryable } from '../../src/jobs/job.js';
import { BatchPlace } from './batch-place.js';
import {
  countsOf,
  type PreparedMessage,
  type RowsWriter,
  type WrittenBatch,
  writeRows,
} from './batch-writer.js';
import { fitBatchSize } from './batches.js';
import { type Totals, taken } from './books.js';
import type { Broker, Source } from './broker.js';
import { type RawDelivery, readDelivery } from './delivery.js';
import type { QueueRole } from './drain-config.js';
import type { ExpectedRows } from './expected.js';
import { fingerprint } from './fingerprint.js';
import type { AbsorbedRow, ExpectedRow } from './ledger.js';
import { type MappingContext, mapDelivery, type QueueFacts } from './mapping.js';
import { deliveryOf, type MessageRows, MessageWriter, type PlacedRows } from './message-rows.js';
import { OpenBatches } from './open-batches.js';
import { Pace } from './pace.js';
import { leaseLost } from './run-lease.js';

export interface QueueToDrain extends QueueFacts {
  /** Such a queue takes no exclusive consumer. */
  readonly singleActive: boolean;
  /** Goes with its last consumer, and what is left in it: read without becoming one. */
  readonly autoDelete?: boolean;
}

export interface ImporterOptions {
  readonly broker: Broker;
  readonly writer: Omit<RowsWriter, 'client' | 'reopen'>;
  /** Each holds one transaction at a time; batches take turns. */
  readonly clients: readonly Queryable[];
  /** In drain order. */
  readonly queues: readonly QueueToDrain[];
  readonly initial: number;
  readonly totals: Totals;
  readonly expected: ExpectedRows;
  readonly mapping: Omit<MappingContext, 'nowMs' | 'careful'>;
  readonly maxBatch: number;
  /** Messages per second; null = as fast as it goes. */
  readonly rate: number | null;
  readonly signal: AbortSignal | undefined;
  /** After each batch, with what is taken so far. */
  readonly onProgress: (takenSoFar: number) => void;
}

export interface ImportEnd {
  readonly interrupted: boolean;
  readonly totals: Totals;
  /** Still in the broker by the last count; meaningless when interrupted. */
  readonly remaining: number;
}

/** A batch closes at this many body bytes, whatever its count. */
const MAX_BATCH_BYTES = 8 * 1_048_576;
/** Deliveries in hand over all queues together. */
const MAX_HELD_BYTES = 48 * 1_048_576;
/** Until sizes are known: at RabbitMQ's largest messages still within memory. */
const FIRST_PREFETCH = 16;
/** Deliveries in hand per queue, in batches: two in the database, one being prepared, one arriving. */
const PREFETCH_BATCHES = 4;
/** A buffer that got nothing for this long is written though it is short. */
const SHORT_AFTER_MS = 10;
/** The same while others are under way: waiting for more then costs nothing, and a short batch costs a transaction. */
const SHORT_BESIDE_AFTER_MS = 1_000;
const ZERO_READINGS = 3;
const ZERO_PAUSE_MS = 150;
/** Messages that are counted but not delivered: another consumer is active, or the queue has no leader. */
const STALLED_AFTER_MS = 60_000;
const STAGES: readonly (readonly QueueRole[])[] = [['wait', 'dead'], ['main']];

/** A delivery that waits for its batch: rows of its own, or one that was there already. */
interface Arrival {
  readonly tag: number;
  readonly bodyBytes: number;
  readonly rows: MessageRows | null;
  readonly absorbed: ExpectedRow | undefined;
}

interface QueueState {
  readonly facts: QueueToDrain;
  source: Source | null;
  readonly writer: MessageWriter;
  readonly buffer: Arrival[];
  lastAt: number;
  prefetch: number;
  /** Mean body bytes, moving. */
  meanBytes: number;
  delivered: number;
  /** The fence of its last ack; the next ack waits for it. */
  fencing: Promise<void>;
}

export class Importer {
  readonly #states: readonly QueueState[];
  readonly #open = new OpenBatches();
  readonly #pace: Pace;
  #totals: Totals;
  #failure: Error | undefined;
  #wake: () => void = () => undefined;
  /** The last batch's way through the database to its ack; it settles after all before it. */
  #tail: Promise<void> | undefined;
  /** The last batch's place among those that are written side by side. */
  #place: BatchPlace | undefined;
  /** What each client is busy with. */
  readonly #lanes: Promise<void>[];
  /** Bodies are parsed here once the database has refused one: traffic is mostly JSON or mostly not. */
  #careful = false;

  constructor(private readonly options: ImporterOptions) {
    this.#totals = options.totals;
    this.#pace = new Pace(options.rate, options.signal);
    this.#lanes = options.clients.map(() => Promise.resolve());
    this.#states = options.queues.map((facts) => ({
      facts,
      source: null,
      writer: new MessageWriter(),
      buffer: [],
      lastAt: 0,
      prefetch: FIRST_PREFETCH,
      meanBytes: 0,
      delivered: 0,
      fencing: Promise.resolve(),
    }));
  }

  async run(): Promise<ImportEnd> {
    const { broker, signal } = this.options;
    void broker.lost.then((reason) => this.#fail(reason));
    const onAbort = (): void => this.#wake();
    signal?.addEventListener('abort', onAbort);
    try {
      return await this.#loop();
    } finally {
      signal?.removeEventListener('abort', onAbort);
      await this.#tail?.catch(() => undefined);
    }
  }

  async #loop(): Promise<ImportEnd> {
    let stage = 0;
    let stalledSince = performance.now();
    let remaining = await this.#count(stage);
    for (;;) {
      if (this.#failure !== undefined) throw this.#failure;
      if (this.options.signal?.aborted) return this.#finish(true, remaining);
      const batch = this.#pick();
      if (batch !== undefined) {
        await this.#write(batch);
        stalledSince = performance.now();
        continue;
      }
      if (await this.#settleOne()) continue;
      if (this.#states.some((state) => state.buffer.length > 0)) {
        await this.#pause(SHORT_AFTER_MS);
        continue;
      }
      remaining = await this.#count(stage);
      if (remaining === 0 && stage < STAGES.length - 1) {
        stage += 1;
        remaining = await this.#count(stage);
      } else if (remaining === 0 && (await this.#isEmpty())) {
        return this.#finish(false, 0);
      } else if (performance.now() - stalledSince > STALLED_AFTER_MS) {
        throw stalled(remaining);
      } else await this.#pause(50);
    }
  }

  /** Ready messages over the queues of the stages so far; starts consuming those that have any. */
  async #count(stage: number): Promise<number> {
    const roles = STAGES.slice(0, stage + 1).flat();
    let ready = 0;
    for (const state of this.#states) {
      if (!roles.includes(state.facts.role)) continue;
      const count = await this.options.broker.count(state.facts.name);
      ready += count?.ready ?? 0;
      if (state.source === null && (count?.ready ?? 0) > 0) await this.#consume(state);
    }
    return ready;
  }

  async #consume(state: QueueState): Promise<void> {
    state.source = await this.options.broker.consume(state.facts.name, {
      prefetch: state.prefetch,
      exclusive: !state.facts.singleActive,
      byGet: state.facts.autoDelete === true,
      onDelivery: (delivery) => {
        try {
          state.buffer.push(this.#receive(state, delivery));
        } catch (error) {
          // Thrown on, it would be taken for a fault of the connection, and tried again and again.
          this.#fail(error as Error);
        }
        state.delivered += 1;
        state.lastAt = performance.now();
        state.meanBytes += (delivery.body.length - state.meanBytes) / Math.min(state.delivered, 100);
        // What only adds to a batch wakes nobody: a look at the buffers costs more than a message.
        const { length } = state.buffer;
        if (length === 1 || length >= Math.min(this.options.maxBatch, state.prefetch)) this.#wake();
      },
      onEnd: (reason) => this.#fail(reason),
    });
  }

  #fail(reason: Error): void {
    this.#failure ??= reason;
    this.#wake();
  }

  /** The next batch: a full one, or a short one of a queue from which nothing more comes. */
  #pick(): WrittenBatch | undefined {
    const now = performance.now();
    for (const state of this.#states) {
      const { buffer } = state;
      if (buffer.length === 0) continue;
      const full = available(buffer, this.options.maxBatch);
      const complete = full < buffer.length || full >= this.options.maxBatch || full >= state.prefetch;
      const shortAfterMs = this.#tail === undefined ? SHORT_AFTER_MS : SHORT_BESIDE_AFTER_MS;
      if (!complete && now - state.lastAt < shortAfterMs) continue;
      const size = fitBatchSize(this.#open.sizes, full);
      if (size > 0) return this.#prepare(state, buffer.splice(0, size));
    }
    return undefined;
  }

  /** Decides the delivery at once: what waits then is bytes in a few buffers. */
  #receive(state: QueueState, raw: RawDelivery): Arrival {
    const delivery = readDelivery(raw);
    const print = fingerprint(delivery);
    const absorbed = this.options.expected.take(delivery, print);
    const rows =
      absorbed === undefined
        ? state.writer.write(delivery, print, mapDelivery(delivery, state.facts, this.#context()))
        : null;
    return { tag: raw.deliveryTag, bodyBytes: raw.body.length, rows, absorbed };
  }

  /** Written out: spread for each message, every one was an object of a new shape to whatever reads it. */
  #context(): MappingContext {
    const { source, rules, trustDeliveryCount } = this.options.mapping;
    return { source, rules, trustDeliveryCount, nowMs: Date.now(), careful: this.#careful };
  }

  #prepare(state: QueueState, arrivals: readonly Arrival[]): WrittenBatch {
    const rows: PlacedRows[] = [];
    const absorbed: AbsorbedRow[] = [];
    arrivals.forEach((arrival, index) => {
      const position = index + 1;
      if (arrival.rows !== null) rows.push({ rows: arrival.rows, position });
      if (arrival.absorbed !== undefined) absorbed.push({ row: arrival.absorbed, position });
    });
    this.options.writer.onStep('prepared');
    const lastTag = (arrivals.at(-1) as Arrival).tag;
    return { queue: state.facts.name, rows, absorbed, size: arrivals.length, lastTag };
  }

  /** Starts the batch's way once a client is free for it. */
  async #write(batch: WrittenBatch): Promise<void> {
    const key = this.#open.begin(batch.size);
    await this.#pace.take(batch.size);
    const lane = key % this.#lanes.length;
    await this.#lanes[lane];
    if (this.#failure !== undefined) throw this.#failure;
    this.#place = new BatchPlace(this.#place);
    const client = this.options.clients[lane] as Queryable;
    const way = this.#commitAndAck(key, batch, client, this.#place, this.#tail);
    this.#lanes[lane] = way;
    this.#tail = way;
    // Observed when it is awaited; until then an early failure must not count as unhandled.
    way.catch(() => undefined);
    await this.#retune(this.#stateOf(batch.queue));
  }

  async #commitAndAck(
    key: number,
    batch: WrittenBatch,
    client: Queryable,
    place: BatchPlace,
    before: Promise<void> | undefined,
  ): Promise<void> {
    const { writer, onProgress } = this.options;
    const state = this.#stateOf(batch.queue);
    const reopen = (placed: PlacedRows): PreparedMessage => {
      this.#careful = true;
      const { raw, fingerprint: print } = deliveryOf(placed.rows, batch.queue);
      const delivery = readDelivery(raw);
      const mapped = mapDelivery(delivery, state.facts, this.#context());
      return { delivery, fingerprint: print, position: placed.position, mapped };
    };
    const { id, written } = await this.#commit({ ...writer, client, reopen, place }, batch, before);
    writer.onStep('committed');
    this.#totals = addTotals(this.#totals, written);
    this.#open.committed(key, id);
    // An ack takes everything before it along, so the batch before must have been committed and acked; and one unproved
    // ack per queue: after a crash it is then either all of the batch or none of it.
    await before;
    // Not sooner: a batch that the database refuses is read out of its rows again.
    state.writer.reuse(batch.rows);
    await state.fencing;
    if (this.#failure !== undefined) throw this.#failure;
    const source = state.source as Source;
    source.ackThrough(batch.lastTag);
    writer.onStep('acked');
    state.fencing = source
      .fence()
      .then(() => {
        writer.onStep('fenced');
        this.#open.fenced(key);
        this.#wake();
      })
      .catch((error: unknown) => this.#fail(error instanceof Error ? error : new Error(String(error))));
    onProgress(taken(this.#totals));
  }

  /** Writes the batch and marks what was proved meanwhile. It settles after the one before, whatever becomes of either. */
  async #commit(writer: RowsWriter, batch: WrittenBatch, before: Promise<void> | undefined) {
    const proved = this.#open.proved({ claim: true });
    try {
      const result = await writeRows(writer, batch, proved.ids);
      this.#open.marked(proved.keys);
      return result;
    } catch (error) {
      await before?.catch(() => undefined);
      throw error;
    } finally {
      writer.place?.leave();
    }
  }

  #stateOf(queue: string): QueueState {
    return this.#states.find((state) => state.facts.name === queue) as QueueState;
  }

  /** Waits for something of what is on its way, or marks what is proved. False when there was nothing to do. */
  async #settleOne(): Promise<boolean> {
    const tail = this.#tail;
    if (tail !== undefined) {
      const settled = tail.then(() => {
        if (this.#tail === tail) this.#tail = undefined;
        this.#wake();
      });
      // Whichever comes first: a batch that is full meanwhile need not wait for those on their way. A failure wakes nobody, or
      // the pause would end first and nothing would be thrown.
      await Promise.race([settled, this.#pause(SHORT_AFTER_MS)]);
      return true;
    }
    if (this.#open.empty) return false;
    await Promise.all(this.#states.map((state) => state.fencing));
    if (this.#failure !== undefined) throw this.#failure;
    const { keys, ids } = this.#open.proved({ claim: false });
    const { writer, clients } = this.options;
    const { run, ledger } = writer;
    if (!(await ledger.markAcked(clients[0] as Queryable, run.id, run.holder, ids))) throw leaseLost();
    this.#open.marked(keys);
    writer.onStep('marked');
    return true;
  }

  /** Zero everywhere, several times, or at once when every message that was counted has its row. */
  async #isEmpty(): Promise<boolean> {
    for (let reading = 0; reading < ZERO_READINGS; reading += 1) {
      if ((await this.#count(STAGES.length - 1)) > 0) return false;
      if (this.#failure !== undefined || this.#states.some((state) => state.buffer.length > 0)) return false;
      if (taken(this.#totals) === this.options.initial && this.options.expected.size === 0) return true;
      await sleep(ZERO_PAUSE_MS);
    }
    return this.#states.every((state) => state.buffer.length === 0);
  }

  /** At a batch end: what is committed gets its ack, its fence and its mark; the rest goes back. */
  async #finish(interrupted: boolean, remaining: number): Promise<ImportEnd> {
    while (await this.#settleOne());
    return { interrupted, totals: this.#totals, remaining };
  }

  /** As many deliveries in hand as memory allows, once their size is known. */
  async #retune(state: QueueState): Promise<void> {
    if (state.delivered < FIRST_PREFETCH || state.source === null) return;
    const active = this.#states.filter((each) => each.source !== null).length;
    const byMemory = Math.floor(MAX_HELD_BYTES / active / Math.max(state.meanBytes, 1));
    const wanted = Math.min(Math.max(byMemory, FIRST_PREFETCH), this.options.maxBatch * PREFETCH_BATCHES);
    if (wanted <= state.prefetch * 2 && wanted * 2 >= state.prefetch) return;
    state.prefetch = wanted;
    await state.source.setPrefetch(wanted);
  }

  /** Until something happens, at most `ms`. */
  async #pause(ms: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.#wake = () => undefined;
  }
}

/** How many of the buffer fit one batch. */
function available(buffer: readonly Arrival[], maxBatch: number): number {
  let bytes = 0;
  let count = 0;
  for (const { bodyBytes } of buffer) {
    bytes += bodyBytes;
    if (count > 0 && (bytes > MAX_BATCH_BYTES || count === maxBatch)) break;
    count += 1;
  }
  return count;
}

function addTotals(totals: Totals, batch: WrittenBatch): Totals {
  const { counts, inexact } = countsOf(batch);
  return {
    rows: totals.rows + counts.row,
    unmapped: totals.unmapped + counts.unmapped,
    excluded: totals.excluded + counts.excluded,
    expired: totals.expired + counts.expired,
    absorbed: totals.absorbed + batch.absorbed.length,
    inexact: totals.inexact + inexact,
  };
}

function stalled(remaining: number): UnbrokerError {
  return new UnbrokerError('drain-stalled', `${remaining} messages are counted but not delivered`, {
    hint: 'Look for another active consumer, a quorum queue without a leader, or delayed retries inside the queue; then run again.',
  });
}
