/**
 * The trio's dead letters: list, group, count, edit, replay, discard. A dead letter is any job that is dead, whichever door
 * it came through.
 */
import { RELAY_AMQP } from '../../../adapters/rabbitmq/relay-kind.js';
import type { Job } from '../../jobs/job.js';
import type { DeadFilter } from '../../jobs/operator-store.js';
import { type JsonNode, objectText, readJson } from '../../json-text.js';
import { RELAY_HTTP } from '../../notify/relay-kind.js';
import {
  type AnyRoute,
  type Change,
  type ChangeMany,
  type ContractContext,
  type EditJob,
  EMPTY,
  type Find,
  jsonResponse,
  type ListDead,
  type ListDeadGroups,
  Refusal,
  route,
  type ShimJob,
} from '../contract.js';
import { objectOf as fieldsOf, invalid, limitOf, parseTime, queryOf } from '../fields.js';
import {
  headerText,
  idsOf,
  lastError,
  objectOf,
  payloadOf,
  sentText,
  text,
  time,
  withTarget,
} from './common.js';
import { planRetried, readTarget, RETRY_SOURCE as SOURCE, targetJson } from './targets.js';

const notFound = (): Refusal => new Refusal(404, 'not-found', 'no such dead letter');

const DEAD_FILTER = ['kind', 'error', 'source', 'from', 'to', 'before'] as const;

/** From a query's or a body's members, both as text. */
function deadFilter(given: Partial<Record<(typeof DEAD_FILTER)[number], string>>): DeadFilter {
  const { kind, error, source, before } = given;
  if (before !== undefined && !/^[1-9]\d{0,17}$/.test(before)) throw invalid('before is not an id');
  const timeOf = (name: 'from' | 'to'): Date | undefined => {
    const value = given[name];
    const parsed = value === undefined ? undefined : parseTime(value);
    if (parsed === null) throw invalid(`${name} is not a time`);
    return parsed;
  };
  const [from, to] = [timeOf('from'), timeOf('to')];
  return {
    ...(kind === undefined ? {} : { kind }),
    ...(error === undefined ? {} : { error }),
    ...(source === undefined ? {} : { sourcePrefix: source }),
    ...(from === undefined ? {} : { from }),
    ...(to === undefined ? {} : { to }),
    ...(before === undefined ? {} : { beforeId: before }),
  };
}

const listDead = route<ListDead>({
  method: 'GET',
  path: '/dead-letters',
  parse(request) {
    const { limit, ...filter } = queryOf(request, [...DEAD_FILTER, 'limit']);
    return { type: 'list-dead', filter: deadFilter(filter), limit: limitOf(limit) };
  },
  render({ jobs, total }) {
    return jsonResponse(200, `{"items":[${jobs.map(deadText).join(',')}],"total":${total}}`);
  },
});

/** By kind and by what killed them. */
const groups = route<ListDeadGroups>({
  method: 'GET',
  path: '/dead-letters/groups',
  parse: (request) => ({ type: 'list-dead-groups', filter: deadFilter(queryOf(request, DEAD_FILTER)) }),
  render: (found) => jsonResponse(200, JSON.stringify({ items: found })),
});

const stats = route<ListDeadGroups>({
  method: 'GET',
  path: '/dead-letters/stats',
  parse: (request) => ({ type: 'list-dead-groups', filter: deadFilter(queryOf(request, DEAD_FILTER)) }),
  render(found) {
    const kinds: Record<string, number> = {};
    for (const { kind, count } of found) kinds[kind] = (kinds[kind] ?? 0) + count;
    const total = found.reduce((sum, { count }) => sum + count, 0);
    const oldest = found.map(({ firstAt }) => firstAt.getTime()).sort((a, b) => a - b)[0];
    const oldestAt = oldest === undefined ? null : new Date(oldest);
    return jsonResponse(200, JSON.stringify({ total, kinds, oldestAt }));
  },
});

const readDead = route<Find>({
  method: 'GET',
  path: '/dead-letters/:id',
  parse: ({ params }) => ({ type: 'find', id: params['id'] ?? '', scope: {} }),
  render: (job) => (job === null || job.state !== 'dead' ? notFound() : jsonResponse(200, deadText(job))),
});

/** Another payload or target before it is replayed. */
const editDead = route<EditJob>({
  method: 'PATCH',
  path: '/dead-letters/:id',
  parse({ params, body }, context) {
    const fields = fieldsOf(body, ['payload', 'target']);
    if (fields.node.members.size === 0) throw invalid('there is nothing to change');
    return {
      type: 'edit-job',
      id: params['id'] ?? '',
      scope: {},
      states: ['dead'],
      edit(job) {
        const payload = fields.node.members.get('payload') ?? readJson(sentText(job));
        const targetNode = fields.get('target');
        const target = targetNode === undefined ? null : readTarget(targetNode);
        const plan =
          target === null ? replanned(job, payload, context) : planRetried(target, payload, context);
        return target === null ? plan : { ...plan, headers: withTarget(job, targetJson(target)) };
      },
    };
  },
  render({ changed, job }) {
    if (!changed || job === null) return notFound();
    return jsonResponse(200, deadText(job));
  },
});

