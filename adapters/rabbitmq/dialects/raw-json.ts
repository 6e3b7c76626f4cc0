/** A bare message: no library's envelope. The last to be asked; it claims nothing, and only `type` names a kind. */
import { type Dialect, firstOf, headerInteger } from './dialect.js';

export const rawJson: Dialect = {
  name: 'raw-json',
  summary: 'a bare message: kind from the type property or a rule, attempts from x-retry-count or x-death',
  claims: () => false,
  fields: {
    kind: ({ delivery }) => delivery.properties.type || undefined,
    attempts: firstOf(
      headerInteger('x-retry-count'),
      headerInteger('x-retries'),
      headerInteger('x-retry'),
      headerInteger('retryCount'),
      headerInteger('retry-count'),
    ),
  },
};
