/**
 * QStash's wire protocol, as @upstash/qstash speaks it: publish, batch, messages; schedules; the dead letter queue. The
 * target URL stands raw in the path. Message ids are `msg_<job id>`, ids of dead letters the job's.
 */
import type { Schedule } from '../../jobs/job.js';
import { objectText } from '../../json-text.js';
import { QSTASH_DELIVER } from '../../notify/relay-kind.js';
import {
  type Change,
  type ChangeMany,
  type ChangeSchedule,
  type Contract,
  defineContract,
  type Enqueue,
  type EnqueueResult,
  type Find,
  type FindSchedule,
  jsonResponse,
  type ListDead,
  type ListSchedules,
  type PutSchedule,
  Refusal,
  route,
  type ShimJob,
  type ShimRequest,
  type ShimResponse,
} from '../contract.js';
import { objectOf as fieldsOf, queryOf } from '../fields.js';
import { dlqDescribed, messagesDescribed, schedulesDescribed } from './described.js';
import {
  bad,
  type Headers,
  headerLists,
  jobIdOf,
  membersOf,
  messageIdOf,
  messageText,
  readDraft,
  readMessage,
  SCOPE,
} from './message.js';

/** Their clients read `error`. */
function errors({ status, detail }: Refusal): ShimResponse {
  return jsonResponse(status, JSON.stringify({ error: detail }));
}

const notFound = (what: string): Refusal => new Refusal(404, 'not-found', `${what} not found`);

const MAX_BATCH = 1_000;

function answerText({ id, inserted }: EnqueueResult['enqueued'][number]): string {
  const messageId = JSON.stringify(messageIdOf(id));
  return objectText({ messageId, deduplicated: inserted ? undefined : 'true' });
}

const publish = route<Enqueue>({
  method: 'POST',
  path: '/v2/publish/*',
  body: 'any',
  parse: ({ rest, headers, bytes }, context) => ({
    type: 'enqueue',
    jobs: [readMessage(rest, headers, bytes, context)],
  }),
  render: published,
});

function published({ enqueued: [first] }: EnqueueResult): ShimResponse | Refusal {
  return first === undefined ? notFound('message') : jsonResponse(201, answerText(first));
}

/** `/v2/enqueue/<queue>/<url>`: the messages of a queue run one at a time, oldest first. */
const enqueue = route<Enqueue>({
  method: 'POST',
  path: '/v2/enqueue/*',
  body: 'any',
  parse({ rest, headers, bytes }, context) {
    const slash = rest.indexOf('/');
    const queue = rest.slice(0, slash);
    if (!/^[\w.-]{1,255}$/.test(queue)) throw bad('the name of the queue is not valid');
    return {
      type: 'enqueue',
      jobs: [readMessage(rest.slice(slash + 1), headers, bytes, context, queue)],
    };
  },
  render: published,
});

const batch = route<Enqueue>({
  method: 'POST',
  path: '/v2/batch',
  parse({ body }, context) {
    if (body?.type !== 'array' || body.items.length === 0 || body.items.length > MAX_BATCH)
      throw bad(`the body is not a list of 1 to ${MAX_BATCH} messages`);
    const jobs = body.items.map((item): ShimJob => {
      const fields = fieldsOf(item, ['destination', 'headers', 'body', 'queue'], 'a message');
      const destination = fields.text('destination', 2_000)?.value;
      if (destination === undefined) throw bad('destination is missing');
      const text = fields.get('body');
      if (text !== undefined && text.type !== 'string') throw bad('body is not a string');
      const headers: Record<string, string> = {};
      for (const [name, value] of fields.object('headers')?.members ?? []) {
        if (value.type !== 'string') throw bad('a header is not a string');
        headers[name.toLowerCase()] = value.value;
      }
      const queue = fields.line('queue', 255)?.value;
      return readMessage(destination, headers, Buffer.from(text?.value ?? ''), context, queue);
    });
    return { type: 'enqueue', jobs };
  },
  render: ({ enqueued }) => jsonResponse(201, `[${enqueued.map(answerText).join(',')}]`),
});

const getMessage = route<Find>({
  method: 'GET',
  path: '/v2/messages/:id',
  parse: ({ params }) => ({ type: 'find', id: jobIdOf(params['id'] ?? ''), scope: SCOPE }),
  // One that was delivered, or lies in the dead letter queue, is not found, as there.
  render: (job) =>
    job === null || !['ready', 'running'].includes(job.state)
      ? notFound('message')
      : jsonResponse(200, objectText(messageText(job))),
});

