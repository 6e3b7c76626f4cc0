import { Bus } from './bus.mjs';
import { orders } from './db.mjs';

/** @param {Bus} bus @param {string} customer */
export async function injected(bus, customer) {
  await orders.insert(customer);
  await bus.publish('order.placed', { customer });
}

/** @param {Bus} bus @param {string} customer */
export async function taken(bus, customer) {
  await orders.insertMaybe(customer);
  await bus.publish('order.placed', { customer });
}
