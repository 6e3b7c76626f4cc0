/** What the routes of GOV.UK Notify's contract take and answer. Pure data. */
import {
  anyText,
  anything,
  count,
  type DescribedContract,
  type DescribedRoute,
  given,
  list,
  orNull,
  ref,
  type Schema,
  shown,
  text,
  timeGiven,
  timeShown,
  words,
} from './described.js';

const govuk = (name: string): Schema => ref('govuk-notify', name);

const uuid = text(36, { format: 'uuid' });
const type = words('email', 'sms');
const templateId = text(100, { description: 'The key of a template; a UUID is one.' });
const personalisation: Schema = { type: 'object' };

const optional = {
  personalisation,
  reference: text(500),
  scheduled_for: timeGiven,
  email_reply_to_id: anything,
  sms_sender_id: anything,
  one_click_unsubscribe_url: text(2_000, { format: 'uri' }),
  sanitise_content_for: anything,
};

const sent = (content: Schema): Schema =>
  shown({
    id: uuid,
    reference: orNull(anyText),
    content,
    uri: anyText,
    template: shown({ id: anyText, version: count, uri: anyText }),
    scheduled_for: orNull(timeShown),
  });

const notification = shown({
  id: uuid,
  reference: orNull(anyText),
  email_address: orNull(anyText),
  phone_number: orNull(anyText),
  type,
  status: words('created', 'sending', 'delivered', 'technical-failure', 'cancelled'),
  template: shown({ id: anyText, version: count, uri: anyText }),
  body: anyText,
  subject: orNull(anyText),
  created_at: timeShown,
  created_by_name: { type: 'null' },
  sent_at: orNull(timeShown),
  completed_at: orNull(timeShown),
  scheduled_for: orNull(timeShown),
  is_cost_data_ready: { const: false },
});

const template = shown(
  {
    id: anyText,
    name: anyText,
    type,
    created_at: orNull(timeShown),
    updated_at: orNull(timeShown),
    created_by: anyText,
    version: count,
    body: anyText,
    letter_contact_block: { type: 'null' },
    postage: { type: 'null' },
  },
  { subject: anyText },
);

const read: DescribedRoute = {
  summary: 'A template as it is now',
  answers: { 200: { description: 'The template.', schema: govuk('Template') } },
};

export const govukDescribed: DescribedContract = {
  schemas: {
    Error: shown({
      status_code: { type: 'integer', minimum: 400, maximum: 599 },
      errors: list(shown({ error: anyText, message: anyText }), 1),
    }),
    Notification: notification,
    Template: template,
  },
  error: { mediaType: 'application/json', schema: govuk('Error') },
  routes: {
    'POST /v2/notifications/email': {
      summary: 'Send a mail',
      request: {
        schema: given(
          { template_id: templateId, email_address: text(320) },
          { ...optional, phone_number: anything },
        ),
        examples: {
          email: {
            template_id: 'order-paid',
            email_address: 'ann@example.org',
            personalisation: { orderId: 17, total: '5.00' },
            reference: 'order-17',
          },
        },
      },
      answers: {
        201: {
          description: 'Stored.',
          schema: sent(shown({ body: anyText }, { subject: anyText })),
          location: true,
        },
      },
    },
    'POST /v2/notifications/sms': {
      summary: 'Send a text message',
      request: {
        schema: given(
          { template_id: templateId, phone_number: text(320) },
          { ...optional, email_address: anything },
        ),
        examples: {
          sms: {
            template_id: 'order-shipped',
            phone_number: '+447700900000',
            personalisation: { orderId: 17, parcel: 'P1' },
          },
        },
      },
      answers: {
        201: {
          description: 'Stored.',
          schema: sent(shown({ body: anyText, from_number: { type: 'null' } })),
          location: true,
        },
      },
    },
    'POST /v2/notifications/letter': {
      summary: 'Letters are not sent: always refused',
      request: { schema: { type: 'object' }, examples: { letter: { template_id: 'order-paid' } } },
      answers: { 400: { description: 'Service is not allowed to send letters.', schema: govuk('Error') } },
    },
    'GET /v2/notifications/:id': {
      summary: 'One notification',
      answers: { 200: { description: 'As it stands.', schema: govuk('Notification') } },
    },
    'GET /v2/notifications/:id/pdf': {
      summary: 'Of letters: there are none',
      answers: { 400: { description: 'Notification is not a letter.', schema: govuk('Error') } },
    },
    'GET /v2/notifications': {
      summary: 'Notifications, newest first',
      query: { template_type: type, status: anyText, reference: text(500), older_than: uuid },
      answers: {
        200: {
          description: 'A page.',
          schema: shown({
            notifications: list(govuk('Notification')),
            links: shown({ current: anyText }, { next: anyText }),
          }),
        },
      },
    },
    'GET /v2/received-text-messages': {
      summary: 'None are received',
      query: { older_than: uuid },
      answers: {
        200: {
          description: 'An empty list.',
          schema: shown({ received_text_messages: list(anything), links: shown({ current: anyText }) }),
        },
      },
    },
    'GET /v2/templates': {
      summary: 'All templates',
      query: { type: words('email', 'sms', 'letter') },
      answers: {
        200: { description: 'By id.', schema: shown({ templates: list(govuk('Template')) }) },
      },
    },
    'GET /v2/template/:id': read,
    'GET /v2/template/:id/version/:version': { ...read, summary: 'A template as it was' },
    'POST /v2/template/:id/preview': {
      summary: 'What would be sent',
      request: {
        schema: given({}, { personalisation }),
        examples: { email: { personalisation: { name: 'Ann' } } },
      },
      answers: {
        200: {
          description: 'Rendered.',
          schema: shown(
            {
              id: anyText,
              type,
              version: count,
              body: anyText,
              html: orNull(anyText),
              postage: { type: 'null' },
            },
            { subject: anyText },
          ),
        },
      },
    },
  },
};
