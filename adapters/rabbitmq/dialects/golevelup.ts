/**
 * @golevelup/nestjs-rabbitmq and Hutch: plain bodies, routed by exchange and routing key. Nothing in a message says that it
 * is theirs, so they claim none: a rule names them, and then the routing names the kind.
 */
import { type Dialect, firstRoute, type MessageView } from './dialect.js';

const routedBy = (view: MessageView): string | undefined => firstRoute(view).routingKey || undefined;

export const golevelup: Dialect = {
  name: 'golevelup',
  summary: '@golevelup/nestjs-rabbitmq, by rule only: kind from exchange and routing key',
  claims: () => false,
  fields: {
    kind: (view) => {
      const { exchange, routingKey } = firstRoute(view);
      const name = [exchange, routingKey].filter((part) => part !== '').join('/');
      return name === '' ? undefined : name;
    },
    id: ({ delivery }) => delivery.properties.messageId || undefined,
  },
};

export const hutch: Dialect = {
  name: 'hutch',
  summary: 'Hutch, by rule only: kind from the routing key, attempts from x-death',
  claims: () => false,
  fields: { kind: routedBy, id: ({ delivery }) => delivery.properties.messageId || undefined },
};
