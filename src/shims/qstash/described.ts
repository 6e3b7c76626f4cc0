/** What the routes of QStash's contract take and answer. Messages come in headers; bodies are any bytes. Pure data. */
import {
  anyText,
  count,
  type DescribedContract,
  given,
  list,
  ref,
  type Schema,
  shown,
  text,
  truth,
} from '../described.js';

const qstash = (name: string): Schema => ref('qstash', name);

const header = { type: 'object', additionalProperties: list(anyText) };
const message = {
  url: anyText,
  method: anyText,
  header,
  body: anyText,
  bodyBase64: anyText,
  maxRetries: count,
  notBefore: count,
  callback: anyText,
  failureCallback: anyText,
  label: anyText,
};
const schedule = shown(
  {
    scheduleId: anyText,
    cron: anyText,
    createdAt: count,
    destination: anyText,
    method: anyText,
    retries: count,
    isPaused: truth,
  },
  {
    header,
    body: anyText,
    bodyBase64: anyText,
    callback: anyText,
    failureCallback: anyText,
    nextScheduleTime: count,
  },
);

const duration = text(50, { pattern: '^(\\d+(\\.\\d+)?[smhd])+$', examples: ['10s'] });
const digits = text(12, { pattern: '^\\d+$' });
const OPTIONS: Readonly<Record<string, Schema>> = {
  'Upstash-Method': { type: 'string', enum: ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'], default: 'POST' },
  'Upstash-Retries': digits,
  'Upstash-Retry-Delay': text(1_000),
  'Upstash-Timeout': duration,
  'Upstash-Callback': text(2_000),
  'Upstash-Failure-Callback': text(2_000),
  'Upstash-Label': text(1_000),
};
const MESSAGE_OPTIONS: Readonly<Record<string, Schema>> = {
  ...OPTIONS,
  'Upstash-Delay': duration,
  'Upstash-Not-Before': digits,
  'Upstash-Deduplication-Id': text(400),
  'Upstash-Content-Based-Deduplication': { type: 'string', enum: ['true', 'false'] },
};

const published = shown({ messageId: anyText }, { deduplicated: { const: true } });
const nothing = { 200: { description: 'Done.' } };
const counted = (name: string) => ({ 200: { description: 'How many.', schema: shown({ [name]: count }) } });

const error = { mediaType: 'application/json', schema: qstash('Error') };
const schemas = { Error: shown({ error: anyText }) };

export const messagesDescribed: DescribedContract = {
  schemas: { ...schemas, Message: shown({ messageId: anyText, createdAt: count, url: anyText }, message) },
  error,
  routes: {
    'POST /v2/publish/*': {
      summary: 'Call a URL, now or later; it stands raw in the path',
      headers: MESSAGE_OPTIONS,
      answers: { 201: { description: 'Stored.', schema: published } },
    },
    'POST /v2/enqueue/*': {
      summary: 'The same, one at a time for each queue: /v2/enqueue/<queue>/<url>',
      headers: MESSAGE_OPTIONS,
      answers: { 201: { description: 'Stored.', schema: published } },
    },
    'POST /v2/batch': {
      summary: 'Up to 1,000 messages, all or none',
      request: {
        schema: list(
          given(
            { destination: text(2_000) },
            {
              headers: { type: 'object', additionalProperties: { type: 'string' } },
              body: anyText,
              queue: text(255),
            },
          ),
          1,
          1_000,
        ),
        examples: {
          two: [
            { destination: 'https://example.org/a', body: '{"n":1}', headers: { 'Upstash-Delay': '10s' } },
            { destination: 'https://example.org/b' },
          ],
        },
      },
      answers: { 201: { description: 'Stored.', schema: list(published) } },
    },
    'GET /v2/messages/:id': {
      summary: 'A message that is not delivered yet',
      answers: { 200: { description: 'As it waits.', schema: qstash('Message') } },
    },
    'DELETE /v2/messages/:id': { summary: 'Call one off', answers: counted('cancelled') },
    'DELETE /v2/messages': {
      summary: 'Call off many, or all',
      query: { messageIds: anyText, count: digits },
      answers: counted('cancelled'),
    },
  },
};

export const schedulesDescribed: DescribedContract = {
  schemas: { ...schemas, Schedule: schedule },
  error,
  routes: {
    'POST /v2/schedules/*': {
      summary: 'Call a URL by a cron expression; made, or changed by its id',
      headers: {
        ...OPTIONS,
        'Upstash-Cron': text(600, { examples: ['0 9 * * *', 'CRON_TZ=Europe/Paris 0 9 * * *'] }),
        'Upstash-Schedule-Id': text(200, { pattern: '^[\\w.:-]+$' }),
      },
      answers: { 201: { description: 'Made or changed.', schema: shown({ scheduleId: anyText }) } },
    },
    'GET /v2/schedules/:id': {
      summary: 'One schedule',
      answers: { 200: { description: 'As it stands.', schema: qstash('Schedule') } },
    },
    'GET /v2/schedules': {
      summary: 'All schedules',
      answers: { 200: { description: 'By name.', schema: list(qstash('Schedule')) } },
    },
    'PATCH /v2/schedules/:id/pause': { summary: 'No slot fires until it is resumed', answers: nothing },
    'PATCH /v2/schedules/:id/resume': { summary: 'Go on with the next slot', answers: nothing },
    'DELETE /v2/schedules/:id': { summary: 'Take it away', answers: nothing },
  },
};

export const dlqDescribed: DescribedContract = {
  schemas: {
    ...schemas,
    DeadMessage: shown(
      { messageId: anyText, createdAt: count, url: anyText, dlqId: anyText },
      { ...message, responseStatus: count, responseBody: anyText },
    ),
  },
  error,
  routes: {
    'GET /v2/dlq': {
      summary: 'Messages that were given up',
      query: { cursor: digits, count: digits },
      answers: {
        200: {
          description: 'A page.',
          schema: shown({ messages: list(qstash('DeadMessage')) }, { cursor: anyText }),
        },
      },
    },
    'DELETE /v2/dlq/:id': { summary: 'Put one aside', answers: nothing },
    'DELETE /v2/dlq': {
      summary: 'Put many aside, or all',
      query: { dlqIds: anyText, count: digits, cursor: digits },
      answers: counted('deleted'),
    },
    'POST /v2/dlq/retry': {
      summary: 'Try many again, or all',
      query: { dlqIds: anyText, count: digits, cursor: digits },
      answers: {
        200: {
          description: 'What was tried again.',
          schema: shown({ responses: list(shown({ messageId: anyText })) }),
        },
      },
    },
  },
};
