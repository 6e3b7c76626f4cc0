import { Bus } from './bus.mjs';
import { db, Line, Order } from './db.mjs';

/** @param {Bus} bus @param {string} customer */
export async function callback(bus, customer) {
  await db.transactional(async (em) => {
    const order = em.create(Order, { customer });
    await em.flush();
    await em.insert(Line, { orderId: order.id, sku: 'book' });
  });
  await bus.publish('order.placed', { customer });
}

/** @param {Bus} bus @param {string} customer */
export async function byHand(bus, customer) {
  await db.begin();
  try {
    const order = db.create(Order, { customer });
    await db.flush();
    await db.insert(Line, { orderId: order.id, sku: 'book' });
    await db.commit();
  } catch (error) {
    await db.rollback();
    throw error;
  }
  await bus.publish('order.placed', { customer });
}

/** @param {Bus} bus @param {string} customer */
export async function autocommit(bus, customer) {
  const order = db.create(Order, { customer });
  await db.flush();
  await db.insert(Line, { orderId: order.id, sku: 'book' });
  await bus.publish('order.placed', { customer });
}
