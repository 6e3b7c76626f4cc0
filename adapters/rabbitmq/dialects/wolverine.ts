/** Wolverine: type and id in properties or headers, the rest of its envelope in headers with plain names. */
import {
  type Dialect,
  filled,
  firstOf,
  headerInteger,
  headerOf,
  headerText,
  instantMs,
  type MessageView,
} from './dialect.js';

/** Names plain enough that one alone could be anybody's. */
const ENVELOPE = [
  ...['accepted-content-types', 'conversation-id', 'time-to-send', 'deliver-by', 'keep-until', 'parent-id'],
  ...['saga-id', 'tenant-id', 'reply-uri', 'reply-requested', 'ack-requested', 'attempts', 'destination'],
];

const messageType = headerText('message-type');

function isWolverine(view: MessageView): boolean {
  if (view.delivery.headers.length === 0) return false;
  const found = ENVELOPE.filter((name) => headerOf(view, name) !== undefined).length;
  return messageType(view) === undefined
    ? found >= 3 && filled(view.delivery.properties.type) !== undefined
    : found >= 1;
}

const earliest = (...times: readonly (number | undefined)[]): number | undefined => {
  const known = times.filter((time) => time !== undefined);
  return known.length === 0 ? undefined : Math.min(...known);
};

export const wolverine: Dialect = {
  name: 'wolverine',
  summary: 'Wolverine: message-type, attempts, time-to-send, deliver-by and keep-until headers',
  claims: isWolverine,
  fields: {
    kind: firstOf(messageType, ({ delivery }) => delivery.properties.type || undefined),
    id: firstOf(headerText('id'), ({ delivery }) => delivery.properties.messageId || undefined),
    attempts: headerInteger('attempts'),
    dueMs: (view) => instantMs(headerText('time-to-send')(view)),
    expiresMs: (view) =>
      earliest(instantMs(headerText('deliver-by')(view)), instantMs(headerText('keep-until')(view))),
    error: (view) => {
      const message = headerText('exception-message')(view);
      return message === undefined
        ? undefined
        : { name: headerText('exception-type')(view) ?? 'exception', message };
    },
    details: (view) => ({
      correlationId: headerText('correlation-id')(view) ?? view.delivery.properties.correlationId,
      conversationId: headerText('conversation-id')(view),
      tenantId: headerText('tenant-id')(view),
      sagaId: headerText('saga-id')(view),
      replyUri: headerText('reply-uri')(view),
    }),
    trace: (view) => {
      const parent = headerText('parent-id')(view);
      return parent !== undefined && /^\d\d-[0-9a-f]{32}-/.test(parent) ? { traceparent: parent } : undefined;
    },
  },
};
