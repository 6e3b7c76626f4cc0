/**
 * GOV.UK Notify's contract, as notifications-node-client speaks it. A template id is a template's key; ids of
 * notifications are the jobs' ids, written as UUIDs because clients keep them in columns of that type. Pure.
 */
import type { Job } from '../jobs/job.js';
import type { JobSearch } from '../jobs/operator-store.js';
import { type ObjectNode, objectText, readJson, toPlain } from '../json-text.js';
import { MessageError } from '../notify/message.js';
import type { KeyedTemplate, TemplateVariant } from '../notify/templates.js';
import {
  answerRoute,
  type ContractContext,
  defineContract,
  type Enqueue,
  type Find,
  jsonResponse,
  type List,
  type ListTemplates,
  type ListTemplateVersions,
  Refusal,
  route,
  type ShimRequest,
  type ShimResponse,
} from './contract.js';
import { type Fields, objectOf as fieldsOf, queryOf } from './fields.js';
import { govukDescribed } from './govuk-described.js';
import { headerOf, memberText, objectOf, payloadOf } from './trio/common.js';
import { readNotification } from './trio/notification-body.js';

const SOURCE = 'govuk-notify';
const SCOPE = { kindPrefix: 'notify.', sourcePrefix: SOURCE };
const LOCALE = 'en';

const ERRORS: Readonly<Record<number, string>> = {
  400: 'BadRequestError',
  401: 'AuthError',
  403: 'AuthError',
  404: 'NoResultFound',
  422: 'ValidationError',
  429: 'RateLimitError',
};

/** What this house calls unprocessable is a bad request there. */
function errors({ status, detail }: Refusal): ShimResponse {
  const shown = status === 422 || status === 409 ? 400 : status === 401 ? 403 : status;
  const error = ERRORS[status] ?? 'Exception';
  return jsonResponse(shown, JSON.stringify({ status_code: shown, errors: [{ error, message: detail }] }));
}

const notFound = (): Refusal => new Refusal(404, 'not-found', 'No result found');

type Type = 'email' | 'sms';
const RECIPIENT = { email: 'email_address', sms: 'phone_number' } as const;

/** 64 bits of the id in a UUID of version 8. */
export function uuidOf(jobId: string): string {
  const hex = BigInt(jobId).toString(16).padStart(16, '0');
  return `0000${hex.slice(0, 4)}-0000-8000-8000-${hex.slice(4)}`;
}

/** `0` for what is no such UUID: it finds nothing. */
export function jobIdOf(uuid: string): string {
  const parts = /^0000([0-9a-f]{4})-0000-8000-8000-([0-9a-f]{12})$/.exec(uuid);
  return parts === null ? '0' : BigInt(`0x${parts[1]}${parts[2]}`).toString();
}

interface Content {
  readonly subject?: string;
  readonly body: string;
}

interface Send extends Enqueue {
  readonly template: { readonly id: string; readonly version: number };
  readonly reference: string | null;
  readonly content: Content;
  readonly kind: Type;
  readonly scheduledFor: string | null;
}

const FIELDS = [
  'template_id',
  'email_address',
  'phone_number',
  'personalisation',
  'reference',
  'scheduled_for',
  'email_reply_to_id',
  'sms_sender_id',
  'one_click_unsubscribe_url',
  'sanitise_content_for',
] as const;

function send(type: Type) {
  return route<Send>({
    method: 'POST',
    path: `/v2/notifications/${type}`,
    parse: (request, context) => parseSend(type, request, context),
    render({ enqueued: [job] }, { template, reference, content, kind, scheduledFor }) {
      const id = uuidOf(job?.id ?? '0');
      const uri = `/v2/notifications/${id}`;
      const body = {
        id,
        reference,
        content: { ...content, ...(kind === 'email' ? {} : { from_number: null }) },
        uri,
        template: { ...template, uri: `/v2/template/${template.id}` },
        scheduled_for: scheduledFor,
      };
      return jsonResponse(201, JSON.stringify(body), { location: uri });
    },
  });
}