const cancelMessage = route<Change>({
  method: 'DELETE',
  path: '/v2/messages/:id',
  parse: ({ params }) => ({
    type: 'change',
    act: 'cancel',
    id: jobIdOf(params['id'] ?? ''),
    scope: SCOPE,
  }),
  render: ({ changed }) => (changed ? jsonResponse(200, '{"cancelled":1}') : notFound('message')),
});

const MAX_MANY = 500;

function idsOf(request: ShimRequest, name: string): readonly string[] {
  const ids = (request.query.get(name) ?? '').split(',').filter((id) => id !== '');
  if (ids.length > MAX_MANY) throw bad(`more than ${MAX_MANY} ids`);
  return ids;
}

const cancelMessages = route<ChangeMany>({
  method: 'DELETE',
  path: '/v2/messages',
  repeats: ['messageIds'],
  parse(request) {
    const { count } = queryOf(request, ['messageIds', 'count']);
    const ids = idsOf(request, 'messageIds').map(jobIdOf);
    const search = { ...SCOPE, states: ['ready'] as const, limit: 1 };
    const of = ids.length > 0 ? { ids } : { search };
    return { type: 'change-many', act: 'cancel', of, scope: SCOPE, limit: countOf(count) };
  },
  render: ({ changed }) => jsonResponse(200, JSON.stringify({ cancelled: changed.length })),
});

function countOf(text: string | undefined): number {
  if (text === undefined) return 100;
  if (!/^[1-9]\d{0,8}$/.test(text)) throw bad('count is not a positive number');
  return Math.min(Number(text), MAX_MANY);
}

/** Dead letters of this contract only. */
const DEAD = { kind: QSTASH_DELIVER };

const listDlq = route<ListDead>({
  method: 'GET',
  path: '/v2/dlq',
  parse(request) {
    const { cursor, count } = queryOf(request, ['cursor', 'count']);
    if (cursor !== undefined && !/^[1-9]\d{0,17}$/.test(cursor)) throw bad('the cursor is not valid');
    const filter = cursor === undefined ? DEAD : { ...DEAD, beforeId: cursor };
    return { type: 'list-dead', filter, limit: countOf(count) };
  },
  render({ jobs, more }) {
    const messages = jobs.map((job) => {
      const { status, body } = responseOf(job.progress);
      return objectText({
        ...messageText(job),
        dlqId: JSON.stringify(job.id),
        responseStatus: status === undefined ? undefined : String(status),
        responseBody: body === undefined ? undefined : JSON.stringify(body),
      });
    });
    const cursor = more ? JSON.stringify(jobs.at(-1)?.id) : undefined;
    return jsonResponse(200, objectText({ messages: `[${messages.join(',')}]`, cursor }));
  },
});

function responseOf(progress: unknown): { status?: number; body?: string } {
  const { response } = (progress ?? {}) as { response?: { status?: number; body?: string } };
  return response ?? {};
}

const deleteDlq = route<Change>({
  method: 'DELETE',
  path: '/v2/dlq/:id',
  parse: ({ params }) => ({ type: 'change', act: 'dismiss', id: params['id'] ?? '', scope: SCOPE }),
  render: ({ changed }) => (changed ? { status: 200, body: null } : notFound('dlq message')),
});

function changeDlq(request: ShimRequest, act: 'dismiss' | 'replay'): ChangeMany {
  const { count } = queryOf(request, ['dlqIds', 'count', 'cursor']);
  const ids = idsOf(request, 'dlqIds');
  const of = ids.length > 0 ? { ids } : { dead: DEAD };
  return { type: 'change-many', act, of, scope: SCOPE, limit: countOf(count) };
}

const deleteDlqMany = route<ChangeMany>({
  method: 'DELETE',
  path: '/v2/dlq',
  repeats: ['dlqIds'],
  parse: (request) => changeDlq(request, 'dismiss'),
  render: ({ changed }) => jsonResponse(200, JSON.stringify({ deleted: changed.length })),
});

const retryDlq = route<ChangeMany>({
  method: 'POST',
  path: '/v2/dlq/retry',
  body: 'any',
  repeats: ['dlqIds'],
  parse: (request) => changeDlq(request, 'replay'),
  render({ changed }) {
    const responses = changed.map((id) => ({ messageId: messageIdOf(id) }));
    return jsonResponse(200, JSON.stringify({ responses }));
  },
});

const SCHEDULE_SOURCE = 'qstash:schedule';
const SCHEDULES = { sourcePrefix: SCHEDULE_SOURCE };

