/**
 * The notification, scheduling and retry services of test/legacy/README.md: the topology that this project replaces.
 * Three shapes: a notification, a schedule (waiting, due or still a request) and a retry request; each may lie in any
 * queue of the retry ladder.
 */
import { objectText } from '../../../src/json-text.js';
import { memberText } from '../body.js';
import { timestampMs } from '../delivery.js';
import {
  bodyObject,
  type Dialect,
  headerInteger,
  headerOf,
  headerText,
  isoMs,
  type MessageView,
  type Route,
} from './dialect.js';

type Shape = 'notification' | 'schedule' | 'schedule-request' | 'retry-request';

const REQUESTS = 'schedule.requests';
const RETRIES = 'retry.scheduled';
/** `notification.<kind>.<channel>`; a kind may hold dots. */
const NOTIFICATION = /^notification\..+\.([^.]+)$/;

const originalQueue = headerText('x-original-queue');
const originalExchange = headerText('x-original-exchange');
const originalKey = headerText('x-original-routing-key');
const retries = headerInteger('x-retry-count');

export const trio: Dialect = {
  name: 'trio',
  summary:
    'notification, scheduling and retry services: notification.<kind>.<channel>, wait queues, x-retry-count',
  claims: (view) => shapeOf(view) !== undefined,
  fields: {
    route: (view) => {
      const shape = shapeOf(view);
      return shape === undefined || shape === 'notification' ? firstRoute(view) : targetOf(view).route;
    },
    kind: (view) => {
      const shape = shapeOf(view);
      if (shape === undefined) return undefined;
      if (shape === 'notification') return notifyKind(firstRoute(view));
      const target = targetOf(view);
      if (target.type === 'http') return 'relay.http';
      // Its target is an exchange or a queue that some program listened to: a rule names the kind that took its place.
      return (
        notifyKind(target.route) ?? `${shape === 'retry-request' ? 'retry' : 'scheduling'}.${target.type}`
      );
    },
    payloadText: carriedText,
    attempts: (view) => {
      if (shapeOf(view) === 'retry-request') {
        const made = bodyObject(view)?.['attempt'];
        return typeof made === 'number' && Number.isInteger(made) ? made : undefined;
      }
      const given = retries(view);
      // It counts retries given. A dead letter has failed once more than that.
      return given === undefined ? undefined : view.role === 'dead' ? given + 1 : given;
    },
    maxAttempts: (view) => {
      const policy = shapeOf(view) === 'retry-request' ? bodyObject(view)?.['policy'] : undefined;
      const max = (policy as { maxAttempts?: unknown } | null | undefined)?.maxAttempts;
      return typeof max === 'number' && Number.isInteger(max) && max >= 1 ? max : undefined;
    },
    dueMs: (view) => {
      if (view.role === 'wait' && headerOf(view, 'x-retry-due'))
        return isoMs(headerText('x-retry-due')(view));
      const shape = shapeOf(view);
      if (shape === 'schedule') return isoMs(bodyObject(view)?.['runAt']);
      return shape === 'schedule-request' ? requestedMs(view) : undefined;
    },
    homeQueue: originalQueue,
    error: (view) => {
      const message = headerText('x-error')(view);
      if (message === undefined) return undefined;
      const permanent = headerOf(view, 'x-permanent');
      return { name: permanent?.tag === 't' && permanent.value ? 'permanent' : 'rejected', message };
    },
  },
};

function shapeOf(view: MessageView): Shape | undefined {
  const { queue, exchange, properties } = view.delivery;
  const first = firstRoute(view);
  // Before the routing key is asked: a request to the scheduler often carries the key of what it is to fire.
  const requested = queue === REQUESTS || first.exchange === 'schedule';
  if (!requested && NOTIFICATION.test(first.routingKey)) return 'notification';
  if (queue === RETRIES || originalQueue(view) === RETRIES) return 'retry-request';
  // Only what already looks like one is parsed: other traffic should not pay for it.
  const marked =
    requested ||
    queue.startsWith('schedule.') ||
    properties.type === 'schedule' ||
    exchange.startsWith('schedule');
  const body = marked || headerOf(view, 'x-schedule-id') !== undefined ? bodyObject(view) : undefined;
  if (body === undefined) return undefined;
  if (isSchedule(body)) return 'schedule';
  return requested ? 'schedule-request' : undefined;
}

