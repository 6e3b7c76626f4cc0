/**
 * Takes requests from `schedule.requests` and fires what falls due in `schedule.due`. A cancelled schedule's message
 * comes due like any other: the flag in the table stops it here.
 */
import { randomUUID } from 'node:crypto';
import type { ConsumeMessage } from 'amqplib';
import { type Bus, CallFailed, isTarget, jsonBody, numberHeader, type Verdict } from '../common/bus.js';
import { BadRequest, fromMessage, Unsupported } from './request.js';
import type { ScheduleStore } from './store.js';
import { DUE, EVENTS, REQUESTS, wait } from './timer.js';

export async function consume(bus: Bus, store: ScheduleStore): Promise<void> {
  await bus.consume(REQUESTS.queue, (message) => accept(bus, store, message));
  await bus.consume(DUE, (message) => fire(bus, store, message));
}

async function accept(bus: Bus, store: ScheduleStore, message: ConsumeMessage): Promise<Verdict> {
  try {
    const { schedule, delayMs } = fromMessage(
      jsonBody(message),
      {
        id: typeof message.properties.messageId === 'string' ? message.properties.messageId : randomUUID(),
        routingKey: message.fields.routingKey,
        xDelay: numberHeader(message, 'x-delay'),
      },
      Date.now(),
    );
    await store.insert(schedule);
    await wait(bus, schedule, delayMs);
    return 'ack';
  } catch (error) {
    if (![BadRequest, Unsupported, SyntaxError].some((type) => error instanceof type)) throw error;
    console.error(`${REQUESTS.queue}: refused: ${(error as Error).message}`);
    return 'reject';
  }
}

async function fire(bus: Bus, store: ScheduleStore, message: ConsumeMessage): Promise<Verdict> {
  let body: Record<string, unknown>;
  try {
    body = jsonBody(message);
  } catch {
    return 'reject';
  }
  const id = String(body['id']);
  const key = String(body['key']);
  const attempt = (numberHeader(message, 'x-retry-count') ?? 0) + 1;
  const known = await store.find(id);
  if (known?.status === 'cancelled' || known?.status === 'fired') return 'ack';
  const target = isTarget(body['target']) ? body['target'] : { exchange: EVENTS };
  const fired = { id, key, data: body['data'] ?? null, triggerTime: new Date().toISOString(), attempt };
  try {
    await bus.send(target, key, fired, {
      messageId: id,
      type: key,
      appId: 'scheduling',
      headers: { 'x-schedule-id': id },
    });
  } catch (error) {
    const final = error instanceof CallFailed && error.status < 500;
    await store.failed(id, attempt, error instanceof Error ? error.message : String(error), final);
    return final ? 'ack' : 'reject';
  }
  await store.fired(id, attempt);
  return 'ack';
}
