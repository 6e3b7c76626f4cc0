import { Bus } from './bus.mjs';
import { Line } from './db.mjs';

/** @typedef {{ id: number, customer: string }} Placed */

export class Notifier {
  /** @param {Bus} bus */
  constructor(bus) {
    this.bus = bus;
  }

  /**
   * @param {import('typeorm').EntityManager} manager
   * @param {Placed} order
   */
  async addLine(manager, order) {
    await manager.insert(Line, { order_id: order.id, sku: 'book' });
    await this.bus.publish('order.placed', { customer: order.customer });
  }

  /** @param {Placed} order */
  async placed(order) {
    if (order.customer === '') await this.bus.publish('order.nameless', { id: order.id });
    else await this.bus.publish('order.placed', { customer: order.customer });
  }
}
