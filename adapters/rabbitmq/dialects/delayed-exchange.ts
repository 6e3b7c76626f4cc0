/**
 * A message that has come through the delayed-message exchange, or that its dead letters dragged along: `x-delay` of either
 * sign. Once it lies in a queue the delay has elapsed. Everything else is as in a bare message.
 */
import { type Dialect, headerInteger } from './dialect.js';
import { rawJson } from './raw-json.js';

const delay = headerInteger('x-delay');

export const delayedExchange: Dialect = {
  name: 'delayed-exchange',
  summary: 'the delayed-message exchange: x-delay has elapsed, the rest as in a bare message',
  claims: (view) => delay(view) !== undefined,
  requests: true,
  fields: {
    ...rawJson.fields,
    details: (view) => ({ delayMs: Math.abs(delay(view) ?? 0) }),
  },
};
