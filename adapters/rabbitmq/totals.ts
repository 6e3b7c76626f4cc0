/**
 * How many messages a group of queues holds while messages move between them. Passive declares see one queue at a time,
 * so a message that expires from a wait queue into a main queue could be counted twice or not at all; here a count is
 * believed only when the order of looking does not matter and it stays the same.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { UnbrokerError } from '../../src/errors.js';
import type { Broker } from './broker.js';

export interface GroupCount {
  readonly total: number;
  readonly byQueue: Readonly<Record<string, number>>;
}

interface Reading extends GroupCount {
  readonly consumers: number;
  /** False: counting forth and back gave two sums; something moved. */
  readonly agrees: boolean;
}

export interface StableOptions {
  readonly signal?: AbortSignal | undefined;
  /** How long consumers may take to leave. Default 10,000: a killed drainer's own are gone within milliseconds. */
  readonly maxConsumerWaitMs?: number;
  /** How long the sum may take to settle. Default 60,000. */
  readonly maxWaitMs?: number;
}

const READINGS = 3;
const PAUSE_MS = 120;

/** `queues` in the order in which messages move: wait queues first. Throws `drain-not-frozen`. */
export async function stableCount(
  broker: Broker,
  queues: readonly string[],
  options: StableOptions = {},
): Promise<GroupCount> {
  const { maxConsumerWaitMs = 10_000, maxWaitMs = 60_000 } = options;
  const startedAt = performance.now();
  let same = 0;
  let last: number | undefined;
  for (;;) {
    options.signal?.throwIfAborted();
    const reading = await read(broker, queues);
    const waitedMs = performance.now() - startedAt;
    if (reading.consumers > 0) {
      if (waitedMs > maxConsumerWaitMs) throw consumed(reading.consumers);
      same = 0;
    } else if (reading.agrees) {
      same = reading.total === last ? same + 1 : 1;
      last = reading.total;
      if (same === READINGS) return { total: reading.total, byQueue: reading.byQueue };
    } else same = 0;
    if (waitedMs > maxWaitMs) throw restless();
    await sleep(PAUSE_MS, undefined, { signal: options.signal });
  }
}

/**
 * Counts in both directions. Sources first never misses a message that moves on, targets first never sees one twice:
 * equal sums are exact.
 */
async function read(broker: Broker, queues: readonly string[]): Promise<Reading> {
  const byQueue: Record<string, number> = {};
  let consumers = 0;
  let forth = 0;
  for (const queue of queues) {
    const count = await broker.count(queue);
    byQueue[queue] = count?.ready ?? 0;
    forth += count?.ready ?? 0;
    consumers += count?.consumers ?? 0;
  }
  let back = 0;
  for (const queue of queues.toReversed()) back += (await broker.count(queue))?.ready ?? 0;
  return { total: forth, byQueue, consumers, agrees: forth === back };
}

function consumed(consumers: number): UnbrokerError {
  return new UnbrokerError('drain-not-frozen', `${consumers} consumers still work on the group`, {
    hint: 'Stop the services that consume these queues (unbroker drain survey lists them), then run again.',
  });
}

function restless(): UnbrokerError {
  return new UnbrokerError('drain-not-frozen', 'The number of messages in the group keeps changing', {
    hint: 'Stop the publishers, then run again.',
  });
}
