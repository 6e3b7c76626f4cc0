import { Bus } from './bus.mjs';
import { db } from './db.mjs';

/** @param {Bus} bus @param {string} customer */
export async function callback(bus, customer) {
  await db.begin(async (tx) => {
    const [order] = await tx`insert into orders (customer) values (${customer}) returning id`;
    await tx`insert into order_lines (order_id, sku) values (${order.id}, 'book')`;
  });
  await bus.publish('order.placed', { customer });
}

/** @param {Bus} bus @param {string} customer */
export async function autocommit(bus, customer) {
  const [order] = await db`insert into orders (customer) values (${customer}) returning id`;
  await db`insert into order_lines (order_id, sku) values (${order.id}, 'book')`;
  await bus.publish('order.placed', { customer });
}
