/**
 * Looking into `manual-review` and taking single messages out. There is no other record of a dead letter, so a look
 * is get and requeue: it marks messages redelivered, and two who look at once each see a part.
 */
import type { ConfirmChannel, GetMessage } from 'amqplib';
import { type Bus, isObject } from '../common/bus.js';
import { PARKING, SCHEDULED } from './broker.js';
import { readDeath } from './ladder.js';

const MAX_SCAN = 1_000;

export interface DeadLetter {
  readonly id: string;
  readonly messageId: string | null;
  readonly queue: string;
  readonly routingKey: string;
  readonly error: string | null;
  readonly attempts: number;
  readonly firstFailureAt: string | null;
  readonly lastFailureAt: string | null;
  /** Parsed if it is JSON, else as text. */
  readonly payload: unknown;
}

export async function list(bus: Bus, limit: number): Promise<{ items: DeadLetter[]; total: number }> {
  return bus.withChannel(async (channel) => {
    const { messageCount } = await channel.checkQueue(PARKING);
    const items: DeadLetter[] = [];
    for (let n = 0; n < limit; n += 1) {
      const message = await channel.get(PARKING);
      if (message === false) break;
      items.push(view(message));
    }
    channel.nackAll(true);
    return { items: items.reverse(), total: messageCount };
  });
}

/** Back to where it came from, as if it had never failed. False when no such dead letter is found. */
export async function replay(bus: Bus, id: string): Promise<boolean> {
  return take(bus, id, async (message) => {
    const headers = message.properties.headers ?? {};
    const { queue, exchange, routingKey } = readDeath(headers, PARKING);
    const kept = Object.entries(headers).filter(([name]) => !isHistory(name));
    const fresh = Object.fromEntries(kept);
    const viaQueue = {
      'x-original-queue': queue,
      'x-original-exchange': exchange,
      'x-original-routing-key': routingKey,
    };
    await bus.republish('', queue, queue === SCHEDULED ? restarted(message) : message, {
      ...fresh,
      ...viaQueue,
    });
  });
}

export async function discard(bus: Bus, id: string): Promise<boolean> {
  return take(bus, id, async () => {});
}

/** Acks the message after `use`; all others go back to the queue. */
async function take(bus: Bus, id: string, use: (message: GetMessage) => Promise<void>): Promise<boolean> {
  return bus.withChannel(async (channel) => {
    const found = await search(channel, id);
    if (found !== undefined) {
      await use(found);
      channel.ack(found);
    }
    channel.nackAll(true);
    return found !== undefined;
  });
}

async function search(channel: ConfirmChannel, id: string): Promise<GetMessage | undefined> {
  for (let n = 0; n < MAX_SCAN; n += 1) {
    const message = await channel.get(PARKING);
    if (message === false) return undefined;
    if (view(message).id === id) return message;
  }
  return undefined;
}

function view({ content, properties }: GetMessage): DeadLetter {
  const headers = properties.headers ?? {};
  const text = (name: string) => (typeof headers[name] === 'string' ? headers[name] : null);
  const messageId: unknown = properties.messageId;
  const { queue, routingKey, retries } = readDeath(headers, PARKING);
  return {
    id: text('x-dead-letter-id') ?? String(messageId ?? ''),
    messageId: typeof messageId === 'string' ? messageId : null,
    queue,
    routingKey,
    error: text('x-error'),
    attempts: retries + 1,
    firstFailureAt: text('x-first-failure'),
    lastFailureAt: text('x-last-failure'),
    payload: parse(content),
  };
}

/** A retry request starts over: its attempts are in its body. */
function restarted(message: GetMessage): GetMessage {
  const request = parse(message.content);
  if (!isObject(request)) return message;
  return { ...message, content: Buffer.from(JSON.stringify({ ...request, attempt: 0 })) };
}

function parse(content: Buffer): unknown {
  const text = content.toString('utf8');
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

const HISTORY = ['x-retry-count', 'x-retry-due', 'x-error', 'x-permanent', 'x-dead-letter-id', 'x-death'];
const isHistory = (name: string) =>
  HISTORY.includes(name) || name.startsWith('x-first-') || name.startsWith('x-last-');
