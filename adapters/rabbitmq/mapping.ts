/**
 * From a delivery to the row that it becomes, with the note that the ledger keeps. One pure decision per message; it
 * never throws and never drops: what cannot be mapped is a dead row of kind `unmapped` with its reason.
 */
import { type ImportedJob, type Json, LIMITS } from '../../src/jobs/job.js';
import { isStorable, storableText } from '../../src/jobs/text.js';
import { type BodyNote, type ReadBody, readBody } from './body.js';
import { type Death, type Delivery, readDeaths } from './delivery.js';
import { type Dialect, type DialectFields, firstRoute, type MessageView } from './dialects/dialect.js';
import { DIALECTS, dialectNamed, FALLBACK } from './dialects/known.js';
import type { QueueRole, RuleAnswer, Rules } from './drain-config.js';
import { type Due, dueAt } from './due.js';
import { bodyError, fateOf, type Outcome, UNMAPPED } from './fate.js';
import { findField, integerOf } from './headers.js';
import { withoutExpiration } from './publication.js';
import { RELAY_AMQP } from './relay-kind.js';
import { type Identity, rowHeaders, shortText } from './row-headers.js';

export type { Outcome } from './fate.js';

/** What is known about the queue that a delivery came from. */
export interface QueueFacts {
  readonly name: string;
  readonly role: QueueRole;
  readonly ttlMs: number | null;
  /** Queues whose dead letters come into this one. */
  readonly feeders: readonly string[];
}

export interface MappingContext {
  /** Source of the rows of a queue, as sourceOf gives it. */
  source(queue: string): string;
  readonly rules: Rules;
  readonly nowMs: number;
  /** False once a drain was resumed: its own lost deliveries have raised the counter. */
  readonly trustDeliveryCount: boolean;
  /** False: bodies are taken for JSON until the database says otherwise. */
  readonly careful: boolean;
}

/** `rabbitmq:<vhost>/<queue>#<run>`, remembered by queue. */
export function sourceOf(vhost: string, runId: string): (queue: string) => string {
  const known = new Map<string, string>();
  return (queue) => {
    const source =
      known.get(queue) ?? storableText(`rabbitmq:${vhost}/${queue}#${runId}`, LIMITS.sourceLength);
    known.set(queue, source);
    return source;
  };
}

export interface Mapped {
  /** Null exactly when excluded. */
  readonly job: ImportedJob | null;
  readonly outcome: Outcome;
  /** Space-separated words for the ledger: dialect, body note, run-at-bounds, …; null when there is nothing to say. */
  readonly note: string | null;
  /** False: run_at is only the end of the bounds. */
  readonly runAtExact: boolean;
  /** What becomes of it should the database refuse the payload. */
  readonly bodyRule: 'dead' | 'run';
  /** Within one vhost this names one job, as far as the publisher's ids can be trusted; null without an id. */
  readonly identity: Identity | null;
}

export function mapDelivery(delivery: Delivery, queue: QueueFacts, context: MappingContext): Mapped {
  const { properties } = delivery;
  const deaths = readDeaths(delivery.headers);
  const view: MessageView = {
    delivery,
    body: readBody(delivery.body, properties.contentEncoding, { careful: context.careful }),
    role: queue.role,
    ttlMs: queue.ttlMs,
    deaths: deaths ?? [],
    nowMs: context.nowMs,
  };
  const forQueue = context.rules.for({ queue: queue.name });
  const claimed = chooseDialect(view, forQueue);
  const route = claimed?.fields.route?.(view) ?? firstRoute(view);
  const { exchange, routingKey } = route;
  const rule = context.rules.for({ queue: queue.name, exchange, routingKey, type: properties.type });
  const asked = claimed === undefined || (claimed.requests === true && forQueue.dialect === undefined);
  const excluded =
    rule.exclude ?? claimed?.fields.exclude?.(view) ?? (asked ? rpcReason(properties.replyTo) : undefined);
  if (excluded !== undefined) {
    return {
      job: null,
      outcome: 'excluded',
      note: storableText(excluded, 200),
      runAtExact: true,
      bodyRule: 'dead',
      identity: null,
    };
  }
  const notes: string[] = [];
  if (claimed !== undefined) notes.push(claimed.name, ...(claimed.fields.notes?.(view) ?? []));
  if (deaths === null) notes.push('x-death-malformed');
  if (!delivery.complete) notes.push('properties-cut');
  return toRow(view, queue, context, rule, claimed ?? FALLBACK, notes);
}

