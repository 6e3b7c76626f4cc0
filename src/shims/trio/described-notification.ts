/** What the trio's notification routes take and answer, templates included. Pure data. */
import {
  anyText,
  anything,
  count,
  type DescribedContract,
  type DescribedRoute,
  given,
  integer,
  list,
  orNull,
  type Schema,
  shown,
  text,
  timeGiven,
  timeShown,
  truth,
  words,
} from '../described.js';
import { items, limit, trioError, trioRef, trioSchemas } from './described-common.js';

const channel = words('email', 'sms', 'push', 'webhook');
const status = words('accepted', 'retrying', 'sending', 'sent', 'failed', 'cancelled');
const EMAIL = { to: 'ann@example.org', template: 'order-paid', data: { orderId: 17, total: '5.00' } };

const notification = given(
  { to: text(2_000, { description: 'One bare mail address, a number, or the URL of a webhook.' }) },
  {
    template: text(500, { description: 'This or `body`.' }),
    channel: { ...channel, default: 'email' },
    locale: text(50, { default: 'en' }),
    data: { type: 'object' },
    reference: text(500),
    subject: text(998),
    body: text(500_000),
    sendAt: timeGiven,
    delayMs: integer(0, 316_224_000_000),
    priority: integer(-32_768, 32_767),
    dedupeKey: text(500),
    version: integer(1, 1_000_000_000),
    tags: list(text(100), 1, 20),
    unsubscribeUrl: text(2_000, { format: 'uri' }),
  },
);

const view = shown({
  id: anyText,
  status,
  to: anything,
  channel: anyText,
  template: orNull(anyText),
  locale: orNull(anyText),
  reference: orNull(anyText),
  attempts: count,
  error: orNull(anyText),
  createdAt: timeShown,
  updatedAt: timeShown,
  sentAt: orNull(timeShown),
});

const result: Schema = {
  oneOf: [
    shown({ index: count, id: anyText, status: { const: 'accepted' } }),
    shown({ index: count, status: { const: 'rejected' }, error: anyText }),
  ],
};

const parts: Schema = {
  type: 'object',
  properties: Object.fromEntries(
    ['subject', 'text', 'html', 'body'].map((part) => [part, orNull(text(262_144))]),
  ),
  minProperties: 1,
  additionalProperties: false,
};
const variant = shown({ locale: anyText, channel, parts }, { version: integer(1, 2_147_483_647) });

const one = (summary: string, word: string): DescribedRoute => ({
  summary,
  answers: {
    202: { description: 'Done.', schema: shown({ id: anyText, status: { const: word } }) },
    404: { description: 'There is none.', schema: trioRef('Problem') },
    409: { description: 'It is too late for it.', schema: trioRef('Problem') },
  },
});

const many = (summary: string, word: string): DescribedRoute => ({
  summary,
  request: {
    schema: given({}, { ids: list(text(500), 1, 500), reference: text(500), tag: text(100) }),
    examples: { tag: { tag: 'spring' }, reference: { reference: 'order-17' } },
  },
  answers: {
    202: {
      description: 'Up to 500; `more`: ask again.',
      schema: shown({ ids: list(anyText), status: { const: word }, notChanged: list(anyText), more: truth }),
    },
  },
});