const createSchedule = route<PutSchedule>({
  method: 'POST',
  path: '/v2/schedules/*',
  body: 'any',
  parse({ rest, headers, bytes }, context) {
    const { cron, timeZone } = cronOf(headers);
    const name = headers['upstash-schedule-id'];
    if (name !== undefined && !/^[\w.:-]{1,200}$/.test(name))
      throw bad('Upstash-Schedule-Id is not 1 to 200 letters, digits, dots and dashes');
    if (headers['upstash-delay'] !== undefined && headers['upstash-delay'] !== '0s')
      throw new Refusal(422, 'unsupported', 'a delay of each run is not served; move the cron instead');
    const { kind, payloadText, maxAttempts, retryPolicy } = readDraft(rest, headers, bytes, context);
    return {
      type: 'put-schedule',
      name: name ?? null,
      prefix: 'scd_',
      mode: 'upsert',
      draft: { kind, payloadText, maxAttempts, retryPolicy, cron, timeZone, source: SCHEDULE_SOURCE },
    };
  },
  render: ({ schedule }) => jsonResponse(201, JSON.stringify({ scheduleId: schedule.name })),
});

/** `CRON_TZ=Europe/Paris 30 2 * * *`. */
function cronOf(headers: Headers): { cron: string; timeZone: string } {
  const [, timeZone = 'UTC', cron = ''] =
    /^(?:CRON_TZ=(\S{1,64})\s+)?(.*)$/.exec(headers['upstash-cron'] ?? '') ?? [];
  if (cron.trim() === '') throw bad('Upstash-Cron is missing');
  return { cron: cron.trim(), timeZone };
}

function scheduleText(schedule: Schedule): string {
  const members = membersOf(schedule);
  const header = members?.get('headers');
  const { cron, timeZone } = schedule;
  return objectText({
    scheduleId: JSON.stringify(schedule.name),
    cron: JSON.stringify(timeZone === 'UTC' ? cron : `CRON_TZ=${timeZone} ${cron}`),
    createdAt: String(schedule.createdAt.getTime()),
    destination: members?.get('url')?.raw ?? '""',
    method: members?.get('method')?.raw ?? '"POST"',
    header: header?.type === 'object' ? headerLists(header) : undefined,
    body: members?.get('text')?.raw,
    bodyBase64: members?.get('base64')?.raw,
    retries: members?.get('retries')?.raw ?? '0',
    callback: members?.get('callback')?.raw,
    failureCallback: members?.get('failureCallback')?.raw,
    isPaused: String(schedule.paused),
    nextScheduleTime: schedule.nextRunAt === null ? undefined : String(schedule.nextRunAt.getTime()),
  });
}

const getSchedule = route<FindSchedule>({
  method: 'GET',
  path: '/v2/schedules/:id',
  parse: ({ params }) => ({ type: 'find-schedule', id: params['id'] ?? '', scope: SCHEDULES }),
  render: ({ schedule }) =>
    schedule === null ? notFound('schedule') : jsonResponse(200, scheduleText(schedule)),
});

const listSchedules = route<ListSchedules>({
  method: 'GET',
  path: '/v2/schedules',
  parse: () => ({ type: 'list-schedules', scope: SCHEDULES, limit: 1_000, search: null }),
  render: ({ schedules }) => jsonResponse(200, `[${schedules.map(scheduleText).join(',')}]`),
});

function changeSchedule(act: 'pause' | 'resume' | 'delete') {
  return route<ChangeSchedule>({
    method: act === 'delete' ? 'DELETE' : 'PATCH',
    path: act === 'delete' ? '/v2/schedules/:id' : `/v2/schedules/:id/${act}`,
    body: 'any',
    parse: ({ params }) => ({ type: 'change-schedule', act, id: params['id'] ?? '', scope: SCHEDULES }),
    render: ({ changed }) => (changed ? { status: 200, body: null } : notFound('schedule')),
  });
}

export const qstashContracts: readonly Contract[] = [
  defineContract({
    name: 'qstash',
    service: 'notification',
    described: messagesDescribed,
    routes: [publish, enqueue, batch, getMessage, cancelMessage, cancelMessages],
    deliveries: [],
    errors,
  }),
  defineContract({
    name: 'qstash',
    service: 'scheduling',
    described: schedulesDescribed,
    routes: [
      createSchedule,
      getSchedule,
      listSchedules,
      changeSchedule('pause'),
      changeSchedule('resume'),
      changeSchedule('delete'),
    ],
    deliveries: [],
    errors,
  }),
  defineContract({
    name: 'qstash',
    service: 'retry',
    described: dlqDescribed,
    routes: [listDlq, deleteDlq, deleteDlqMany, retryDlq],
    deliveries: [],
    errors,
  }),
];
