/** Spring AMQP: the Java type in `__TypeId__`, what failed in x-exception-* and x-original-* of its republisher. */
import { type Dialect, firstRoute, headerInteger, headerText, printedError } from './dialect.js';

const typeId = headerText('__TypeId__');
const contentTypeId = headerText('__ContentTypeId__');
const exception = headerText('x-exception-message');
const stack = headerText('x-exception-stacktrace');
const originalExchange = headerText('x-original-exchange');
const originalKey = headerText('x-original-routingKey');

export const spring: Dialect = {
  name: 'spring',
  summary: 'Spring AMQP: __TypeId__, x-exception-* and x-original-* headers',
  claims: (view) =>
    typeId(view) !== undefined ||
    ((exception(view) ?? stack(view)) !== undefined && originalKey(view) !== undefined),
  requests: true,
  fields: {
    route: (view) => {
      const first = firstRoute(view);
      return {
        exchange: originalExchange(view) ?? first.exchange,
        routingKey: originalKey(view) ?? first.routingKey,
      };
    },
    kind: (view) => {
      const [type, element] = [typeId(view), contentTypeId(view)];
      // Of a collection the type alone says nothing.
      return type !== undefined && element !== undefined && element !== 'java.lang.Object'
        ? `${type}<${element}>`
        : type;
    },
    id: ({ delivery }) => delivery.properties.messageId || undefined,
    attempts: headerInteger('retry-count'),
    error: (view) => {
      const message = exception(view);
      const printed = printedError(stack(view)?.split('\n')[0], 'exception');
      return message === undefined ? printed : { name: printed?.name ?? 'exception', message };
    },
    details: (view) => ({
      correlationId: view.delivery.properties.correlationId,
      keyTypeId: headerText('__KeyTypeId__')(view),
      springReplyCorrelation: headerText('spring_reply_correlation')(view),
    }),
  },
};
