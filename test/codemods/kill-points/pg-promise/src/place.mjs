import { Bus } from './bus.mjs';
import { db } from './db.mjs';

/** @param {Bus} bus @param {string} customer */
export async function callback(bus, customer) {
  await db.tx(async (t) => {
    const { id } = await t.one('insert into orders (customer) values ($1) returning id', [customer]);
    await t.none('insert into order_lines (order_id, sku) values ($1, $2)', [id, 'book']);
  });
  await bus.publish('order.placed', { customer });
}

/** @param {Bus} bus @param {string} customer */
export async function autocommit(bus, customer) {
  const { id } = await db.one('insert into orders (customer) values ($1) returning id', [customer]);
  await db.none('insert into order_lines (order_id, sku) values ($1, $2)', [id, 'book']);
  await bus.publish('order.placed', { customer });
}
