import { Bus } from './bus.mjs';
import { db } from './db.mjs';

/** @param {Bus} bus @param {string} customer */
export async function callback(bus, customer) {
  await db.transaction().execute(async (trx) => {
    const { id } = await trx
      .insertInto('orders')
      .values({ customer })
      .returning('id')
      .executeTakeFirstOrThrow();
    await trx.insertInto('order_lines').values({ order_id: id, sku: 'book' }).execute();
  });
  await bus.publish('order.placed', { customer });
}

/** @param {Bus} bus @param {string} customer */
export async function byHand(bus, customer) {
  const trx = await db.startTransaction().execute();
  try {
    const { id } = await trx
      .insertInto('orders')
      .values({ customer })
      .returning('id')
      .executeTakeFirstOrThrow();
    await trx.insertInto('order_lines').values({ order_id: id, sku: 'book' }).execute();
    await trx.commit().execute();
  } catch (error) {
    await trx.rollback().execute();
    throw error;
  }
  await bus.publish('order.placed', { customer });
}

/** @param {Bus} bus @param {string} customer */
export async function autocommit(bus, customer) {
  const { id } = await db.insertInto('orders').values({ customer }).returning('id').executeTakeFirstOrThrow();
  await db.insertInto('order_lines').values({ order_id: id, sku: 'book' }).execute();
  await bus.publish('order.placed', { customer });
}