/** How the message first came: the rungs rewrite it and keep it in headers; a first death keeps it in x-death. */
function firstRoute(view: MessageView): Route {
  const first = view.deaths.at(-1);
  return {
    exchange: originalExchange(view) ?? first?.exchange ?? view.delivery.exchange,
    routingKey: originalKey(view) ?? first?.routingKeys[0] ?? view.delivery.routingKey,
  };
}

function isSchedule(body: Readonly<Record<string, unknown>>): boolean {
  return (
    ['id', 'key', 'runAt'].every((name) => typeof body[name] === 'string') &&
    'data' in body &&
    'target' in body
  );
}

function notifyKind({ routingKey }: Route): string | undefined {
  const channel = NOTIFICATION.exec(routingKey)?.[1];
  return channel === undefined ? undefined : `notify.${channel}`;
}

interface Target {
  readonly type: 'amqp' | 'http' | 'event';
  /** Where the services would publish it. */
  readonly route: Route;
}

function targetOf(view: MessageView): Target {
  const body = bodyObject(view) ?? {};
  const given = body['target'];
  const { exchange, routingKey, queue, url } = (
    typeof given === 'object' && given !== null ? given : {}
  ) as Record<string, unknown>;
  const key = body['key'];
  const eventKey = typeof key === 'string' ? key : view.delivery.routingKey;
  if (typeof url === 'string') return { type: 'http', route: { exchange: '', routingKey: '' } };
  if (typeof queue === 'string') return { type: 'amqp', route: { exchange: '', routingKey: queue } };
  if (typeof exchange === 'string') {
    return {
      type: 'amqp',
      route: { exchange, routingKey: typeof routingKey === 'string' ? routingKey : eventKey },
    };
  }
  return { type: 'event', route: { exchange: 'schedule.events', routingKey: eventKey } };
}

/**
 * The payload when it is not the body as it stands: the notification that a schedule or a retry request carries, or what
 * `relay.http` calls. Put together from the texts as written, never from parsed values.
 */
function carriedText(view: MessageView): string | undefined {
  const shape = shapeOf(view);
  const text = view.body.payloadText;
  if (shape === undefined || shape === 'notification' || text === null) return undefined;
  const target = targetOf(view);
  const member = shape === 'retry-request' ? 'payload' : 'data';
  // A request without any of the scheduler's own members is itself the data.
  const carried =
    memberText(text, member) ?? (shape === 'schedule-request' && !hasOwnMembers(view) ? text : undefined);
  if (target.type === 'http') {
    const url = memberText(memberText(text, 'target') ?? '', 'url');
    if (shape === 'retry-request') return objectText({ url, body: carried ?? 'null' });
    return objectText({ url, key: memberText(text, 'key'), data: carried ?? 'null' });
  }
  return notifyKind(target.route) === undefined ? undefined : carried;
}

const hasOwnMembers = (view: MessageView): boolean =>
  ['runAt', 'delayMs', 'target', 'data'].some((name) => bodyObject(view)?.[name] !== undefined);

/** A request that the scheduling service has not read yet: `x-delay` wins over delayMs over runAt. */
function requestedMs(view: MessageView): number | undefined {
  const body = bodyObject(view) ?? {};
  const delayMs = headerInteger('x-delay')(view) ?? body['delayMs'];
  if (typeof delayMs !== 'number') return isoMs(body['runAt']);
  // The service would have counted from when it read the request; the caller meant from when it was published.
  return (timestampMs(view.delivery.properties.timestamp) ?? view.nowMs) + Math.max(0, delayMs);
}