/** The same kind with another payload, checked as at its own door. */
function replanned(
  job: Job,
  payload: JsonNode,
  context: ContractContext,
): Pick<ShimJob, 'kind' | 'payloadText'> {
  if (job.kind.startsWith('notify.'))
    return planRetried({ kind: job.kind }, payload, { ...context, knowsKind: () => true });
  const kept = objectOf(payloadOf(job));
  if ((job.kind !== RELAY_HTTP && job.kind !== RELAY_AMQP) || kept === null)
    return { kind: job.kind, payloadText: payload.raw };
  const members = Object.fromEntries([...kept.members].map(([name, node]) => [name, node.raw]));
  const place = kept.members.has('body') ? 'body' : 'data';
  return { kind: job.kind, payloadText: objectText({ ...members, [place]: payload.raw }) };
}

/** All of these, or all that the filter finds: the newest `limit`, and whether there may be more. */
function changeDead(act: 'replay' | 'dismiss', path: string, member: string): AnyRoute {
  return route<ChangeMany>({
    method: 'POST',
    path,
    parse({ body }) {
      const fields = fieldsOf(body, ['ids', 'filter', 'limit']);
      const ids = idsOf(fields.array('ids', MAX_IDS));
      const filterNode = fields.object('filter');
      if ((ids === undefined) === (filterNode === undefined)) throw invalid('give ids or filter');
      const limit = fields.integer('limit', 1, MAX_IDS) ?? MAX_IDS;
      if (ids !== undefined) return { type: 'change-many', act, of: { ids }, scope: {}, limit };
      const known = fieldsOf(filterNode ?? null, DEAD_FILTER, 'filter');
      // An empty filter is everything: that is asked for by name, not by forgetting.
      if (known.node.members.size === 0) throw invalid('filter is empty; give from: "1970-01-01" for all');
      const given = Object.fromEntries(
        DEAD_FILTER.flatMap((name) => {
          const value = known.text(name, 1_000)?.value;
          return value === undefined ? [] : [[name, value]];
        }),
      );
      return { type: 'change-many', act, of: { dead: deadFilter(given) }, scope: {}, limit };
    },
    render: ({ changed, missed, more }) =>
      jsonResponse(202, JSON.stringify({ [member]: changed.length, ids: changed, notFound: missed, more })),
  });
}

const MAX_IDS = 500;

/** As the old service listed it: a drained message by its own headers, any other job by where it would have lain. */
function deadText(job: Job): string {
  const payload = payloadOf(job);
  return objectText({
    id: text(job.id),
    messageId: text(headerText(job, 'amqp', 'messageId') ?? job.dedupeKey ?? job.id),
    queue: text(homeOf(job)),
    routingKey: text(routingKeyOf(job, payload)),
    error: text(lastError(job)),
    attempts: String(job.attempts),
    firstFailureAt: failureText(job, 'x-first-failure', 0),
    lastFailureAt: failureText(job, 'x-last-failure', -1),
    payload: sentText(job),
  });
}

function failureText(job: Job, header: string, index: number): string {
  // A failure here is later than any that the message brought along, and the drain's own entry is no failure.
  const drained = headerText(job, 'amqp', 'headers', header);
  const own = job.errors.at(index);
  if (drained !== undefined && (index === 0 || job.errors.length <= 1)) return text(drained);
  return own === undefined ? 'null' : time(new Date(own.at));
}

function homeOf(job: Job): string {
  const source = job.source ?? '';
  const drained =
    headerText(job, 'amqp', 'headers', 'x-original-queue') ??
    /^rabbitmq:.*\/([^/]+)#[^#]*$/.exec(source)?.[1];
  if (drained !== undefined) return drained;
  if (source.startsWith('trio:schedule')) return 'schedule.due';
  if (source.startsWith(SOURCE)) return 'retry.scheduled';
  return job.kind.startsWith('notify.') ? 'notification.work' : job.kind;
}

function routingKeyOf(job: Job, payload: JsonNode | null): string {
  const drained =
    headerText(job, 'amqp', 'headers', 'x-original-routing-key') ?? headerText(job, 'amqp', 'routingKey');
  if (drained !== undefined) return drained;
  const template = objectOf(payload)?.members.get('template');
  if (!job.kind.startsWith('notify.') || template?.type !== 'string') return homeOf(job);
  return `notification.${template.value}.${job.kind.slice('notify.'.length)}`;
}

const replay = route<Change>({
  method: 'POST',
  path: '/dead-letters/:id/replay',
  body: 'none',
  parse: ({ params }) => ({ type: 'change', act: 'replay', id: params['id'] ?? '', scope: {} }),
  render({ changed, job }) {
    if (!changed || job === null) return notFound();
    return jsonResponse(202, `{"id":"${job.id}","status":"replayed"}`);
  },
});

const discard = route<Change>({
  method: 'POST',
  path: '/dead-letters/:id/discard',
  body: 'none',
  parse: ({ params }) => ({ type: 'change', act: 'dismiss', id: params['id'] ?? '', scope: {} }),
  render: ({ changed }) => (changed ? EMPTY : notFound()),
});

export const deadLetterRoutes: readonly AnyRoute[] = [
  listDead,
  groups,
  stats,
  readDead,
  editDead,
  changeDead('replay', '/dead-letters/replay', 'replayed'),
  changeDead('dismiss', '/dead-letters/discard', 'discarded'),
  replay,
  discard,
];
