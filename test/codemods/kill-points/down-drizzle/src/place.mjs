import { Bus } from './bus.mjs';
import { store } from './db.mjs';

/** @param {Bus} bus @param {string} customer */
export async function caught(bus, customer) {
  for (const one of [customer]) {
    try {
      await store.insert(one);
      await bus.publish('order.placed', { customer: one });
    } catch (error) {
      console.error(error);
      throw error;
    }
  }
}
