/**
 * Works off `notification.work`: render, deliver, say what became of it. A transient failure is rejected into the
 * dead-letter exchange, where the retry service waits; a permanent one is copied there with the reason.
 */
import { randomUUID } from 'node:crypto';
import type { ConsumeMessage } from 'amqplib';
import { type Bus, jsonBody, numberHeader, stringHeader, type Verdict } from '../common/bus.js';
import { type Delivery, PermanentError } from './delivery.js';
import { BadRequest, fromRoutingKey, readRequest, unwrapScheduled } from './request.js';
import type { NotificationRequest, NotificationStore, Status } from './store.js';
import { RenderError, type Templates } from './templates.js';

export const EXCHANGE = 'notifications';
const STATUS_EXCHANGE = 'notification.status';
const DEAD_LETTERS = 'retry.dlx';
const QUEUE = 'notification.work';
const MAX_ERROR = 500;

export interface ConsumerParts {
  readonly bus: Bus;
  readonly store: NotificationStore;
  readonly templates: Templates;
  readonly delivery: Delivery;
}

export async function declare(bus: Bus): Promise<void> {
  const { channel } = bus;
  await channel.assertExchange(EXCHANGE, 'topic', { durable: true });
  await channel.assertExchange(STATUS_EXCHANGE, 'topic', { durable: true });
  await channel.assertExchange(DEAD_LETTERS, 'topic', { durable: true });
  await channel.assertQueue(QUEUE, { durable: true, arguments: { 'x-dead-letter-exchange': DEAD_LETTERS } });
  await channel.bindQueue(QUEUE, EXCHANGE, 'notification.#');
  // The retry service declares it too; without it, what is rejected before that service first starts would vanish.
  await channel.assertQueue('notification.dlq', { durable: true });
  await channel.bindQueue('notification.dlq', DEAD_LETTERS, 'notification.#');
}

export async function consume(parts: ConsumerParts): Promise<void> {
  await parts.bus.consume(QUEUE, (message) => handle(parts, message));
}

async function handle(parts: ConsumerParts, message: ConsumeMessage): Promise<Verdict> {
  const id = typeof message.properties.messageId === 'string' ? message.properties.messageId : randomUUID();
  const attempt = (numberHeader(message, 'x-retry-count') ?? 0) + 1;
  let request: NotificationRequest;
  try {
    request = read(message);
  } catch (error) {
    await giveUp(parts.bus, message, reason(error));
    return 'ack';
  }
  await parts.store.insert(id, request);
  if (!(await parts.store.begin(id, attempt))) return 'ack';
  try {
    const rendered = await parts.templates.render(
      request.template,
      request.locale,
      request.channel,
      request.data,
    );
    const providerId = await parts.delivery.send(id, request.to, rendered);
    await parts.store.sent(id, providerId);
    await announce(parts.bus, id, request, 'sent', attempt, null);
    return 'ack';
  } catch (error) {
    return fail(parts, message, id, request, attempt, error);
  }
}

function read(message: ConsumeMessage): NotificationRequest {
  const routingKey = stringHeader(message, 'x-original-routing-key') ?? message.fields.routingKey;
  return readRequest(unwrapScheduled(jsonBody(message)), fromRoutingKey(routingKey));
}

async function fail(
  { bus, store }: ConsumerParts,
  message: ConsumeMessage,
  id: string,
  request: NotificationRequest,
  attempt: number,
  error: unknown,
): Promise<Verdict> {
  const permanent = [PermanentError, RenderError, BadRequest].some((type) => error instanceof type);
  const status = permanent ? 'failed' : 'retrying';
  await store.failed(id, status, reason(error));
  await announce(bus, id, request, status, attempt, reason(error));
  if (!permanent) return 'reject';
  await giveUp(bus, message, reason(error));
  return 'ack';
}

/** Rejecting cannot say why, so the message is copied with the reason; the caller acks after the confirm. */
async function giveUp(bus: Bus, message: ConsumeMessage, error: string): Promise<void> {
  const { fields, properties } = message;
  await bus.republish(DEAD_LETTERS, fields.routingKey, message, {
    'x-original-queue': QUEUE,
    'x-original-exchange': fields.exchange,
    'x-original-routing-key': fields.routingKey,
    ...properties.headers,
    'x-permanent': true,
    'x-error': error,
  });
}

async function announce(
  bus: Bus,
  id: string,
  request: NotificationRequest,
  status: Status,
  attempt: number,
  error: string | null,
): Promise<void> {
  const { template: kind, channel } = request;
  const event = { id, status, kind, channel, attempt, error, at: new Date().toISOString() };
  await bus.publish(STATUS_EXCHANGE, `status.${status}`, event, {
    messageId: randomUUID(),
    type: 'status',
    appId: 'notification',
  });
}

function reason(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).slice(0, MAX_ERROR);
}
