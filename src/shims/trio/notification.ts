/**
 * The trio's notification service: send, batch, read, list, cancel, send now. A notification is a job of kind
 * `notify.<channel>`; its id is the job's.
 */
import type { Job, JobState } from '../../jobs/job.js';
import type { JobSearch } from '../../jobs/operator-store.js';
import { objectText } from '../../json-text.js';
import { DEFAULT_LOCALE } from '../../notify/message.js';
import {
  type Change,
  type ChangeMany,
  type ChangeResult,
  defineContract,
  type Enqueue,
  type EnqueueResult,
  type Find,
  isRefusal,
  jsonResponse,
  type List,
  Refusal,
  route,
  type ShimJob,
  type ShimResponse,
} from '../contract.js';
import { objectOf as fieldsOf, invalid, limitOf, parseTime, queryOf } from '../fields.js';
import {
  changedAt,
  idsOf,
  lastError,
  listText,
  memberText,
  objectOf,
  payloadOf,
  text,
  time,
  trioErrors,
} from './common.js';
import { notificationDescribed } from './described-notification.js';
import { readNotification } from './notification-body.js';
import { suppressionRoutes } from './suppressions.js';
import { templateRoutes } from './templates.js';

const SCOPE = { kindPrefix: 'notify.' };
const MAX_BATCH = 100;
const MAX_IDS = 500;

const notFound = (): Refusal => new Refusal(404, 'not-found', 'no such notification');

function accepted(result: EnqueueResult): ShimResponse {
  const id = result.enqueued[0]?.id ?? '';
  return jsonResponse(202, `{"id":"${id}","status":"accepted"}`, { location: `/notifications/${id}` });
}

const send = route<Enqueue>({
  method: 'POST',
  path: '/notifications',
  parse: (request, context) => ({ type: 'enqueue', jobs: [readNotification(request.body, context)] }),
  render: accepted,
});

/** Each item's own answer, as the old service gave it: a bad one does not hold up the others. */
interface Batch extends Enqueue {
  /** null: the next job; else why not. */
  readonly refusals: readonly (Refusal | null)[];
}

const sendBatch = route<Batch>({
  method: 'POST',
  path: '/notifications/batch',
  parse(request, context) {
    const list = fieldsOf(request.body, ['notifications']).array('notifications', MAX_BATCH);
    if (list === undefined) throw invalid(`notifications is not a list of 1 to ${MAX_BATCH}`);
    const jobs: ShimJob[] = [];
    const refusals = list.items.map((item) => {
      try {
        jobs.push(readNotification(item, context, {}, 'the item'));
        return null;
      } catch (error) {
        if (isRefusal(error)) return error;
        throw error;
      }
    });
    return { type: 'enqueue', jobs, refusals };
  },
  render({ enqueued }, { refusals }) {
    let next = 0;
    const results = refusals.map((refusal, index) => {
      if (refusal !== null) return { index, status: 'rejected', error: refusal.detail };
      next += 1;
      return { index, id: enqueued[next - 1]?.id, status: 'accepted' };
    });
    return jsonResponse(202, JSON.stringify({ results }));
  },
});

const read = route<Find>({
  method: 'GET',
  path: '/notifications/:id',
  parse: ({ params }) => ({ type: 'find', id: params['id'] ?? '', scope: SCOPE }),
  render: (job) => (job === null ? notFound() : jsonResponse(200, viewText(job))),
});

/** Their words for our states; `retried` tells accepted from retrying. */
const STATUSES: Readonly<Record<string, { states: readonly JobState[]; retried?: boolean }>> = {
  accepted: { states: ['ready'], retried: false },
  retrying: { states: ['ready'], retried: true },
  sending: { states: ['running'] },
  sent: { states: ['done'] },
  failed: { states: ['dead'] },
  cancelled: { states: ['cancelled'] },
};

