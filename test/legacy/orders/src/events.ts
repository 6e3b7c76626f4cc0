/** Publishes the application's events. Every message is persistent; a promise resolves when the broker has confirmed. */
import { type ChannelModel, type ConfirmChannel, connect } from 'amqplib';

export const NOTIFICATIONS = 'notifications';
export const SCHEDULE = 'schedule';

export interface PublishOptions {
  /** What consumers dedupe by. */
  readonly messageId?: string;
  readonly correlationId?: string;
  readonly priority?: number;
  readonly headers?: Record<string, unknown>;
}

export class EventPublisher {
  constructor(private readonly channel: ConfirmChannel) {}

  /** Publishes to the `notifications` topic: `notification.<kind>.<channel>`. */
  publish(routingKey: string, payload: object, options: PublishOptions = {}): Promise<void> {
    return this.send(NOTIFICATIONS, routingKey, payload, options);
  }

  /** Lets the scheduling service publish to `notifications` after a while. */
  publishLater(
    routingKey: string,
    payload: object,
    delayMs: number,
    options: PublishOptions = {},
  ): Promise<void> {
    const request = { key: routingKey, target: { exchange: NOTIFICATIONS, routingKey }, data: payload };
    return this.send(SCHEDULE, routingKey, request, {
      ...options,
      headers: { ...options.headers, 'x-delay': delayMs },
    });
  }

  private send(
    exchange: string,
    routingKey: string,
    payload: object,
    options: PublishOptions,
  ): Promise<void> {
    const properties = {
      persistent: true,
      contentType: 'application/json',
      timestamp: Math.floor(Date.now() / 1000),
      type: routingKey.split('.')[1],
      appId: 'orders',
      ...options,
    };
    return new Promise((resolve, reject) => {
      this.channel.publish(
        exchange,
        routingKey,
        Buffer.from(JSON.stringify(payload)),
        properties,
        (error: unknown) => (error ? reject(error) : resolve()),
      );
    });
  }
}

export async function connectBroker(
  url: string,
): Promise<{ connection: ChannelModel; channel: ConfirmChannel }> {
  const connection = await connect(url, { clientProperties: { connection_name: 'orders' } });
  const channel = await connection.createConfirmChannel();
  await channel.assertExchange(NOTIFICATIONS, 'topic', { durable: true });
  await channel.assertExchange(SCHEDULE, 'topic', { durable: true });
  return { connection, channel };
}
