/**
 * The trio's retry service: submit, read, list. A retry is a job that brings its attempts along. Dead letters, its other
 * half, have a file of their own.
 */
import { type Job, type JobState, LIMITS } from '../../jobs/job.js';
import { retryDelayMs } from '../../jobs/retry.js';
import { objectText } from '../../json-text.js';
import {
  type ContractContext,
  defineContract,
  type Enqueue,
  type Find,
  jsonResponse,
  type List,
  Refusal,
  route,
  type ShimJob,
} from '../contract.js';
import { type Fields, objectOf as fieldsOf, invalid, limitOf, queryOf } from '../fields.js';
import {
  headerOf,
  headerText,
  lastError,
  listText,
  sentText,
  text,
  time,
  trioErrors,
  withoutPlaces,
} from './common.js';
import { deadLetterRoutes } from './dead-letters.js';
import { retryDescribed } from './described-retry.js';
import { type Policy, readPolicy } from './policy.js';
import {
  planCall,
  planParked,
  planRetried,
  readTarget,
  RETRY_SOURCE as SOURCE,
  type Target,
  targetJson,
} from './targets.js';

const SCOPE = { sourcePrefix: SOURCE };

/** What the old service did without a policy: its three rungs, then dead. */
const DEFAULT_POLICY: Policy = {
  policy: { type: 'ladder', delaysMs: [1_000, 10_000, 60_000] },
  maxAttempts: 4,
  given: null,
};

const notFound = (): Refusal => new Refusal(404, 'not-found', 'no such retry');

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
  render: (job) => (job === null ? notFound() : jsonResponse(200, viewText(job))),
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
    .map(({ attempt, at, message }) => ({
      attempt,
      at: new Date(at).toISOString(),
      error: withoutPlaces(message),
    }));
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

export const retryContract = defineContract({
  name: 'trio',
  service: 'retry',
  described: retryDescribed,
  routes: [submit, list, read, ...deadLetterRoutes],
  deliveries: [{ exchange: 'retry.dlx', routingKey: '#' }],
  errors: trioErrors,
});
