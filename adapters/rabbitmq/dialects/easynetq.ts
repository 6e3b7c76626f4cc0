/**
 * EasyNetQ: a .NET type name in `type`; one error queue for all, whose messages wrap the original as a string with its
 * properties. Requests name a reply queue of their own.
 */
import {
  bodyWith,
  type Dialect,
  filled,
  firstOf,
  instantMs,
  type MessageView,
  objectOf,
  printedError,
} from './dialect.js';

type Members = Readonly<Record<string, unknown>>;

/** `Namespace.Type, Assembly`, or the older `Namespace.Type:Assembly`. */
const DOTNET_TYPE = /^[A-Za-z_][\w`+]*(?:\.[\w`+]+)+(?:\[.*\])?(?:, ?|:)[A-Za-z_][\w.-]*$/;

const type = ({ delivery }: MessageView): string | undefined => delivery.properties.type;

function wrapper(view: MessageView): Members | undefined {
  const body = bodyWith(view, 'Message', 'Exception', 'Queue', 'BasicProperties');
  return typeof body?.['Message'] === 'string' ? body : undefined;
}

const original =
  (name: string) =>
  (view: MessageView): string | undefined =>
    filled(objectOf(wrapper(view)?.['BasicProperties'])?.[name]);

const wrapped =
  (name: string) =>
  (view: MessageView): string | undefined =>
    filled(wrapper(view)?.[name]);

export const easynetq: Dialect = {
  name: 'easynetq',
  summary: 'EasyNetQ: type is a .NET type with its assembly; the error queue wraps the original',
  claims: (view) => DOTNET_TYPE.test(type(view) ?? '') || wrapper(view) !== undefined,
  requests: true,
  fields: {
    route: (view) =>
      wrapper(view) === undefined
        ? undefined
        : { exchange: wrapped('Exchange')(view) ?? '', routingKey: wrapped('RoutingKey')(view) ?? '' },
    kind: (view) => (wrapper(view) === undefined ? type(view) || undefined : original('Type')(view)),
    id: firstOf(original('MessageId'), ({ delivery }) => delivery.properties.messageId || undefined),
    inner: (view) => {
      const message = wrapper(view)?.['Message'];
      return typeof message === 'string'
        ? { bytes: Buffer.from(message, 'utf8'), contentType: original('ContentType')(view) ?? null }
        : undefined;
    },
    homeQueue: wrapped('Queue'),
    dead: (view) => wrapper(view) !== undefined,
    error: (view) => printedError(wrapped('Exception')(view), 'exception'),
    details: (view) => {
      const failedMs = instantMs(wrapped('DateTime')(view));
      return {
        correlationId: original('CorrelationId')(view) ?? view.delivery.properties.correlationId,
        failedAt: failedMs === undefined ? undefined : new Date(failedMs).toISOString(),
      };
    },
  },
};
