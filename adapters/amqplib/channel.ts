/**
 * A channel with the face of amqplib's, on rows: topology in tables, a message a job, a delivery a claim, an ack its
 * completion. Everything a channel is asked to do happens in the order it was asked, as on a connection. What RabbitMQ
 * would close a channel over closes this one, with the same code.
 */
import { EventEmitter } from 'node:events';
import type { ClaimedJob } from '../../src/jobs/job.js';
import { bury, giveBack } from './burying.js';
import { ChannelError, IllegalOperation } from './channel-error.js';
import { type ChannelWorld, held } from './channel-world.js';
import { Declaring, type QueueOptions } from './declaring.js';
import { kindOf, type Message, messageOf, type PublishOptions } from './message.js';
import { isExpired, waitMsOf } from './placing.js';
import { Publishing } from './publishing.js';
import type { Arguments } from './tables.js';
import type { Binding } from './topology.js';

interface Consumer {
  readonly tag: string;
  readonly queue: string;
  readonly noAck: boolean;
  readonly prefetch: number;
  readonly onMessage: (message: Message | null) => void;
  stopped: boolean;
}

interface Delivery {
  readonly job: ClaimedJob;
  readonly queue: string;
  readonly consumer: Consumer | null;
}

/** Unacknowledged messages of a consumer without a prefetch. */
const MAX_UNACKED = 250;
const REAP_EVERY = 100;

export class Channel extends EventEmitter {
  #tail: Promise<unknown> = Promise.resolve();
  #nextTag = 0;
  #prefetch = 0;
  readonly #consumers = new Map<string, Consumer>();
  readonly #unacked = new Map<number, Delivery>();
  readonly #loops = new Set<Promise<void>>();
  readonly #renewal: NodeJS.Timeout;
  #nudge: (() => void)[] = [];
  #closed = false;
  readonly #declaring: Declaring;
  readonly #publishing: Publishing;

  constructor(
    readonly connection: unknown,
    private readonly world: ChannelWorld,
    private readonly onClosed: (channel: Channel) => void,
  ) {
    super();
    this.#declaring = new Declaring(world, (queue) => this.#consumersOf(queue));
    this.#publishing = this.#publishes();
    this.#renewal = setInterval(() => void this.#renew(), world.leaseMs / 3).unref();
  }

  #consumersOf(queue: string): number {
    return [...this.#consumers.values()].filter((one) => one.queue === queue).length;
  }

  // --- in order, and closed by what the server would close it over

