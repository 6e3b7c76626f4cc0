/** What the people of the support desk do with an order. */
import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import type { EventPublisher } from './events.js';
import { money, ORDER, type Order, OrderError } from './model.js';

export class SupportDesk {
  constructor(
    private readonly pool: pg.Pool,
    private readonly publisher: EventPublisher,
  ) {}

  /** The receipt again. The order is marked only when the broker has it. */
  async resendReceipt(order: Order): Promise<void> {
    const lines = await this.pool.query(
      'select sku, quantity from order_lines where order_id = $1 order by line',
      [order.id],
    );
    await this.publisher.publish(
      'notification.order-receipt.email',
      {
        to: order.email,
        template: 'order-receipt',
        locale: order.locale,
        data: { orderId: order.id, total: money(order.totalCents), lines: lines.rows },
      },
      { messageId: randomUUID() },
    );
    await this.pool.query('update orders set receipt_resent_at = now() where id = $1', [order.id]);
  }

  /** Leaves a note for the customer; the answer does not wait for the mail. */
  async leaveNote(id: number, note: string): Promise<Order> {
    const { rows } = await this.pool.query<Order>(
      `update orders set note = $2, updated_at = now() where id = $1 returning ${ORDER}`,
      [id, note],
    );
    const order = rows[0];
    if (order === undefined) throw new OrderError(404, `no order ${id}`);
    this.publisher
      .publish(
        'notification.order-note.email',
        { to: order.email, template: 'order-note', locale: order.locale, data: { orderId: id, note } },
        { messageId: randomUUID() },
      )
      .catch((error: Error) => console.error(`orders: note on ${id} not sent: ${error.message}`));
    return order;
  }
}
