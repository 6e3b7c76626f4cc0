/**
 * The trio's scheduling service. A one-off schedule is a job whose run_at lies ahead: what the broker's wait queues did,
 * that column does. One with a cron is a schedule of ours; its id is its name.
 */
import { type Job, type JobState, type Json, LIMITS, type Schedule } from '../../jobs/job.js';
import { MISFIRES } from '../../jobs/schedule.js';
import { objectText, readJson, type StringNode } from '../../json-text.js';
import {
  type AnyRoute,
  type ChangedSchedule,
  type ChangeSchedule,
  type ContractContext,
  defineContract,
  type EditSchedule,
  EMPTY,
  type Enqueue,
  type EnqueueResult,
  type FindSchedule,
  type JobEdit,
  jsonResponse,
  type ListSchedules,
  type PutSchedule,
  Refusal,
  type ReplaceJob,
  route,
  type ScheduleDraft,
  type ShimJob,
  type ShimRequest,
  type ShimResponse,
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
  withTarget,
} from './common.js';
import { schedulingDescribed } from './described-scheduling.js';
import { MAX_DELAY_MS } from './notification-body.js';
import { readPolicy } from './policy.js';
import { planFired, readTarget, type Target, targetJson } from './targets.js';

/** Source of a schedule: this, or this and `:<name>`. */
const SOURCE = 'trio:schedule';
const SCOPE = { sourcePrefix: SOURCE };
const MAX_NAME = 255;
/** As a schedule's row is named. */
const MAX_CRON_NAME = 200;

const FIELDS = [
  'name',
  'runAt',
  'delayMs',
  'cron',
  'timeZone',
  'misfire',
  'expiresAt',
  'target',
  'payload',
  'retry',
  'paused',
] as const;
type Field = (typeof FIELDS)[number];

const notFound = (): Refusal => new Refusal(404, 'not-found', 'no such schedule');

type Put = Enqueue | PutSchedule | ReplaceJob;

const create = route<Put>({
  method: 'POST',
  path: '/schedules',
  parse(request, context) {
    const fields = fieldsOf(request.body, FIELDS);
    const name = fields.line('name', MAX_NAME) ?? null;
    if (fields.get('cron') !== undefined) return cronOf(fields, name, 'create', context);
    return { type: 'enqueue', readBack: true, jobs: [oneOffOf(fields, name, context)] };
  },
  render: (result, parsed) => created(result, parsed, 201),
});

/** The name in the path makes it harmless to send twice: the schedule of that name is changed. */
const upsert = route<Put>({
  method: 'PUT',
  path: '/schedules/:name',
  parse(request, context) {
    const fields = fieldsOf(request.body, FIELDS);
    const given = request.params['name'] ?? '';
    const node = readJson(JSON.stringify(given));
    if (node.type !== 'string' || given.length > MAX_NAME) throw invalid('the name is too long');
    if (fields.has('name') && fields.text('name', MAX_NAME)?.value !== given)
      throw invalid('name is not the one in the path');
    if (fields.get('cron') !== undefined) return cronOf(fields, node, 'upsert', context);
    const job = oneOffOf(fields, node, context);
    return { type: 'replace-job', job: { ...job, source: job.source ?? SOURCE } };
  },
  render: (result, parsed) => created(result, parsed, 200),
});

function created(
  result: EnqueueResult | { readonly schedule: Schedule; readonly created: boolean },
  parsed: Put,
  status: number,
): ShimResponse | Refusal {
  if (parsed.type === 'put-schedule') {
    const { schedule, created: isNew } = result as { schedule: Schedule; created: boolean };
    const location = `/schedules/${encodeURIComponent(schedule.name)}`;
    return jsonResponse(isNew ? 201 : status, scheduleText(schedule), { location });
  }
  const [job] = (result as EnqueueResult).jobs;
  if (job === undefined) return notFound();
  const { id, runAt } = job;
  const body = { id, name: nameOf(job), status: 'scheduled', runAt };
  return jsonResponse(status, JSON.stringify(body), { location: `/schedules/${id}` });
}

