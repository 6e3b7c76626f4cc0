import { Bus } from './bus.mjs';
import { fns, insertMaybe, insertOn, orders, shared } from './db.mjs';

const seen = new Map();

/** @param {string} customer */
async function remember(customer) {
  seen.set(customer, await Promise.resolve(true));
}

/** @param {Bus} bus @param {string} customer */
export async function injected(bus, customer) {
  await orders.place(customer);
  await bus.publish('order.placed', { customer });
}

/** @param {Bus} bus @param {string} customer */
export async function parameter(bus, customer) {
  await insertOn(shared, customer);
  await remember(customer);
  await bus.publish('order.placed', { customer });
}

/** @param {Bus} bus @param {string} customer */
export async function stored(bus, customer) {
  const [order] = await fns.order(customer);
  if (order.id > 0) {
    try {
      await bus.publish('order.placed', { customer });
    } catch (error) {
      console.error(error);
    }
  }
  await fns.line(order.id);
}

/** @param {Bus} bus @param {string} customer */
export async function beside(bus, customer) {
  await orders.place(customer);
  await Promise.all([bus.publish('order.placed', { customer }), remember(customer)]);
}

/** @param {Bus} bus @param {string} customer */
export async function taken(bus, customer) {
  await insertMaybe(customer);
  await bus.publish('order.placed', { customer });
}
