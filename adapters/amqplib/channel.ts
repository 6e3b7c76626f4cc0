/**
 * A channel with the face of amqplib's, on rows: topology in tables, a message a job, a delivery a claim, an ack its
 * completion. Everything a channel is asked to do happens in the order it was asked, as on a connection. What RabbitMQ
 * would close a channel over closes this one, with the same code.
 */
import { EventEmitter } from 'node:events';
import type { ClaimedJob, Json, Queryable } from '../../src/jobs/job.js';
import type { BodyJob, Store } from '../../src/jobs/store.js';
import {
  contentOf,
  jobOf,
  keptOf,
  kindOf,
  MAX_ATTEMPTS,
  type Message,
  messageOf,
  type PublishOptions,
  propertiesOf,
  withDeath,
} from './message.js';
import { type Arguments, argumentsText, type Tables } from './tables.js';
import { type Binding, type ExchangeType, route, type Topology, typeOf } from './topology.js';

/** What we ask of a pool. pg.Pool has it. */
export interface ChannelPool extends Queryable {
  connect(): Promise<Queryable & { release(destroy?: boolean): void }>;
}

export interface ChannelWorld {
  readonly pool: ChannelPool;
  readonly store: Store;
  readonly tables: Tables;
  /** In `locked_by`. */
  readonly holder: string;
  readonly leaseMs: number;
  readonly pollMs: number;
}

/** As amqplib reports what a server closes a channel over. */
export class ChannelError extends Error {
  constructor(
    readonly code: number,
    operation: string,
    text: string,
  ) {
    super(`Operation failed: ${operation}; ${code} (${NAMES[code] ?? 'ERROR'}) with message "${text}"`);
    this.name = 'ChannelError';
  }
}

const NAMES: Readonly<Record<number, string>> = {
  403: 'ACCESS-REFUSED',
  404: 'NOT-FOUND',
  406: 'PRECONDITION-FAILED',
};

export interface QueueOptions {
  readonly exclusive?: boolean;
  readonly durable?: boolean;
  readonly autoDelete?: boolean;
  readonly arguments?: Arguments;
  readonly messageTtl?: number;
  readonly expires?: number;
  readonly deadLetterExchange?: string;
  readonly deadLetterRoutingKey?: string;
  readonly maxLength?: number;
  readonly maxPriority?: number;
}

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

interface Publish {
  readonly exchange: string;
  readonly routingKey: string;
  readonly content: Buffer;
  readonly properties: Readonly<Record<string, unknown>>;
  readonly options: PublishOptions;
  readonly done: (error: Error | null) => void;
}

/** Unacknowledged messages of a consumer without a prefetch. */
const MAX_UNACKED = 250;
const MAX_PUBLISHED_AT_ONCE = 500;
const MAX_CONTENT = 16_777_216;
const REAP_EVERY = 100;

export class Channel extends EventEmitter {
  #tail: Promise<unknown> = Promise.resolve();
  #pending: Publish[] = [];
  #unconfirmed = 0;
  #confirmed: (() => void)[] = [];
  #nextTag = 0;
  #prefetch = 0;
  readonly #consumers = new Map<string, Consumer>();
  readonly #unacked = new Map<number, Delivery>();
  readonly #loops = new Set<Promise<void>>();
  readonly #renewal: NodeJS.Timeout;
  #nudge: (() => void)[] = [];
  #closed = false;

