import { Bus } from './bus.mjs';
import { Line, Order } from './db.mjs';

/** @param {Bus} bus @param {string} customer */
export async function callback(bus, customer) {
  await Order.transaction(async (trx) => {
    const order = await Order.query(trx).insertAndFetch({ customer });
    await Line.query(trx).insert({ order_id: order.$id(), sku: 'book' });
  });
  await bus.publish('order.placed', { customer });
}

/** @param {Bus} bus @param {string} customer */
export async function byHand(bus, customer) {
  const trx = await Order.startTransaction();
  try {
    const order = await Order.query(trx).insertAndFetch({ customer });
    await Line.query(trx).insert({ order_id: order.$id(), sku: 'book' });
    await trx.commit();
  } catch (error) {
    await trx.rollback();
    throw error;
  }
  await bus.publish('order.placed', { customer });
}

/** @param {Bus} bus @param {string} customer */
export async function autocommit(bus, customer) {
  const order = await Order.query().insertAndFetch({ customer });
  await Line.query().insert({ order_id: order.$id(), sku: 'book' });
  await bus.publish('order.placed', { customer });
}