export const notificationDescribed: DescribedContract = {
  schemas: {
    ...trioSchemas,
    Notification: notification,
    NotificationView: view,
    TemplateVariant: variant,
    TemplateParts: parts,
  },
  error: trioError,
  routes: {
    'POST /notifications': {
      summary: 'Send one notification',
      request: {
        schema: trioRef('Notification'),
        examples: {
          email: EMAIL,
          later: { ...EMAIL, sendAt: '2030-01-31T09:00:00Z', reference: 'order-17', tags: ['spring'] },
          sms: {
            to: '+15550100',
            channel: 'sms',
            template: 'order-shipped',
            data: { orderId: 17, parcel: 'P1' },
          },
          plain: { to: 'ann@example.org', subject: 'Hello', body: 'Without a template.', priority: 5 },
        },
      },
      answers: {
        202: {
          description: 'Stored; it will be sent.',
          schema: shown({ id: anyText, status: { const: 'accepted' } }),
          location: true,
        },
      },
    },
    'POST /notifications/batch': {
      summary: 'Send up to 100, each with its own answer',
      request: {
        schema: given({ notifications: list(anything, 1, 100) }),
        examples: { two: { notifications: [EMAIL, { ...EMAIL, to: 'bo@example.org' }] } },
      },
      answers: {
        202: {
          description: 'The good are stored, the bad are named.',
          schema: shown({ results: list(result) }),
        },
      },
    },
    'GET /notifications/:id': {
      summary: 'One notification, by its id or the key it was given',
      answers: { 200: { description: 'As it stands.', schema: trioRef('NotificationView') } },
    },
    'GET /notifications': {
      summary: 'Notifications, newest first',
      query: { status, reference: text(500), tag: text(100), before: timeGiven, limit },
      answers: { 200: { description: 'A page.', schema: items(trioRef('NotificationView')) } },
    },
    'POST /notifications/:id/cancel': one('Call one off', 'cancelled'),
    'POST /notifications/:id/send-now': one('Send one now', 'accepted'),
    'POST /notifications/cancel': many('Call off all that wait under a reference or a tag', 'cancelled'),
    'POST /notifications/send-now': many('Send now all that wait under a reference or a tag', 'accepted'),
    'GET /templates/:key': {
      summary: 'A template in all its locales and channels',
      query: { locale: text(50), channel, version: integer(1, 999_999_999) },
      answers: {
        200: {
          description: 'Without a version it is a file.',
          schema: shown({ key: anyText, variants: list(trioRef('TemplateVariant'), 1) }),
        },
      },
    },
    'GET /templates/:key/versions': {
      summary: 'Versions of a template, newest first',
      query: { limit },
      answers: {
        200: {
          description: 'Each variant that a version changed.',
          schema: items(
            shown({ version: count, locale: anyText, channel, deleted: truth, createdAt: timeShown }),
          ),
        },
      },
    },
    'PUT /templates/:key': {
      summary: 'Write a new version of a template',
      request: {
        schema: given(
          { parts: trioRef('TemplateParts') },
          { locale: text(50, { default: 'en' }), channel: { ...channel, default: 'email' } },
        ),
        examples: {
          email: { parts: { subject: 'Welcome {{name}}', text: 'Dear {{name}}.' } },
          sms: { channel: 'sms', locale: 'fr', parts: { text: 'Bonjour {{name}}' } },
        },
      },
      answers: {
        200: {
          description: 'The new version.',
          schema: shown({
            key: anyText,
            locale: anyText,
            channel,
            parts: trioRef('TemplateParts'),
            version: count,
          }),
        },
      },
    },
    'DELETE /templates/:key': {
      summary: 'A version without them; files of the same name are hidden',
      query: { locale: text(50), channel },
      answers: { 204: { description: 'Done.' } },
    },
    'POST /templates/:key/preview': {
      summary: 'What would be sent',
      request: {
        schema: given(
          {},
          {
            locale: text(50, { default: 'en' }),
            channel: { ...channel, default: 'email' },
            data: { type: 'object' },
            version: integer(1, 1_000_000_000),
          },
        ),
        examples: { email: { data: { name: 'Ann' } } },
      },
      answers: {
        200: {
          description: 'Rendered.',
          schema: shown(
            { key: anyText, locale: anyText, channel, parts: trioRef('TemplateParts') },
            { version: count },
          ),
        },
        422: { description: 'A variable is missing.', schema: trioRef('Problem') },
      },
    },
    'GET /suppressions': {
      summary: 'Who gets nothing, by channel and recipient',
      query: { channel, after: text(2_000, { description: 'With `channel`.' }), limit },
      answers: {
        200: {
          description: 'A page.',
          schema: items(
            shown({ channel, recipient: anyText, reason: orNull(anyText), createdAt: timeShown }),
          ),
        },
      },
    },
    'POST /suppressions': {
      summary: 'Put recipients on the list; all or none',
      request: {
        schema: given(
          { recipients: list(text(2_000), 1, 500) },
          { channel: { ...channel, default: 'email' }, reason: text(500) },
        ),
        examples: { bounced: { recipients: ['bo@example.org'], reason: 'bounce' } },
      },
      answers: {
        200: { description: 'Those that were not on it.', schema: shown({ channel, added: list(anyText) }) },
      },
    },
    'POST /suppressions/remove': {
      summary: 'Take recipients off the list',
      request: {
        schema: given(
          { recipients: list(text(2_000), 1, 500) },
          { channel: { ...channel, default: 'email' } },
        ),
        examples: { mail: { recipients: ['nobody@example.org'] } },
      },
      answers: {
        200: { description: 'Those that were on it.', schema: shown({ channel, removed: list(anyText) }) },
      },
    },
  },
};