  constructor(
    readonly connection: unknown,
    private readonly world: ChannelWorld,
    private readonly onClosed: (channel: Channel) => void,
  ) {
    super();
    this.#renewal = setInterval(() => void this.#renew(), world.leaseMs / 3).unref();
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
    const queue = name === '' ? `amq.gen-${Math.random().toString(36).slice(2, 14)}${Date.now()}` : name;
    return this.#inOrder(async () => {
      const { pool, tables } = this.world;
      if (name.startsWith('amq.') && !name.startsWith('amq.gen-'))
        throw new ChannelError(
          403,
          'QueueDeclare',
          `ACCESS_REFUSED - queue name '${name}' contains reserved prefix 'amq.*'`,
        );
      const given = queueArguments(options);
      await tables.putQueue(pool, queue, given);
      const there = await tables.findQueue(pool, queue);
      if (there !== null && argumentsText(there) !== argumentsText(given))
        throw new ChannelError(
          406,
          'QueueDeclare',
          `PRECONDITION_FAILED - inequivalent arg for queue '${queue}'`,
        );
      return this.#describe(queue);
    });
  }

  checkQueue(queue: string) {
    return this.#inOrder(async () => {
      await this.#needQueue(queue, 'QueueDeclare');
      return this.#describe(queue);
    });
  }

  async #describe(queue: string) {
    const { pool, store } = this.world;
    const messageCount = await store.countReady(pool, kindOf(queue), 1_000_000);
    const consumerCount = [...this.#consumers.values()].filter((one) => one.queue === queue).length;
    return { queue, messageCount, consumerCount };
  }

  async #needQueue(queue: string, operation: string): Promise<Arguments> {
    const found = await this.world.tables.findQueue(this.world.pool, queue);
    if (found === null)
      throw new ChannelError(404, operation, `NOT_FOUND - no queue '${queue}' in vhost '/'`);
    return found;
  }

  deleteQueue(queue: string, options: { readonly ifEmpty?: boolean; readonly ifUnused?: boolean } = {}) {
    return this.#inOrder(async () => {
      const { messageCount, consumerCount } = await this.#describe(queue);
      if ((options.ifEmpty === true && messageCount > 0) || (options.ifUnused === true && consumerCount > 0))
        throw new ChannelError(
          406,
          'QueueDelete',
          `PRECONDITION_FAILED - queue '${queue}' in vhost '/' not empty or in use`,
        );
      await this.#drop(queue);
      await this.world.tables.deleteQueue(this.world.pool, queue);
      return { messageCount };
    });
  }

  purgeQueue(queue: string) {
    return this.#inOrder(async () => {
      await this.#needQueue(queue, 'QueuePurge');
      return { messageCount: await this.#drop(queue) };
    });
  }

  /** Waiting messages become cancelled rows: a person can still find them. */
  async #drop(queue: string): Promise<number> {
    const { pool, store } = this.world;
    for (let dropped = 0; ; ) {
      const waiting = await store.list(pool, { state: 'ready', kind: kindOf(queue), limit: 1_000 });
      if (waiting.length === 0) return dropped;
      dropped += (
        await store.cancel(
          pool,
          waiting.map(({ id }) => id),
        )
      ).length;
    }
  }

  assertExchange(exchange: string, type: string, _options: object = {}) {
    return this.#inOrder(async () => {
      const { pool, tables } = this.world;
      const known = TYPES.find((one) => one === type);
      if (known === undefined)
        throw new ChannelError(
          406,
          'ExchangeDeclare',
          `PRECONDITION_FAILED - invalid exchange type '${type}'`,
        );
      if (typeOf(await tables.read(pool), exchange) === undefined)
        await tables.putExchange(pool, exchange, known);
      const there = typeOf(await tables.read(pool), exchange);
      if (there !== known)
        throw new ChannelError(
          406,
          'ExchangeDeclare',
          `PRECONDITION_FAILED - inequivalent arg 'type' for exchange '${exchange}' in vhost '/': received '${type}' but current is '${there}'`,
        );
      return { exchange };
    });
  }

  checkExchange(exchange: string) {
    return this.#inOrder(async () => {
      await this.#needExchange(exchange, 'ExchangeDeclare');
      return {};
    });
  }

  async #needExchange(exchange: string, operation: string): Promise<void> {
    if (typeOf(await this.world.tables.read(this.world.pool), exchange) === undefined)
      throw noExchange(exchange, operation);
  }

  deleteExchange(exchange: string, _options: object = {}) {
    return this.#inOrder(async () => {
      await this.world.tables.deleteExchange(this.world.pool, exchange);
      return {};
    });
  }

  bindQueue(queue: string, source: string, pattern: string, args: Arguments = {}) {
    return this.#bind({
      source,
      destination: queue,
      toExchange: false,
      routingKey: pattern,
      arguments: args,
    });
  }
  bindExchange(destination: string, source: string, pattern: string, args: Arguments = {}) {
    return this.#bind({ source, destination, toExchange: true, routingKey: pattern, arguments: args });
  }

  #bind(binding: Binding) {
    return this.#inOrder(async () => {
      const operation = binding.toExchange ? 'ExchangeBind' : 'QueueBind';
      if (binding.toExchange) await this.#needExchange(binding.destination, operation);
      else await this.#needQueue(binding.destination, operation);
      await this.#needExchange(binding.source, operation);
      await this.world.tables.bind(this.world.pool, binding);
      return {};
    });
  }

  unbindQueue(queue: string, source: string, pattern: string, args: Arguments = {}) {
    return this.#unbind({
      source,
      destination: queue,
      toExchange: false,
      routingKey: pattern,
      arguments: args,
    });
  }
  unbindExchange(destination: string, source: string, pattern: string, args: Arguments = {}) {
    return this.#unbind({ source, destination, toExchange: true, routingKey: pattern, arguments: args });
  }

  #unbind(binding: Binding) {
    return this.#inOrder(async () => {
      await this.world.tables.unbind(this.world.pool, binding);
      return {};
    });
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
      this.#inOrder(() => this.#flush()).catch((error: unknown) => this.#lose(error));
    return this.#pending.length < MAX_PUBLISHED_AT_ONCE;
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
  async waitForConfirms(): Promise<void> {
    if (this.#unconfirmed > 0) await new Promise<void>((resolve) => this.#confirmed.push(resolve));
    if (this.#lost !== null) throw this.#lost;
  }

  #lost: Error | null = null;

  /** What could not be stored: each callback is told, and on a channel without callbacks the channel fails aloud. */
  #lose(error: unknown): void {
    const lost = error instanceof Error ? error : new Error(String(error));
    this.#lost = lost;
    for (const { done } of this.#pending.splice(0)) done(lost);
    if (!(error instanceof ChannelError) && this.listenerCount('error') > 0) this.emit('error', lost);
  }

  async #flush(): Promise<void> {
    const { pool, store, tables } = this.world;
    while (this.#pending.length > 0) {
      const batch = this.#pending.slice(0, MAX_PUBLISHED_AT_ONCE);
      const topology = await tables.read(pool);
      const jobs = batch.flatMap((one) => this.#routed(one, topology));
      if (jobs.length > 0) await store.enqueueBodies(pool, jobs, MAX_ATTEMPTS);
      this.#pending.splice(0, batch.length);
      for (const { done } of batch) done(null);
      this.#wake();
    }
    this.emit('drain');
  }

  /** Throws ChannelError for an exchange that is not there. */
  #routed(publish: Publish, topology: Topology) {
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
      this.emit('return', { fields, properties, content });
    }
    return [...queues].flatMap((queue) => placed(queue, publish, topology, Date.now()));
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
      if (waitMsOf(await this.#needQueue(queue, 'BasicConsume')) !== null)
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
          await this.#giveBack(jobs);
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
      await this.#bury([{ job, queue: consumer.queue, consumer }], 'expired');
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
      await this.#needQueue(queue, 'BasicGet');
      const [job] = await this.#claim(queue, 1);
      if (job === undefined) return false;
      this.#nextTag += 1;
      const tag = this.#nextTag;
      if (options.noAck === true)
        await this.world.store.complete(this.world.pool, [{ ...held(job), resultText: null }]);
      else this.#unacked.set(tag, { job, queue, consumer: null });
      const message = messageOf(job, tag, null);
      const { messageCount } = await this.#describe(queue);
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
      requeue ? this.#giveBack(deliveries.map(({ job }) => job)) : this.#bury(deliveries),
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
      await this.#giveBack([...this.#unacked.values()].map(({ job }) => job));
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

  /** Back to where it lay, marked as delivered before; no attempt is spent. */
  async #giveBack(jobs: readonly ClaimedJob[]): Promise<void> {
    const { pool, store } = this.world;
    for (const job of jobs) await store.checkpoint(pool, held(job), '{"delivered":true}');
    if (jobs.length > 0) await store.release(pool, jobs.map(held));
  }

  /** To the queue's dead letter exchange; without one the row is dead, where an operator finds it. */
  async #bury(deliveries: readonly Delivery[], reason: 'rejected' | 'expired' = 'rejected'): Promise<void> {
    const { pool, store, tables } = this.world;
    const topology = await tables.read(pool);
    for (const { job, queue } of deliveries) {
      const { 'x-dead-letter-exchange': exchange, 'x-dead-letter-routing-key': key } =
        topology.queues.get(queue) ?? {};
      const kept = keptOf(job);
      const failure = { name: reason, message: `${reason}, and its queue has no dead letter exchange` };
      if (typeof exchange !== 'string') {
        await store.discard(pool, [{ ...held(job), ...failure }]);
        continue;
      }
      const routingKey = typeof key === 'string' ? key : kept.routingKey;
      const properties = withDeath(kept.properties, { ...kept, queue, reason }, Date.now());
      const headers = properties['headers'] as Readonly<Record<string, unknown>>;
      const copies = (route(topology, exchange, routingKey, headers) ?? []).map((target) =>
        jobOf(target, { exchange, routingKey }, properties, contentOf(job)),
      );
      const client = await pool.connect();
      let broken = true;
      try {
        // Both or neither: a message is in one queue.
        await client.query('begin');
        const mine = await store.complete(client, [{ ...held(job), resultText: '{"deadLettered":true}' }]);
        if (mine.length === 1 && copies.length > 0) await store.enqueueBodies(client, copies, MAX_ATTEMPTS);
        await client.query('commit');
        broken = false;
      } finally {
        if (broken) await client.query('rollback').catch(() => undefined);
        client.release(broken);
      }
    }
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
    await this.#giveBack([...this.#unacked.values()].map(({ job }) => job)).catch(() => undefined);
    this.#unacked.clear();
    this.onClosed(this);
  }
}