function oneOffOf(fields: Fields<Field>, name: StringNode | null, context: ContractContext): ShimJob {
  const runAt = fields.time('runAt');
  const delayMs = fields.integer('delayMs', 0, MAX_DELAY_MS);
  if (runAt === undefined && delayMs === undefined) throw invalid('runAt, delayMs or cron is missing');
  for (const only of ['timeZone', 'misfire', 'paused'] as const)
    if (fields.get(only) !== undefined) throw invalid(`${only} belongs to a cron`);
  const target = targetOf(fields);
  const plan = planFired(target, name, fields.get('payload') ?? null, context);
  const expiresAt = fields.time('expiresAt');
  if (expiresAt !== undefined && runAt !== undefined && expiresAt <= runAt)
    throw invalid('expiresAt is not after runAt');
  return {
    kind: plan.kind,
    payloadText: plan.payloadText,
    source: name === null ? SOURCE : `${SOURCE}:${name.value}`.slice(0, LIMITS.sourceLength),
    headers: {
      target: targetJson(target),
      ...(expiresAt === undefined ? {} : { expiresAt: expiresAt.toISOString() }),
    },
    // Both given: the old service took the delay.
    ...(delayMs === undefined && runAt !== undefined ? { runAt } : { delayMs: delayMs ?? 0 }),
    ...retryOf(fields),
  };
}

function retryOf(fields: Fields<Field>): Pick<ShimJob, 'retryPolicy' | 'maxAttempts'> {
  const node = fields.object('retry');
  if (node === undefined) return {};
  const { policy, maxAttempts } = readPolicy(node, 'retry');
  return { retryPolicy: policy, maxAttempts };
}

function targetOf(fields: Fields<Field>): Target | null {
  const node = fields.get('target');
  return node === undefined ? null : readTarget(node);
}

function cronOf(
  fields: Fields<Field>,
  name: StringNode | null,
  mode: PutSchedule['mode'],
  context: ContractContext,
): PutSchedule {
  if (fields.get('runAt') !== undefined || fields.get('delayMs') !== undefined)
    throw invalid('give cron, runAt or delayMs');
  if (name !== null && (name.value.length > MAX_CRON_NAME || /^\d+$/.test(name.value)))
    throw invalid(`the name of a cron is 1 to ${MAX_CRON_NAME} characters and not a number`);
  const target = targetOf(fields);
  const plan = planFired(target, name, fields.get('payload') ?? null, context);
  const draft: ScheduleDraft = {
    kind: plan.kind,
    payloadText: plan.payloadText,
    source: SOURCE,
    headers: { target: targetJson(target) },
    ...ruleOf(fields),
    ...retryOf(fields),
  };
  return { type: 'put-schedule', name: name?.value ?? null, prefix: 'schedule-', mode, draft };
}

/** The members that say when. */
function ruleOf(
  fields: Fields<Field>,
): Pick<ScheduleDraft, 'cron' | 'timeZone' | 'misfire' | 'endAt' | 'paused'> {
  const cron = fields.text('cron', 10_000)?.value;
  const timeZone = fields.text('timeZone', 100)?.value;
  const misfire = fields.text('misfire', 10)?.value;
  const known = MISFIRES.find((one) => one === misfire);
  if (misfire !== undefined && known === undefined)
    throw invalid(`misfire is none of ${MISFIRES.join(', ')}`);
  const endAt = fields.time('expiresAt');
  const paused = pausedOf(fields);
  return {
    ...(cron === undefined ? {} : { cron }),
    ...(timeZone === undefined ? {} : { timeZone }),
    ...(known === undefined ? {} : { misfire: known }),
    ...(endAt === undefined ? {} : { endAt }),
    ...(paused === undefined ? {} : { paused }),
  };
}

function pausedOf(fields: Fields<Field>): boolean | undefined {
  const node = fields.get('paused');
  if (node === undefined) return undefined;
  if (node.type !== 'literal' || typeof node.value !== 'boolean')
    throw invalid('paused is not true or false');
  return node.value;
}

const read = route<FindSchedule>({
  method: 'GET',
  path: '/schedules/:id',
  parse: ({ params }) => ({ type: 'find-schedule', id: params['id'] ?? '', scope: SCOPE }),
  render: (found) => viewOf(found, 200),
});

function viewOf(
  { schedule, job }: Pick<ChangedSchedule, 'schedule' | 'job'>,
  status: number,
): ShimResponse | Refusal {
  if (schedule !== null) return jsonResponse(status, scheduleText(schedule));
  return job === null ? notFound() : jsonResponse(status, viewText(job));
}

const STATUSES: Readonly<Record<string, readonly JobState[]>> = {
  scheduled: ['ready', 'running'],
  fired: ['done'],
  cancelled: ['cancelled'],
  failed: ['dead'],
};

interface Listing extends ListSchedules {
  readonly status: string | undefined;
}