function parseSend(type: Type, { body }: ShimRequest, context: ContractContext): Send {
  const fields = fieldsOf(body, FIELDS);
  const key = fields.text('template_id', 100)?.value;
  const to = fields.line(RECIPIENT[type], 320);
  if (key === undefined) throw new Refusal(400, 'invalid', 'template_id is a required property');
  if (to === undefined) throw new Refusal(400, 'invalid', `${RECIPIENT[type]} is a required property`);
  const variant = find(key, type, null, context);
  const data = fields.object('personalisation');
  refuseFiles(data);
  const content = contentOf(render(variant, key, data === undefined ? {} : toPlain(data), context));
  const scheduledFor = fields.time('scheduled_for');
  const reference = fields.line('reference', 500);
  const unsubscribe = unsubscribeOf(fields, context);
  const text = objectText({
    to: to.raw,
    template: JSON.stringify(key),
    channel: JSON.stringify(type),
    locale: JSON.stringify(LOCALE),
    data: data?.raw,
    reference: reference?.raw,
    unsubscribeUrl: unsubscribe,
  });
  const job = readNotification(readJson(text), context);
  const headers = { govuk: { content: { ...content }, scheduledFor: scheduledFor?.toISOString() ?? null } };
  return {
    type: 'enqueue',
    jobs: [
      { ...job, source: SOURCE, headers, ...(scheduledFor === undefined ? {} : { runAt: scheduledFor }) },
    ],
    template: { id: key, version: variant.version ?? 1 },
    reference: reference?.value ?? null,
    content,
    kind: type,
    scheduledFor: scheduledFor?.toISOString() ?? null,
  };
}

function unsubscribeOf(
  fields: Fields<(typeof FIELDS)[number]>,
  context: ContractContext,
): string | undefined {
  const url = fields.line('one_click_unsubscribe_url', 2_000);
  if (url === undefined) return undefined;
  if (!url.value.startsWith('https://') || context.refuseUrl(url.value) !== null)
    throw new Refusal(400, 'invalid', 'one_click_unsubscribe_url is not a valid https url');
  return url.raw;
}

function find(
  key: string,
  type: Type | null,
  version: number | null,
  { renderer }: ContractContext,
): TemplateVariant {
  const types: readonly Type[] = type === null ? ['email', 'sms'] : [type];
  for (const one of types) {
    const variant = renderer?.find(key, one, LOCALE, version) ?? null;
    if (variant !== null) return variant;
  }
  throw type === null ? notFound() : new Refusal(400, 'template-unknown', 'Template not found');
}

function render(
  variant: TemplateVariant,
  key: string,
  data: unknown,
  { renderer }: ContractContext,
): TemplateVariant['parts'] {
  try {
    const { version = null, channel, locale } = variant;
    return renderer?.render(key, channel, locale === 'default' ? LOCALE : locale, data, version).parts ?? {};
  } catch (error) {
    // Names what is missing, never a value.
    if (error instanceof MessageError)
      throw new Refusal(400, 'render-failed', `Missing personalisation: ${error.message}`);
    throw error;
  }
}

/** What `prepareUpload` makes; the service keeps such a file and prints a link to it. */
function refuseFiles(data: ObjectNode | undefined): void {
  for (const value of data?.members.values() ?? [])
    if (value.type === 'object' && value.members.has('file'))
      throw new Refusal(400, 'unsupported', 'Sending files by email is not served');
}

function contentOf({ subject, text, html }: TemplateVariant['parts']): Content {
  return { ...(subject === undefined ? {} : { subject }), body: text ?? html ?? '' };
}

const readOne = route<Find>({
  method: 'GET',
  path: '/v2/notifications/:id',
  parse: ({ params }) => ({ type: 'find', id: jobIdOf(params['id'] ?? ''), scope: SCOPE }),
  render: (job) => (job === null ? notFound() : jsonResponse(200, viewText(job))),
});

/** Their words for our states, each with what they are asked for. */
const STATUSES: Readonly<Record<string, readonly Job['state'][]>> = {
  created: ['ready'],
  sending: ['running'],
  delivered: ['done'],
  'technical-failure': ['dead'],
  cancelled: ['cancelled'],
};
const ASKED: Readonly<Record<string, readonly Job['state'][]>> = {
  ...STATUSES,
  sent: ['done'],
  failed: ['dead'],
  'permanent-failure': ['dead'],
  'temporary-failure': ['dead'],
};

interface Listing extends List {
  readonly asked: string;
  readonly kind: string | null;
}

