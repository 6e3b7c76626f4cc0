/**
 * One connection's worth of a bridge: consumes the queues of all its groups, commits batch after batch, acks each after
 * its COMMIT. It sees where it does not get messages and says why. Any lost connection ends it with an error; the bridge
 * then makes another.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { UnbrokerError } from '../../src/errors.js';
import { Signal } from '../../src/jobs/signal.js';
import type { Broker, Source } from './broker.js';
import type { RawDelivery } from './delivery.js';
import type { GroupRun, LateBatch, LateWriter, QueueToBridge } from './late-writer.js';

/** Why a queue gives nothing although it may hold something. */
export type Standing =
  | 'consumed'
  /** Or not declared yet. */
  | 'missing'
  /** Another consumer is the active one: not empty. */
  | 'waiting'
  /** Somebody else consumes it exclusively, or we may not. */
  | 'in-use'
  /** Belongs to another connection: nobody else can read it. */
  | 'blocked'
  /** Its node or leader is down. */
  | 'unknown';

export interface QueueStanding {
  readonly queue: string;
  readonly standing: Standing;
  /** Null: not known. */
  readonly ready: number | null;
}

export interface IntakeOptions {
  readonly broker: Broker;
  readonly writer: LateWriter;
  readonly queues: readonly {
    readonly queue: QueueToBridge;
    readonly run: GroupRun;
    readonly offset: number;
  }[];
  readonly maxBatch: number;
  /** Messages per second; null = as they come. */
  readonly rate: number | null;
  /** Ends it once nothing came for so long and all queues are empty; null = never. */
  readonly idleExitMs: number | null;
  /** Of a stream that is read once: the last offset that counts. Ends when all are reached; null = never. */
  readonly lastOffsets: ReadonlyMap<string, number> | null;
  readonly signal: AbortSignal | undefined;
  readonly onBatch: (queue: string, batch: LateBatch) => void;
  /** A batch's ack was proved. */
  readonly onProved: (run: GroupRun, batch: string) => void;
  readonly onStanding: (now: QueueStanding) => void;
  readonly onStep: (step: 'acked' | 'fenced') => void;
  /** Batches of this run that were proved and are not marked yet. */
  readonly proved: (run: GroupRun) => readonly string[];
}

interface QueueState {
  readonly queue: QueueToBridge;
  readonly run: GroupRun;
  source: Source | null;
  buffer: RawDelivery[];
  bufferedBytes: number;
  lastAt: number;
  prefetch: number;
  meanBytes: number;
  delivered: number;
  fencing: Promise<void>;
  offset: number;
  standing: Standing | null;
  ready: number | null;
  /** Not asked again before. */
  retryAt: number;
}

const FIRST_PREFETCH = 16;
const MAX_PREFETCH = 2_000;
const MAX_BATCH_BYTES = 8 * 1_048_576;
const MAX_HELD_BYTES = 48 * 1_048_576;
/** A buffer that got nothing for this long is written though it is short. */
const SHORT_AFTER_MS = 10;
/** Queues are counted, and those that were not there looked for, this often. */
const LOOK_MS = 500;
const RETRY_MS = 3_000;
/** A single active consumer that gets nothing of what is counted for so long is not the active one. */
const WAITING_AFTER_MS = 2_000;

export class Intake {
  readonly #states: QueueState[];
  readonly #signal = new Signal();
  #failure: Error | undefined;
  #looking: Promise<void> | undefined;
  /** When the last complete look began, and when the last delivery came. */
  #lookedAt = Number.NEGATIVE_INFINITY;
  #lastDelivery = performance.now();
  #notBefore = 0;

