/** Payment reminders, through the scheduling service's HTTP interface. */
import type pg from 'pg';
import { money, ORDER, type Order, OrderError } from './model.js';
import type { SchedulingClient } from './scheduling-client.js';

const ROUTING_KEY = 'notification.order-reminder.email';

export class Reminders {
  constructor(
    private readonly pool: pg.Pool,
    private readonly scheduling: SchedulingClient,
    private readonly delayMs: number,
  ) {}

  /** Answers the id of the schedule. */
  async remind(id: number): Promise<string> {
    const { rows } = await this.pool.query<Order>(
      `update orders set reminder_at = now() + $2 * interval '1 millisecond', updated_at = now()
       where id = $1 and status = 'placed'
       returning ${ORDER}`,
      [id, this.delayMs],
    );
    const order = rows[0];
    if (order === undefined) throw new OrderError(409, `order ${id} needs no reminder`);
    const schedule = await this.scheduling.create({
      name: `order-${id}-reminder`,
      delayMs: this.delayMs,
      target: { exchange: 'notifications', routingKey: ROUTING_KEY },
      payload: {
        to: order.email,
        template: 'order-reminder',
        locale: order.locale,
        data: { orderId: id, total: money(order.totalCents) },
      },
    });
    return schedule.id;
  }
}