/** How long a message waits in a queue that only delays; null for any other. */
function waitMsOf(given: Arguments | undefined): number | null {
  const { 'x-message-ttl': ttl, 'x-dead-letter-exchange': exchange } = given ?? {};
  return typeof ttl === 'number' && typeof exchange === 'string' ? ttl : null;
}

function isExpired(job: ClaimedJob, nowMs: number): boolean {
  const { expiration } = keptOf(job).properties;
  return (
    typeof expiration === 'string' && /^\d+$/.test(expiration) && job.createdAtMs + Number(expiration) < nowMs
  );
}

const MAX_HOPS = 8;

/**
 * The rows of a message in a queue. One with a time to live and a dead letter exchange is a way to wait: the row waits in
 * the queue behind it, due when the time has passed.
 */
function placed(
  queue: string,
  message: Pick<Publish, 'exchange' | 'routingKey' | 'content' | 'properties'>,
  topology: Topology,
  dueMs: number,
  hops = 0,
): BodyJob[] {
  const { exchange, routingKey, content, properties } = message;
  const given = topology.queues.get(queue) ?? {};
  const waitMs = waitMsOf(given);
  if (waitMs === null || hops >= MAX_HOPS)
    return [jobOf(queue, { exchange, routingKey }, properties, content, hops === 0 ? null : dueMs)];
  const expiration = Number(properties['expiration'] ?? Number.POSITIVE_INFINITY);
  const key = given['x-dead-letter-routing-key'];
  const next = {
    exchange: String(given['x-dead-letter-exchange']),
    routingKey: typeof key === 'string' ? key : routingKey,
    content,
    properties: withDeath(
      properties as Readonly<Record<string, Json>>,
      { exchange, routingKey, queue, reason: 'expired' },
      dueMs,
    ),
  };
  const headers = next.properties['headers'] as Readonly<Record<string, unknown>>;
  const targets = route(topology, next.exchange, next.routingKey, headers) ?? [];
  const laterMs = dueMs + Math.min(waitMs, expiration);
  return targets.flatMap((target) => placed(target, next, topology, laterMs, hops + 1));
}

const TYPES: readonly ExchangeType[] = ['direct', 'fanout', 'topic', 'headers'];

class IllegalOperation extends Error {
  constructor() {
    super('Channel closed');
    this.name = 'IllegalOperationError';
  }
}

const held = ({ id, leaseToken }: ClaimedJob) => ({ id, leaseToken });

const noExchange = (exchange: string, operation: string): ChannelError =>
  new ChannelError(404, operation, `NOT_FOUND - no exchange '${exchange}' in vhost '/'`);

function queueArguments(options: QueueOptions): Record<string, unknown> {
  const { messageTtl, expires, deadLetterExchange, deadLetterRoutingKey, maxLength, maxPriority } = options;
  const named = {
    'x-message-ttl': messageTtl,
    'x-expires': expires,
    'x-dead-letter-exchange': deadLetterExchange,
    'x-dead-letter-routing-key': deadLetterRoutingKey,
    'x-max-length': maxLength,
    'x-max-priority': maxPriority,
  };
  const given = Object.fromEntries(Object.entries(named).filter(([, value]) => value !== undefined));
  return { ...options.arguments, ...given };
}
