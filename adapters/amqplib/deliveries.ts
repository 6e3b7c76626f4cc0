/**
 * What a channel has handed over and not yet settled, by delivery tag, and the leases of it, extended until then. Who gets a
 * message is consuming.ts's; what an ack or a nack does, the channel's.
 */
import type { ClaimedJob } from '../../src/jobs/job.js';
import { isHeldBy } from '../../src/jobs/recheck.js';
import { giveBack } from './burying.js';
import { type ChannelWorld, held } from './channel-world.js';

export interface Delivery {
  readonly job: ClaimedJob;
  readonly queue: string;
  /** Whose it is; null for one that was asked for by `get`. */
  readonly consumer: object | null;
}

export class Deliveries {
  #lastTag = 0;
  readonly #unacked = new Map<number, Delivery>();
  readonly #renewal: NodeJS.Timeout;

  constructor(private readonly world: ChannelWorld) {
    this.#renewal = setInterval(() => void this.#renew(), world.leaseMs / 3).unref();
  }

  get size(): number {
    return this.#unacked.size;
  }

  countOf(consumer: object): number {
    return [...this.#unacked.values()].filter((one) => one.consumer === consumer).length;
  }

  /** Its tag. Without an ack to come it is done at once. */
  async handOver(delivery: Delivery, noAck: boolean): Promise<number> {
    this.#lastTag += 1;
    const tag = this.#lastTag;
    const { pool, store } = this.world;
    if (noAck) await store.complete(pool, [{ ...held(delivery.job), resultText: null }]);
    else this.#unacked.set(tag, delivery);
    return tag;
  }

  /** The newest tag that is not settled. */
  get newest(): number | undefined {
    return [...this.#unacked.keys()].at(-1);
  }

  /** The delivery of a tag, or all up to it: whoever takes them settles them. */
  take(deliveryTag: number, allUpTo: boolean): Delivery[] {
    const tags = allUpTo ? [...this.#unacked.keys()].filter((tag) => tag <= deliveryTag) : [deliveryTag];
    const taken = tags.flatMap((tag) => this.#unacked.get(tag) ?? []);
    for (const tag of tags) this.#unacked.delete(tag);
    return taken;
  }

  /** All of them go back to their queues. */
  async giveBack(): Promise<void> {
    const jobs = [...this.#unacked.values()].map(({ job }) => job);
    await giveBack(this.world, jobs);
    this.#unacked.clear();
  }

  /** No lease is extended any more; what is left goes back, or comes back when its lease runs out. */
  async end(): Promise<void> {
    clearInterval(this.#renewal);
    await this.giveBack().catch(() => undefined);
    this.#unacked.clear();
  }

  async #renew(): Promise<void> {
    const deliveries = [...this.#unacked];
    if (deliveries.length === 0) return;
    const { pool, store, leaseMs } = this.world;
    const jobs = deliveries.map(([, { job }]) => job);
    try {
      const kept = new Set(await store.extend(pool, jobs.map(held), leaseMs));
      const missing = jobs.filter(({ id }) => !kept.has(id));
      if (missing.length === 0) return;
      // Held by somebody else just now, or lost.
      const rows = await store.rowsNow(
        pool,
        missing.map(({ id }) => id),
      );
      const now = new Map(rows.map((row) => [row.id, row]));
      for (const [tag, { job }] of deliveries)
        if (!kept.has(job.id) && !isHeldBy(job, now.get(job.id))) this.#unacked.delete(tag);
    } catch {
      // Not asked in time is not lost: the next turn says.
    }
  }
}