  constructor(private readonly options: IntakeOptions) {
    this.#states = options.queues.map(({ queue, run, offset }) => ({
      ...{ queue, run, offset, source: null, buffer: [], bufferedBytes: 0, lastAt: 0 },
      ...{ prefetch: FIRST_PREFETCH, meanBytes: 0, delivered: 0, fencing: Promise.resolve() },
      ...{ standing: null, ready: null, retryAt: 0 },
    }));
  }

  /** Of streams: the offset after the last one with a row. */
  offsetOf(queue: string): number | undefined {
    return this.#states.find((state) => state.queue.name === queue)?.offset;
  }

  /** Where each queue stood at the last look. */
  get standings(): readonly QueueStanding[] {
    return this.#states.map(({ queue, standing, ready }) => ({
      ...{ queue: queue.name, standing: standing ?? 'unknown', ready },
    }));
  }

  /** `stopped`: by the signal, at a batch end. Everything committed is acked and fenced then. */
  async run(): Promise<'stopped' | 'idle'> {
    const { broker, signal } = this.options;
    void broker.lost.then((reason) => this.#fail(reason));
    const onAbort = (): void => this.#signal.fire();
    signal?.addEventListener('abort', onAbort);
    try {
      return await this.#loop();
    } finally {
      signal?.removeEventListener('abort', onAbort);
    }
  }

  async #loop(): Promise<'stopped' | 'idle'> {
    for (;;) {
      const fired = this.#signal.fired;
      if (this.#failure !== undefined) throw this.#failure;
      if (this.options.signal?.aborted) return this.#finish('stopped');
      const state = this.#next();
      if (state !== undefined) {
        await this.#take(state);
        continue;
      }
      this.#startLook();
      if (this.#isIdle()) return this.#finish('idle');
      const short = this.#states.some(({ buffer }) => buffer.length > 0);
      await this.#signal.wait(short ? SHORT_AFTER_MS : 100, fired);
    }
  }

  /** The queue that has waited longest among those with a batch to write. */
  #next(): QueueState | undefined {
    const now = performance.now();
    return this.#states
      .filter(
        ({ buffer, bufferedBytes, lastAt }) =>
          buffer.length > 0 &&
          (buffer.length >= this.options.maxBatch ||
            bufferedBytes >= MAX_BATCH_BYTES ||
            now - lastAt >= SHORT_AFTER_MS),
      )
      .sort((a, b) => a.lastAt - b.lastAt)[0];
  }

  async #take(state: QueueState): Promise<void> {
    const { writer, onBatch, onProved, onStep, proved } = this.options;
    const deliveries = this.#cut(state);
    await this.#pace(deliveries.length);
    const { queue, run } = state;
    const batch = await writer.write(deliveries, queue, run, proved(run), state.offset);
    if (batch.nextOffset !== null) state.offset = batch.nextOffset;
    onBatch(queue.name, batch);
    // One unproved ack per queue, which the broker takes whole or not at all.
    await state.fencing;
    if (this.#failure !== undefined) throw this.#failure;
    const source = state.source as Source;
    source.ackThrough(deliveries.at(-1)?.deliveryTag ?? 0);
    onStep('acked');
    state.fencing = source
      .fence()
      .then(() => {
        onStep('fenced');
        onProved(run, batch.id);
      })
      .catch((error: unknown) => this.#fail(error));
    await this.#retune(state);
  }

  #cut(state: QueueState): RawDelivery[] {
    let bytes = 0;
    let count = 0;
    for (const { body } of state.buffer) {
      bytes += body.length;
      if (count > 0 && (bytes > MAX_BATCH_BYTES || count === this.options.maxBatch)) break;
      count += 1;
    }
    const deliveries = state.buffer.splice(0, count);
    state.bufferedBytes = state.buffer.reduce((sum, { body }) => sum + body.length, 0);
    return deliveries;
  }

  #startLook(): void {
    if (this.#looking !== undefined || performance.now() - this.#lookedAt < LOOK_MS) return;
    const startedAt = performance.now();
    this.#looking = this.#look()
      .then(() => {
        this.#lookedAt = startedAt;
      })
      .catch((error: unknown) => this.#fail(error))
      .finally(() => {
        this.#looking = undefined;
        this.#signal.fire();
      });
  }

  /** Counts every queue and begins with those that are there. Several queues without a leader cost their timeouts. */
  async #look(): Promise<void> {
    for (const state of this.#states) {
      if (this.#failure !== undefined || this.options.signal?.aborted) return;
      if (performance.now() < state.retryAt) continue;
      this.#stand(state, await this.#visit(state));
    }
  }

  async #visit(state: QueueState): Promise<Standing> {
    const { name, singleActive } = state.queue;
    try {
      const count = await this.options.broker.count(name);
      state.ready = count?.ready ?? 0;
      if (count === null) return 'missing';
      if (state.source === null) await this.#consume(state);
      const quiet = performance.now() - state.lastAt > WAITING_AFTER_MS;
      return singleActive && count.ready > 0 && count.consumers > 1 && quiet ? 'waiting' : 'consumed';
    } catch (error) {
      const standing = standingOf(error);
      if (standing === undefined) throw error;
      state.retryAt = performance.now() + RETRY_MS;
      if (standing !== 'in-use') state.ready = null;
      return standing;
    }
  }

  async #consume(state: QueueState): Promise<void> {
    const { queue, offset } = state;
    state.lastAt = performance.now();
    state.source = await this.options.broker.consume(queue.name, {
      prefetch: state.prefetch,
      exclusive: !queue.singleActive && !queue.stream,
      byGet: queue.autoDelete,
      ...(queue.stream ? { offset } : {}),
      onDelivery: (delivery) => this.#receive(state, delivery),
      // The tags in hand are worth nothing any more, so everything starts again.
      onEnd: (reason) => this.#fail(reason),
    });
  }

  #receive(state: QueueState, delivery: RawDelivery): void {
    const now = performance.now();
    state.buffer.push(delivery);
    state.bufferedBytes += delivery.body.length;
    state.delivered += 1;
    state.meanBytes += (delivery.body.length - state.meanBytes) / Math.min(state.delivered, 1_000);
    state.lastAt = now;
    this.#lastDelivery = now;
    if (state.buffer.length >= this.options.maxBatch || state.buffer.length === 1) this.#signal.fire();
  }

  #stand(state: QueueState, standing: Standing): void {
    const changed = state.standing !== standing;
    state.standing = standing;
    if (changed) this.options.onStanding({ queue: state.queue.name, standing, ready: state.ready });
  }

  /** Nothing came for so long, and nothing is there. What nobody but its owner can read does not count. */
  #isIdle(): boolean {
    const { idleExitMs, lastOffsets } = this.options;
    if (lastOffsets !== null) {
      const reached = ({ queue, offset }: QueueState): boolean =>
        offset > (lastOffsets.get(queue.name) ?? -1);
      if (this.#states.every(reached)) return true;
    }
    if (idleExitMs === null || performance.now() - this.#lastDelivery < idleExitMs) return false;
    if (this.#lookedAt < this.#lastDelivery) return false;
    return this.#states.every(
      ({ queue, buffer, ready, standing }) =>
        buffer.length === 0 && (standing === 'blocked' || queue.stream || ready === 0),
    );
  }

  async #finish(end: 'stopped' | 'idle'): Promise<'stopped' | 'idle'> {
    await Promise.all(this.#states.map(({ fencing }) => fencing));
    if (this.#failure !== undefined) throw this.#failure;
    return end;
  }

  /** As many deliveries in hand as memory allows, once their size is known. */
  async #retune(state: QueueState): Promise<void> {
    if (state.delivered < FIRST_PREFETCH || state.source === null || state.queue.stream) return;
    const active = this.#states.filter(({ source }) => source !== null).length;
    const byMemory = Math.floor(MAX_HELD_BYTES / active / Math.max(state.meanBytes, 1));
    const wanted = Math.min(
      Math.max(byMemory, FIRST_PREFETCH),
      Math.min(this.options.maxBatch * 3, MAX_PREFETCH),
    );
    if (wanted <= state.prefetch * 2 && wanted * 2 >= state.prefetch) return;
    state.prefetch = wanted;
    await state.source.setPrefetch(wanted);
  }

  async #pace(messages: number): Promise<void> {
    const { rate, signal } = this.options;
    if (rate === null) return;
    const now = performance.now();
    const at = Math.max(this.#notBefore, now);
    this.#notBefore = at + (messages / rate) * 1_000;
    if (at > now) await sleep(at - now, undefined, { signal }).catch(() => undefined);
  }

  #fail(error: unknown): void {
    this.#failure ??= error instanceof Error ? error : new Error(String(error));
    this.#signal.fire();
  }
}

function standingOf(error: unknown): Standing | undefined {
  if ((error as { code?: unknown }).code === 404) return 'missing';
  if (!(error instanceof UnbrokerError)) return undefined;
  if (error.code === 'queue-in-use') return 'in-use';
  if (error.code === 'queue-exclusive') return 'blocked';
  return error.code === 'queue-unreachable' ? 'unknown' : undefined;
}
