/**
 * Sneakers and its successor Kicks: unmarked while they work; what they give up on carries `retry_info`, a JSON text, newest
 * failure first. Older versions put the original body, in Base64, into a JSON body instead.
 */
import {
  anyHeaderText,
  bodyWith,
  countOf,
  type Dialect,
  filled,
  firstRoute,
  headerText,
  jsonOf,
  type MessageView,
  objectOf,
} from './dialect.js';

type Members = Readonly<Record<string, unknown>>;

/** The error body of older versions. */
function wrapper(view: MessageView): Members | undefined {
  const body = bodyWith(view, 'payload', 'num_attempts', 'failed_at', 'error');
  return typeof body?.['payload'] === 'string' && countOf(body['num_attempts']) !== undefined
    ? body
    : undefined;
}

/** The newest failure. */
function failure(view: MessageView): Members | undefined {
  const info = jsonOf(headerText('retry_info')(view));
  return wrapper(view) ?? objectOf(Array.isArray(info) ? info[0] : info);
}

/** The properties of the message that failed. */
function originalOf(view: MessageView): Members | undefined {
  const properties = failure(view)?.['properties'];
  return objectOf(
    typeof properties === 'string' ? jsonOf(Buffer.from(properties, 'base64').toString('utf8')) : properties,
  );
}

const isRetried = anyHeaderText('retry_info');

export const sneakers: Dialect = {
  name: 'sneakers',
  summary: 'Sneakers and Kicks: retry_info in a header, or the old Base64 error body',
  claims: (view) => isRetried(view) || wrapper(view) !== undefined,
  requests: true,
  fields: {
    kind: (view) => firstRoute(view).routingKey || undefined,
    id: (view) => filled(originalOf(view)?.['message_id']) ?? filled(view.delivery.properties.messageId),
    inner: (view) => {
      const payload = wrapper(view)?.['payload'];
      if (typeof payload !== 'string') return undefined;
      const contentType = filled(originalOf(view)?.['content_type']) ?? null;
      // The encoder breaks lines every sixty characters; the decoder skips them.
      return { bytes: Buffer.from(payload, 'base64'), contentType };
    },
    // Moved back to work by hand it begins anew, with the old story still in its header.
    attempts: (view) =>
      view.role === 'dead' || wrapper(view) !== undefined
        ? countOf(failure(view)?.['num_attempts'])
        : undefined,
    homeQueue: ({ delivery }) => /^(.+)-(?:error|retry)$/.exec(delivery.queue)?.[1],
    dead: (view) => wrapper(view) !== undefined,
    error: (view) => {
      const info = failure(view);
      const message = filled(info?.['error_message']) ?? filled(info?.['error']);
      return message === undefined ? undefined : { name: filled(info?.['error_class']) ?? 'error', message };
    },
    details: (view) => ({
      failedAt: filled(failure(view)?.['failed_at']),
      correlationId: filled(originalOf(view)?.['correlation_id']),
    }),
  },
};
