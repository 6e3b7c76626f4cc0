/**
 * `unbroker/amqplib`: the face of amqplib on rows, so that a service which is not rewritten yet changes one import. There
 * is no broker behind it: publishing inserts, consuming claims, an ack completes. What it cannot do it refuses.
 */
import { EventEmitter } from 'node:events';
import { hostname } from 'node:os';
import { createStore } from '../../src/jobs/store.js';
import { checkSchema } from '../../src/migrate.js';
import { Channel } from './channel.js';
import type { ChannelPool, ChannelWorld } from './channel-world.js';
import type { PublishOptions } from './message.js';
import { environmentPool } from './pool.js';
import { createTables } from './tables.js';

export { Channel } from './channel.js';
export { ChannelError } from './channel-error.js';
export type { QueueOptions } from './declaring.js';
export type { Message, Message as ConsumeMessage, PublishOptions } from './message.js';

export interface ConnectOptions {
  /** Default: one of its own, to DATABASE_URL, ended with the connection. */
  readonly pool?: ChannelPool | undefined;
  /** Default `unbroker`. */
  readonly schema?: string | undefined;
  /** How long the messages of a dead process stay away. Default 30,000. */
  readonly leaseMs?: number | undefined;
  /** How often an idle consumer looks. Default 50. */
  readonly pollMs?: number | undefined;
}

let connections = 0;

/**
 * As amqplib's connect. An AMQP address (a string, or an object with a hostname) is not looked at: the database is that of
 * `pool`, or of DATABASE_URL. Rejects when the schema is not migrated.
 */
export async function connect(
  address?: string | ConnectOptions | object,
  _socketOptions?: object,
): Promise<Connection> {
  const given = (typeof address === 'object' && address !== null ? address : {}) as ConnectOptions;
  const own = given.pool === undefined ? await environmentPool() : null;
  const pool = given.pool ?? (own as ChannelPool);
  const { schema = 'unbroker', leaseMs = 30_000, pollMs = 50 } = given;
  try {
    await checkSchema(pool, schema);
  } catch (error) {
    await own?.end();
    throw error;
  }
  connections += 1;
  const holder = `amqplib:${hostname()}:${process.pid}:${connections}`.slice(0, 255);
  const world = { pool, store: createStore(schema), tables: createTables(schema), holder, leaseMs, pollMs };
  return new Connection(world, () => own?.end() ?? Promise.resolve());
}

export class Connection extends EventEmitter {
  /** As amqplib's ChannelModel has it. */
  readonly connection = { serverProperties: { product: 'unbroker', version: '0' } };
  readonly #channels = new Set<Channel>();
  #closed = false;

  constructor(
    private readonly world: ChannelWorld,
    private readonly end: () => Promise<void>,
  ) {
    super();
  }

  createChannel(_options?: object): Promise<Channel> {
    return this.#open(new Channel(this.connection, this.world, (channel) => this.#channels.delete(channel)));
  }

  /** Every channel waits for the commit; only the callbacks of `publish` are more here. */
  createConfirmChannel(_options?: object): Promise<Channel> {
    return this.createChannel();
  }

  #open(channel: Channel): Promise<Channel> {
    if (this.#closed) return Promise.reject(new Error('Connection closed'));
    this.#channels.add(channel);
    return Promise.resolve(channel);
  }

  /** What was published before is stored first; deliveries under way go back. */
  async close(): Promise<void> {
    if (this.#closed) throw new Error('Connection closed');
    this.#closed = true;
    await Promise.all([...this.#channels].map((channel) => channel.close()));
    await this.end();
    this.emit('close');
  }

  updateSecret(_secret: Buffer, _reason: string): Promise<void> {
    return Promise.resolve();
  }
}

/** For who writes `Options.Publish`. */
export type Options = { readonly Publish: PublishOptions };

export default { connect };
