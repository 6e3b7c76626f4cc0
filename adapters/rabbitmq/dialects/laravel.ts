/** Laravel's RabbitMQ queue driver: the queued job is the body, with a serialised PHP command that stays as it is. */
import { findField, integerOf } from '../headers.js';
import {
  bodyWith,
  countOf,
  type Dialect,
  filled,
  headerTable,
  type MessageView,
  objectOf,
} from './dialect.js';

function queued(view: MessageView): Readonly<Record<string, unknown>> | undefined {
  const body = bodyWith(view, 'job', 'data');
  return filled(body?.['job']) !== undefined &&
    (filled(body?.['displayName']) ?? commandName(body)) !== undefined
    ? body
    : undefined;
}

const commandName = (body: Readonly<Record<string, unknown>> | undefined): string | undefined =>
  filled(objectOf(body?.['data'])?.['commandName']);

function attempts(view: MessageView): number | undefined {
  const table = headerTable(view, 'laravel');
  return table === undefined ? undefined : integerOf(findField(table, 'attempts'));
}

export const laravel: Dialect = {
  name: 'laravel',
  summary: 'Laravel queues: displayName and id in the body, laravel.attempts among the headers, q.delay.<ms>',
  claims: (view) => attempts(view) !== undefined || queued(view) !== undefined,
  fields: {
    kind: (view) => filled(queued(view)?.['displayName']) ?? commandName(queued(view)),
    id: (view) =>
      filled(queued(view)?.['id']) ??
      filled(queued(view)?.['uuid']) ??
      filled(view.delivery.properties.correlationId),
    // What was made: the library adds the current one when it reads.
    attempts,
    maxAttempts: (view) => countOf(queued(view)?.['maxTries']) || undefined,
    expiresMs: (view) => {
      const seconds = countOf(queued(view)?.['retryUntil']);
      return seconds === undefined ? undefined : seconds * 1_000;
    },
    homeQueue: ({ delivery }) => /^(.+)\.delay\.\d+$/.exec(delivery.queue)?.[1],
    details: (view) => ({
      timeoutSeconds: countOf(queued(view)?.['timeout']),
      backoff: filled(queued(view)?.['backoff']) ?? countOf(queued(view)?.['backoff']),
    }),
  },
};
