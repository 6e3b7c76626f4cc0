/**
 * What a channel publishes: gathered until its turn comes, stored in one statement a batch, each told when it is. Where a
 * message goes is topology.ts's; in what order things happen, the channel's.
 */
import { noExchange } from './channel-error.js';
import type { ChannelWorld } from './channel-world.js';
import { MAX_ATTEMPTS, type PublishOptions, propertiesOf } from './message.js';
import { placed, waitMsOf } from './placing.js';
import { route, type Topology } from './topology.js';

interface Publish {
  readonly exchange: string;
  readonly routingKey: string;
  readonly content: Buffer;
  readonly properties: Readonly<Record<string, unknown>>;
  readonly options: PublishOptions;
  readonly done: (error: Error | null) => void;
}

/** What comes back: no queue took it. */
export interface Returned {
  readonly fields: {
    readonly replyCode: number;
    readonly replyText: string;
    readonly exchange: string;
    readonly routingKey: string;
  };
  readonly properties: Readonly<Record<string, unknown>>;
  readonly content: Buffer;
}

export interface PublishingHooks {
  /** Runs it when all that was asked before is done. */
  inOrder(work: () => Promise<void>): Promise<void>;
  returned(message: Returned): void;
  /** A batch is stored. */
  stored(): void;
  /** All that waited is stored. */
  drained(): void;
  /** Could not be stored; those who waited have been told. */
  failed(error: Error, cause: unknown): void;
}

const MAX_PUBLISHED_AT_ONCE = 500;
const MAX_CONTENT = 16_777_216;

export class Publishing {
  #pending: Publish[] = [];
  #unconfirmed = 0;
  #confirmed: (() => void)[] = [];
  #lost: Error | null = null;

  constructor(
    private readonly world: ChannelWorld,
    private readonly hooks: PublishingHooks,
  ) {}

  /** False: wait for `drain` before publishing more. */
  publish(
    exchange: string,
    routingKey: string,
    content: Buffer,
    options: PublishOptions,
    done?: (error: Error | null) => void,
  ): boolean {
    if (!Buffer.isBuffer(content)) throw new TypeError('content is not a buffer');
    if (content.length > MAX_CONTENT) throw new TypeError(`content is larger than ${MAX_CONTENT} bytes`);
    const properties = propertiesOf(options);
    this.#unconfirmed += 1;
    const settle = (error: Error | null): void => {
      this.#unconfirmed -= 1;
      if (this.#unconfirmed === 0) for (const confirmed of this.#confirmed.splice(0)) confirmed();
      done?.(error);
    };
    this.#pending.push({ exchange, routingKey, content, properties, options, done: settle });
    // Whatever else is published before its turn comes goes with it.
    if (this.#pending.length === 1)
      this.hooks.inOrder(() => this.#flush()).catch((error: unknown) => this.#lose(error));
    return this.#pending.length < MAX_PUBLISHED_AT_ONCE;
  }

  /** Resolves when all that was published is stored. Rejects when something was not. */
  async settled(): Promise<void> {
    if (this.#unconfirmed > 0) await new Promise<void>((resolve) => this.#confirmed.push(resolve));
    if (this.#lost !== null) throw this.#lost;
  }

  #lose(error: unknown): void {
    const lost = error instanceof Error ? error : new Error(String(error));
    this.#lost = lost;
    for (const { done } of this.#pending.splice(0)) done(lost);
    this.hooks.failed(lost, error);
  }

  async #flush(): Promise<void> {
    const { pool, store, tables } = this.world;
    while (this.#pending.length > 0) {
      const batch = this.#pending.slice(0, MAX_PUBLISHED_AT_ONCE);
      const topology = await tables.read(pool);
      // Due times are the database's; without a queue that delays there is none.
      const delays = [...topology.queues.values()].some((given) => waitMsOf(given) !== null);
      const nowMs = delays ? await store.clock(pool) : 0;
      const jobs = batch.flatMap((one) => this.#routed(one, topology, nowMs));
      if (jobs.length > 0) await store.enqueueBodies(pool, jobs, MAX_ATTEMPTS);
      this.#pending.splice(0, batch.length);
      for (const { done } of batch) done(null);
      this.hooks.stored();
    }
    this.hooks.drained();
  }

  /** Throws ChannelError for an exchange that is not there. */
  #routed(publish: Publish, topology: Topology, nowMs: number) {
    const { exchange, routingKey, content, properties, options } = publish;
    const copies = [options.CC ?? [], options.BCC ?? []].flat();
    const headers = (options.headers ?? {}) as Readonly<Record<string, unknown>>;
    const queues = new Set<string>();
    for (const key of [routingKey, ...copies]) {
      const found = route(topology, exchange, key, headers);
      if (found === null) throw noExchange(exchange, 'BasicPublish');
      for (const queue of found) queues.add(queue);
    }
    if (queues.size === 0 && options.mandatory === true) {
      const fields = { replyCode: 312, replyText: 'NO_ROUTE', exchange, routingKey };
      this.hooks.returned({ fields, properties, content });
    }
    return [...queues].flatMap((queue) => placed(queue, publish, topology, nowMs));
  }
}