const list = route<Listing>({
  method: 'GET',
  path: '/v2/notifications',
  parse(request) {
    const given = queryOf(request, ['template_type', 'status', 'reference', 'older_than']);
    const { template_type: type, status, reference, older_than: olderThan } = given;
    if (type !== undefined && type !== 'email' && type !== 'sms')
      throw new Refusal(400, 'invalid', 'template_type is not one of [sms, email]');
    const states = status === undefined ? undefined : Object.hasOwn(ASKED, status) ? ASKED[status] : null;
    if (states === null) throw new Refusal(400, 'invalid', 'status is not one of those known');
    const kind = type === undefined ? null : `notify.${type}`;
    const search: JobSearch = {
      kindPrefix: kind ?? 'notify.',
      sourcePrefix: SOURCE,
      ...(states === undefined ? {} : { states }),
      ...(reference === undefined ? {} : { reference }),
      ...(olderThan === undefined ? {} : { beforeId: jobIdOf(olderThan) }),
      limit: PAGE,
    };
    const asked = new URLSearchParams(given).toString();
    return { type: 'list', search, asked, kind };
  },
  render(jobs, { asked, kind: wanted }) {
    // By a reference all notifications are found that have it, whichever door and type they are of.
    const own = jobs.filter(({ source, kind }) => source === SOURCE && kind === (wanted ?? kind));
    const current = `/v2/notifications${asked === '' ? '' : `?${asked}`}`;
    // A short page may have been cut; the service itself gives the link with every page that is not empty.
    const oldest = jobs.at(-1);
    const links = {
      current,
      ...(oldest === undefined ? {} : { next: `/v2/notifications?older_than=${uuidOf(oldest.id)}` }),
    };
    return jsonResponse(
      200,
      `{"notifications":[${own.map(viewText).join(',')}],"links":${JSON.stringify(links)}}`,
    );
  },
});

const PAGE = 200;

function viewText(job: Job): string {
  const payload = objectOf(payloadOf(job));
  const content = (headerOf(job, 'govuk', 'content') ?? {}) as Partial<Content>;
  const type = job.kind.slice('notify.'.length);
  const to = memberText(payload, 'to');
  const template = payload?.members.get('template');
  const id = template?.type === 'string' ? template.value : '';
  const version = payload?.members.get('version')?.raw ?? '1';
  const status = Object.entries(STATUSES).find(([, states]) => states.includes(job.state))?.[0];
  const isDone = job.finishedAt !== null;
  return objectText({
    id: JSON.stringify(uuidOf(job.id)),
    reference: memberText(payload, 'reference'),
    email_address: type === 'email' ? to : 'null',
    phone_number: type === 'sms' ? to : 'null',
    type: JSON.stringify(type),
    status: JSON.stringify(status ?? 'created'),
    template: `{"id":${JSON.stringify(id)},"version":${version},"uri":${JSON.stringify(`/v2/template/${id}/version/${version}`)}}`,
    body: JSON.stringify(content.body ?? ''),
    subject: JSON.stringify(content.subject ?? null),
    created_at: JSON.stringify(job.createdAt),
    created_by_name: 'null',
    sent_at: JSON.stringify(job.state === 'done' ? job.finishedAt : null),
    completed_at: JSON.stringify(isDone ? job.finishedAt : null),
    scheduled_for: JSON.stringify(headerOf(job, 'govuk', 'scheduledFor') ?? null),
    is_cost_data_ready: 'false',
  });
}

interface ShowTemplate extends ListTemplateVersions {
  readonly variant: TemplateVariant;
}

function showTemplate(path: string) {
  return route<ShowTemplate>({
    method: 'GET',
    path,
    parse({ params }, context) {
      const { id: key = '', version } = params;
      if (version !== undefined && !/^[1-9]\d{0,8}$/.test(version)) return notFound();
      const variant = find(key, null, version === undefined ? null : Number(version), context);
      // Of one that is not there yet, the template as it is now is what is found.
      if (version !== undefined && (variant.version ?? 1) !== Number(version)) return notFound();
      return { type: 'list-template-versions', key, limit: 200, variant };
    },
    render(versions, { key, variant }) {
      const dated = versions.find((one) => one.version <= (variant.version ?? 1));
      const [createdAt, changedAt] = [versions.at(-1)?.createdAt ?? null, dated?.createdAt ?? null];
      return jsonResponse(200, JSON.stringify(templateOf(key, variant, createdAt, changedAt)));
    },
  });
}

/** A template that is only a file has no dates. */
function templateOf(
  key: string,
  { channel, parts, version = 1 }: TemplateVariant,
  createdAt: Date | null,
  changedAt: Date | null,
) {
  return {
    id: key,
    name: key,
    type: channel,
    created_at: createdAt,
    updated_at: changedAt,
    created_by: 'unbroker',
    version,
    ...contentOf(parts),
    letter_contact_block: null,
    postage: null,
  };
}

