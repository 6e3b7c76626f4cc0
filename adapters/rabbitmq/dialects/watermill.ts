/** Watermill: a uuid among text headers; the topic is what names a message, as an exchange or as a queue. */
import { type Dialect, firstRoute, headerText } from './dialect.js';

const uuid = headerText('_watermill_message_uuid');

export const watermill: Dialect = {
  name: 'watermill',
  summary: 'Watermill: _watermill_message_uuid among the headers, kind from the topic',
  claims: (view) => uuid(view) !== undefined,
  requests: true,
  fields: {
    kind: (view) => {
      const { exchange, routingKey } = firstRoute(view);
      return routingKey || exchange || undefined;
    },
    id: uuid,
    details: (view) => ({
      // Set by its CQRS component: the command or event.
      name: headerText('name')(view),
      correlationId: headerText('correlation_id')(view),
    }),
  },
};
