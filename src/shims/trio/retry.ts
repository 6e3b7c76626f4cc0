/**
 * The trio's retry service: submit, read; list, replay and discard dead letters. A retry is a job that brings its
 * attempts along; a dead letter is any job that is dead, whichever door it came through.
 */
import { RELAY_AMQP } from '../../../adapters/rabbitmq/relay-kind.js';
import { type Job, type JobState, LIMITS } from '../../jobs/job.js';
import { retryDelayMs } from '../../jobs/retry.js';
import type { DeadFilter } from '../../jobs/store.js';
import { type JsonNode, objectText, readJson } from '../../json-text.js';
import { RELAY_HTTP } from '../../notify/relay-kind.js';
import {
  type AnyRoute,
  type Change,
  type ChangeMany,
  type ContractContext,
  defineContract,
  type EditJob,
  EMPTY,
  type Enqueue,
  type Find,
  jsonResponse,
  type List,
  type ListDead,
  type ListDeadGroups,
  Refusal,
  route,
  type ShimJob,
} from '../contract.js';
import { type Fields, objectOf as fieldsOf, invalid, limitOf, parseTime, queryOf } from '../fields.js';
import {
  headerOf,
  headerText,
  idsOf,
  lastError,
  listText,
  objectOf,
  payloadOf,
  sentText,
  text,
  time,
  trioErrors,
  withTarget,
} from './common.js';
import { retryDescribed } from './described-retry.js';
import { type Policy, readPolicy } from './policy.js';
import { planCall, planParked, planRetried, readTarget, type Target, targetJson } from './targets.js';

const SOURCE = 'trio:retry';
const SCOPE = { sourcePrefix: SOURCE };

/** What the old service did without a policy: its three rungs, then dead. */
const DEFAULT_POLICY: Policy = {
  policy: { type: 'ladder', delaysMs: [1_000, 10_000, 60_000] },
  maxAttempts: 4,
  given: null,
};

const notFound = (what: string): Refusal => new Refusal(404, 'not-found', `no such ${what}`);

const submit = route<Enqueue>({
  method: 'POST',
  path: '/retries',
  parse(request, context) {
    const fields = fieldsOf(request.body, [
      'payload',
      'target',
      'httpRequest',
      'error',
      'attempt',
      'policy',
      'expiresAt',
    ]);
    const policyNode = fields.object('policy');
    const { policy, maxAttempts, given } =
      policyNode === undefined ? DEFAULT_POLICY : readPolicy(policyNode, 'policy');
    const expiresAt = fields.time('expiresAt');
    const attempts = fields.integer('attempt', 0, LIMITS.maxAttempts) ?? 1;
    const error = fields.text('error', 10_000)?.value;
    const { target, plan } = whatToRetry(fields, context, attempts);
    const dead = attempts >= maxAttempts;
    const parked = dead ? planParked(fields.node, attempts, error ?? SPENT.message, context) : null;
    if (parked !== null) {
      const headers = { target: targetJson(target), policy: given, attempt: attempts, parked: true };
      const why = { error: error ?? SPENT.message };
      return { type: 'enqueue', jobs: [{ ...parked, source: SOURCE, headers: { ...headers, ...why } }] };
    }
    const job: ShimJob = {
      kind: plan.kind,
      payloadText: plan.payloadText,
      source: SOURCE,
      headers: {
        target: targetJson(target),
        policy: given,
        attempt: attempts,
        ...(expiresAt === undefined ? {} : { expiresAt: expiresAt.toISOString() }),
      },
      retryPolicy: policy,
      maxAttempts,
      delayMs: dead ? 0 : retryDelayMs(policy, attempts, 0),
      carried: {
        attempts,
        error: error === undefined ? (dead ? SPENT : null) : { name: 'Error', message: error },
        dead,
      },
    };
    return { type: 'enqueue', jobs: [job] };
  },
  render({ enqueued: [job] }) {
    const id = job?.id ?? '';
    return jsonResponse(202, `{"id":"${id}","status":"waiting"}`, { location: `/retries/${id}` });
  },
});

/** A call as it was made, or a payload and where it goes. */
function whatToRetry(
  fields: Fields<'payload' | 'target' | 'httpRequest' | 'error' | 'attempt' | 'policy' | 'expiresAt'>,
  context: ContractContext,
  attempts: number,
): { target: Target; plan: Pick<ShimJob, 'kind' | 'payloadText'> } {
  const call = fields.object('httpRequest');
  const payload = fields.node.members.get('payload');
  const targetNode = fields.get('target');
  if (call !== undefined) {
    if (payload !== undefined || targetNode !== undefined)
      throw invalid('give httpRequest, or payload and target');
    return planCall(call, context);
  }
  if (payload === undefined) throw invalid('payload is missing');
  if (targetNode === undefined) throw invalid('target is missing');
  const target = readTarget(targetNode);
  return { target, plan: planRetried(target, payload, context, attempts) };
}

