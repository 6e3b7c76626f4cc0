import { Bus } from './bus.mjs';

/** @typedef {{ id: number, customer: string }} Order */

/**
 * Decides by the order itself, so it cannot be written out at its calls.
 * @param {Bus} bus
 * @param {Order} order
 */
async function tellOne(bus, order) {
  if (order.customer !== '') await bus.publish('order.placed', { customer: order.customer });
}

/**
 * @param {Bus} bus
 * @param {Order[]} orders
 */
export async function tell(bus, orders) {
  for (const order of orders) await tellOne(bus, order);
}

/**
 * @param {import('pg').PoolClient} client
 * @param {Bus} bus
 * @param {Order} order
 */
export async function addLine(client, bus, order) {
  await client.query("insert into order_lines (order_id, sku) values ($1, 'book')", [order.id]);
  await bus.publish('order.placed', { customer: order.customer });
}
