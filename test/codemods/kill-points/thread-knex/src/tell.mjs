import { Bus } from './bus.mjs';

/**
 * @param {Bus} bus
 * @param {string} customer
 */
export async function tell(bus, customer) {
  if (customer !== '') await bus.publish('order.placed', { customer });
}