const list = route<List>({
  method: 'GET',
  path: '/notifications',
  parse(request) {
    const { status, reference, tag, before, limit } = queryOf(request, [
      'status',
      'reference',
      'tag',
      'before',
      'limit',
    ]);
    if (reference !== undefined && tag !== undefined) throw invalid('give reference or tag, not both');
    const wanted = status === undefined ? {} : Object.hasOwn(STATUSES, status) ? STATUSES[status] : null;
    if (wanted === null) throw invalid(`status is none of ${Object.keys(STATUSES).join(', ')}`);
    const createdBefore = before === undefined ? undefined : parseTime(before);
    if (createdBefore === null) throw invalid('before is not a time');
    const search: JobSearch = {
      ...SCOPE,
      ...wanted,
      ...(reference === undefined ? {} : { reference }),
      ...(tag === undefined ? {} : { tag }),
      ...(createdBefore === undefined ? {} : { createdBefore }),
      limit: limitOf(limit),
    };
    return { type: 'list', search };
  },
  render: (jobs) => jsonResponse(200, listText(jobs.map(viewText))),
});

function change(act: 'cancel' | 'run-now', path: string, status: string) {
  return route<Change>({
    method: 'POST',
    path,
    body: 'none',
    parse: ({ params }) => ({ type: 'change', act, id: params['id'] ?? '', scope: SCOPE }),
    render: (result) => changed(result, status),
  });
}

/** All that wait under a reference or a tag; again for the rest, when `more` says so. */
function changeAll(act: 'cancel' | 'run-now', path: string, status: string) {
  return route<ChangeMany>({
    method: 'POST',
    path,
    parse(request) {
      const fields = fieldsOf(request.body, ['reference', 'tag', 'ids']);
      const ids = idsOf(fields.array('ids', MAX_IDS));
      const reference = fields.text('reference', 500)?.value;
      const tag = fields.text('tag', 100)?.value;
      if ([ids, reference, tag].filter((one) => one !== undefined).length !== 1)
        throw invalid('give exactly one of ids, reference and tag');
      const states: readonly JobState[] = ['ready'];
      const search = { ...(tag === undefined ? { reference: reference ?? '' } : { tag }), states, limit: 1 };
      const of = ids === undefined ? { search } : { ids };
      return { type: 'change-many', act, of, scope: SCOPE, limit: MAX_IDS };
    },
    render: ({ changed: ids, missed, more }) =>
      jsonResponse(202, JSON.stringify({ ids, status, notChanged: missed, more })),
  });
}

function changed({ changed: done, job }: ChangeResult, status: string): ShimResponse | Refusal {
  if (job === null) return notFound();
  if (!done) return new Refusal(409, 'conflict', `the notification is ${statusOf(job)}`);
  return jsonResponse(202, `{"id":"${job.id}","status":"${status}"}`);
}

export function statusOf(job: Job): string {
  const found = Object.entries(STATUSES).find(
    ([, { states, retried }]) =>
      states.includes(job.state) && (retried === undefined || retried === job.attempts > 0),
  );
  return found?.[0] ?? job.state;
}

/** As the old service showed it; what the client wrote comes back as it wrote it. */
function viewText(job: Job): string {
  const payload = objectOf(payloadOf(job));
  return objectText({
    id: text(job.id),
    status: text(statusOf(job)),
    to: memberText(payload, 'to'),
    channel: text(job.kind.replace(/^notify\./, '')),
    template: memberText(payload, 'template'),
    locale: payload?.members.get('locale')?.raw ?? text(DEFAULT_LOCALE),
    reference: memberText(payload, 'reference'),
    attempts: String(job.attempts),
    error: text(lastError(job)),
    createdAt: time(job.createdAt),
    updatedAt: time(changedAt(job)),
    sentAt: time(job.state === 'done' ? job.finishedAt : null),
  });
}

export const notificationContract = defineContract({
  name: 'trio',
  service: 'notification',
  described: notificationDescribed,
  routes: [
    send,
    sendBatch,
    read,
    list,
    change('cancel', '/notifications/:id/cancel', 'cancelled'),
    change('run-now', '/notifications/:id/send-now', 'accepted'),
    changeAll('cancel', '/notifications/cancel', 'cancelled'),
    changeAll('run-now', '/notifications/send-now', 'accepted'),
    ...templateRoutes,
    ...suppressionRoutes,
  ],
  deliveries: [{ exchange: 'notifications', routingKey: 'notification.#' }],
  errors: trioErrors,
});
