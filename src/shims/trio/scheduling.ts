/**
 * The trio's scheduling service. A one-off schedule is a job whose run_at lies ahead: what the broker's wait queues did,
 * that column does. One with a cron is a schedule of ours; its id is its name.
 */
import type { Job, Schedule } from '../../jobs/job.js';
import { readJson } from '../../json-text.js';
import {
  type AnyRoute,
  type ChangedSchedule,
  type ChangeSchedule,
  defineContract,
  type EditSchedule,
  EMPTY,
  type Enqueue,
  type EnqueueResult,
  type FindSchedule,
  jsonResponse,
  type ListSchedules,
  type PutSchedule,
  Refusal,
  type ReplaceJob,
  route,
  type ShimResponse,
} from '../contract.js';
import { objectOf as fieldsOf, invalid, limitOf, queryOf } from '../fields.js';
import { listText, time, trioErrors } from './common.js';
import { schedulingDescribed } from './described-scheduling.js';
import { cronOf, FIELDS, MAX_NAME, oneOffOf, patchedJob, patchedSchedule, SOURCE } from './schedule-body.js';
import { nameOf, runText, STATUSES, scheduleText, stateOf, statusOf, viewText } from './schedule-view.js';

const SCOPE = { sourcePrefix: SOURCE };

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
