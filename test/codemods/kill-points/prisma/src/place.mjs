import { Bus } from './bus.mjs';
import { db } from './db.mjs';

/** @param {Bus} bus @param {string} customer */
export async function callback(bus, customer) {
  await db.$transaction(async (tx) => {
    const order = await tx.order.create({ data: { customer } });
    await tx.line.create({ data: { orderId: order.id, sku: 'book' } });
  });
  await bus.publish('order.placed', { customer });
}

/** @param {Bus} bus @param {string} customer */
export async function autocommit(bus, customer) {
  const order = await db.order.create({ data: { customer } });
  await db.line.create({ data: { orderId: order.id, sku: 'book' } });
  await bus.publish('order.placed', { customer });
}
