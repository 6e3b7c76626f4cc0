import { Bus } from './bus.mjs';
import { db, Line, Order } from './db.mjs';

/** @param {Bus} bus @param {string} customer */
export async function callback(bus, customer) {
  await db.transaction(async (transaction) => {
    const order = await Order.create({ customer }, { transaction });
    await Line.create({ order_id: order.get('id'), sku: 'book' }, { transaction });
  });
  await bus.publish('order.placed', { customer });
}

/** @param {Bus} bus @param {string} customer */
export async function byHand(bus, customer) {
  const t = await db.transaction();
  try {
    const order = await Order.create({ customer }, { transaction: t });
    await Line.create({ order_id: order.get('id'), sku: 'book' }, { transaction: t });
    await t.commit();
  } catch (error) {
    await t.rollback();
    throw error;
  }
  await bus.publish('order.placed', { customer });
}

/** @param {Bus} bus @param {string} customer */
export async function autocommit(bus, customer) {
  const order = await Order.create({ customer });
  await Line.create({ order_id: order.get('id'), sku: 'book' });
  await bus.publish('order.placed', { customer });
}
