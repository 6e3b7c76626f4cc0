/** Refunds. A refund stands even if the customer cannot be told. */
import type pg from 'pg';
import type { EventPublisher } from './events.js';
import { money, ORDER, type Order, OrderError } from './model.js';

export class Refunds {
  constructor(
    private readonly pool: pg.Pool,
    private readonly publisher: EventPublisher,
  ) {}

  async refund(id: number): Promise<{ order: Order; notified: boolean }> {
    const client = await this.pool.connect();
    try {
      await client.query('BEGIN');
      const { rows } = await client.query<Order>(
        `update orders set status = 'refunded', updated_at = now()
         where id = $1 and status in ('paid', 'shipped')
         returning ${ORDER}`,
        [id],
      );
      const order = rows[0];
      if (order === undefined) {
        await client.query('ROLLBACK');
        throw new OrderError(409, `order ${id} is not to be refunded`);
      }
      await client.query('COMMIT');
      let notified = true;
      try {
        await this.publisher.publish(
          'notification.order-refunded.email',
          {
            to: order.email,
            template: 'order-refunded',
            locale: order.locale,
            data: { orderId: id, amount: money(order.totalCents) },
          },
          { messageId: `order-${id}-refunded` },
        );
      } catch (error) {
        console.error(
          `orders: refund of ${id} not told: ${error instanceof Error ? error.message : String(error)}`,
        );
        notified = false;
      }
      return { order, notified };
    } finally {
      client.release();
    }
  }
}
