/**
 * Where the trio's schedules and retries used to go, and which kind of job takes that place now. Pure. A target that
 * nothing serves yet is refused with the way to serve it, never stored in hope.
 */
import { RELAY_AMQP } from '../../../adapters/rabbitmq/relay-kind.js';
import type { Json } from '../../jobs/job.js';
import type { JsonNode, StringNode } from '../../json-text.js';
import { objectText } from '../../json-text.js';
import { RELAY_HTTP, refuseHeaders } from '../../notify/relay-kind.js';
import { type ContractContext, Refusal, type ShimJob } from '../contract.js';
import { objectOf as fieldsOf, invalid } from '../fields.js';
import { readNotification } from './notification-body.js';

export type Target =
  | { readonly url: string }
  | { readonly queue: string }
  | { readonly exchange: string; readonly routingKey?: string }
  | { readonly kind: string };

/** Source of the jobs that the retry routes made. */
export const RETRY_SOURCE = 'trio:retry';

/** Where schedules without a target were published. */
export const EVENTS = 'schedule.events';
const NOTIFICATIONS = { exchange: 'notifications', queue: 'notification.work' } as const;

const NAMES = ['url', 'queue', 'exchange', 'kind'] as const;

/** Throws Refusal 400. */
export function readTarget(node: JsonNode): Target {
  const fields = fieldsOf(node, [...NAMES, 'routingKey'], 'target');
  const given = NAMES.filter((name) => fields.has(name));
  const [name] = given;
  if (name === undefined || given.length > 1)
    throw invalid('target is none of {url}, {queue}, {exchange, routingKey?}, {kind}');
  const value = fields.line(name, name === 'url' ? 2_000 : 255)?.value;
  const routingKey = fields.line('routingKey', 255)?.value;
  if (value === undefined) throw invalid(`target.${name} is missing`);
  if (name !== 'exchange' && routingKey !== undefined) throw invalid('routingKey belongs to an exchange');
  if (name === 'exchange')
    return routingKey === undefined ? { exchange: value } : { exchange: value, routingKey };
  return { [name]: value } as Target;
}

/** As it is kept in the job's headers. */
export const targetJson = (target: Target | null): Json => target as Json;

/**
 * What a fired schedule becomes. `name` is null when the client gave none: the job's id stands for it. `again`: it fires
 * more than once, each time with the templates of that day, as the old service's did.
 */
export function planFired(
  target: Target | null,
  name: StringNode | null,
  payload: JsonNode | null,
  context: ContractContext,
  again = false,
): Pick<ShimJob, 'kind' | 'payloadText'> {
  const goal = target ?? { exchange: EVENTS };
  if ('url' in goal) {
    const members = { url: urlText(goal.url, context), key: name?.raw, data: payload?.raw ?? 'null' };
    return { kind: RELAY_HTTP, payloadText: objectText(members) };
  }
  const route = brokerRoute(goal, name?.value, context);
  if (route === null) return planForKind(goal, payload, context, !again);
  const members = {
    ...route,
    key: name?.raw,
    data: payload?.raw ?? 'null',
    properties: '{"appId":"scheduling"}',
  };
  return { kind: RELAY_AMQP, payloadText: objectText(members) };
}

/**
 * Where the old service published to, where the config says that consumers are still there; null where it does not. An
 * exchange without a routing key gets the schedule's: its members then say none. Throws Refusal.
 */
function brokerRoute(
  target: Exclude<Target, { url: string }>,
  key: string | undefined,
  { targets }: ContractContext,
): { readonly exchange: string; readonly routingKey?: string } | null {
  if ('kind' in target) return null;
  const name = 'queue' in target ? `queue:${target.queue}` : `exchange:${target.exchange}`;
  if (!Object.hasOwn(targets, name) || targets[name] !== RELAY_AMQP) return null;
  const exchange = 'queue' in target ? '' : target.exchange;
  const routingKey = 'queue' in target ? target.queue : target.routingKey;
  for (const text of [exchange, routingKey ?? key ?? ''])
    if (Buffer.byteLength(text) > MAX_NAME_BYTES)
      throw new Refusal(422, 'target-refused', `a broker takes names of up to ${MAX_NAME_BYTES} bytes`);
  return {
    exchange: JSON.stringify(exchange),
    ...(routingKey === undefined ? {} : { routingKey: JSON.stringify(routingKey) }),
  };
}

const MAX_NAME_BYTES = 255;
/** Where the old service put what was spent, for people to look at. */
const PARKING = 'manual-review';

/**
 * What is spent goes to that queue, as it did, where the config says that people still look there; null where it does
 * not. `request` is the submission as it came.
 */
