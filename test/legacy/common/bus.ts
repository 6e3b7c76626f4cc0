/**
 * The house's AMQP client: one connection, one confirm channel, persistent JSON, consumers that answer with a verdict.
 * It knows nothing of notifications, schedules or retries.
 */
import { type ChannelModel, type ConfirmChannel, type ConsumeMessage, connect, type Options } from 'amqplib';

/** `reject` goes to the queue's dead-letter exchange. */
export type Verdict = 'ack' | 'reject';

/** Where a message or call is to go in the end. */
export type Target =
  | { readonly queue: string }
  | { readonly exchange: string; readonly routingKey?: string }
  | { readonly url: string };

/** How long a failed handler holds its message before it goes back to the queue. */
const REQUEUE_PAUSE_MS = 1_000;
const CALL_TIMEOUT_MS = 10_000;

/** A URL target answered; `status` decides whether another try makes sense. */
export class CallFailed extends Error {
  constructor(
    readonly status: number,
    url: string,
  ) {
    super(`HTTP ${status} from ${new URL(url).host}`);
  }
}

export class Bus {
  private readonly consumers: string[] = [];
  private readonly inHand = new Set<Promise<void>>();
  private closing = false;

  private constructor(
    readonly connection: ChannelModel,
    readonly channel: ConfirmChannel,
  ) {}

  /** A connection lost later ends the process: whoever started it starts it again. */
  static async connect(url: string, appId: string, prefetch: number): Promise<Bus> {
    const connection = await connect(url, { clientProperties: { connection_name: appId } });
    const channel = await connection.createConfirmChannel();
    await channel.prefetch(prefetch);
    const bus = new Bus(connection, channel);
    const lost = (what: string) => (error?: Error) => {
      if (bus.closing) return;
      console.error(`${appId}: ${what} lost: ${error?.message ?? 'closed'}`);
      process.exit(1);
    };
    connection.on('error', lost('connection'));
    connection.on('close', lost('connection'));
    channel.on('error', lost('channel'));
    channel.on('close', lost('channel'));
    return bus;
  }

  /** Resolves when the broker has confirmed. The default exchange is `''`. */
  publish(exchange: string, routingKey: string, body: unknown, options: Options.Publish = {}): Promise<void> {
    const content = Buffer.isBuffer(body) ? body : Buffer.from(JSON.stringify(body));
    const properties: Options.Publish = {
      persistent: true,
      contentType: 'application/json',
      timestamp: Math.floor(Date.now() / 1000),
      ...options,
    };
    return new Promise((resolve, reject) => {
      this.channel.publish(exchange, routingKey, content, properties, (error) =>
        error ? reject(error) : resolve(),
      );
    });
  }

  /** Publishes what was received again, as it was but for its headers. A foreign `userId` would close the channel. */
  republish(
    exchange: string,
    routingKey: string,
    message: Pick<ConsumeMessage, 'content' | 'properties'>,
    headers: Record<string, unknown>,
  ): Promise<void> {
    const { userId: _, ...properties } = message.properties;
    return this.publish(exchange, routingKey, message.content, { ...properties, persistent: true, headers });
  }

  /** Publishes to a queue or exchange that somebody else named, or posts to a URL. Throws when it is not there. */
  async send(
    target: Target,
    defaultRoutingKey: string,
    body: unknown,
    options: Options.Publish,
  ): Promise<void> {
    if ('url' in target) return post(target.url, body);
    await this.withChannel((probe) =>
      'queue' in target ? probe.checkQueue(target.queue) : probe.checkExchange(target.exchange),
    );
    if ('queue' in target) await this.publish('', target.queue, body, options);
    else await this.publish(target.exchange, target.routingKey ?? defaultRoutingKey, body, options);
  }

  /** A channel of its own for work that may close it; whatever it holds unacked goes back to its queue. */
  async withChannel<T>(work: (channel: ConfirmChannel) => Promise<T>): Promise<T> {
    const channel = await this.connection.createConfirmChannel();
    let dead = false;
    channel.on('error', () => {
      dead = true;
    });
    try {
      return await work(channel);
    } finally {
      if (!dead) await channel.close();
    }
  }

  async consume(queue: string, handle: (message: ConsumeMessage) => Promise<Verdict>): Promise<void> {
    const { consumerTag } = await this.channel.consume(queue, (message) => {
      if (message === null) {
        console.error(`consumer of ${queue} cancelled by the broker`);
        process.exit(1);
      }
      const done = this.settle(queue, message, handle).finally(() => this.inHand.delete(done));
      this.inHand.add(done);
    });
    this.consumers.push(consumerTag);
  }

  private async settle(
    queue: string,
    message: ConsumeMessage,
    handle: (message: ConsumeMessage) => Promise<Verdict>,
  ): Promise<void> {
    try {
      const verdict = await handle(message);
      if (verdict === 'ack') this.channel.ack(message);
      else this.channel.nack(message, false, false);
    } catch (error) {
      console.error(`${queue}: back to the queue: ${error instanceof Error ? error.message : String(error)}`);
      await new Promise((resolve) => setTimeout(resolve, REQUEUE_PAUSE_MS));
      this.channel.nack(message, false, true);
    }
  }

  /** Takes no new messages, then waits for those in hand. */
  async stopConsuming(): Promise<void> {
    await Promise.all(this.consumers.splice(0).map((tag) => this.channel.cancel(tag)));
    await Promise.all(this.inHand);
  }

  async close(): Promise<void> {
    this.closing = true;
    await this.channel.close();
    await this.connection.close();
  }
}

async function post(url: string, body: unknown): Promise<void> {
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(CALL_TIMEOUT_MS),
  });
  await response.arrayBuffer();
  if (!response.ok) throw new CallFailed(response.status, url);
}

/** The parsed body; throws SyntaxError on anything that is not a JSON object. */
export function jsonBody(message: { readonly content: Buffer }): Record<string, unknown> {
  const body: unknown = JSON.parse(message.content.toString('utf8'));
  if (!isObject(body)) throw new SyntaxError('body is not a JSON object');
  return body;
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function isTarget(value: unknown): value is Target {
  if (!isObject(value)) return false;
  return ['queue', 'exchange', 'url'].filter((name) => typeof value[name] === 'string').length === 1;
}

/** A header as a number, or undefined. */
export function numberHeader(message: ConsumeMessage, name: string): number | undefined {
  const value: unknown = message.properties.headers?.[name];
  return typeof value === 'number' ? value : undefined;
}

/** A header as a string, or undefined. */
export function stringHeader(message: ConsumeMessage, name: string): string | undefined {
  const value: unknown = message.properties.headers?.[name];
  return typeof value === 'string' ? value : undefined;
}
