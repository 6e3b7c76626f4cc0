import { Bus } from './bus.mjs';
import { db, Line, Order } from './db.mjs';

/** @param {Bus} bus @param {string} customer */
export async function callback(bus, customer) {
  await db.transaction(async (manager) => {
    const order = await manager.save(Order, { customer });
    await manager.insert(Line, { order_id: order.id, sku: 'book' });
  });
  await bus.publish('order.placed', { customer });
}

/** @param {Bus} bus @param {string} customer */
export async function byHand(bus, customer) {
  const runner = db.createQueryRunner();
  await runner.startTransaction();
  try {
    const order = await runner.manager.save(Order, { customer });
    await runner.manager.insert(Line, { order_id: order.id, sku: 'book' });
    await runner.commitTransaction();
    await bus.publish('order.placed', { customer });
  } catch (error) {
    await runner.rollbackTransaction();
    throw error;
  } finally {
    await runner.release();
  }
}

/** @param {Bus} bus @param {string} customer */
export async function autocommit(bus, customer) {
  const orders = db.getRepository(Order);
  const lines = db.getRepository(Line);
  const order = await orders.save({ customer });
  await lines.insert({ order_id: order.id, sku: 'book' });
  await bus.publish('order.placed', { customer });
}
