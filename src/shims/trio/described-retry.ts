/** What the trio's retry routes and those of dead letters take and answer. Pure data. */
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

const status = words('waiting', 'succeeded', 'dead');
const TARGET = { url: 'https://example.org/hook' };

const call = given(
  { url: text(2_000, { format: 'uri' }) },
  {
    method: words('GET', 'POST', 'PUT', 'PATCH', 'DELETE'),
    headers: { type: 'object', additionalProperties: { type: 'string' }, maxProperties: 60 },
    body: anything,
  },
);

const submission: Schema = {
  type: 'object',
  description: '`payload` and `target`, or `httpRequest`: the failed call as it was made.',
  properties: {
    payload: anything,
    target: orNull(trioRef('Target')),
    httpRequest: orNull(call),
    error: orNull(text(10_000)),
    attempt: orNull(integer(0, 1_000)),
    policy: orNull(trioRef('Policy')),
    expiresAt: orNull(timeGiven),
  },
  additionalProperties: false,
};

const view = shown({
  id: anyText,
  status,
  target: anything,
  payload: anything,
  attempt: count,
  policy: anything,
  error: orNull(anyText),
  nextAttemptAt: orNull(timeShown),
  attempts: list(shown({ attempt: count, at: timeShown, error: orNull(anyText) })),
  createdAt: timeShown,
});

const dead = shown({
  id: anyText,
  messageId: anyText,
  queue: anyText,
  routingKey: anyText,
  error: orNull(anyText),
  attempts: count,
  firstFailureAt: orNull(anyText),
  lastFailureAt: orNull(anyText),
  payload: anything,
});

const filter: Readonly<Record<string, Schema>> = {
  kind: text(1_000),
  error: text(1_000),
  source: text(1_000),
  from: timeGiven,
  to: timeGiven,
  before: text(18, { pattern: '^[1-9]\\d*$' }),
};

const many = (summary: string, member: string): DescribedRoute => ({
  summary,
  request: {
    schema: given(
      {},
      {
        ids: list(text(500), 1, 500),
        filter: { ...given({}, filter), minProperties: 1 },
        limit: integer(1, 500),
      },
    ),
    examples: { ids: { ids: ['17', '18'] }, filter: { filter: { kind: 'relay.http' }, limit: 100 } },
  },
  answers: {
    202: {
      description: 'Those that were dead; `notFound`: of the ids, the others.',
      schema: shown({ [member]: count, ids: list(anyText), notFound: list(anyText), more: truth }),
    },
  },
});

export const retryDescribed: DescribedContract = {
  schemas: { ...trioSchemas, Retry: view, DeadLetter: dead },
  error: trioError,
  routes: {
    'POST /retries': {
      summary: 'Try again later what failed',
      request: {
        schema: submission,
        examples: {
          payload: { payload: { orderId: 17 }, target: TARGET, error: 'HTTP 503' },
          call: {
            httpRequest: { ...TARGET, method: 'PUT', headers: { 'x-tenant': 'a' }, body: { orderId: 17 } },
            attempt: 2,
            policy: { type: 'fixed', delayMs: 60_000, maxAttempts: 5 },
          },
        },
      },
      answers: {
        202: {
          description: 'Stored.',
          schema: shown({ id: anyText, status: { const: 'waiting' } }),
          location: true,
        },
      },
    },
    'GET /retries/:id': {
      summary: 'One retry',
      answers: { 200: { description: 'As it stands.', schema: trioRef('Retry') } },
    },
    'GET /retries': {
      summary: 'Retries, newest first',
      query: { status, limit },
      answers: { 200: { description: 'A page.', schema: items(trioRef('Retry')) } },
    },
    'GET /dead-letters': {
      summary: 'All dead jobs, whichever door they came through',
      query: { ...filter, limit },
      answers: {
        200: {
          description: 'A page, and how many there are.',
          schema: shown({ items: list(trioRef('DeadLetter')), total: count }),
        },
      },
    },
    'GET /dead-letters/groups': {
      summary: 'By kind and by what killed them',
      query: filter,
      answers: {
        200: {
          description: 'The largest first.',
          schema: items(
            shown({
              kind: anyText,
              error: orNull(anyText),
              count,
              firstAt: timeShown,
              lastAt: timeShown,
              sampleId: anyText,
            }),
          ),
        },
      },
    },
    'GET /dead-letters/stats': {
      summary: 'How many of each kind',
      query: filter,
      answers: {
        200: {
          description: 'Counts.',
          schema: shown({
            total: count,
            kinds: { type: 'object', additionalProperties: count },
            oldestAt: orNull(timeShown),
          }),
        },
      },
    },
    'GET /dead-letters/:id': {
      summary: 'One dead letter',
      answers: { 200: { description: 'As it died.', schema: trioRef('DeadLetter') } },
    },
    'PATCH /dead-letters/:id': {
      summary: 'Another payload or target before it is replayed',
      request: {
        schema: {
          type: 'object',
          properties: { payload: anything, target: orNull(trioRef('Target')) },
          minProperties: 1,
          additionalProperties: false,
        },
        examples: { payload: { payload: { orderId: 18 } }, target: { target: TARGET } },
      },
      answers: { 200: { description: 'Changed.', schema: trioRef('DeadLetter') } },
    },
    'POST /dead-letters/replay': many('Try many again', 'replayed'),
    'POST /dead-letters/discard': many('Put many aside', 'discarded'),
    'POST /dead-letters/:id/replay': {
      summary: 'Try it again: due now, five more attempts',
      answers: {
        202: { description: 'Due now.', schema: shown({ id: anyText, status: { const: 'replayed' } }) },
      },
    },
    'POST /dead-letters/:id/discard': {
      summary: 'Put it aside',
      answers: { 204: { description: 'Cancelled, no longer listed.' } },
    },
  },
};
