import { Bus } from './bus.mjs';
import { db } from './db.mjs';
import { tell } from './tell.mjs';

/** @param {Bus} bus @param {string} customer */
export async function callback(bus, customer) {
  await db.transaction(async (trx) => {
    const [order] = await trx('orders').insert({ customer }).returning('id');
    await trx('order_lines').insert({ order_id: order.id, sku: 'book' });
  });
  await tell(bus, customer);
}

/** @param {Bus} bus @param {string} customer */
export async function byHand(bus, customer) {
  const trx = await db.transaction();
  try {
    const [order] = await trx('orders').insert({ customer }).returning('id');
    await trx('order_lines').insert({ order_id: order.id, sku: 'book' });
    await tell(bus, customer);
    await trx.commit();
  } catch (error) {
    await trx.rollback();
    throw error;
  }
}
