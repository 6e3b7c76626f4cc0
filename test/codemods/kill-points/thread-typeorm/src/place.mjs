import { Bus } from './bus.mjs';
import { db, Line, Order } from './db.mjs';
import { Notifier } from './notifier.mjs';

/** @param {Bus} bus @param {string} customer */
export async function carried(bus, customer) {
  const notifier = new Notifier(bus);
  await db.transaction(async (manager) => {
    const order = await manager.save(Order, { customer });
    await notifier.addLine(manager, order);
  });
}

/** @param {Bus} bus @param {string} customer */
export async function byHand(bus, customer) {
  const notifier = new Notifier(bus);
  const runner = db.createQueryRunner();
  await runner.startTransaction();
  try {
    const order = await runner.manager.save(Order, { customer });
    await runner.manager.insert(Line, { order_id: order.id, sku: 'book' });
    await notifier.placed(order);
    await runner.commitTransaction();
  } catch (error) {
    await runner.rollbackTransaction();
    throw error;
  } finally {
    await runner.release();
  }
}