const SPENT = { name: 'attempts-spent', message: 'attempts spent' };

const read = route<Find>({
  method: 'GET',
  path: '/retries/:id',
  parse: ({ params }) => ({ type: 'find', id: params['id'] ?? '', scope: SCOPE }),
  render: (job) => (job === null ? notFound('retry') : jsonResponse(200, viewText(job))),
});

function statusOf(job: Job): string {
  if (headerOf(job, 'parked') === true) return 'dead';
  return Object.entries(RETRY_STATUSES).find(([, states]) => states.includes(job.state))?.[0] ?? job.state;
}

/** What was parked is over for its client, whether or not the broker has it yet. */
function viewText(job: Job): string {
  const parked = headerOf(job, 'parked') === true;
  const attempt = parked ? headerOf(job, 'attempt') : job.attempts;
  return objectText({
    id: text(job.id),
    status: text(statusOf(job)),
    target: JSON.stringify(headerOf(job, 'target') ?? null),
    payload: sentText(job),
    attempt: String(attempt),
    policy: JSON.stringify(headerOf(job, 'policy') ?? null),
    error: text(parked ? (headerText(job, 'error') ?? null) : lastError(job)),
    nextAttemptAt: time(job.state === 'ready' && !parked ? job.runAt : null),
    attempts: JSON.stringify(parked ? [] : attemptsOf(job)),
    createdAt: time(job.createdAt),
  });
}

/** The attempts made here; those that the client had made before are only a number. */
function attemptsOf(job: Job): readonly { attempt: number; at: string; error: string | null }[] {
  const before = headerOf(job, 'attempt');
  const failed = job.errors
    .filter(({ attempt }) => typeof before !== 'number' || attempt > before)
    .map(({ attempt, at, message }) => ({ attempt, at: new Date(at).toISOString(), error: message }));
  if (job.state !== 'done' || job.finishedAt === null) return failed;
  return [...failed, { attempt: job.attempts, at: job.finishedAt.toISOString(), error: null }];
}

const RETRY_STATUSES: Readonly<Record<string, readonly JobState[]>> = {
  waiting: ['ready', 'running'],
  succeeded: ['done'],
  dead: ['dead', 'cancelled'],
};

interface Listing extends List {
  readonly status: string | undefined;
}

const list = route<Listing>({
  method: 'GET',
  path: '/retries',
  parse(request) {
    const { status, limit } = queryOf(request, ['status', 'limit']);
    const states =
      status === undefined
        ? undefined
        : Object.hasOwn(RETRY_STATUSES, status)
          ? RETRY_STATUSES[status]
          : null;
    if (states === null) throw invalid(`status is none of ${Object.keys(RETRY_STATUSES).join(', ')}`);
    const search = { ...SCOPE, ...(states === undefined ? {} : { states }), limit: limitOf(limit) };
    return { type: 'list', search, status };
  },
  // What was parked is done here and dead to its client.
  render(jobs, { status }) {
    const fitting = jobs.filter((job) => status === undefined || statusOf(job) === status);
    return jsonResponse(200, listText(fitting.map(viewText)));
  },
});

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
  render: (job) =>
    job === null || job.state !== 'dead' ? notFound('dead letter') : jsonResponse(200, deadText(job)),
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
    if (!changed || job === null) return notFound('dead letter');
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
    if (!changed || job === null) return notFound('dead letter');
    return jsonResponse(202, `{"id":"${job.id}","status":"replayed"}`);
  },
});

const discard = route<Change>({
  method: 'POST',
  path: '/dead-letters/:id/discard',
  body: 'none',
  parse: ({ params }) => ({ type: 'change', act: 'dismiss', id: params['id'] ?? '', scope: {} }),
  render: ({ changed }) => (changed ? EMPTY : notFound('dead letter')),
});

export const retryContract = defineContract({
  name: 'trio',
  service: 'retry',
  described: retryDescribed,
  routes: [
    submit,
    list,
    read,
    listDead,
    groups,
    stats,
    readDead,
    editDead,
    changeDead('replay', '/dead-letters/replay', 'replayed'),
    changeDead('dismiss', '/dead-letters/discard', 'discarded'),
    replay,
    discard,
  ],
  deliveries: [{ exchange: 'retry.dlx', routingKey: '#' }],
  errors: trioErrors,
});
