/**
 * The trio's retry service: submit, read; list, replay and discard dead letters. A retry is a job that brings its
 * attempts along; a dead letter is any job that is dead, whichever door it came through.
 */
import type { Job, Json, RetryPolicy } from '../../jobs/job.js';
import { LIMITS } from '../../jobs/job.js';
import { parseRetryPolicy, retryDelayMs } from '../../jobs/retry.js';
import { type JsonNode, objectText, toPlain } from '../../json-text.js';
import { RELAY_HTTP } from '../../notify/relay-kind.js';
import {
  type Change,
  defineContract,
  EMPTY,
  type Enqueue,
  type Find,
  jsonResponse,
  type ListDead,
  Refusal,
  route,
  type ShimJob,
} from '../contract.js';
import { type Fields, objectOf as fieldsOf, invalid, limitOf, queryOf } from '../fields.js';
import {
  headerOf,
  headerText,
  lastError,
  memberText,
  objectOf,
  payloadOf,
  text,
  time,
  trioErrors,
} from './common.js';
import { planRetried, readTarget, targetJson } from './targets.js';

const SOURCE = 'trio:retry';
const SCOPE = { sourcePrefix: SOURCE };

/** What the old service did without a policy: its three rungs, then dead. */
const DEFAULT_LADDER: RetryPolicy = { type: 'ladder', delaysMs: [1_000, 10_000, 60_000] };

const notFound = (what: string): Refusal => new Refusal(404, 'not-found', `no such ${what}`);

const submit = route<Enqueue>({
  method: 'POST',
  path: '/retries',
  parse(request, context) {
    const fields = fieldsOf(request.body, ['payload', 'target', 'error', 'attempt', 'policy']);
    const payload = fields.node.members.get('payload');
    if (payload === undefined) throw invalid('payload is missing');
    const targetNode = fields.get('target');
    if (targetNode === undefined) throw invalid('target is missing');
    const target = readTarget(targetNode);
    const plan = planRetried(target, payload, context);
    const { policy, maxAttempts, given } = policyOf(fields);
    const attempts = fields.integer('attempt', 0, LIMITS.maxAttempts) ?? 1;
    const error = fields.text('error', 10_000)?.value;
    const dead = attempts >= maxAttempts;
    const job: ShimJob = {
      kind: plan.kind,
      payloadText: plan.payloadText,
      source: SOURCE,
      headers: { target: targetJson(target), policy: given, attempt: attempts },
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

const SPENT = { name: 'attempts-spent', message: 'attempts spent' };

/** Their policy as ours. A ladder ends after its last rung, so it has one attempt more than rungs. */
function policyOf(fields: Fields<'policy' | 'payload' | 'target' | 'error' | 'attempt'>): {
  policy: RetryPolicy;
  maxAttempts: number;
  given: Json;
} {
  const node = fields.object('policy');
  if (node === undefined) return { policy: DEFAULT_LADDER, maxAttempts: 4, given: null };
  const known = fieldsOf(
    node,
    ['type', 'delayMs', 'maxAttempts', 'baseMs', 'factor', 'maxMs', 'delaysMs'],
    'policy',
  );
  const plain = toPlain(node) as Readonly<Record<string, Json>>;
  const policy = parseRetryPolicy({ factor: 2, maxMs: MAX_POLICY_MS, ...plain, jitter: 'none' });
  if (policy === null)
    throw invalid('policy is not fixed, exponential or ladder, with delays of 0 to 30 days');
  const limit = known.integer('maxAttempts', 1, LIMITS.maxAttempts);
  if (policy.type === 'ladder') {
    const rungs = policy.delaysMs.length + 1;
    return { policy, maxAttempts: Math.min(limit ?? rungs, rungs), given: plain };
  }
  if (limit === undefined) throw invalid('policy.maxAttempts is missing');
  return { policy, maxAttempts: limit, given: plain };
}

const MAX_POLICY_MS = 30 * 24 * 3_600_000;

const read = route<Find>({
  method: 'GET',
  path: '/retries/:id',
  parse: ({ params }) => ({ type: 'find', id: params['id'] ?? '', scope: SCOPE }),
  render: (job) => (job === null ? notFound('retry') : jsonResponse(200, viewText(job))),
});

function viewText(job: Job): string {
  const status =
    job.state === 'done' ? 'succeeded' : ['dead', 'cancelled'].includes(job.state) ? 'dead' : 'waiting';
  return objectText({
    id: text(job.id),
    status: text(status),
    target: JSON.stringify(headerOf(job, 'target') ?? null),
    payload: sentText(job, payloadOf(job)),
    attempt: String(job.attempts),
    policy: JSON.stringify(headerOf(job, 'policy') ?? null),
    error: text(lastError(job)),
    nextAttemptAt: time(job.state === 'ready' ? job.runAt : null),
    attempts: JSON.stringify(attemptsOf(job)),
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

const listDead = route<ListDead>({
  method: 'GET',
  path: '/dead-letters',
  parse: (request) => ({ type: 'list-dead', limit: limitOf(queryOf(request, ['limit']).limit) }),
  render({ jobs, total }) {
    return jsonResponse(200, `{"items":[${jobs.map(deadText).join(',')}],"total":${total}}`);
  },
});

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
    payload: sentText(job, payload),
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

/** What the client gave as payload: a relay job has it under `body` or `data`. */
function sentText(job: Job, payload: JsonNode | null): string {
  if (job.kind !== RELAY_HTTP) return payload?.raw ?? 'null';
  const members = objectOf(payload)?.members;
  return members?.get('body')?.raw ?? memberText(objectOf(payload), 'data');
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
  routes: [submit, read, listDead, replay, discard],
  deliveries: [{ exchange: 'retry.dlx', routingKey: '#' }],
  errors: trioErrors,
});
