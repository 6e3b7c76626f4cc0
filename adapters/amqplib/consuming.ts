/**
 * Consumers of a channel: each claims as much as its prefetch leaves, hands it over, and sleeps while there is nothing. What has
 * expired is buried instead. In what order a channel does what it is asked is not known here.
 */
import type { ClaimedJob } from '../../src/jobs/job.js';
import { bury, giveBack } from './burying.js';
import { ChannelError } from './channel-error.js';
import type { ChannelWorld } from './channel-world.js';
import type { Deliveries } from './deliveries.js';
import { kindOf, type Message, messageOf } from './message.js';
import { expiresAtMs } from './placing.js';

export interface ConsumeOptions {
  readonly consumerTag?: string;
  readonly noAck?: boolean;
  readonly exclusive?: boolean;
}

interface Consumer {
  readonly tag: string;
  readonly queue: string;
  readonly noAck: boolean;
  readonly prefetch: number;
  readonly onMessage: (message: Message | null) => void;
  stopped: boolean;
}

/** Unacknowledged messages of a consumer without a prefetch. */
const MAX_UNACKED = 250;
const REAP_EVERY = 100;
/** Expired messages that one `get` passes by. */
const MAX_EXPIRED = 1_000;

export class Consuming {
  readonly #consumers = new Map<string, Consumer>();
  readonly #loops = new Set<Promise<void>>();
  #nudge: (() => void)[] = [];

  constructor(
    private readonly world: ChannelWorld,
    private readonly deliveries: Deliveries,
    /** A turn failed: the next one asks again. */
    private readonly failed: (error: unknown) => void,
  ) {}

  consumersOf(queue: string): number {
    return [...this.#consumers.values()].filter((one) => one.queue === queue).length;
  }

  /** Its tag. `prefetch` 0: as many as a consumer may have. Throws ChannelError for a tag that is taken. */
  start(
    queue: string,
    onMessage: (message: Message | null) => void,
    { consumerTag, noAck = false }: ConsumeOptions,
    prefetch: number,
  ): string {
    const tag = consumerTag ?? `amq.ctag-${Math.random().toString(36).slice(2, 14)}`;
    if (this.#consumers.has(tag))
      throw new ChannelError(406, 'BasicConsume', `NOT_ALLOWED - attempt to reuse consumer tag '${tag}'`);
    const limit = prefetch === 0 ? MAX_UNACKED : prefetch;
    const consumer: Consumer = { tag, queue, noAck, prefetch: limit, onMessage, stopped: false };
    this.#consumers.set(tag, consumer);
    const loop = this.#run(consumer).finally(() => this.#loops.delete(loop));
    this.#loops.add(loop);
    return tag;
  }

  cancel(tag: string): void {
    const consumer = this.#consumers.get(tag);
    if (consumer !== undefined) consumer.stopped = true;
    this.#consumers.delete(tag);
    this.wake();
  }

  /** Looks for messages now. */
  wake(): void {
    for (const nudge of this.#nudge.splice(0)) nudge();
  }

  /** Resolves when no consumer is handed anything any more. */
  async end(): Promise<void> {
    for (const consumer of this.#consumers.values()) consumer.stopped = true;
    this.#consumers.clear();
    this.wake();
    await Promise.all(this.#loops);
  }

  /** One that has not expired, or null. */
  async next(queue: string): Promise<ClaimedJob | null> {
    for (let expired = 0; expired < MAX_EXPIRED; expired += 1) {
      const claimed = await this.#claim(queue, 1);
      const [job] = await this.#inTime(claimed, queue);
      if (job !== undefined || claimed.length === 0) return job ?? null;
    }
    return null;
  }

  async #run(consumer: Consumer): Promise<void> {
    for (let turns = 0; !consumer.stopped; turns += 1) {
      try {
        if (turns % REAP_EVERY === 0) await this.world.store.reap(this.world.pool, 100);
        if ((await this.#turn(consumer)) > 0) continue;
      } catch (error) {
        this.failed(error);
      }
      await this.#rest(this.world.pollMs);
    }
  }

  /** How many it has claimed. */
  async #turn(consumer: Consumer): Promise<number> {
    const { noAck, prefetch, queue } = consumer;
    const room = noAck ? MAX_UNACKED : prefetch - this.deliveries.countOf(consumer);
    const jobs = room > 0 ? await this.#claim(queue, room) : [];
    if (consumer.stopped) {
      await giveBack(this.world, jobs);
      return 0;
    }
    for (const job of await this.#inTime(jobs, queue)) await this.#hand(job, consumer);
    return jobs.length;
  }

  async #claim(queue: string, limit: number): Promise<ClaimedJob[]> {
    const { pool, store, holder, leaseMs } = this.world;
    const demands = [{ kind: kindOf(queue), limit, park: false }];
    const jobs = await store.claim(pool, demands, limit, holder, leaseMs);
    if (jobs.length > 0 || this.deliveries.size > 0) return jobs;
    // One whose process died is handed out alone, in case it was the message that killed it.
    const alone = await store.claimSolo(pool, demands, holder, leaseMs);
    return alone === null ? [] : [alone];
  }

  /** Those that have not expired by the database's clock, which is asked only when one of them may. The others are buried. */
  async #inTime(jobs: readonly ClaimedJob[], queue: string): Promise<readonly ClaimedJob[]> {
    if (jobs.every((job) => expiresAtMs(job) === null)) return jobs;
    const nowMs = await this.world.store.clock(this.world.pool);
    const isLate = (job: ClaimedJob): boolean => (expiresAtMs(job) ?? Number.POSITIVE_INFINITY) < nowMs;
    const late = jobs.filter(isLate).map((job) => ({ job, queue }));
    if (late.length > 0) await bury(this.world, late, 'expired');
    return jobs.filter((job) => !isLate(job));
  }

  async #hand(job: ClaimedJob, consumer: Consumer): Promise<void> {
    const { queue, noAck } = consumer;
    const tag = await this.deliveries.handOver({ job, queue, consumer }, noAck);
    try {
      consumer.onMessage(messageOf(job, tag, consumer.tag));
    } catch (error) {
      // As amqplib: what a callback throws is the program's.
      queueMicrotask(() => {
        throw error;
      });
    }
  }

  #rest(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      timer.unref?.();
      this.#nudge.push(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }
}
