/**
 * A channel with the face of amqplib's, on rows: topology in tables, a message a job, a delivery a claim, an ack its
 * completion. Everything a channel is asked to do happens in the order it was asked, as on a connection. What RabbitMQ
 * would close a channel over closes this one, with the same code.
 */
import { EventEmitter } from 'node:events';
import { bury, giveBack } from './burying.js';
import { ChannelError, IllegalOperation } from './channel-error.js';
import { type ChannelWorld, held } from './channel-world.js';
import { type ConsumeOptions, Consuming } from './consuming.js';
import { Declaring, type QueueOptions } from './declaring.js';
import { Deliveries, type Delivery } from './deliveries.js';
import { type Message, messageOf, type PublishOptions } from './message.js';
import { waitMsOf } from './placing.js';
import { Publishing } from './publishing.js';
import type { Arguments } from './tables.js';
import type { Binding } from './topology.js';

export class Channel extends EventEmitter {
  #tail: Promise<unknown> = Promise.resolve();
  #prefetch = 0;
  readonly #deliveries: Deliveries;
  readonly #consuming: Consuming;
  #closed = false;
  readonly #declaring: Declaring;
  readonly #publishing: Publishing;

  constructor(
    readonly connection: unknown,
    private readonly world: ChannelWorld,
    private readonly onClosed: (channel: Channel) => void,
  ) {
    super();
    this.#deliveries = new Deliveries(world);
    this.#consuming = new Consuming(world, this.#deliveries, (error) =>
      this.#handlerError(error, 'delivery'),
    );
    this.#declaring = new Declaring(world, (queue) => this.#consuming.consumersOf(queue));
    this.#publishing = this.#publishes();
  }

  /** For who listens: it goes on by itself. */
  #handlerError(error: unknown, where: 'delivery' | 'settle'): void {
    if (this.listenerCount('handler-error') > 0) this.emit('handler-error', error, where);
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
      stored: () => this.#consuming.wake(),
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

  consume(queue: string, onMessage: (message: Message | null) => void, options: ConsumeOptions = {}) {
    return this.#inOrder(async () => {
      if (waitMsOf(await this.#declaring.needQueue(queue, 'BasicConsume')) !== null)
        throw new ChannelError(
          406,
          'BasicConsume',
          `PRECONDITION_FAILED - queue '${queue}' has a time to live and a dead letter exchange: here it only delays, consume the queue behind it`,
        );
      return { consumerTag: this.#consuming.start(queue, onMessage, options, this.#prefetch) };
    });
  }

  cancel(consumerTag: string) {
    return this.#inOrder(async () => {
      this.#consuming.cancel(consumerTag);
      return { consumerTag };
    });
  }

  /** One message, or false. */
  get(queue: string, options: { readonly noAck?: boolean } = {}): Promise<Message | false> {
    return this.#inOrder(async () => {
      await this.#declaring.needQueue(queue, 'BasicGet');
      const job = await this.#consuming.next(queue);
      if (job === null) return false;
      const tag = await this.#deliveries.handOver({ job, queue, consumer: null }, options.noAck === true);
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
    const last = this.#deliveries.newest;
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
    const last = this.#deliveries.newest;
    if (last !== undefined) this.nack({ fields: { deliveryTag: last } } as Message, true, requeue);
  }

  reject(message: Message, requeue = true): void {
    this.nack(message, false, requeue);
  }

  recover() {
    return this.#inOrder(async () => {
      await this.#deliveries.giveBack();
      return {};
    });
  }

  #settle(
    { fields: { deliveryTag } }: Pick<Message, 'fields'>,
    allUpTo: boolean,
    how: (deliveries: readonly Delivery[]) => Promise<unknown>,
  ): void {
    const deliveries = this.#deliveries.take(deliveryTag, allUpTo);
    const known = deliveries.length > 0 || allUpTo;
    this.#inOrder(async () => {
      if (!known)
        throw new ChannelError(406, 'BasicAck', `PRECONDITION_FAILED - unknown delivery tag ${deliveryTag}`);
      if (deliveries.length > 0) await how(deliveries);
      this.#consuming.wake();
    }).catch((error: unknown) => {
      // Not settled: the lease runs out and it is delivered again.
      if (!(error instanceof ChannelError)) this.#handlerError(error, 'settle');
    });
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
    await this.#consuming.end();
    await this.#deliveries.end();
    this.onClosed(this);
  }
}

const toQueue = (destination: string, source: string, routingKey: string, args: Arguments): Binding => ({
  ...{ source, destination, toExchange: false, routingKey, arguments: args },
});
const toExchange = (destination: string, source: string, routingKey: string, args: Arguments): Binding => ({
  ...{ source, destination, toExchange: true, routingKey, arguments: args },
});
