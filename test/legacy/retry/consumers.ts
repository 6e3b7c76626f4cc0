/** Works off the dead-letter queues and the retry requests: onto a rung, back to the target, or parked for people. */
import type { ConsumeMessage } from 'amqplib';
import { type Bus, isTarget, jsonBody, type Verdict } from '../common/bus.js';
import { climb, DEAD_LETTER_QUEUES, park, SCHEDULED } from './broker.js';
import { type Death, decide, isPolicy, type Ladder, readDeath, rungFor } from './ladder.js';
import type { RetryRequest, RetryStore } from './store.js';

export async function consume(bus: Bus, store: RetryStore, ladder: Ladder): Promise<void> {
  for (const { queue, home } of DEAD_LETTER_QUEUES) {
    await bus.consume(queue, (message) => deadLetter(bus, message, home, ladder));
  }
  await bus.consume(SCHEDULED, (message) => scheduled(bus, store, message, ladder));
}

async function deadLetter(bus: Bus, message: ConsumeMessage, home: string, ladder: Ladder): Promise<Verdict> {
  const headers = message.properties.headers ?? {};
  const death = readDeath(headers, home);
  const decision = decide(death, headers, ladder);
  if (decision.kind === 'wait') await climb(bus, message, death, decision.rungMs, decision.retries);
  else await park(bus, message, death, decision.error);
  return 'ack';
}

async function scheduled(
  bus: Bus,
  store: RetryStore,
  message: ConsumeMessage,
  ladder: Ladder,
): Promise<Verdict> {
  let request: RetryRequest;
  try {
    request = read(message);
  } catch (error) {
    await park(bus, message, deathOf(0), error instanceof Error ? error.message : String(error));
    return 'ack';
  }
  await store.insert(request);
  if (message.properties.headers?.['x-retry-due'] === undefined) {
    await waitOrDie(bus, store, message, request, ladder);
    return 'ack';
  }
  const attempt = request.attempt + 1;
  try {
    await bus.send(request.target, '', request.payload, {
      messageId: request.id,
      appId: 'retry',
      headers: { 'x-retry-count': request.attempt },
    });
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    await store.attempted(request.id, attempt, reason);
    await waitOrDie(bus, store, message, { ...request, attempt, error: reason }, ladder);
    return 'ack';
  }
  await store.attempted(request.id, attempt, null);
  return 'ack';
}

/** The rung for the next attempt, with the request as it now stands; or the parking queue. */
async function waitOrDie(
  bus: Bus,
  store: RetryStore,
  message: ConsumeMessage,
  request: RetryRequest,
  ladder: Ladder,
): Promise<void> {
  const current = { ...message, content: Buffer.from(JSON.stringify(request)) };
  const rungMs = rungFor(request.policy, request.attempt, ladder);
  if (rungMs === undefined) {
    await park(bus, current, deathOf(request.attempt), request.error ?? 'attempts spent');
    await store.dead(request.id);
    return;
  }
  await store.waiting(request.id, new Date(Date.now() + rungMs));
  await climb(bus, current, deathOf(request.attempt), rungMs, request.attempt);
}

const deathOf = (retries: number): Death => ({
  queue: SCHEDULED,
  exchange: '',
  routingKey: SCHEDULED,
  retries,
});

function read(message: ConsumeMessage): RetryRequest {
  const { id, payload, target, error, attempt, policy } = jsonBody(message);
  const messageId: unknown = message.properties.messageId;
  const requestId = id ?? messageId;
  if (typeof requestId !== 'string') throw new Error('the request has no id');
  if (!isTarget(target)) throw new Error('target is none of {queue}, {exchange, routingKey?}, {url}');
  return {
    id: requestId,
    payload: payload ?? null,
    target,
    error: typeof error === 'string' ? error : null,
    attempt: typeof attempt === 'number' ? attempt : 1,
    policy: isPolicy(policy) ? policy : null,
  };
}
