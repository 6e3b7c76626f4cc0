/**
 * NServiceBus: everything in NServiceBus.* headers, as text or bytes; delays through 28 binary levels of queues. Copies in
 * an audit queue have been handled already, and control messages speak to the library.
 */
import { behindBits, latestByLevels } from './binary-delay.js';
import {
  anyHeaderText,
  type Dialect,
  firstOf,
  firstRoute,
  headerInteger,
  headerText,
  instantMs,
  type MessageView,
  timeSpanMs,
} from './dialect.js';

const nsb = (name: string) => headerText(`NServiceBus.${name}`);
const types = nsb('EnclosedMessageTypes');
const isMarked = anyHeaderText(
  ...['EnclosedMessageTypes', 'MessageId', 'MessageIntent', 'ControlMessage'].map(
    (name) => `NServiceBus.${name}`,
  ),
);
const failedQueue = nsb('FailedQ');
const delaySeconds = headerInteger('NServiceBus.Transport.RabbitMQ.DelayInSeconds');
const LEVEL = /^nsb\.v2\.delay-level-(\d\d)$/;
const levelOf = (view: MessageView): string | undefined => LEVEL.exec(view.delivery.queue)?.[1];

/** The first and most exact type, without what changes from build to build. */
const typeName = (view: MessageView): string | undefined =>
  types(view)
    ?.split(';')[0]
    ?.replace(/, Version=.*$/, '')
    .trim() || undefined;

export const nservicebus: Dialect = {
  name: 'nservicebus',
  summary: 'NServiceBus: EnclosedMessageTypes, MessageId, Retries, DelayInSeconds and FailedQ headers',
  claims: (view) => isMarked(view) || levelOf(view) !== undefined,
  fields: {
    exclude: (view) => {
      if (nsb('ProcessingEnded')(view) !== undefined) return 'audit: a copy of a message already handled';
      return nsb('ControlMessage')(view) === 'True' ? 'control: a message between endpoints' : undefined;
    },
    route: (view) => {
      const route = firstRoute(view);
      return { ...route, routingKey: behindBits(route.routingKey) ?? route.routingKey };
    },
    kind: typeName,
    id: nsb('MessageId'),
    attempts: headerInteger('NServiceBus.Retries'),
    dueMs: (view) => {
      const seconds = delaySeconds(view);
      // TimeSent is that of the first publish; a delayed retry has its own stamp.
      const from = instantMs(firstOf(nsb('Retries.Timestamp'), nsb('TimeSent'))(view));
      return seconds === undefined || from === undefined ? undefined : from + seconds * 1_000;
    },
    latestMs: (view) => {
      const level = levelOf(view);
      return level === undefined ? undefined : latestByLevels(view, Number(level));
    },
    expiresMs: (view) => {
      const span = timeSpanMs(nsb('TimeToBeReceived')(view));
      const sent = instantMs(nsb('TimeSent')(view));
      return span === undefined || sent === undefined ? undefined : sent + span;
    },
    homeQueue: (view) => failedQueue(view) ?? behindBits(view.delivery.routingKey),
    opaque: (view) =>
      levelOf(view) !== undefined && types(view) === undefined
        ? { name: 'no-headers', message: 'a delayed message without the headers that would say what it is' }
        : undefined,
    dead: (view) => {
      const failed = failedQueue(view);
      return failed !== undefined && failed.replace(/@.*$/, '') !== view.delivery.queue;
    },
    error: (view) => {
      const message = nsb('ExceptionInfo.Message')(view);
      const name = nsb('ExceptionInfo.ExceptionType')(view);
      return message === undefined && name === undefined
        ? undefined
        : { name: name ?? 'failed', message: message ?? '' };
    },
    details: (view) => ({
      correlationId: firstOf(nsb('CorrelationId'), ({ delivery }) => delivery.properties.correlationId)(view),
      conversationId: nsb('ConversationId')(view),
      relatedTo: nsb('RelatedTo')(view),
      replyToAddress: nsb('ReplyToAddress')(view),
    }),
  },
};