const MAX_TEMPLATES = 10_000;

interface ListAll extends ListTemplates {
  readonly types: readonly string[];
  readonly files: readonly KeyedTemplate[];
}

const listTemplates = route<ListAll>({
  method: 'GET',
  path: '/v2/templates',
  parse(request, { renderer }) {
    const { type } = queryOf(request, ['type']);
    if (type !== undefined && !['email', 'sms', 'letter'].includes(type))
      throw new Refusal(422, 'invalid', `type is not one of [sms, email, letter]`);
    const types = type === undefined ? ['email', 'sms'] : [type];
    return { type: 'list-templates', limit: MAX_TEMPLATES, types, files: renderer?.files() ?? [] };
  },
  render(rows, { types, files }) {
    const written = rows.map(({ key, createdAt, changedAt, ...row }) => ({ key, createdAt, changedAt, row }));
    const there = new Set(rows.map(({ key, locale, channel }) => `${key} ${locale} ${channel}`));
    const onlyFiles = files.flatMap(({ key, variants }) =>
      variants
        .filter(({ locale, channel }) => !there.has(`${key} ${locale} ${channel}`))
        .map((row) => ({ key, createdAt: null, changedAt: null, row })),
    );
    const byLocale = LISTED.map((wanted) =>
      [...written, ...onlyFiles].filter(({ row }) => row.locale === wanted && types.includes(row.channel)),
    );
    // One of each key and type: that of the language, before the one for all.
    const first = new Map<string, ReturnType<typeof templateOf>>();
    for (const { key, row, createdAt, changedAt } of byLocale.flat()) {
      const { parts, channel } = row;
      const name = `${key} ${channel}`;
      if (parts !== null && !first.has(name))
        first.set(name, templateOf(key, { ...row, parts }, createdAt, changedAt));
    }
    const templates = [...first.values()].sort((a, b) => (a.id < b.id ? -1 : 1));
    return jsonResponse(200, JSON.stringify({ templates }));
  },
});

const LISTED = [LOCALE, 'default'];

/** As the service answers one that has no letters; nothing here prints. */
const sendLetter = answerRoute({
  method: 'POST',
  path: '/v2/notifications/letter',
  parse: () => new Refusal(400, 'unsupported', 'Service is not allowed to send letters'),
});

const letterPdf = route<Find>({
  method: 'GET',
  path: '/v2/notifications/:id/pdf',
  parse: ({ params }) => ({ type: 'find', id: jobIdOf(params['id'] ?? ''), scope: SCOPE }),
  render: (job) =>
    job === null ? notFound() : new Refusal(422, 'not-a-letter', 'Notification is not a letter'),
});

/** Texts of others do not come here: there are none. */
const receivedTexts = answerRoute({
  method: 'GET',
  path: '/v2/received-text-messages',
  parse(request) {
    queryOf(request, ['older_than']);
    const links = { current: '/v2/received-text-messages' };
    return {
      type: 'answer',
      response: jsonResponse(200, JSON.stringify({ received_text_messages: [], links })),
    };
  },
});

const preview = answerRoute({
  method: 'POST',
  path: '/v2/template/:id/preview',
  verb: 'read',
  parse({ params, body }, context) {
    const fields = fieldsOf(body, ['personalisation']);
    const key = params['id'] ?? '';
    const variant = find(key, null, null, context);
    const data = fields.object('personalisation');
    refuseFiles(data);
    const parts = render(variant, key, data === undefined ? {} : toPlain(data), context);
    const answer = {
      id: key,
      type: variant.channel,
      version: variant.version ?? 1,
      ...contentOf(parts),
      html: parts.html ?? null,
      postage: null,
    };
    return { type: 'answer', response: jsonResponse(200, JSON.stringify(answer)) };
  },
});

export const govukNotifyContract = defineContract({
  name: 'govuk-notify',
  service: 'notification',
  auth: 'jwt',
  described: govukDescribed,
  routes: [
    send('email'),
    send('sms'),
    sendLetter,
    readOne,
    letterPdf,
    list,
    receivedTexts,
    listTemplates,
    showTemplate('/v2/template/:id'),
    showTemplate('/v2/template/:id/version/:version'),
    preview,
  ],
  deliveries: [],
  errors,
});
