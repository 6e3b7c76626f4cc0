/**
 * The mapping applied to samples: which rows the messages at the head of each queue would become. Looking takes messages
 * and gives them back, which destroys some in three places; there it refuses, and says how to look otherwise. It changes nothing: no row, no acknowledgement.
 */
import type { ImportedJob } from '../../src/jobs/job.js';
import type { Broker } from './broker.js';
import { type Delivery, readDelivery } from './delivery.js';
import type { Rules } from './drain-config.js';
import { findField, integerOf } from './headers.js';
import { mapDelivery, type Outcome } from './mapping.js';
import type { GroupPlan, QueueInfo, QueuePlan } from './topology.js';

/** A row as it would be. */
export interface SampleRow {
  readonly outcome: Outcome;
  readonly kind: string | null;
  readonly state: ImportedJob['state'] | null;
  readonly attempts: number | null;
  readonly maxAttempts: number | null;
  /** ISO; null = at once. */
  readonly runAt: string | null;
  readonly runAtExact: boolean;
  readonly priority: number | null;
  readonly messageId: string | null;
  readonly bodyBytes: number;
  readonly redelivered: boolean;
  readonly note: string | null;
  /** Only when asked for. */
  readonly payload?: string | null;
}

export interface QueueSample {
  readonly queue: string;
  readonly role: QueuePlan['role'];
  readonly ready: number | null;
  /** Why nobody looked; null = looked. */
  readonly refused: string | null;
  /** A way to look that counts as no delivery. */
  readonly otherWay: string | null;
  readonly looked: number;
  readonly redelivered: number;
  /** Of those looked at, by kind and outcome. */
  readonly kinds: Readonly<Record<string, number>>;
  readonly rows: readonly SampleRow[];
}

export interface GroupSample {
  readonly group: string;
  readonly queues: readonly QueueSample[];
}

export interface PlanOptions {
  readonly broker: Broker;
  readonly rules: Rules;
  readonly groups: readonly GroupPlan[];
  /** Messages of each queue. */
  readonly sample: number;
  readonly showPayload: boolean;
}

/** A quorum queue counts each look as a failed delivery; with less room than this it refuses. */
const LEAST_ROOM = 10;
/** Of quorum queues since 4.0, where nothing else is said. */
const DEFAULT_LIMIT = 20;
const MAX_SHOWN_CHARACTERS = 500;

/** Why looking could destroy something; null = it does no harm. */
export function dangerOfLooking(info: QueueInfo, version: string): string | null {
  if (!info.reachable) return 'its node or leader is down';
  if (info.exclusive) return 'exclusive: only its own connection can read it';
  if (info.type === 'stream') return 'a stream: it is read by offset, not by looking at its head';
  if (info.autoDelete) return 'auto-delete: it could go with what it holds';
  // One that refuses what is too much drops nothing; freezing makes a queue such a one.
  if (
    (info.maxLength !== null || info.maxLengthBytes !== null) &&
    (info.overflow ?? 'drop-head') === 'drop-head'
  ) {
    return 'length-limited: what arrives meanwhile pushes out what is being looked at; freeze it first';
  }
  const limit = deliveryLimitOf(info, version);
  if (limit !== null && limit < LEAST_ROOM) {
    return `delivery limit ${limit}: each look counts as a delivery, and at the limit a message is dropped`;
  }
  return null;
}

/** What `verify` asks before it reads a queue; an unknown queue is not read. */
export function safeToLook(info: QueueInfo | undefined, version: string): boolean {
  return info !== undefined && info.type === 'classic' && dangerOfLooking(info, version) === null;
}

function deliveryLimitOf({ type, deliveryLimit }: QueueInfo, version: string): number | null {
  if (type !== 'quorum') return null;
  if (deliveryLimit !== null) return deliveryLimit < 0 ? null : deliveryLimit;
  return Number.parseInt(version, 10) >= 4 ? DEFAULT_LIMIT : null;
}

export async function planSamples(options: PlanOptions): Promise<GroupSample[]> {
  const samples: GroupSample[] = [];
  for (const group of options.groups) {
    const queues: QueueSample[] = [];
    for (const queue of group.queues) queues.push(await sampleQueue(queue, options));
    samples.push({ group: group.name, queues });
  }
  return samples;
}

async function sampleQueue(queue: QueuePlan, options: PlanOptions): Promise<QueueSample> {
  const { broker, sample } = options;
  const { name, role, info } = queue;
  const nothing = { queue: name, role, ready: info.ready, looked: 0, redelivered: 0, kinds: {}, rows: [] };
  const danger = dangerOfLooking(info, broker.version);
  if (danger !== null) return { ...nothing, refused: danger, otherWay: otherWayOf(info, broker.vhost) };
  if ((info.ready ?? 0) === 0) return { ...nothing, refused: null, otherWay: null };
  const limit = deliveryLimitOf(info, broker.version);
  if (limit !== null) {
    // The first one tells how often the head has come back already.
    const [head] = await broker.look(name, 1);
    const counted = head === undefined ? 0 : deliveriesOf(readDelivery(head));
    if (counted > limit - LEAST_ROOM) {
      const refused = `its head was delivered ${counted} times of the ${limit} that its delivery limit allows`;
      return { ...nothing, refused, otherWay: otherWayOf(info, broker.vhost) };
    }
  }
  const deliveries = (await broker.look(name, sample)).map((raw) => readDelivery(raw));
  return describeSample(queue, deliveries, options);
}

const deliveriesOf = ({ headers }: Delivery): number =>
  integerOf(findField(headers, 'x-delivery-count')) ?? 0;

function otherWayOf({ type, name }: QueueInfo, vhost: string): string | null {
  const quoted = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;
  return type === 'quorum' ? `rabbitmq-queues peek --vhost ${quoted(vhost)} ${quoted(name)} 1` : null;
}

function describeSample(
  queue: QueuePlan,
  deliveries: readonly Delivery[],
  { rules, showPayload }: PlanOptions,
): QueueSample {
  const rows = deliveries.map((delivery) => toSample(delivery, queue, rules, showPayload));
  const kinds: Record<string, number> = {};
  for (const { kind, outcome } of rows) {
    const word = kind ?? outcome;
    kinds[word] = (kinds[word] ?? 0) + 1;
  }
  return {
    ...{ queue: queue.name, role: queue.role, ready: queue.info.ready, refused: null, otherWay: null },
    ...{
      looked: rows.length,
      redelivered: rows.filter(({ redelivered }) => redelivered).length,
      kinds,
      rows,
    },
  };
}

function toSample(delivery: Delivery, queue: QueuePlan, rules: Rules, showPayload: boolean): SampleRow {
  const { job, outcome, note, runAtExact } = mapDelivery(delivery, queue, {
    ...{ source: () => '', rules, nowMs: Date.now(), trustDeliveryCount: true, careful: true },
  });
  const runAtMs = job?.runAtMs ?? null;
  return {
    ...{ outcome, kind: job?.kind ?? null, state: job?.state ?? null },
    ...{ attempts: job?.attempts ?? null, maxAttempts: job?.maxAttempts ?? null },
    ...{ runAt: runAtMs === null ? null : new Date(runAtMs).toISOString(), runAtExact },
    ...{ priority: job?.priority ?? null, messageId: delivery.properties.messageId ?? null },
    ...{ bodyBytes: delivery.body.length, redelivered: delivery.redelivered, note },
    ...(showPayload ? { payload: job?.payloadText?.slice(0, MAX_SHOWN_CHARACTERS) ?? null } : {}),
  };
}
