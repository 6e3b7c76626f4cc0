import { Bus } from './bus.mjs';
import { insert, orders } from './db.mjs';

/** @param {Bus} bus @param {string} customer */
export async function named(bus, customer) {
  await insert(customer);
  await bus.publish('order.placed', { customer });
}

/** @param {Bus} bus @param {string} customer */
export async function injected(bus, customer) {
  await orders.insert(customer);
  await bus.publish('order.placed', { customer });
}
