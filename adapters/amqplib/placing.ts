/**
 * The rows of a message in a queue, and how long they wait: what the broker did with a time to live and a dead letter
 * exchange, a due time does. Pure.
 */

import type { BodyJob } from '../../src/jobs/enqueue-store.js';
import type { ClaimedJob, Json } from '../../src/jobs/job.js';
import { jobOf, keptOf, withDeath } from './message.js';
import type { Arguments } from './tables.js';
import { route, type Topology } from './topology.js';

/** How long a message waits in a queue that only delays; null for any other. */
export function waitMsOf(given: Arguments | undefined): number | null {
  const { 'x-message-ttl': ttl, 'x-dead-letter-exchange': exchange } = given ?? {};
  return typeof ttl === 'number' && typeof exchange === 'string' ? ttl : null;
}

/** When its own expiration ends, by the database's clock; null without one. */
export function expiresAtMs(job: ClaimedJob): number | null {
  const { expiration } = keptOf(job).properties;
  return typeof expiration === 'string' && /^\d+$/.test(expiration)
    ? job.createdAtMs + Number(expiration)
    : null;
}

export interface Placed {
  readonly exchange: string;
  readonly routingKey: string;
  readonly content: Buffer;
  readonly properties: Readonly<Record<string, unknown>>;
}

const MAX_HOPS = 8;

/**
 * The rows of a message in a queue. One with a time to live and a dead letter exchange is a way to wait: the row waits in
 * the queue behind it, due when the time has passed.
 */
export function placed(
  queue: string,
  message: Placed,
  topology: Topology,
  dueMs: number,
  hops = 0,
): BodyJob[] {
  const { exchange, routingKey, content, properties } = message;
  const given = topology.queues.get(queue) ?? {};
  const waitMs = waitMsOf(given);
  if (waitMs === null || hops >= MAX_HOPS)
    return [jobOf(queue, { exchange, routingKey }, properties, content, hops === 0 ? null : dueMs)];
  const expiration = Number(properties['expiration'] ?? Number.POSITIVE_INFINITY);
  const key = given['x-dead-letter-routing-key'];
  const next = {
    exchange: String(given['x-dead-letter-exchange']),
    routingKey: typeof key === 'string' ? key : routingKey,
    content,
    properties: withDeath(
      properties as Readonly<Record<string, Json>>,
      { exchange, routingKey, queue, reason: 'expired' },
      dueMs,
    ),
  };
  const headers = next.properties['headers'] as Readonly<Record<string, unknown>>;
  const targets = route(topology, next.exchange, next.routingKey, headers) ?? [];
  const laterMs = dueMs + Math.min(waitMs, expiration);
  return targets.flatMap((target) => placed(target, next, topology, laterMs, hops + 1));
}