export function planParked(
  request: JsonNode,
  attempts: number,
  error: string,
  context: ContractContext,
): Pick<ShimJob, 'kind' | 'payloadText'> | null {
  const route = brokerRoute({ queue: PARKING }, undefined, context);
  if (route === null) return null;
  const headers = {
    'x-original-queue': 'retry.scheduled',
    'x-original-exchange': '',
    'x-original-routing-key': 'retry.scheduled',
    'x-retry-count': attempts,
    'x-error': error.slice(0, MAX_ERROR),
  };
  const members = {
    ...route,
    body: request.raw,
    properties: '{"appId":"retry"}',
    headers: JSON.stringify(headers),
  };
  return { kind: RELAY_AMQP, payloadText: objectText(members) };
}

const MAX_ERROR = 500;

/**
 * What a retried call or message becomes: the payload goes to the target as it is. `attempts`: those made so far, which a
 * message tells its consumer.
 */
export function planRetried(
  target: Target,
  payload: JsonNode,
  context: ContractContext,
  attempts?: number,
): Pick<ShimJob, 'kind' | 'payloadText'> {
  if ('url' in target)
    return {
      kind: RELAY_HTTP,
      payloadText: objectText({ url: urlText(target.url, context), body: payload.raw }),
    };
  const route = brokerRoute(target, undefined, context);
  if (route === null) return planForKind(target, payload, context);
  const members = {
    routingKey: '""',
    ...route,
    body: payload.raw,
    properties: '{"appId":"retry"}',
    headers: attempts === undefined ? undefined : `{"x-retry-count":${attempts}}`,
  };
  return { kind: RELAY_AMQP, payloadText: objectText(members) };
}

const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'] as const;

/** A failed call as it was made: `{url, method?, headers?, body?}`. Throws Refusal. */
export function planCall(
  node: JsonNode,
  context: ContractContext,
): { target: Target; plan: Pick<ShimJob, 'kind' | 'payloadText'> } {
  const fields = fieldsOf(node, ['url', 'method', 'headers', 'body'], 'httpRequest');
  const url = fields.line('url', 2_000)?.value;
  if (url === undefined) throw invalid('httpRequest.url is missing');
  const method = fields.text('method', 10)?.value ?? 'POST';
  if (!(METHODS as readonly string[]).includes(method))
    throw invalid(`httpRequest.method is none of ${METHODS.join(', ')}`);
  const headers = fields.object('headers');
  const refused = headers === undefined ? null : refuseHeaders(headers);
  if (refused !== null) throw new Refusal(422, 'header-refused', refused);
  const payloadText = objectText({
    url: urlText(url, context),
    method: JSON.stringify(method),
    headers: headers?.raw,
    body: fields.node.members.get('body')?.raw ?? 'null',
  });
  return { target: { url }, plan: { kind: RELAY_HTTP, payloadText } };
}

function urlText(url: string, context: ContractContext): string {
  const refused = context.refuseUrl(url);
  if (refused !== null) throw new Refusal(422, 'target-refused', `target.url cannot be called: ${refused}`);
  return JSON.stringify(url);
}

function planForKind(
  target: Exclude<Target, { url: string }>,
  payload: JsonNode | null,
  context: ContractContext,
  pinned = true,
): Pick<ShimJob, 'kind' | 'payloadText'> {
  const defaults = notificationDefaults(target);
  if (defaults !== null) return readNotification(payload, context, { ...defaults, pinned }, 'payload');
  const kind = kindOf(target, context);
  // A notification is checked at every door it comes through.
  if (kind.startsWith('notify.'))
    return readNotification(payload, context, { channel: kind.slice(7), pinned }, 'payload');
  return { kind, payloadText: payload?.raw ?? 'null' };
}

/** `notification.<template>.<channel>` on their exchange, or their queue; null for any other target. */
function notificationDefaults(target: Target): { template?: string; channel?: string } | null {
  if ('queue' in target) return target.queue === NOTIFICATIONS.queue ? {} : null;
  if (!('exchange' in target) || target.exchange !== NOTIFICATIONS.exchange) return null;
  const [prefix, template, channel, ...more] = (target.routingKey ?? '').split('.');
  if (prefix !== 'notification' || template === undefined || channel === undefined || more.length > 0)
    throw new Refusal(
      422,
      'target-unserved',
      'on exchange notifications the routing key is notification.<template>.<channel>',
    );
  return { template, channel };
}

function kindOf(target: Exclude<Target, { url: string }>, context: ContractContext): string {
  if ('kind' in target) {
    if (context.knowsKind(target.kind)) return target.kind;
    throw new Refusal(
      422,
      'unknown-kind',
      'no handler is known for that kind; list it in serve.kinds of the config',
    );
  }
  const name = 'queue' in target ? `queue:${target.queue}` : `exchange:${target.exchange}`;
  const kind = Object.hasOwn(context.targets, name) ? context.targets[name] : undefined;
  if (kind !== undefined) return kind;
  const example = 'queue' in target ? '"queue:<name>": "<kind>"' : '"exchange:<name>": "<kind>"';
  throw new Refusal(
    422,
    'target-unserved',
    `nothing serves that queue or exchange yet; map it to a kind in serve.targets of the config (${example}), or use {url} or {kind}`,
  );
}
