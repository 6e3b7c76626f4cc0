/** Shipping, and what follows a while after it. */
import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import { withTransaction } from './db.js';
import type { EventPublisher } from './events.js';
import { ORDER, type Order } from './model.js';

export interface FulfilmentOptions {
  /** How long after shipping we ask for a review. */
  readonly reviewDelayMs: number;
}

export class Fulfilment {
  constructor(
    private readonly pool: pg.Pool,
    private readonly publisher: EventPublisher,
    private readonly options: FulfilmentOptions,
  ) {}

  /** Ships what can be shipped; a message for each. Answers the orders shipped. */
  async ship(ids: readonly number[]): Promise<Order[]> {
    const shipped = await withTransaction(this.pool, async (client) => {
      const orders: Order[] = [];
      for (const id of ids) {
        const { rows } = await client.query<Order>(
          `update orders set status = 'shipped', parcel = $2, updated_at = now()
           where id = $1 and status = 'paid'
           returning ${ORDER}`,
          [id, `P-${randomUUID().slice(0, 8)}`],
        );
        orders.push(...rows);
      }
      return orders;
    });
    for (const order of shipped) {
      await this.publisher.publish(
        'notification.order-shipped.email',
        {
          to: order.email,
          template: 'order-shipped',
          locale: order.locale,
          data: { orderId: order.id, parcel: order.parcel },
        },
        { messageId: `order-${order.id}-shipped`, priority: 5 },
      );
    }
    return shipped;
  }

  /** Asks for a review later: the scheduling service waits and then publishes. */
  async requestReview(order: Order): Promise<void> {
    await this.pool.query('update orders set review_requested = true, updated_at = now() where id = $1', [
      order.id,
    ]);
    await this.publisher.publishLater(
      'notification.review-request.email',
      { to: order.email, template: 'review-request', locale: order.locale, data: { orderId: order.id } },
      this.options.reviewDelayMs,
      { messageId: `order-${order.id}-review` },
    );
  }

  /** Tells the customer in all ways at once; a shop window screen shows the parcel too. */
  async announceParcel(order: Order, phone: string | undefined): Promise<void> {
    await this.pool.query('update orders set parcel = $2, updated_at = now() where id = $1', [
      order.id,
      order.parcel,
    ]);
    const data = { orderId: order.id, parcel: order.parcel };
    const targets = [
      { channel: 'email', to: order.email },
      ...(phone === undefined ? [] : [{ channel: 'sms', to: phone }]),
    ];
    await Promise.all(
      targets.map(({ channel, to }) =>
        this.publisher.publish(`notification.order-shipped.${channel}`, {
          to,
          template: 'order-shipped',
          data,
        }),
      ),
    );
  }
}
