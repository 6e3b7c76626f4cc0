/**
 * The trio's scheduling service: create, read, list, cancel. A schedule is a job whose run_at lies ahead; what the
 * broker's wait queues did, that column does. Cron is refused, as the old service refused it.
 */
import type { Job, JobState } from '../../jobs/job.js';
import { LIMITS } from '../../jobs/job.js';
import { objectText } from '../../json-text.js';
import { RELAY_HTTP } from '../../notify/relay-kind.js';
import {
  type Change,
  defineContract,
  EMPTY,
  type Enqueue,
  type Find,
  jsonResponse,
  type List,
  Refusal,
  route,
} from '../contract.js';
import { objectOf as fieldsOf, invalid, limitOf, queryOf } from '../fields.js';
import {
  headerOf,
  lastError,
  listText,
  memberText,
  objectOf,
  payloadOf,
  text,
  time,
  trioErrors,
} from './common.js';
import { MAX_DELAY_MS } from './notification-body.js';
import { planFired, readTarget, targetJson } from './targets.js';

/** Source of a schedule: this, or this and `:<name>`. */
const SOURCE = 'trio:schedule';
const SCOPE = { sourcePrefix: SOURCE };
const MAX_NAME = 255;

const FIELDS = ['name', 'runAt', 'delayMs', 'target', 'payload', 'cron'] as const;

const notFound = (): Refusal => new Refusal(404, 'not-found', 'no such schedule');

const create = route<Enqueue>({
  method: 'POST',
  path: '/schedules',
  parse(request, context) {
    const fields = fieldsOf(request.body, FIELDS);
    if (fields.has('cron'))
      throw new Refusal(422, 'unsupported', 'cron is not supported; give runAt or delayMs');
    const runAt = fields.time('runAt');
    const delayMs = fields.integer('delayMs', 0, MAX_DELAY_MS);
    if (runAt === undefined && delayMs === undefined) throw invalid('runAt or delayMs is missing');
    const name = fields.line('name', MAX_NAME) ?? null;
    const targetNode = fields.get('target');
    const target = targetNode === undefined ? null : readTarget(targetNode);
    const plan = planFired(target, name, fields.get('payload') ?? null, context);
    return {
      type: 'enqueue',
      readBack: true,
      jobs: [
        {
          kind: plan.kind,
          payloadText: plan.payloadText,
          source: name === null ? SOURCE : `${SOURCE}:${name.value}`.slice(0, LIMITS.sourceLength),
          headers: { target: targetJson(target) },
          // Both given: the old service took the delay.
          ...(delayMs === undefined && runAt !== undefined ? { runAt } : { delayMs: delayMs ?? 0 }),
        },
      ],
    };
  },
  render({ jobs: [job] }) {
    if (job === undefined) return notFound();
    const { id, runAt } = job;
    const body = { id, name: nameOf(job), status: 'scheduled', runAt };
    return jsonResponse(201, JSON.stringify(body), { location: `/schedules/${id}` });
  },
});

const read = route<Find>({
  method: 'GET',
  path: '/schedules/:id',
  parse: ({ params }) => ({ type: 'find', id: params['id'] ?? '', scope: SCOPE }),
  render: (job) => (job === null ? notFound() : jsonResponse(200, viewText(job))),
});

const STATUSES: Readonly<Record<string, readonly JobState[]>> = {
  scheduled: ['ready', 'running'],
  fired: ['done'],
  cancelled: ['cancelled'],
  failed: ['dead'],
};

const list = route<List>({
  method: 'GET',
  path: '/schedules',
  parse(request) {
    const { status, name, limit } = queryOf(request, ['status', 'name', 'limit']);
    const states =
      status === undefined ? undefined : Object.hasOwn(STATUSES, status) ? STATUSES[status] : null;
    if (states === null) throw invalid(`status is none of ${Object.keys(STATUSES).join(', ')}`);
    return {
      type: 'list',
      search: {
        ...(name === undefined ? { sourcePrefix: SOURCE } : { source: `${SOURCE}:${name}` }),
        ...(states === undefined ? {} : { states }),
        limit: limitOf(limit),
      },
    };
  },
  render: (jobs) => jsonResponse(200, listText(jobs.map(viewText))),
});

const cancel = route<Change>({
  method: 'DELETE',
  path: '/schedules/:id',
  parse: ({ params }) => ({ type: 'change', act: 'cancel', id: params['id'] ?? '', scope: SCOPE }),
  render({ changed, job }) {
    if (job === null) return notFound();
    if (changed || job.state === 'cancelled') return EMPTY;
    const status = job.state === 'running' ? 'firing' : statusOf(job);
    return new Refusal(409, 'conflict', `the schedule is ${status}`);
  },
});

function statusOf(job: Job): string {
  return Object.entries(STATUSES).find(([, states]) => states.includes(job.state))?.[0] ?? job.state;
}

function nameOf(job: Job): string {
  return job.source?.slice(SOURCE.length + 1) || job.id;
}

function viewText(job: Job): string {
  const payload = payloadOf(job);
  return objectText({
    id: text(job.id),
    name: text(nameOf(job)),
    status: text(statusOf(job)),
    runAt: time(job.runAt),
    target: JSON.stringify(headerOf(job, 'target') ?? null),
    payload: job.kind === RELAY_HTTP ? memberText(objectOf(payload), 'data') : (payload?.raw ?? 'null'),
    attempts: String(job.attempts),
    error: text(lastError(job)),
    createdAt: time(job.createdAt),
    firedAt: time(job.state === 'done' ? job.finishedAt : null),
  });
}

export const schedulingContract = defineContract({
  name: 'trio',
  service: 'scheduling',
  routes: [create, read, list, cancel],
  deliveries: [{ exchange: 'schedule', routingKey: '#' }],
  errors: trioErrors,
});
