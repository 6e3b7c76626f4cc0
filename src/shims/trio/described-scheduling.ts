/** What the trio's scheduling routes take and answer. Pure data. */
import {
  anyText,
  anything,
  count,
  type DescribedContract,
  type DescribedRoute,
  integer,
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

const status = words('scheduled', 'fired', 'cancelled', 'failed', 'paused', 'ended');
const misfire = words('skip', 'once', 'all');
const TARGET = { url: 'https://example.org/hook' };

const members: Readonly<Record<string, Schema>> = {
  name: text(255),
  runAt: timeGiven,
  delayMs: integer(0, 316_224_000_000),
  cron: text(10_000, { description: '5 or 6 fields, a nickname (@daily) or @every 90s.' }),
  timeZone: text(100, { description: 'IANA name; default UTC.' }),
  misfire,
  paused: truth,
  expiresAt: timeGiven,
  target: trioRef('Target'),
  retry: trioRef('Policy'),
};

/** Any member may be null, which counts as not given. */
const body = (more: Schema, without: readonly string[] = []): Schema => ({
  type: 'object',
  properties: {
    ...Object.fromEntries(
      Object.entries(members)
        .filter(([name]) => !without.includes(name))
        .map(([name, schema]) => [name, orNull(schema)]),
    ),
    payload: anything,
  },
  additionalProperties: false,
  ...more,
});

const oneOff = shown(
  {
    id: anyText,
    name: anyText,
    status,
    runAt: timeShown,
    target: anything,
    payload: anything,
    attempts: count,
    error: orNull(anyText),
    createdAt: timeShown,
    firedAt: orNull(timeShown),
  },
  { expiresAt: orNull(anyText) },
);
const cron = shown({
  id: anyText,
  name: anyText,
  status,
  runAt: orNull(timeShown),
  cron: anyText,
  timeZone: anyText,
  misfire,
  expiresAt: orNull(timeShown),
  target: anything,
  payload: anything,
  createdAt: timeShown,
});
const made: Schema = {
  oneOf: [
    trioRef('CronSchedule'),
    shown({ id: anyText, name: anyText, status: { const: 'scheduled' }, runAt: timeShown }),
  ],
};
const either: Schema = { oneOf: [trioRef('CronSchedule'), trioRef('Schedule')] };
const conflict = { description: 'It is too late, or its name is there.', schema: trioRef('Problem') };

const EXAMPLES = {
  later: { delayMs: 3_600_000, target: TARGET, payload: { orderId: 17 } },
  at: { runAt: '2030-01-31T09:00:00Z', expiresAt: '2030-02-01T00:00:00Z', target: TARGET },
  cron: { cron: '0 9 * * MON-FRI', timeZone: 'Europe/Paris', target: TARGET, payload: { report: 'daily' } },
  retried: {
    delayMs: 0,
    target: TARGET,
    retry: { type: 'exponential', baseMs: 1_000, factor: 2, maxAttempts: 5 },
  },
};

const act = (summary: string, answer: DescribedRoute['answers']): DescribedRoute => ({
  summary,
  answers: { ...answer, 409: conflict },
});

export const schedulingDescribed: DescribedContract = {
  schemas: { ...trioSchemas, Schedule: oneOff, CronSchedule: cron },
  error: trioError,
  routes: {
    'POST /schedules': {
      summary: 'Make a schedule: once, or by a cron expression',
      request: { schema: body({}), examples: EXAMPLES },
      answers: { 201: { description: 'Made.', schema: made, location: true }, 409: conflict },
    },
    'PUT /schedules/:name': {
      summary: 'Make the schedule of a name, or change it',
      request: { schema: body({}), examples: EXAMPLES },
      answers: {
        200: { description: 'Changed.', schema: made, location: true },
        201: { description: 'Made: a cron of that name was not there.', schema: made, location: true },
        409: conflict,
      },
    },
    'GET /schedules/:id': {
      summary: 'One schedule',
      answers: { 200: { description: 'As it stands.', schema: either } },
    },
    'GET /schedules': {
      summary: 'Schedules: crons first',
      query: { status, name: text(255), limit },
      answers: { 200: { description: 'A page.', schema: items(either) } },
    },
    'DELETE /schedules/:id': {
      summary: 'Take it away',
      answers: { 204: { description: 'Gone.' }, 409: conflict },
    },
    'PATCH /schedules/:id': {
      summary: 'Change it; what is not given stays',
      request: {
        schema: body({ minProperties: 1 }, ['name']),
        examples: { payload: { payload: { orderId: 18 } }, later: { delayMs: 7_200_000 } },
      },
      answers: { 200: { description: 'Changed.', schema: either }, 409: conflict },
    },
    'POST /schedules/:id/pause': act('No slot fires until it is resumed; crons only', {
      200: { description: 'Paused.', schema: trioRef('CronSchedule') },
    }),
    'POST /schedules/:id/resume': act('Go on with the next slot', {
      200: { description: 'Goes on.', schema: trioRef('CronSchedule') },
    }),
    'POST /schedules/:id/trigger': act('Fire it now, beside its slots', {
      202: {
        description: 'One job more, or the one-off itself.',
        schema: shown({ id: anyText, status: { const: 'triggered' } }),
      },
    }),
    'GET /schedules/:id/next-runs': {
      summary: 'Its slots ahead',
      query: { count: { ...limit, default: 5 } },
      answers: { 200: { description: 'Times.', schema: items(timeShown) } },
    },
    'GET /schedules/:id/history': {
      summary: 'What it fired, newest first',
      query: { limit, before: text(18, { pattern: '^[1-9]\\d*$' }) },
      answers: {
        200: {
          description: 'While the jobs are kept.',
          schema: items(
            shown({
              id: anyText,
              status,
              runAt: timeShown,
              attempts: count,
              error: orNull(anyText),
              firedAt: orNull(timeShown),
            }),
          ),
        },
      },
    },
  },
};
