/** Placing, paying and cancelling orders. The customer hears of each by mail. */
import type pg from 'pg';
import { withTransaction } from './db.js';
import type { EventPublisher } from './events.js';
import { money, type NewOrder, ORDER, type Order, OrderError } from './model.js';

export class Orders {
  constructor(
    private readonly pool: pg.Pool,
    private readonly publisher: EventPublisher,
  ) {}

  async create(order: NewOrder): Promise<number> {
    const totalCents = order.items.reduce((sum, item) => sum + item.quantity * item.priceCents, 0);
    let id: number;
    const client = await this.pool.connect();
    try {
      await client.query('BEGIN');
      const inserted = await client.query<{ id: number }>(
        'insert into orders (email, locale, total_cents) values ($1, $2, $3) returning id',
        [order.email, order.locale, totalCents],
      );
      id = inserted.rows[0]!.id;
      for (const [index, item] of order.items.entries()) {
        await client.query(
          'insert into order_lines (order_id, line, sku, quantity, price_cents) values ($1, $2, $3, $4, $5)',
          [id, index + 1, item.sku, item.quantity, item.priceCents],
        );
      }
      await client.query('COMMIT');
    } catch (error) {
      await client.query('ROLLBACK').catch(() => {});
      throw error;
    } finally {
      client.release();
    }
    await this.publisher.publish(
      'notification.order-receipt.email',
      {
        to: order.email,
        template: 'order-receipt',
        locale: order.locale,
        data: {
          orderId: id,
          total: money(totalCents),
          lines: order.items.map(({ sku, quantity }) => ({ sku, quantity })),
        },
      },
      { messageId: `order-${id}-receipt` },
    );
    return id;
  }

  async pay(id: number): Promise<Order> {
    const order = await withTransaction(this.pool, async (client) => {
      const { rows } = await client.query<Order>(
        `update orders set status = 'paid', updated_at = now() where id = $1 and status = 'placed' returning ${ORDER}`,
        [id],
      );
      if (rows[0] === undefined) throw new OrderError(409, `order ${id} is not to be paid`);
      return rows[0];
    });
    await this.publisher.publish(
      'notification.order-paid.email',
      {
        to: order.email,
        template: 'order-paid',
        locale: order.locale,
        data: { orderId: order.id, total: money(order.totalCents) },
      },
      { messageId: `order-${order.id}-paid` },
    );
    return order;
  }

  async cancel(id: number, reason: string): Promise<Order> {
    const { rows } = await this.pool.query<Order>(
      `update orders set status = 'cancelled', updated_at = now()
       where id = $1 and status in ('placed', 'paid')
       returning ${ORDER}`,
      [id],
    );
    const order = rows[0];
    if (order === undefined) throw new OrderError(409, `order ${id} is not to be cancelled`);
    await this.publisher.publish(
      'notification.order-cancelled.email',
      { to: order.email, template: 'order-cancelled', locale: order.locale, data: { orderId: id, reason } },
      { messageId: `order-${id}-cancelled` },
    );
    return order;
  }

  async find(id: number): Promise<Order> {
    const { rows } = await this.pool.query<Order>(`select ${ORDER} from orders where id = $1`, [id]);
    if (rows[0] === undefined) throw new OrderError(404, `no order ${id}`);
    return rows[0];
  }

  async list(limit: number): Promise<Order[]> {
    const { rows } = await this.pool.query<Order>(`select ${ORDER} from orders order by id desc limit $1`, [
      limit,
    ]);
    return rows;
  }
}
