/**
 * The trio's notification service: send, batch, read, list, cancel, send now; read and preview templates. A
 * notification is a job of kind `notify.<channel>`; its id is the job's.
 */
import type { Job, JobState } from '../../jobs/job.js';
import type { JobSearch } from '../../jobs/store.js';
import { type JsonNode, objectText, type PlainJson, toPlain } from '../../json-text.js';
import {
  CHANNELS,
  type Channel,
  DEFAULT_LOCALE,
  isChannel,
  isHeaderText,
  isLocale,
  isMailAddress,
  isTemplateKey,
  MessageError,
} from '../../notify/message.js';
import {
  type Answer,
  type Change,
  type ChangeResult,
  type ContractContext,
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
  type ShimRequest,
  type ShimResponse,
} from '../contract.js';
import { type Fields, objectOf as fieldsOf, invalid, limitOf, parseTime, queryOf } from '../fields.js';
import {
  changedAt,
  lastError,
  listText,
  memberText,
  objectOf,
  payloadOf,
  text,
  time,
  trioErrors,
} from './common.js';

const SOURCE = 'trio:notification';
const SCOPE = { kindPrefix: 'notify.' };
const MAX_BATCH = 100;
const FIELDS = [
  'to',
  'template',
  'channel',
  'locale',
  'data',
  'reference',
  'subject',
  'body',
  'sendAt',
  'delayMs',
  'priority',
  'dedupeKey',
] as const;

type Field = (typeof FIELDS)[number];

/** What a routing key or a surrounding request says, where the body does not. */
export interface NotificationDefaults {
  readonly template?: string;
  readonly channel?: string;
}

const notFound = (): Refusal => new Refusal(404, 'not-found', 'no such notification');

/** One notification as a job. Also what schedules and retries carry. Throws Refusal. */
export function readNotification(
  node: JsonNode | null,
  context: ContractContext,
  defaults: NotificationDefaults = {},
  what = 'body',
): ShimJob {
  const fields = fieldsOf(node, FIELDS, what);
  const to = fields.line('to', 2_000);
  if (to === undefined) throw invalid('to is missing');
  const channel = channelOf(fields.text('channel', 20)?.value ?? defaults.channel ?? 'email', context);
  checkRecipient(channel, to.value, context);
  const locale = fields.text('locale', 50)?.value ?? DEFAULT_LOCALE;
  if (!isLocale(locale)) throw invalid('locale is not a locale');
  const template = fields.text('template', 500)?.value ?? defaults.template ?? null;
  const data = fields.object('data');
  const body = fields.text('body', 500_000);
  const subject = fields.line('subject', 998);
  if (template === null && body === undefined) throw invalid('template is missing');
  if (template !== null && body !== undefined) throw invalid('give template or body, not both');
  if (template !== null)
    checkTemplate(template, channel, locale, data === undefined ? {} : toPlain(data), context);
  const reference = fields.line('reference', 500);
  return {
    kind: `notify.${channel}`,
    payloadText: objectText({
      to: to.raw,
      template: template === null ? undefined : text(template),
      channel: text(channel),
      locale: text(locale),
      data: data?.raw,
      reference: reference?.raw,
      subject: subject?.raw,
      body: body?.raw,
    }),
    source: SOURCE,
    ...optionsOf(fields),
  };
}

function optionsOf(fields: Fields<Field>): Pick<ShimJob, 'runAt' | 'delayMs' | 'priority' | 'dedupeKey'> {
  const runAt = fields.time('sendAt');
  const delayMs = fields.integer('delayMs', 0, MAX_DELAY_MS);
  if (runAt !== undefined && delayMs !== undefined) throw invalid('give sendAt or delayMs, not both');
  const priority = fields.integer('priority', -32_768, 32_767);
  const dedupeKey = fields.line('dedupeKey', 500)?.value;
  return {
    ...(runAt === undefined ? {} : { runAt }),
    ...(delayMs === undefined ? {} : { delayMs }),
    ...(priority === undefined ? {} : { priority }),
    ...(dedupeKey === undefined ? {} : { dedupeKey }),
  };
}

/** Ten years. */
export const MAX_DELAY_MS = 10 * 366 * 24 * 3_600_000;

function channelOf(channel: string, context: ContractContext): Channel {
  if (!isChannel(channel)) throw invalid(`channel is none of ${CHANNELS.join(', ')}`);
  if (context.channels !== null && !context.channels.includes(channel))
    throw new Refusal(
      422,
      'channel-unserved',
      `no provider is configured for it; add notify.${channel} to the config`,
    );
  return channel;
}

