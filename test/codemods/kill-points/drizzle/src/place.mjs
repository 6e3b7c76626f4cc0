import { Bus } from './bus.mjs';
import { db, lines, orders } from './db.mjs';

/** @param {Bus} bus @param {string} customer */
export async function callback(bus, customer) {
  await db.transaction(async (tx) => {
    const [order] = await tx.insert(orders).values({ customer }).returning();
    await tx.insert(lines).values({ orderId: order?.id ?? 0, sku: 'book' });
  });
  await bus.publish('order.placed', { customer });
}

/** @param {Bus} bus @param {string} customer */
export async function autocommit(bus, customer) {
  const [order] = await db.insert(orders).values({ customer }).returning();
  await db.insert(lines).values({ orderId: order?.id ?? 0, sku: 'book' });
  await bus.publish('order.placed', { customer });
}
