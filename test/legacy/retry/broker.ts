/** The ladder in the broker: its queues, the way onto a rung, the parking queue. */
import { randomUUID } from 'node:crypto';
import type { ConsumeMessage } from 'amqplib';
import type { Bus } from '../common/bus.js';
import type { Death, Ladder } from './ladder.js';

export const DEAD_LETTERS = 'retry.dlx';
export const SCHEDULED = 'retry.scheduled';
export const PARKING = 'manual-review';
/** Each work queue's dead letters, the binding that leads there, and the home queue if the headers do not say. */
export const DEAD_LETTER_QUEUES = [
  { queue: 'notification.dlq', binding: 'notification.#', home: 'notification.work' },
  { queue: 'schedule.dlq', binding: 'schedule.#', home: 'schedule.due' },
] as const;
const MAX_ERROR = 500;

export async function declare({ channel }: Bus, ladder: Ladder): Promise<void> {
  await channel.assertExchange(DEAD_LETTERS, 'topic', { durable: true });
  for (const { queue, binding } of DEAD_LETTER_QUEUES) {
    await channel.assertQueue(queue, { durable: true });
    await channel.bindQueue(queue, DEAD_LETTERS, binding);
  }
  for (const rungMs of ladder) {
    const name = rungName(rungMs);
    await channel.assertExchange(name, 'fanout', { durable: true });
    // No dead-letter routing key: the message keeps its own, the name of the queue it goes home to.
    await channel.assertQueue(name, {
      durable: true,
      arguments: { 'x-message-ttl': rungMs, 'x-dead-letter-exchange': '' },
    });
    await channel.bindQueue(name, name, '');
  }
  await channel.assertQueue(SCHEDULED, { durable: true });
  await channel.assertQueue(PARKING, { durable: true });
}

/** Puts a message on a rung; after it the broker takes it to `death.queue`. */
export async function climb(
  bus: Bus,
  message: ConsumeMessage,
  death: Death,
  rungMs: number,
  retries: number,
) {
  const now = Date.now();
  await bus.republish(rungName(rungMs), death.queue, message, {
    ...history(message, death, now),
    'x-retry-count': retries,
    'x-retry-due': new Date(now + rungMs).toISOString(),
  });
}

export async function park(bus: Bus, message: ConsumeMessage, death: Death, error: string): Promise<void> {
  await bus.republish('', PARKING, message, {
    ...history(message, death, Date.now()),
    'x-retry-count': death.retries,
    'x-error': error.slice(0, MAX_ERROR),
    'x-dead-letter-id': randomUUID(),
  });
}

export const rungName = (rungMs: number) => `retry.wait.${rungMs}`;

function history(message: ConsumeMessage, death: Death, now: number): Record<string, unknown> {
  const headers = { ...message.properties.headers };
  delete headers['x-retry-due'];
  const at = new Date(now).toISOString();
  return {
    'x-first-failure': at,
    ...headers,
    'x-original-queue': death.queue,
    'x-original-exchange': death.exchange,
    'x-original-routing-key': death.routingKey,
    'x-last-failure': at,
  };
}