const list = route<Listing>({
  method: 'GET',
  path: '/schedules',
  parse(request) {
    const { status, name, limit: asked } = queryOf(request, ['status', 'name', 'limit']);
    const limit = limitOf(asked);
    const states =
      status === undefined ? undefined : Object.hasOwn(STATUSES, status) ? STATUSES[status] : null;
    const ofCron = status === 'paused' || status === 'ended';
    if (states === null && !ofCron)
      throw invalid(`status is none of ${[...Object.keys(STATUSES), 'paused', 'ended'].join(', ')}`);
    const search = {
      ...(name === undefined ? { sourcePrefix: SOURCE } : { source: `${SOURCE}:${name}` }),
      ...(states === undefined || states === null ? {} : { states }),
      limit,
    };
    return { type: 'list-schedules', scope: SCOPE, name, limit, status, search: ofCron ? null : search };
  },
  render({ schedules, jobs }, { status, limit }) {
    const fitting = schedules.filter((one) => status === undefined || stateOf(one) === status);
    const items = [...fitting.map(scheduleText), ...jobs.map(viewText)];
    return jsonResponse(200, listText(items.slice(0, limit)));
  },
});

const remove = route<ChangeSchedule>({
  method: 'DELETE',
  path: '/schedules/:id',
  parse: ({ params }) => ({ type: 'change-schedule', act: 'delete', id: params['id'] ?? '', scope: SCOPE }),
  render({ changed, schedule, job }) {
    if (schedule !== null || changed || job?.state === 'cancelled') return EMPTY;
    return job === null ? notFound() : tooLate(job);
  },
});

const tooLate = (job: Job): Refusal =>
  new Refusal(409, 'conflict', `the schedule is ${job.state === 'running' ? 'firing' : statusOf(job)}`);

function act(name: 'pause' | 'resume' | 'trigger'): AnyRoute {
  return route<ChangeSchedule>({
    method: 'POST',
    path: `/schedules/:id/${name}`,
    body: 'none',
    parse: ({ params }) => ({ type: 'change-schedule', act: name, id: params['id'] ?? '', scope: SCOPE }),
    render(result) {
      const { changed, job, fired } = result;
      if (!changed) return job === null ? notFound() : tooLate(job);
      if (name !== 'trigger') return viewOf(result, 200);
      return jsonResponse(202, JSON.stringify({ id: fired, status: 'triggered' }));
    },
  });
}

const nextRuns = route<FindSchedule>({
  method: 'GET',
  path: '/schedules/:id/next-runs',
  parse(request) {
    const { count } = queryOf(request, ['count']);
    const nextRuns = count === undefined ? 5 : limitOf(count);
    return { type: 'find-schedule', id: request.params['id'] ?? '', scope: SCOPE, nextRuns };
  },
  render({ schedule, job, nextRuns: slots }) {
    if (schedule === null && job === null) return notFound();
    const ahead = schedule !== null ? slots : job?.state === 'ready' ? [job.runAt] : [];
    return jsonResponse(200, listText(ahead.map(time)));
  },
});

const history = route<FindSchedule>({
  method: 'GET',
  path: '/schedules/:id/history',
  parse(request) {
    const { limit, before } = queryOf(request, ['limit', 'before']);
    if (before !== undefined && !/^[1-9]\d{0,17}$/.test(before)) throw invalid('before is not an id');
    const page = { limit: limitOf(limit), ...(before === undefined ? {} : { beforeId: before }) };
    return { type: 'find-schedule', id: request.params['id'] ?? '', scope: SCOPE, history: page };
  },
  render({ schedule, job, history: fired }) {
    if (schedule === null && job === null) return notFound();
    const runs = schedule !== null ? fired : job !== null && job.attempts > 0 ? [job] : [];
    return jsonResponse(200, listText(runs.map(runText)));
  },
});

function runText(job: Job): string {
  return objectText({
    id: text(job.id),
    status: text(statusOf(job)),
    runAt: time(job.runAt),
    attempts: String(job.attempts),
    error: text(lastError(job)),
    firedAt: time(job.state === 'done' ? job.finishedAt : null),
  });
}

const patch = route<EditSchedule>({
  method: 'PATCH',
  path: '/schedules/:id',
  parse(request, context) {
    const fields = fieldsOf(request.body, FIELDS);
    if (fields.node.members.size === 0) throw invalid('there is nothing to change');
    if (fields.has('name')) throw invalid('name cannot be changed');
    return {
      type: 'edit-schedule',
      id: request.params['id'] ?? '',
      scope: SCOPE,
      editSchedule: (schedule) => patchedSchedule(schedule, fields, request, context),
      editJob: (job) => patchedJob(job, fields, context),
    };
  },
  render(result) {
    const { changed, job } = result;
    if (changed) return viewOf(result, 200);
    return job === null ? notFound() : tooLate(job);
  },
});

