/** wascally, rabbot and foo-foo-mq: `type` names the message, `timestamp` is in milliseconds, an unset id is ''. */
import { type Dialect, headerOf, headerText, type MessageView } from './dialect.js';

/** They alone write both: the encoding 'utf8' (others say utf-8) and milliseconds where seconds belong. */
const isTheirs = ({ delivery: { properties } }: MessageView): boolean =>
  properties.contentEncoding === 'utf8' &&
  properties.type !== undefined &&
  (properties.timestamp ?? 0n) > 100_000_000_000n;

export const fooFooMq: Dialect = {
  name: 'foo-foo-mq',
  summary: 'wascally, rabbot, foo-foo-mq: type, millisecond timestamp, contentEncoding utf8',
  claims: isTheirs,
  requests: true,
  fields: {
    exclude: (view) =>
      headerOf(view, 'sequence_end') === undefined ? undefined : 'reply: the answer to a request',
    kind: ({ delivery }) => delivery.properties.type || undefined,
    id: ({ delivery }) => delivery.properties.messageId || undefined,
    details: (view) => ({
      correlationId: headerText('CorrelationId')(view) || view.delivery.properties.correlationId || undefined,
    }),
  },
};
