/**
 * MassTransit: an envelope around `message` (or, with its raw serializer, headers and the bare message), faults described
 * in MT-* headers, `<queue>_error` and `<queue>_skipped`. In-memory retries leave no trace before the fault.
 */
import { memberText } from '../body.js';
import {
  anyHeaderText,
  bodyWith,
  countOf,
  type Dialect,
  filled,
  firstOf,
  headerInteger,
  headerText,
  instantMs,
  type MessageView,
  objectOf,
} from './dialect.js';

function envelope(view: MessageView): Readonly<Record<string, unknown>> | undefined {
  const body = bodyWith(view, 'messageType', 'message');
  const types = body?.['messageType'];
  return Array.isArray(types) && typeof types[0] === 'string' && types[0].startsWith('urn:message:')
    ? body
    : undefined;
}

const contentType = (view: MessageView): string => view.delivery.properties.contentType ?? '';
const ENVELOPE_TYPE = /^application\/vnd\.masstransit\b/;
const isMarked = anyHeaderText(
  ...['MT-MessageType', 'MT-Reason', 'MT-Activity-Id', 'MT-Fault-ExceptionType', 'MT-Host-Info'],
);
const isSkipped = (view: MessageView): boolean =>
  view.delivery.queue.endsWith('_skipped') || headerText('MT-Reason')(view) === 'dead-letter';
const isFault = (view: MessageView): boolean =>
  view.delivery.queue.endsWith('_error') || view.role === 'dead';

const member =
  (name: string) =>
  (view: MessageView): string | undefined =>
    filled(envelope(view)?.[name]);

const redelivered = firstOf(headerInteger('MT-Redelivery-Count'), (view) => {
  const count = objectOf(envelope(view)?.['headers'])?.['MT-Redelivery-Count'];
  return countOf(typeof count === 'string' && /^\d{1,9}$/.test(count) ? Number(count) : count);
});

export const masstransit: Dialect = {
  name: 'masstransit',
  summary: 'MassTransit: messageType and message in an envelope, faults in MT-* headers, _error, _skipped',
  claims: (view) => ENVELOPE_TYPE.test(contentType(view)) || isMarked(view) || envelope(view) !== undefined,
  fields: {
    kind: (view) => {
      const types = envelope(view)?.['messageType'];
      // A type and its base types and interfaces, the most exact first; in a header separated by semicolons.
      return Array.isArray(types) ? types[0] : headerText('MT-MessageType')(view)?.split(';')[0];
    },
    id: firstOf(member('messageId'), headerText('MessageId')),
    payloadText: (view) => {
      const text = view.body.payloadText;
      return text === null || envelope(view) === undefined ? undefined : memberText(text, 'message');
    },
    attempts: (view) => {
      const retried = headerInteger('MT-Fault-RetryCount')(view);
      // Retries in memory are known once it has failed for good; then the first try counts, too.
      return isFault(view) && !isSkipped(view) && headerText('MT-Reason')(view) === 'fault'
        ? (redelivered(view) ?? 0) + (retried ?? 0) + 1
        : redelivered(view);
    },
    expiresMs: (view) => instantMs(envelope(view)?.['expirationTime']),
    homeQueue: (view) => {
      const { queue } = view.delivery;
      return /^(.+)_(?:error|skipped)$/.exec(queue)?.[1];
    },
    opaque: (view) =>
      contentType(view).includes('+aes')
        ? { name: 'encrypted', message: 'the body is encrypted by MassTransit' }
        : undefined,
    dead: (view) => isSkipped(view) || view.delivery.queue.endsWith('_error'),
    unhandled: isSkipped,
    error: (view) => {
      if (isSkipped(view)) return { name: 'unhandled', message: 'no consumer was there for its type' };
      const message = headerText('MT-Fault-Message')(view);
      const name = headerText('MT-Fault-ExceptionType')(view);
      return message === undefined && name === undefined
        ? undefined
        : { name: name ?? 'fault', message: message ?? '' };
    },
    details: (view) => ({
      correlationId: firstOf(member('correlationId'), headerText('CorrelationId'))(view),
      conversationId: firstOf(member('conversationId'), headerText('ConversationId'))(view),
      initiatorId: firstOf(member('initiatorId'), headerText('MT-InitiatorId'))(view),
      requestId: member('requestId')(view),
      responseAddress: member('responseAddress')(view),
    }),
    notes: (view) => (member('responseAddress')(view) === undefined ? [] : ['expects-a-response']),
    trace: (view) => {
      const traceparent =
        headerText('MT-Activity-Id')(view) ??
        filled(objectOf(envelope(view)?.['headers'])?.['MT-Activity-Id']);
      return traceparent === undefined ? undefined : { traceparent };
    },
  },
};