function chooseDialect(view: MessageView, rule: RuleAnswer): Dialect | undefined {
  if (rule.dialect !== undefined) return dialectNamed(rule.dialect);
  for (const dialect of DIALECTS) if (dialect.claims(view)) return dialect;
  return undefined;
}

/** Somebody waits for the answer on a connection that will not exist any more. */
function rpcReason(replyTo: string | undefined): string | undefined {
  if (replyTo === undefined || !/^(?:amq\.(?:rabbitmq\.reply-to|gen-)|easynetq\.response\.)/.test(replyTo))
    return undefined;
  return 'rpc: a request whose caller waits on a temporary reply queue';
}

function toRow(
  view: MessageView,
  queue: QueueFacts,
  context: MappingContext,
  rule: RuleAnswer,
  dialect: Dialect,
  notes: string[],
): Mapped {
  const { delivery } = view;
  const { fields } = dialect;
  const kind = usableKind(rule.kind ?? fields.kind(view));
  const opaque = fields.opaque?.(view);
  const { payloadText, body, note, type } =
    kind === RELAY_AMQP ? verbatim(delivery) : payloadOf(view, fields, kind !== null, opaque !== undefined);
  if (note !== null) notes.push(`body-${note}`);
  const due = dueOf(view, queue, rule, fields);
  if (!due.exact) notes.push('run-at-bounds');
  const attempts = attemptsOf(view, fields, context.trustDeliveryCount);
  const left = fields.attemptsLeft?.(view);
  const wanted =
    rule.maxAttempts ?? fields.maxAttempts?.(view) ?? (left === undefined ? left : attempts + left);
  const unread = kind === RELAY_AMQP ? undefined : (opaque ?? (note === null ? undefined : bodyError(note)));
  const fate = fateOf(view, { fields, rule, kind, unread, attempts });
  const identity = identityOf(view, fields, attempts);
  const headers = rowHeaders(view, dialect, identity, notes);
  const job: ImportedJob = {
    kind: kind ?? UNMAPPED,
    payloadText,
    body,
    contentType: body === null ? null : type,
    state: fate.state,
    priority: delivery.properties.priority ?? 0,
    runAtMs: fate.state === 'ready' ? due.runAtMs : null,
    attempts,
    maxAttempts: maxAttemptsOf(wanted, attempts),
    dedupeKey: null,
    headers: kind === RELAY_AMQP ? { ...headers, relay: relayOf(view, fields) } : headers,
    source: context.source(queue.name),
    error: fate.error,
  };
  return {
    job,
    outcome: fate.outcome,
    note: notes.length > 0 ? notes.join(' ') : null,
    runAtExact: due.exact,
    bodyRule: rule.body ?? 'dead',
    identity,
  };
}

function dueOf(view: MessageView, queue: QueueFacts, rule: RuleAnswer, fields: DialectFields): Due {
  const { delivery, deaths, nowMs } = view;
  const applicationMs = fields.dueMs?.(view);
  // A better end of the bounds than this queue's TTL: it goes through several queues yet.
  const latestMs = applicationMs === undefined ? fields.latestMs?.(view) : undefined;
  if (latestMs !== undefined) {
    return { runAtMs: rule.runAt === 'now' || latestMs <= nowMs ? null : latestMs, exact: false };
  }
  return dueAt({
    waiting: queue.role === 'wait',
    applicationMs,
    queueTtlMs: queue.ttlMs,
    expiration: delivery.properties.expiration,
    deaths,
    headers: delivery.headers,
    feeders: queue.feeders,
    nowMs,
    policy: rule.runAt ?? 'latest',
  });
}

function identityOf(view: MessageView, fields: DialectFields, attempt: number): Identity | null {
  const id = fields.id?.(view) ?? view.delivery.properties.messageId;
  return id === undefined || id === ''
    ? null
    : { homeQueue: shortText(homeOf(view, fields)), id: shortText(id), attempt };
}

function usableKind(kind: string | undefined): string | null {
  return kind !== undefined && kind.length >= 1 && kind.length <= LIMITS.kindLength && isStorable(kind)
    ? kind
    : null;
}

