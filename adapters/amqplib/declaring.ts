/**
 * Queues, exchanges and bindings as a channel declares them, in tables. Each method does its work at once; that they come
 * in order, and what a refusal does to the channel, is the channel's.
 */
import { ChannelError, noExchange } from './channel-error.js';
import type { ChannelWorld } from './channel-world.js';
import { kindOf } from './message.js';
import { type Arguments, argumentsText } from './tables.js';
import { type Binding, type ExchangeType, typeOf } from './topology.js';

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

const TYPES: readonly ExchangeType[] = ['direct', 'fanout', 'topic', 'headers'];

export class Declaring {
  constructor(
    private readonly world: ChannelWorld,
    /** Consumers of this channel on a queue. */
    private readonly consumersOf: (queue: string) => number,
  ) {}

  async assertQueue(name: string, options: QueueOptions) {
    const queue = name === '' ? `amq.gen-${Math.random().toString(36).slice(2, 14)}${Date.now()}` : name;
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
    return this.describe(queue);
  }

  async checkQueue(queue: string) {
    await this.needQueue(queue, 'QueueDeclare');
    return this.describe(queue);
  }

  async describe(queue: string) {
    const { pool, store } = this.world;
    const messageCount = await store.countReady(pool, kindOf(queue), 1_000_000);
    return { queue, messageCount, consumerCount: this.consumersOf(queue) };
  }

  /** Throws ChannelError 404. */
  async needQueue(queue: string, operation: string): Promise<Arguments> {
    const found = await this.world.tables.findQueue(this.world.pool, queue);
    if (found === null)
      throw new ChannelError(404, operation, `NOT_FOUND - no queue '${queue}' in vhost '/'`);
    return found;
  }

  async deleteQueue(queue: string, options: { readonly ifEmpty?: boolean; readonly ifUnused?: boolean }) {
    const { messageCount, consumerCount } = await this.describe(queue);
    if ((options.ifEmpty === true && messageCount > 0) || (options.ifUnused === true && consumerCount > 0))
      throw new ChannelError(
        406,
        'QueueDelete',
        `PRECONDITION_FAILED - queue '${queue}' in vhost '/' not empty or in use`,
      );
    await this.#drop(queue);
    await this.world.tables.deleteQueue(this.world.pool, queue);
    return { messageCount };
  }

  async purgeQueue(queue: string) {
    await this.needQueue(queue, 'QueuePurge');
    return { messageCount: await this.#drop(queue) };
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

  async assertExchange(exchange: string, type: string) {
    const { pool, tables } = this.world;
    const known = TYPES.find((one) => one === type);
    if (known === undefined)
      throw new ChannelError(406, 'ExchangeDeclare', `PRECONDITION_FAILED - invalid exchange type '${type}'`);
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
  }

  /** Throws ChannelError 404. */
  async needExchange(exchange: string, operation: string): Promise<void> {
    if (typeOf(await this.world.tables.read(this.world.pool), exchange) === undefined)
      throw noExchange(exchange, operation);
  }

  async deleteExchange(exchange: string) {
    await this.world.tables.deleteExchange(this.world.pool, exchange);
    return {};
  }

  async bind(binding: Binding) {
    const operation = binding.toExchange ? 'ExchangeBind' : 'QueueBind';
    if (binding.toExchange) await this.needExchange(binding.destination, operation);
    else await this.needQueue(binding.destination, operation);
    await this.needExchange(binding.source, operation);
    await this.world.tables.bind(this.world.pool, binding);
    return {};
  }

  async unbind(binding: Binding) {
    await this.world.tables.unbind(this.world.pool, binding);
    return {};
  }
}

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
