/**
 * From an entry of a delayed-message table to the rows that it becomes: one for each queue that its exchange would send
 * it to, due when the broker would have sent it, to the millisecond. Pure. An entry that no queue would get is kept in the
 * ledger and becomes no job: the broker would have dropped it.
 */
import type { PreparedMessage } from './batch-writer.js';
import type { HeldEntry } from './delayed-table.js';
import { type Delivery, readDelivery } from './delivery.js';
import type { Rules } from './drain-config.js';
import { fingerprint } from './fingerprint.js';
import { type Mapped, mapDelivery, type QueueFacts } from './mapping.js';

export interface DelayedContext {
  source(queue: string): string;
  readonly rules: Rules;
  readonly nowMs: number;
  /** What is known about a queue; or why it is left alone. */
  factsOf(queue: string): QueueFacts | { readonly leftAlone: string };
}

export const UNROUTED = 'unrouted: no binding takes it';
const NOTE = 'delayed-table';

/** Positions begin at `from`. */
export function delayedMessages(entry: HeldEntry, from: number, context: DelayedContext): PreparedMessage[] {
  const queues = entry.queues.length > 0 ? entry.queues : [null];
  return queues.map((queue, index) => {
    const delivery = deliveryTo(entry, queue ?? '');
    return {
      ...{ delivery, fingerprint: fingerprint(delivery), position: from + index },
      mapped: queue === null ? excluded(UNROUTED) : mapDelayed(delivery, entry.dueMs, context, false),
    };
  });
}

/** `careful`: the body is parsed here, because the database has refused one. */
export function mapDelayed(
  delivery: Delivery,
  dueMs: number,
  { source, rules, nowMs, factsOf }: DelayedContext,
  careful: boolean,
): Mapped {
  const facts = factsOf(delivery.queue);
  if ('leftAlone' in facts) return excluded(facts.leftAlone);
  // It enters the queue when it is due, and what that queue does to it begins then.
  const enteredMs = Math.max(dueMs, nowMs);
  const mapped = mapDelivery(delivery, facts, {
    ...{ source, rules, careful, nowMs: enteredMs, trustDeliveryCount: true },
  });
  const { job } = mapped;
  if (job === null) return mapped;
  const note = mapped.note === null ? NOTE : `${mapped.note} ${NOTE}`;
  if (job.state !== 'ready') return { ...mapped, note };
  const runAtMs = Math.max(job.runAtMs ?? dueMs, dueMs);
  return { ...mapped, note, job: { ...job, runAtMs: runAtMs <= nowMs ? null : runAtMs } };
}

function deliveryTo(entry: HeldEntry, queue: string): Delivery {
  const { exchange, routingKeys, propertyBytes, body } = entry;
  return readDelivery({
    ...{ queue, exchange, routingKey: routingKeys[0] ?? '', redelivered: false, deliveryTag: 0 },
    ...{ propertyBytes, body },
  });
}

function excluded(note: string): Mapped {
  return { job: null, outcome: 'excluded', note, runAtExact: true, bodyRule: 'dead', identity: null };
}