function checkRecipient(channel: Channel, to: string, context: ContractContext): void {
  if (channel === 'email' && !isMailAddress(to))
    throw new Refusal(422, 'recipient-invalid', 'to is not one mail address');
  const refused = channel === 'webhook' ? context.refuseUrl(to) : null;
  if (refused !== null) throw new Refusal(422, 'recipient-invalid', `to cannot be called: ${refused}`);
}

/** A name that could not be a template, or is none, can never be sent: say so while somebody listens. */
function checkTemplate(
  key: string,
  channel: Channel,
  locale: string,
  data: PlainJson,
  { renderer }: ContractContext,
): void {
  if (!isTemplateKey(key)) throw templateUnknown();
  if (renderer === null) return;
  const variant = renderer.find(key, channel, locale);
  if (variant === null) throw templateUnknown();
  const subject = renderer.renderSubject(variant, data);
  if (subject !== null && !isHeaderText(subject))
    throw new Refusal(
      422,
      'control-characters',
      'data puts a line break into the subject, or makes it too long',
    );
}

const templateUnknown = (): Refusal =>
  new Refusal(422, 'template-unknown', 'there is no such template for this channel and locale');

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
    const { status, reference, before, limit } = queryOf(request, ['status', 'reference', 'before', 'limit']);
    const wanted = status === undefined ? {} : Object.hasOwn(STATUSES, status) ? STATUSES[status] : null;
    if (wanted === null) throw invalid(`status is none of ${Object.keys(STATUSES).join(', ')}`);
    const createdBefore = before === undefined ? undefined : parseTime(before);
    if (createdBefore === null) throw invalid('before is not a time');
    const search: JobSearch = {
      ...SCOPE,
      ...wanted,
      ...(reference === undefined ? {} : { reference }),
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

const TEMPLATES_ELSEWHERE = new Refusal(
  422,
  'unsupported',
  'templates are files now: edit them in the folder that notify.templates names',
);

function answer(status: number, value: unknown): Answer {
  return { type: 'answer', response: jsonResponse(status, JSON.stringify(value)) };
}

const showTemplate = route<Find>({
  method: 'GET',
  path: '/templates/:key',
  parse({ params }, { renderer }) {
    const variants = renderer?.variants(params['key'] ?? '') ?? [];
    if (variants.length === 0) return new Refusal(404, 'not-found', 'no such template');
    return answer(200, { key: params['key'], variants });
  },
  render: () => notFound(),
});

const preview = route<Find>({
  method: 'POST',
  path: '/templates/:key/preview',
  verb: 'read',
  parse: (request, context) => previewOf(request, context),
  render: () => notFound(),
});

function previewOf(request: ShimRequest, { renderer }: ContractContext): Answer | Refusal {
  const fields = fieldsOf(request.body, ['locale', 'channel', 'data']);
  const locale = fields.text('locale', 50)?.value ?? DEFAULT_LOCALE;
  const channel = fields.text('channel', 20)?.value ?? 'email';
  const data = fields.object('data');
  if (!isLocale(locale) || !isChannel(channel)) throw invalid('locale or channel is not valid');
  const key = request.params['key'] ?? '';
  if (renderer === null || renderer.variants(key).length === 0)
    return new Refusal(404, 'not-found', 'no such template');
  try {
    return answer(200, {
      key,
      ...renderer.render(key, channel, locale, data === undefined ? {} : toPlain(data)),
    });
  } catch (error) {
    if (error instanceof MessageError) return new Refusal(422, 'render-failed', error.message);
    throw error;
  }
}

function noEdit(method: 'PUT' | 'DELETE') {
  return route<Find>({
    method,
    path: '/templates/:key',
    parse: () => TEMPLATES_ELSEWHERE,
    render: () => notFound(),
  });
}

export const notificationContract = defineContract({
  name: 'trio',
  service: 'notification',
  routes: [
    send,
    sendBatch,
    read,
    list,
    change('cancel', '/notifications/:id/cancel', 'cancelled'),
    change('run-now', '/notifications/:id/send-now', 'accepted'),
    showTemplate,
    preview,
    noEdit('PUT'),
    noEdit('DELETE'),
  ],
  deliveries: [{ exchange: 'notifications', routingKey: 'notification.#' }],
  errors: trioErrors,
});
