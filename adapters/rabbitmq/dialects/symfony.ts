/**
 * Symfony Messenger: its JSON serializer writes `type` and one header per kind of stamp; its PHP serializer writes a body
 * that only PHP reads, in which at most the class is found. `timestamp` is copied unchanged onto retries, so it dates nothing.
 */
import { nameOf } from '../headers.js';
import {
  countOf,
  type Dialect,
  filled,
  headerText,
  jsonOf,
  type MessageView,
  objectOf,
  type Reason,
} from './dialect.js';

const PREFIX = 'X-Message-Stamp-';
const PHP_CLASS = /^[A-Za-z_]\w*(?:\\\w+)+$/;
/** The PHP serializer's body, with slashes added or not; and its beginning in Base64. */
const SERIALIZED = /^O:\d+:\\?"Symfony\\{1,2}Component\\{1,2}Messenger\\{1,2}Envelope\\?"/;
const BASE64_START = 'TzozNjoiU3ltZm9ueV';
const MESSAGE_CLASS = /Envelope(?:\0|\\0)message\\?";O:\d+:\\?"([\w\\]+?)\\?":/;
/** Far more than an envelope's stamps take. */
const MAX_SEARCHED = 65_536;

const type = headerText('type');

/** The newest stamp of a kind: a header holds all of one kind, in order. */
function stamp(view: MessageView, name: string): Readonly<Record<string, unknown>> | undefined {
  const list = jsonOf(headerText(`${PREFIX}Symfony\\Component\\Messenger\\Stamp\\${name}`)(view));
  return Array.isArray(list) ? objectOf(list.at(-1)) : undefined;
}

const isStamped = ({ delivery }: MessageView): boolean =>
  delivery.headers.some((entry) => nameOf(entry).startsWith(PREFIX));

function serialized({ delivery: { body } }: MessageView): string | undefined {
  // 'O' or 'T': everything else is told from it by one byte.
  if (body[0] !== 0x4f && body[0] !== 0x54) return undefined;
  const head = body.toString('latin1', 0, MAX_SEARCHED);
  const text = head.startsWith(BASE64_START) ? Buffer.from(head, 'base64').toString('latin1') : head;
  return SERIALIZED.test(text) ? text : undefined;
}

function failure(view: MessageView): Reason | undefined {
  const details = stamp(view, 'ErrorDetailsStamp');
  const message = filled(details?.['exceptionMessage']);
  return details === undefined
    ? undefined
    : { name: filled(details['exceptionClass']) ?? 'exception', message: message ?? '' };
}

export const symfony: Dialect = {
  name: 'symfony',
  summary: 'Symfony Messenger: type and X-Message-Stamp-* headers, or a serialised PHP envelope',
  claims: (view) => isStamped(view) || PHP_CLASS.test(type(view) ?? '') || serialized(view) !== undefined,
  fields: {
    kind: (view) =>
      filled(type(view)) ?? MESSAGE_CLASS.exec(serialized(view) ?? '')?.[1]?.replaceAll('\\\\', '\\'),
    id: (view) =>
      filled(stamp(view, 'TransportMessageIdStamp')?.['id']) ??
      (view.delivery.properties.messageId || undefined),
    attempts: (view) => countOf(stamp(view, 'RedeliveryStamp')?.['retryCount']),
    opaque: (view) =>
      serialized(view) === undefined
        ? undefined
        : { name: 'php-serialized', message: 'the body is a serialised PHP envelope' },
    dead: (view) => stamp(view, 'SentToFailureTransportStamp') !== undefined,
    error: failure,
    details: (view) => ({
      busName: filled(stamp(view, 'BusNameStamp')?.['busName']),
      originalReceiver: filled(stamp(view, 'SentToFailureTransportStamp')?.['originalReceiverName']),
      delayMs: countOf(stamp(view, 'DelayStamp')?.['delay']),
    }),
  },
};
