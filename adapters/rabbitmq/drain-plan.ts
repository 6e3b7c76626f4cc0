/** From what the survey planned to the drain that fits it: by counting for queues, by offset for a stream. */
import { type DrainOptions, type DrainResult, drainGroup } from './drain.js';
import type { QueueToBridge } from './late-writer.js';
import { drainStream } from './stream.js';
import type { GroupPlan, QueuePlan } from './topology.js';

/** What a plan knows of a queue, as drain and bridge want it. */
export function asQueue({ name, role, ttlMs, feeders, info }: QueuePlan): QueueToBridge {
  return {
    ...{ name, role, ttlMs, feeders, singleActive: info.singleActive },
    ...{ autoDelete: info.autoDelete, stream: info.type === 'stream' },
  };
}

/** Throws as drainGroup and drainStream do. */
export function drainPlanned(group: GroupPlan, options: Omit<DrainOptions, 'group'>): Promise<DrainResult> {
  const queues = group.queues.map(asQueue);
  const stream = queues.find((queue) => queue.stream);
  if (stream === undefined) return drainGroup({ ...options, group: { name: group.name, queues } });
  const counted = group.queues[0]?.info.ready ?? null;
  const { amqpUrl, pool, store, rules, log, rate, maxBatch, leaseMs, signal, onProgress, onStep } = options;
  return drainStream({
    ...{ amqpUrl, pool, store, rules, log, group: group.name, queue: stream, counted, rate, signal },
    ...(maxBatch === undefined ? {} : { maxBatch }),
    ...(leaseMs === undefined ? {} : { leaseMs }),
    ...(onProgress === undefined ? {} : { onProgress }),
    ...(onStep === undefined ? {} : { onStep }),
  });
}