/** Back to the one queue that its consumers read, as it was; through its exchange a fan-out would double. */
function relayOf(view: MessageView, fields: DialectFields): Readonly<Record<string, Json>> {
  const { delivery, role } = view;
  const { exchange, routingKey } = delivery;
  const queue = homeOf(view, fields);
  // Nobody knows where it leads: the wait queue lets it go at once, and the broker knows.
  const waited = role === 'wait' && queue === delivery.queue;
  const bytes = role === 'wait' && !waited ? withoutExpiration(delivery) : delivery.bytes;
  const properties = bytes.toString('base64');
  return { exchange, routingKey, queue, properties, ...(waited ? { waited } : {}) };
}

const verbatim = ({ body, properties }: Delivery): Payload => ({
  ...{ payloadText: null, body, note: null, type: shortText(properties.contentType ?? '') || null },
});

interface Payload {
  readonly payloadText: string | null;
  readonly body: Buffer | null;
  readonly note: BodyNote | null;
  /** Content type of `body`. */
  readonly type: string | null;
}

function payloadOf(view: MessageView, fields: DialectFields, mapped: boolean, opaque: boolean): Payload {
  const { delivery, body: outer } = view;
  const inner = mapped ? fields.inner?.(view) : undefined;
  const read: ReadBody = inner === undefined ? outer : readBody(inner.bytes, undefined, { careful: true });
  if (opaque || read.payloadText === null) {
    const type =
      inner === undefined ? contentType(delivery) : inner.contentType && shortText(inner.contentType);
    return { payloadText: null, body: inner?.bytes ?? delivery.body, note: opaque ? null : read.note, type };
  }
  const part = mapped && inner === undefined ? fields.payloadText?.(view) : undefined;
  return { payloadText: part ?? read.payloadText, body: null, note: null, type: null };
}

/** The row again, after the database refused its payload as jsonb: the bytes in `body`, and dead unless its rule runs it. */
export function withoutPayload(mapped: Mapped, delivery: Delivery): Mapped {
  if (mapped.job === null) return mapped;
  const note = [mapped.note, 'body-refused-by-database'].filter((word) => word !== null).join(' ');
  const dies = mapped.job.state === 'ready' && mapped.bodyRule === 'dead';
  return {
    ...mapped,
    note,
    job: {
      ...mapped.job,
      payloadText: null,
      body: delivery.body,
      contentType: contentType(delivery),
      ...(dies ? { state: 'dead' as const, runAtMs: null, error: bodyError('refused-by-database') } : {}),
    },
  };
}

function contentType({ properties }: Delivery): string | null {
  return properties.contentType === undefined ? null : shortText(properties.contentType);
}

/** The dialect's own count, else rejections by the home queue, else the quorum queue's counter while it can be trusted. */
function attemptsOf(view: MessageView, fields: DialectFields, trustDeliveryCount: boolean): number {
  const found = fields.attempts?.(view) ?? attemptsFromDeaths(view, fields) ?? 0;
  const counted = found === 0 && view.deaths.length === 0 && trustDeliveryCount;
  const made = counted ? (integerOf(findField(view.delivery.headers, 'x-delivery-count')) ?? 0) : found;
  return Math.min(Math.max(made, 0), LIMITS.maxAttempts);
}

function attemptsFromDeaths(view: MessageView, fields: DialectFields): number | undefined {
  if (view.deaths.length === 0) return undefined;
  const home = homeOf(view, fields);
  return rejections(view)
    .filter((death) => death.queue === home)
    .reduce((sum, death) => sum + death.count, 0);
}

const rejections = ({ deaths }: MessageView): readonly Death[] =>
  deaths.filter((death) => death.reason === 'rejected');

function homeOf(view: MessageView, fields: DialectFields): string {
  const { queue } = view.delivery;
  const home = fields.homeQueue?.(view);
  if (home !== undefined || view.role === 'main') return home ?? queue;
  return rejections(view)[0]?.queue ?? queue;
}

/** Attempts already made must leave room for the next one. */
function maxAttemptsOf(wanted: number | undefined, attempts: number): number | null {
  const tableDefault = 20;
  if (attempts < (wanted ?? tableDefault))
    return wanted === undefined ? null : Math.min(wanted, LIMITS.maxAttempts);
  return Math.min(attempts + 1, LIMITS.maxAttempts);
}
