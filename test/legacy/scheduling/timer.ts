/**
 * Waiting by the broker: a message is put into a queue whose TTL is the delay and which dead-letters to where due
 * messages are consumed. Here are the queues and the way in; what happens at the end is fire.ts.
 */
import type { Bus } from '../common/bus.js';
import type { Schedule } from './store.js';

export const REQUESTS = { exchange: 'schedule', queue: 'schedule.requests' } as const;
export const EVENTS = 'schedule.events';
export const DUE = 'schedule.due';
const FIRE = 'schedule.fire';
const DEAD_LETTERS = 'retry.dlx';

/** RabbitMQ keeps TTL and expiry in 32 bits. */
const EXPIRES_AFTER_MS = 60_000;
export const MAX_DELAY_MS = 2 ** 32 - 1 - EXPIRES_AFTER_MS;

export async function declare({ channel }: Bus): Promise<void> {
  await channel.assertExchange(REQUESTS.exchange, 'topic', { durable: true });
  await channel.assertExchange(EVENTS, 'topic', { durable: true });
  await channel.assertExchange(FIRE, 'direct', { durable: true });
  await channel.assertExchange(DEAD_LETTERS, 'topic', { durable: true });
  await channel.assertQueue(REQUESTS.queue, {
    durable: true,
    arguments: { 'x-dead-letter-exchange': DEAD_LETTERS, 'x-dead-letter-routing-key': REQUESTS.queue },
  });
  await channel.bindQueue(REQUESTS.queue, REQUESTS.exchange, '#');
  await channel.assertQueue(DUE, { durable: true, arguments: { 'x-dead-letter-exchange': DEAD_LETTERS } });
  await channel.bindQueue(DUE, FIRE, DUE);
  await channel.assertQueue('schedule.dlq', { durable: true });
  await channel.bindQueue('schedule.dlq', DEAD_LETTERS, 'schedule.#');
}

/** A time rather than a delay is rounded up to a whole second, so that fewer queues are made. */
export function delayUntil(runAt: Date, now: number): number {
  return Math.max(0, Math.ceil((runAt.getTime() - now) / 1_000) * 1_000);
}

/** Confirmed when it resolves. A delay of 0 skips the waiting. */
export async function wait(bus: Bus, schedule: Schedule, delayMs: number): Promise<void> {
  const body = {
    id: schedule.id,
    key: schedule.name,
    runAt: schedule.runAt.toISOString(),
    target: schedule.target,
    data: schedule.payload,
    attempt: 1,
  };
  const properties = {
    messageId: schedule.id,
    type: 'schedule',
    appId: 'scheduling',
    headers: { 'x-schedule-id': schedule.id },
  };
  if (delayMs === 0) return bus.publish(FIRE, DUE, body, properties);
  const queue = `schedule.wait.${delayMs}`;
  await bus.channel.assertQueue(queue, {
    durable: true,
    arguments: {
      'x-message-ttl': delayMs,
      'x-expires': delayMs + EXPIRES_AFTER_MS,
      'x-dead-letter-exchange': FIRE,
      'x-dead-letter-routing-key': DUE,
    },
  });
  return bus.publish('', queue, body, properties);
}
