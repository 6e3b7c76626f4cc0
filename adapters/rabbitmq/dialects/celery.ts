/**
 * Celery, message protocols 1 (all in the body) and 2 (headers, body `[args, kwargs, embed]`), and the hybrid of both, in
 * which headers win. A pickled body is never opened. A chord, group or chain leans on Celery's result backend: it is
 * marked, not imitated.
 */
import { objectText } from '../../../src/json-text.js';
import { itemTexts, memberText } from '../body.js';
import { type Field, integerOf } from '../headers.js';
import { behindBits, latestByLevels } from './binary-delay.js';
import {
  bodyObject,
  bodyWith,
  countOf,
  type Dialect,
  filled,
  firstRoute,
  headerInteger,
  headerOf,
  headerText,
  instantMs,
  type MessageView,
  objectOf,
} from './dialect.js';

const isSecond = (view: MessageView): boolean =>
  headerText('task')(view) !== undefined && headerText('id')(view) !== undefined;

/** The body of protocol 1; undefined when the body is of protocol 2. */
function firstBody(view: MessageView): Readonly<Record<string, unknown>> | undefined {
  const body = bodyWith(view, 'task', 'id', 'args', 'kwargs');
  return filled(body?.['task']) &&
    filled(body?.['id']) &&
    Array.isArray(body?.['args']) &&
    objectOf(body?.['kwargs'])
    ? body
    : undefined;
}

/** A header, else the member of a body of protocol 1. */
const text =
  (name: string) =>
  (view: MessageView): string | undefined =>
    filled(headerText(name)(view)) ?? filled(firstBody(view)?.[name]);

const WITHOUT_ZONE = /T[\d:.]+$/;

/** Callbacks, errbacks, chain and chord. */
function embedOf(view: MessageView): Readonly<Record<string, unknown>> {
  const parsed = view.body.parsed();
  return (Array.isArray(parsed) ? objectOf(parsed[2]) : bodyObject(view)) ?? {};
}

const says = (value: unknown): boolean =>
  value !== null && value !== undefined && !(Array.isArray(value) && value.length === 0);

function payloadText(view: MessageView): string | undefined {
  const source = view.body.payloadText;
  const parsed = view.body.parsed();
  if (source === null || parsed === undefined) return undefined;
  if (Array.isArray(parsed) && parsed.length === 3) {
    const [args, kwargs, embed] = itemTexts(source) ?? [];
    const empty = !Object.values(objectOf(parsed[2]) ?? {}).some(says);
    return objectText({ args, kwargs, embed: empty ? undefined : embed });
  }
  if (firstBody(view) === undefined) return undefined;
  return objectText({ args: memberText(source, 'args'), kwargs: memberText(source, 'kwargs') });
}

/** In the order of the code, hard before soft; the documentation has it the other way round. Seconds. */
function timeLimits(view: MessageView): { hard: number | null; soft: number | null } | undefined {
  const field = headerOf(view, 'timelimit');
  const listed = firstBody(view)?.['timelimit'];
  const read = (item: Field | undefined): number | null => integerOf(item) ?? null;
  const pair =
    field?.tag === 'A'
      ? [read(field.items[0]), read(field.items[1])]
      : Array.isArray(listed)
        ? [countOf(listed[0]) ?? null, countOf(listed[1]) ?? null]
        : [];
  const [hard = null, soft = null] = pair;
  return hard === null && soft === null ? undefined : { hard, soft };
}

function notes(view: MessageView): string[] {
  const embed = embedOf(view);
  const words: string[] = [];
  if (says(embed['chord'])) words.push('celery-chord');
  if (says(embed['chain'])) words.push('celery-chain');
  if (text('group')(view) ?? text('taskset')(view)) words.push('celery-group');
  const eta = text('eta')(view);
  if (eta !== undefined && WITHOUT_ZONE.test(eta) && firstBody(view)?.['utc'] !== true)
    words.push('eta-zone-assumed-utc');
  return words;
}

export const celery: Dialect = {
  name: 'celery',
  summary: 'Celery protocols 1 and 2: task, id, retries, eta and expires in headers or in the body',
  claims: (view) => isSecond(view) || firstBody(view) !== undefined,
  fields: {
    kind: text('task'),
    id: text('id'),
    payloadText,
    attempts: (view) => headerInteger('retries')(view) ?? countOf(firstBody(view)?.['retries']),
    dueMs: (view) => instantMs(text('eta')(view)),
    latestMs: (view) => {
      const level = /^celery_delayed_(\d{1,2})$/.exec(view.delivery.queue)?.[1];
      return level === undefined ? undefined : latestByLevels(view, Number(level));
    },
    homeQueue: ({ delivery }) =>
      /^celery_delayed_\d+$/.test(delivery.queue) ? behindBits(delivery.routingKey) : undefined,
    expiresMs: (view) => instantMs(text('expires')(view)),
    opaque: ({ delivery: { properties } }) =>
      /python-serialize|pickle/.test(properties.contentType ?? '')
        ? { name: 'pickle', message: 'the body is a Python pickle, which is never opened' }
        : undefined,
    route: (view) => {
      const route = firstRoute(view);
      return { ...route, routingKey: behindBits(route.routingKey) ?? route.routingKey };
    },
    details: (view) => {
      const limits = timeLimits(view);
      return {
        correlationId: view.delivery.properties.correlationId,
        rootId: text('root_id')(view),
        parentId: text('parent_id')(view),
        group: text('group')(view) ?? text('taskset')(view),
        timeLimitSeconds: limits === undefined ? undefined : { ...limits },
      };
    },
    notes,
  },
};