  #inOrder<T>(work: () => Promise<T>): Promise<T> {
    if (this.#closed) return Promise.reject(new IllegalOperation());
    const result = this.#tail.then(async () => {
      if (this.#closed) throw new IllegalOperation();
      try {
        return await work();
      } catch (error) {
        if (error instanceof ChannelError) await this.#fail(error);
        throw error;
      }
    });
    this.#tail = result.catch(() => undefined);
    return result;
  }

  async #fail(error: ChannelError): Promise<void> {
    await this.#shut();
    if (this.listenerCount('error') > 0) this.emit('error', error);
    this.emit('close');
  }

  // --- topology

  assertQueue(name = '', options: QueueOptions = {}) {
    return this.#inOrder(() => this.#declaring.assertQueue(name, options));
  }

  checkQueue(queue: string) {
    return this.#inOrder(() => this.#declaring.checkQueue(queue));
  }

  deleteQueue(queue: string, options: { readonly ifEmpty?: boolean; readonly ifUnused?: boolean } = {}) {
    return this.#inOrder(() => this.#declaring.deleteQueue(queue, options));
  }

  purgeQueue(queue: string) {
    return this.#inOrder(() => this.#declaring.purgeQueue(queue));
  }

  assertExchange(exchange: string, type: string, _options: object = {}) {
    return this.#inOrder(() => this.#declaring.assertExchange(exchange, type));
  }

  checkExchange(exchange: string) {
    return this.#inOrder(async () => {
      await this.#declaring.needExchange(exchange, 'ExchangeDeclare');
      return {};
    });
  }

  deleteExchange(exchange: string, _options: object = {}) {
    return this.#inOrder(() => this.#declaring.deleteExchange(exchange));
  }

  bindQueue(queue: string, source: string, pattern: string, args: Arguments = {}) {
    return this.#inOrder(() => this.#declaring.bind(toQueue(queue, source, pattern, args)));
  }

  bindExchange(destination: string, source: string, pattern: string, args: Arguments = {}) {
    return this.#inOrder(() => this.#declaring.bind(toExchange(destination, source, pattern, args)));
  }

  unbindQueue(queue: string, source: string, pattern: string, args: Arguments = {}) {
    return this.#inOrder(() => this.#declaring.unbind(toQueue(queue, source, pattern, args)));
  }

  unbindExchange(destination: string, source: string, pattern: string, args: Arguments = {}) {
    return this.#inOrder(() => this.#declaring.unbind(toExchange(destination, source, pattern, args)));
  }

  // --- publishing

  publish(
    exchange: string,
    routingKey: string,
    content: Buffer,
    options: PublishOptions = {},
    done?: (error: Error | null) => void,
  ): boolean {
    if (this.#closed) throw new IllegalOperation();
    return this.#publishing.publish(exchange, routingKey, content, options, done);
  }

  sendToQueue(
    queue: string,
    content: Buffer,
    options: PublishOptions = {},
    done?: (error: Error | null) => void,
  ): boolean {
    return this.publish('', queue, content, options, done);
  }

  /** Resolves when all that was published is stored. Rejects when something was not. */
  waitForConfirms(): Promise<void> {
    return this.#publishing.settled();
  }

  /** On a channel without callbacks what could not be stored fails aloud. */
  #publishes(): Publishing {
    return new Publishing(this.world, {
      inOrder: (work) => this.#inOrder(work),
      returned: (message) => void this.emit('return', message),
      stored: () => this.#wake(),
      drained: () => void this.emit('drain'),
      failed: (error, cause) => {
        if (!(cause instanceof ChannelError) && this.listenerCount('error') > 0) this.emit('error', error);
      },
    });
  }

  // --- consuming

  prefetch(count: number, _global = false) {
    this.#prefetch = Math.max(0, Math.trunc(count));
    return Promise.resolve({});
  }

  consume(
    queue: string,
    onMessage: (message: Message | null) => void,
    options: { readonly consumerTag?: string; readonly noAck?: boolean; readonly exclusive?: boolean } = {},
  ) {
    return this.#inOrder(async () => {
      if (waitMsOf(await this.#declaring.needQueue(queue, 'BasicConsume')) !== null)
        throw new ChannelError(
          406,
          'BasicConsume',
          `PRECONDITION_FAILED - queue '${queue}' has a time to live and a dead letter exchange: here it only delays, consume the queue behind it`,
        );
      const tag = options.consumerTag ?? `amq.ctag-${Math.random().toString(36).slice(2, 14)}`;
      if (this.#consumers.has(tag))
        throw new ChannelError(406, 'BasicConsume', `NOT_ALLOWED - attempt to reuse consumer tag '${tag}'`);
      const prefetch = this.#prefetch === 0 ? MAX_UNACKED : this.#prefetch;
      const consumer: Consumer = {
        tag,
        queue,
        noAck: options.noAck === true,
        prefetch,
        onMessage,
        stopped: false,
      };
      this.#consumers.set(tag, consumer);
      const loop = this.#run(consumer).finally(() => this.#loops.delete(loop));
      this.#loops.add(loop);
      return { consumerTag: tag };
    });
  }

  cancel(consumerTag: string) {
    return this.#inOrder(async () => {
      const consumer = this.#consumers.get(consumerTag);
      if (consumer !== undefined) consumer.stopped = true;
      this.#consumers.delete(consumerTag);
      this.#wake();
      return { consumerTag };
    });
  }

  /** Claims as much as the prefetch leaves, hands it over, sleeps while there is nothing. */
  async #run(consumer: Consumer): Promise<void> {
    const { pollMs } = this.world;
    for (let turns = 0; !consumer.stopped && !this.#closed; turns += 1) {
      try {
        if (turns % REAP_EVERY === 0) await this.world.store.reap(this.world.pool, 100);
        const held = [...this.#unacked.values()].filter((one) => one.consumer === consumer).length;
        const room = consumer.noAck ? MAX_UNACKED : consumer.prefetch - held;
        const jobs = room > 0 ? await this.#claim(consumer.queue, room) : [];
        if (consumer.stopped || this.#closed) {
          await giveBack(this.world, jobs);
          return;
        }
        for (const job of jobs) await this.#hand(job, consumer);
        if (jobs.length > 0) continue;
      } catch (error) {
        // The database is away: the next turn asks again.
        if (this.listenerCount('handler-error') > 0) this.emit('handler-error', error, 'delivery');
      }
      await this.#rest(pollMs);
    }
  }

  async #claim(queue: string, limit: number): Promise<ClaimedJob[]> {
    const { pool, store, holder, leaseMs } = this.world;
    const demands = [{ kind: kindOf(queue), limit, park: false }];
    const jobs = await store.claim(pool, demands, limit, holder, leaseMs);
    if (jobs.length > 0 || this.#unacked.size > 0) return jobs;
    // One whose process died is handed out alone, in case it was the message that killed it.
    const alone = await store.claimSolo(pool, demands, holder, leaseMs);
    return alone === null ? [] : [alone];
  }

  async #hand(job: ClaimedJob, consumer: Consumer): Promise<void> {
    if (isExpired(job, Date.now())) {
      await bury(this.world, [{ job, queue: consumer.queue }], 'expired');
      return;
    }
    this.#nextTag += 1;
    const tag = this.#nextTag;
    if (consumer.noAck)
      await this.world.store.complete(this.world.pool, [{ ...held(job), resultText: null }]);
    else this.#unacked.set(tag, { job, queue: consumer.queue, consumer });
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

  #wake(): void {
    for (const nudge of this.#nudge.splice(0)) nudge();
  }

  /** One message, or false. */
  get(queue: string, options: { readonly noAck?: boolean } = {}): Promise<Message | false> {
    return this.#inOrder(async () => {
      await this.#declaring.needQueue(queue, 'BasicGet');
      const [job] = await this.#claim(queue, 1);
      if (job === undefined) return false;
      this.#nextTag += 1;
      const tag = this.#nextTag;
      if (options.noAck === true)
        await this.world.store.complete(this.world.pool, [{ ...held(job), resultText: null }]);
      else this.#unacked.set(tag, { job, queue, consumer: null });
      const message = messageOf(job, tag, null);
      const { messageCount } = await this.#declaring.describe(queue);
      return { ...message, fields: { ...message.fields, messageCount } };
    });
  }

  // --- settling

  ack(message: Message, allUpTo = false): void {
    this.#settle(message, allUpTo, async (deliveries) => {
      const { pool, store } = this.world;
      await store.complete(
        pool,
        deliveries.map(({ job }) => ({ ...held(job), resultText: null })),
      );
    });
  }

  ackAll(): void {
    const last = [...this.#unacked.keys()].at(-1);
    if (last !== undefined) this.ack({ fields: { deliveryTag: last } } as Message, true);
  }

  nack(message: Message, allUpTo = false, requeue = true): void {
    this.#settle(message, allUpTo, (deliveries) =>
      requeue
        ? giveBack(
            this.world,
            deliveries.map(({ job }) => job),
          )
        : bury(this.world, deliveries),
    );
  }

  nackAll(requeue = true): void {
    const last = [...this.#unacked.keys()].at(-1);
    if (last !== undefined) this.nack({ fields: { deliveryTag: last } } as Message, true, requeue);
  }

  reject(message: Message, requeue = true): void {
    this.nack(message, false, requeue);
  }

  recover() {
    return this.#inOrder(async () => {
      await giveBack(
        this.world,
        [...this.#unacked.values()].map(({ job }) => job),
      );
      this.#unacked.clear();
      return {};
    });
  }

  #settle(
    { fields: { deliveryTag } }: Pick<Message, 'fields'>,
    allUpTo: boolean,
    how: (deliveries: readonly Delivery[]) => Promise<unknown>,
  ): void {
    const tags = allUpTo ? [...this.#unacked.keys()].filter((tag) => tag <= deliveryTag) : [deliveryTag];
    const deliveries = tags.flatMap((tag) => this.#unacked.get(tag) ?? []);
    for (const tag of tags) this.#unacked.delete(tag);
    const known = deliveries.length > 0 || allUpTo;
    this.#inOrder(async () => {
      if (!known)
        throw new ChannelError(406, 'BasicAck', `PRECONDITION_FAILED - unknown delivery tag ${deliveryTag}`);
      if (deliveries.length > 0) await how(deliveries);
      this.#wake();
    }).catch((error: unknown) => {
      // Not settled: the lease runs out and it is delivered again.
      if (!(error instanceof ChannelError) && this.listenerCount('handler-error') > 0)
        this.emit('handler-error', error, 'settle');
    });
  }

  async #renew(): Promise<void> {
    const deliveries = [...this.#unacked];
    if (deliveries.length === 0) return;
    const { pool, store, leaseMs } = this.world;
    const kept = new Set(
      await store
        .extend(
          pool,
          deliveries.map(([, { job }]) => held(job)),
          leaseMs,
        )
        .catch(() =>
          // Not asked in time is not lost: the next turn says.
          deliveries.map(([, { job }]) => job.id),
        ),
    );
    for (const [tag, { job }] of deliveries) if (!kept.has(job.id)) this.#unacked.delete(tag);
  }

  // --- the end

  async close(): Promise<void> {
    if (this.#closed) throw new IllegalOperation();
    await this.#tail;
    await this.#shut();
    this.emit('close');
  }

  /** Deliveries under way go back to their queues. */
  async #shut(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    clearInterval(this.#renewal);
    for (const consumer of this.#consumers.values()) consumer.stopped = true;
    this.#consumers.clear();
    this.#wake();
    await Promise.all(this.#loops);
    await giveBack(
      this.world,
      [...this.#unacked.values()].map(({ job }) => job),
    ).catch(() => undefined);
    this.#unacked.clear();
    this.onClosed(this);
  }
}

const toQueue = (destination: string, source: string, routingKey: string, args: Arguments): Binding => ({
  ...{ source, destination, toExchange: false, routingKey, arguments: args },
});
const toExchange = (destination: string, source: string, routingKey: string, args: Arguments): Binding => ({
  ...{ source, destination, toExchange: true, routingKey, arguments: args },
});
