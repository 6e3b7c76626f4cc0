/** Reads what a caller, a message or the scheduler says into one NotificationRequest. Pure. */
import { isObject } from '../common/bus.js';
import type { NotificationRequest } from './store.js';
import { isKey, isLocale, PARTS } from './templates.js';

export class BadRequest extends Error {}

/** `defaults` come from the routing key, where there is one. */
export function readRequest(
  body: Record<string, unknown>,
  defaults: { readonly template?: string; readonly channel?: string } = {},
): NotificationRequest {
  const template = body['template'] ?? defaults.template;
  const channel = body['channel'] ?? defaults.channel ?? 'email';
  const locale = body['locale'] ?? 'en';
  const data = body['data'] ?? {};
  const reference = body['reference'] ?? null;
  const to = body['to'];
  if (typeof to !== 'string' || to.length === 0 || to.length > 2_000) throw new BadRequest('to is missing');
  if (!isKey(template)) throw new BadRequest('template is missing or not a key');
  if (typeof channel !== 'string' || PARTS[channel] === undefined) {
    throw new BadRequest(`channel is none of ${Object.keys(PARTS).join(', ')}`);
  }
  if (!isLocale(locale)) throw new BadRequest('locale is not a locale');
  if (!isObject(data)) throw new BadRequest('data is not an object');
  if (reference !== null && typeof reference !== 'string') throw new BadRequest('reference is not a string');
  return { to, template, channel, locale, data, reference };
}

/** The scheduler wraps what it was given: `{id, key, data, triggerTime, attempt}`. */
export function unwrapScheduled(body: Record<string, unknown>): Record<string, unknown> {
  const wrapped = typeof body['triggerTime'] === 'string' && typeof body['key'] === 'string';
  return wrapped && isObject(body['data']) ? body['data'] : body;
}

/** `notification.<kind>.<channel>`; anything else says nothing. */
export function fromRoutingKey(routingKey: string): { template?: string; channel?: string } {
  const [prefix, template, channel, more] = routingKey.split('.');
  if (prefix !== 'notification' || template === undefined || channel === undefined || more !== undefined)
    return {};
  return { template, channel };
}