/** What is not given stays as it is. */
function patchedSchedule(
  schedule: Schedule,
  fields: Fields<Field>,
  { params }: ShimRequest,
  context: ContractContext,
): ScheduleDraft {
  if (fields.get('runAt') !== undefined || fields.get('delayMs') !== undefined)
    throw invalid('a cron has no runAt or delayMs');
  const name = readJson(JSON.stringify(params['id'] ?? ''));
  const { cron, timeZone, misfire, endAt, priority, maxAttempts, retryPolicy } = schedule;
  return {
    kind: schedule.kind,
    source: SOURCE,
    cron,
    timeZone,
    misfire,
    priority,
    maxAttempts,
    ...(schedule.payloadText === null ? {} : { payloadText: schedule.payloadText }),
    ...(endAt === null ? {} : { endAt }),
    ...(retryPolicy === null ? {} : { retryPolicy }),
    ...retargeted(schedule, fields, name.type === 'string' ? name : null, context),
    ...ruleOf(fields),
    ...retryOf(fields),
  };
}

function patchedJob(job: Job, fields: Fields<Field>, context: ContractContext): JobEdit {
  for (const only of ['cron', 'timeZone', 'misfire', 'paused', 'expiresAt'] as const)
    if (fields.has(only)) throw invalid(`${only} cannot be given to a one-off schedule afterwards`);
  const runAt = fields.time('runAt');
  const delayMs = fields.integer('delayMs', 0, MAX_DELAY_MS);
  const name = job.source?.slice(SOURCE.length + 1) ?? '';
  const node = name === '' ? null : readJson(JSON.stringify(name));
  return {
    ...(delayMs !== undefined ? { delayMs } : runAt !== undefined ? { runAt } : {}),
    ...retargeted(job, fields, node?.type === 'string' ? node : null, context),
    ...retryOf(fields),
  };
}

/** Kind, payload and headers for another target or payload; whichever is not given is read from the row. */
function retargeted(
  row: Job | Schedule,
  fields: Fields<Field>,
  name: StringNode | null,
  context: ContractContext,
): Pick<ScheduleDraft, 'kind' | 'payloadText' | 'headers'> | Record<string, never> {
  if (!fields.has('target') && !fields.has('payload')) {
    const target = headerOf(row, 'target');
    return target === undefined ? {} : { kind: row.kind, headers: withTarget(row, target as Json) };
  }
  const kept = headerOf(row, 'target') ?? null;
  const target = fields.has('target')
    ? targetOf(fields)
    : kept === null
      ? null
      : readTarget(readJson(JSON.stringify(kept)));
  const payload = fields.has('payload') ? (fields.get('payload') ?? null) : readJson(sentText(row));
  const plan = planFired(target, name, payload, context);
  return { ...plan, headers: withTarget(row, targetJson(target)) };
}

function statusOf(job: Job): string {
  return Object.entries(STATUSES).find(([, states]) => states.includes(job.state))?.[0] ?? job.state;
}

function nameOf(job: Job): string {
  return job.source?.slice(SOURCE.length + 1) || job.id;
}

function viewText(job: Job): string {
  return objectText({
    id: text(job.id),
    name: text(nameOf(job)),
    status: text(statusOf(job)),
    runAt: time(job.runAt),
    target: JSON.stringify(headerOf(job, 'target') ?? null),
    payload: sentText(job),
    attempts: String(job.attempts),
    error: text(lastError(job)),
    createdAt: time(job.createdAt),
    firedAt: time(job.state === 'done' ? job.finishedAt : null),
    expiresAt:
      headerText(job, 'expiresAt') === undefined ? undefined : text(headerText(job, 'expiresAt') ?? null),
  });
}

function stateOf({ paused, nextRunAt }: Schedule): string {
  if (nextRunAt === null) return 'ended';
  return paused ? 'paused' : 'scheduled';
}

function scheduleText(schedule: Schedule): string {
  return objectText({
    id: text(schedule.name),
    name: text(schedule.name),
    status: text(stateOf(schedule)),
    runAt: time(schedule.nextRunAt),
    cron: text(schedule.cron),
    timeZone: text(schedule.timeZone),
    misfire: text(schedule.misfire),
    expiresAt: time(schedule.endAt),
    target: JSON.stringify(headerOf(schedule, 'target') ?? null),
    payload: sentText(schedule),
    createdAt: time(schedule.createdAt),
  });
}

export const schedulingContract = defineContract({
  name: 'trio',
  service: 'scheduling',
  described: schedulingDescribed,
  routes: [
    create,
    upsert,
    read,
    list,
    remove,
    patch,
    act('pause'),
    act('resume'),
    act('trigger'),
    nextRuns,
    history,
  ],
  deliveries: [{ exchange: 'schedule', routingKey: '#' }],
  errors: trioErrors,
});
