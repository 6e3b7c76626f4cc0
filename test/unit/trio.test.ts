/** The trio's contract as pure functions: a request in, a job out; a row in, the old answer out. */
import { describe, expect, it } from 'vitest';
import type { Job } from '../../src/jobs/job.js';
import { readJson } from '../../src/json-text.js';
import {
  type AnyRoute,
  type Contract,
  type ContractContext,
  type Enqueue,
  isRefusal,
  type Parsed,
  type ShimJob,
  type ShimResponse,
} from '../../src/shims/contract.js';
import { lastError, withoutPlaces } from '../../src/shims/trio/common.js';
import { notificationContract } from '../../src/shims/trio/notification.js';
import { retryContract } from '../../src/shims/trio/retry.js';
import { schedulingContract } from '../../src/shims/trio/scheduling.js';

const CONTEXT: ContractContext = {
  knowsKind: (kind) => ['notify.email', 'relay.http', 'bill.send'].includes(kind),
  targets: { 'exchange:schedule.events': 'schedule.event', 'queue:mails': 'notify.email' },
  channels: null,
  renderer: null,
  refuseUrl: () => null,
};

function routeOf(contract: Contract, method: string, path: string): AnyRoute {
  const found = contract.routes.find((route) => route.method === method && route.path === path);
  if (found === undefined) throw new Error(`no route ${method} ${path}`);
  return found;
}

function parse(contract: Contract, method: string, path: string, body?: string, context = CONTEXT): Parsed {
  const request = {
    params: { id: '7' },
    query: new Map<string, string>(),
    headers: {},
    bytes: Buffer.alloc(0),
    rest: '',
    body: body === undefined ? null : readJson(body),
  };
  const parsed = routeOf(contract, method, path).parse(request, context);
  if (isRefusal(parsed)) throw parsed;
  return parsed as Parsed;
}

const jobOf = (contract: Contract, path: string, body: string): ShimJob =>
  (parse(contract, 'POST', path, body) as Enqueue).jobs[0] as ShimJob;

function render(
  contract: Contract,
  method: string,
  path: string,
  result: unknown,
  parsed?: Parsed,
): ShimResponse {
  const response = routeOf(contract, method, path).render(result, parsed ?? ({ type: 'find' } as Parsed));
  if (isRefusal(response)) return contract.errors(response);
  return response;
}

const AT = new Date('2024-03-01T10:00:00Z');
const job = (change: Partial<Job> = {}): Job => ({
  id: '7',
  kind: 'notify.email',
  state: 'ready',
  priority: 0,
  runAt: AT,
  attempts: 0,
  maxAttempts: 20,
  lockedUntil: null,
  lockedBy: null,
  dedupeKey: null,
  orderingKey: null,
  waitsForTurn: false,
  payloadText: '{"to": "ann@example.org", "template": "hello", "n": 9007199254740993}',
  bodyBytes: null,
  contentType: null,
  headers: null,
  source: 'trio:notification',
  progress: null,
  errors: [],
  result: null,
  createdAt: AT,
  finishedAt: null,
  ...change,
});
const FAILED = { at: '2024-03-01T10:00:01+00:00', attempt: 1, name: 'Error', message: 'HTTP 503' };

describe('notifications in', () => {
  it('become a job whose payload is the client\u2019s own text', () => {
    const made = jobOf(
      notificationContract,
      '/notifications',
      '{"to":"ann@example.org","template":"hello","data":{"n":9007199254740993, "x":1.10},"reference":"r-1"}',
    );
    expect(made).toEqual({
      kind: 'notify.email',
      source: 'trio:notification',
      payloadText:
        '{"to":"ann@example.org","template":"hello","channel":"email","locale":"en","data":{"n":9007199254740993, "x":1.10},"reference":"r-1"}',
    });
  });

  it('carry when, how urgent and which', () => {
    const made = jobOf(
      notificationContract,
      '/notifications',
      '{"to":"+1","channel":"sms","body":"hi","sendAt":"2030-01-01T00:00:00Z","priority":-5,"dedupeKey":"k","data":null,"reference":null}',
    );
    expect(made).toMatchObject({
      kind: 'notify.sms',
      runAt: new Date('2030-01-01T00:00:00Z'),
      priority: -5,
      dedupeKey: 'k',
    });
    expect(made.payloadText).toBe('{"to":"+1","channel":"sms","locale":"en","body":"hi"}');
  });

  it('in a batch keep their places', () => {
    const parsed = parse(
      notificationContract,
      'POST',
      '/notifications/batch',
      '{"notifications":[{"to":""},{"to":"a@b.example","body":"x"},{"to":"c@d.example","body":"y"}]}',
    );
    const { body } = render(
      notificationContract,
      'POST',
      '/notifications/batch',
      { enqueued: [{ id: '1' }, { id: '2' }], jobs: [] },
      parsed,
    );
    expect(JSON.parse(body ?? '')).toEqual({
      results: [
        { index: 0, status: 'rejected', error: expect.stringContaining('to') },
        { index: 1, id: '1', status: 'accepted' },
        { index: 2, id: '2', status: 'accepted' },
      ],
    });
  });
});

describe('notifications out', () => {
  const view = (change: Partial<Job>) =>
    JSON.parse(render(notificationContract, 'GET', '/notifications/:id', job(change)).body ?? '') as Record<
      string,
      unknown
    >;

  it.each<[string, Partial<Job>]>([
    ['accepted', {}],
    ['retrying', { attempts: 1, errors: [FAILED] }],
    ['sending', { state: 'running', attempts: 1 }],
    ['sent', { state: 'done', attempts: 1, finishedAt: AT }],
    ['failed', { state: 'dead', attempts: 3, finishedAt: AT, errors: [FAILED] }],
    ['cancelled', { state: 'cancelled', finishedAt: AT }],
  ])('%s', (status, change) => {
    expect(view(change)['status']).toBe(status);
  });

  it('shows the last error until it is sent', () => {
    expect(view({ attempts: 1, errors: [FAILED] })).toMatchObject({
      error: 'HTTP 503',
      updatedAt: '2024-03-01T10:00:01.000Z',
      sentAt: null,
    });
    expect(view({ state: 'done', attempts: 2, errors: [FAILED], finishedAt: AT })).toMatchObject({
      error: null,
      sentAt: AT.toISOString(),
    });
  });

  it('shows a row that a drain brought, whatever is in it', () => {
    expect(view({ payloadText: null, bodyBytes: 3 })).toMatchObject({
      to: null,
      template: null,
      locale: 'en',
    });
    expect(view({ payloadText: '[1]' })).toMatchObject({ to: null });
    expect(view({ payloadText: '{"to": "</script>\\u2028", "reference": 17}' })).toMatchObject({
      to: '</script>\u2028',
      reference: 17,
    });
  });

  it('says what is not there, and what is too late', () => {
    expect(render(notificationContract, 'GET', '/notifications/:id', null)).toMatchObject({
      status: 404,
      headers: { 'content-type': 'application/problem+json' },
    });
    const late = render(notificationContract, 'POST', '/notifications/:id/cancel', {
      changed: false,
      job: job({ state: 'done', finishedAt: AT }),
    });
    expect(late.status).toBe(409);
    expect(JSON.parse(late.body ?? '')).toMatchObject({
      error: 'conflict',
      message: 'the notification is sent',
    });
    expect(
      render(notificationContract, 'POST', '/notifications/:id/cancel', { changed: true, job: job() }).body,
    ).toBe('{"id":"7","status":"cancelled"}');
  });
});

describe('schedules', () => {
  it.each([
    [
      '{"delayMs":5,"target":{"url":"http://a.example/"},"payload":{"n":1.10},"name":"n"}',
      'relay.http',
      '{"url":"http://a.example/","key":"n","data":{"n":1.10}}',
    ],
    [
      '{"delayMs":5,"target":{"url":"http://a.example/"}}',
      'relay.http',
      '{"url":"http://a.example/","data":null}',
    ],
    [
      '{"delayMs":5,"target":{"kind":"bill.send"},"payload":9007199254740993}',
      'bill.send',
      '9007199254740993',
    ],
    ['{"delayMs":5,"payload":[1]}', 'schedule.event', '[1]'],
    ['{"delayMs":5,"target":null}', 'schedule.event', 'null'],
    [
      '{"delayMs":5,"target":{"queue":"mails"},"payload":{"to":"a@b.example","body":"x"}}',
      'notify.email',
      '{"to":"a@b.example","channel":"email","locale":"en","body":"x"}',
    ],
    [
      '{"delayMs":5,"target":{"exchange":"notifications","routingKey":"notification.hello.sms"},"payload":{"to":"+1"}}',
      'notify.sms',
      '{"to":"+1","template":"hello","channel":"sms","locale":"en"}',
    ],
    [
      '{"delayMs":5,"target":{"queue":"notification.work"},"payload":{"to":"a@b.example","template":"hello"}}',
      'notify.email',
      '{"to":"a@b.example","template":"hello","channel":"email","locale":"en"}',
    ],
  ])('%s', (body, kind, payloadText) => {
    expect(jobOf(schedulingContract, '/schedules', body)).toMatchObject({ kind, payloadText, delayMs: 5 });
  });

  it('keep name and target; a delay wins over a time, as it did', () => {
    const made = jobOf(
      schedulingContract,
      '/schedules',
      '{"delayMs":5,"runAt":"2030-01-01T00:00:00Z","name":"weekly","target":{"exchange":"notifications","routingKey":"notification.hello.email"},"payload":{"to":"a@b.example"}}',
    );
    expect(made).toMatchObject({
      source: 'trio:schedule:weekly',
      delayMs: 5,
      headers: { target: { exchange: 'notifications', routingKey: 'notification.hello.email' } },
    });
    expect(made).not.toHaveProperty('runAt');
  });

  it('come back as they were given', () => {
    const row = job({
      kind: 'relay.http',
      source: 'trio:schedule:weekly',
      headers: { target: { url: 'http://a.example/' } },
      payloadText: '{"url": "http://a.example/", "data": {"n": 9007199254740993}}',
    });
    const { body } = render(schedulingContract, 'GET', '/schedules/:id', { schedule: null, job: row });
    expect(body).toContain('"payload":{"n": 9007199254740993}');
    expect(JSON.parse(body ?? '')).toMatchObject({
      name: 'weekly',
      status: 'scheduled',
      target: { url: 'http://a.example/' },
      firedAt: null,
    });
    expect(
      JSON.parse(
        render(schedulingContract, 'GET', '/schedules/:id', {
          schedule: null,
          job: { ...row, source: 'trio:schedule' },
        }).body ?? '',
      ),
    ).toMatchObject({ name: '7' });
  });

  it.each<[Partial<Job>, boolean, number]>([
    [{ state: 'cancelled', finishedAt: AT }, true, 204],
    [{ state: 'cancelled', finishedAt: AT }, false, 204],
    [{ state: 'running' }, false, 409],
    [{ state: 'done', finishedAt: AT }, false, 409],
    [{ state: 'dead', finishedAt: AT }, false, 409],
  ])('%#: cancelled with %s', (change, changed, status) => {
    expect(
      render(schedulingContract, 'DELETE', '/schedules/:id', { changed, schedule: null, job: job(change) })
        .status,
    ).toBe(status);
  });
});

describe('retries', () => {
  const TARGET = '"target":{"url":"http://a.example/"}';
  const made = (more: string): ShimJob => jobOf(retryContract, '/retries', `{"payload":1,${TARGET}${more}}`);

  it.each([
    ['', { delayMs: 1_000, maxAttempts: 4, attempts: 1, dead: false }],
    [',"attempt":0', { delayMs: 1_000, maxAttempts: 4, attempts: 0, dead: false }],
    [',"attempt":3', { delayMs: 60_000, maxAttempts: 4, attempts: 3, dead: false }],
    [',"attempt":4', { delayMs: 0, maxAttempts: 4, attempts: 4, dead: true }],
    [
      ',"policy":{"type":"fixed","delayMs":50,"maxAttempts":3},"attempt":2',
      { delayMs: 50, maxAttempts: 3, attempts: 2, dead: false },
    ],
    [
      ',"policy":{"type":"fixed","delayMs":50,"maxAttempts":3},"attempt":3',
      { delayMs: 0, maxAttempts: 3, attempts: 3, dead: true },
    ],
    [
      ',"policy":{"type":"exponential","baseMs":100,"maxAttempts":9},"attempt":4',
      { delayMs: 800, maxAttempts: 9, attempts: 4, dead: false },
    ],
    [
      ',"policy":{"type":"exponential","baseMs":100,"factor":3,"maxMs":500,"maxAttempts":9},"attempt":4',
      { delayMs: 500, maxAttempts: 9, attempts: 4, dead: false },
    ],
    [
      ',"policy":{"type":"ladder","delaysMs":[5,7]},"attempt":2',
      { delayMs: 7, maxAttempts: 3, attempts: 2, dead: false },
    ],
    [
      ',"policy":{"type":"ladder","delaysMs":[5,7],"maxAttempts":2},"attempt":2',
      { delayMs: 0, maxAttempts: 2, attempts: 2, dead: true },
    ],
    [
      ',"policy":{"type":"ladder","delaysMs":[5,7],"maxAttempts":99},"attempt":1',
      { delayMs: 5, maxAttempts: 3, attempts: 1, dead: false },
    ],
  ])('%s', (more, { delayMs, maxAttempts, attempts, dead }) => {
    expect(made(more)).toMatchObject({
      kind: 'relay.http',
      delayMs,
      maxAttempts,
      carried: { attempts, dead },
    });
  });

  it('send the payload as it is, without an envelope', () => {
    expect(
      jobOf(retryContract, '/retries', `{"payload":{"n":9007199254740993},${TARGET},"error":"boom"}`),
    ).toMatchObject({
      payloadText: '{"url":"http://a.example/","body":{"n":9007199254740993}}',
      carried: { error: { name: 'Error', message: 'boom' } },
    });
    expect(jobOf(retryContract, '/retries', `{"payload":null,${TARGET}}`).payloadText).toBe(
      '{"url":"http://a.example/","body":null}',
    );
  });

  it('show their own attempts only', () => {
    const row = job({
      kind: 'relay.http',
      source: 'trio:retry',
      state: 'done',
      attempts: 4,
      finishedAt: AT,
      headers: { attempt: 2, target: { url: 'http://a.example/' }, policy: null },
      payloadText: '{"url": "http://a.example/", "body": "x"}',
      errors: [
        { ...FAILED, attempt: 2 },
        { ...FAILED, attempt: 3 },
      ],
    });
    expect(JSON.parse(render(retryContract, 'GET', '/retries/:id', row).body ?? '')).toEqual({
      id: '7',
      status: 'succeeded',
      target: { url: 'http://a.example/' },
      payload: 'x',
      attempt: 4,
      policy: null,
      error: null,
      nextAttemptAt: null,
      attempts: [
        { attempt: 3, at: '2024-03-01T10:00:01.000Z', error: 'HTTP 503' },
        { attempt: 4, at: AT.toISOString(), error: null },
      ],
      createdAt: AT.toISOString(),
    });
  });

  it.each<[Partial<Job>, Record<string, unknown>]>([
    [{}, { queue: 'notification.work', routingKey: 'notification.hello.email', messageId: '7' }],
    [{ dedupeKey: 'order-17-receipt' }, { messageId: 'order-17-receipt' }],
    [{ source: 'trio:schedule:x', kind: 'relay.http' }, { queue: 'schedule.due' }],
    [{ source: 'trio:retry', kind: 'relay.http' }, { queue: 'retry.scheduled' }],
    [
      { source: 'amqp:q', kind: 'bill.send' },
      { queue: 'bill.send', routingKey: 'bill.send' },
    ],
    [
      {
        source: 'rabbitmq:/shop/manual-review#3f2a',
        headers: {
          amqp: {
            messageId: 'order-17-receipt',
            routingKey: 'manual-review',
            headers: {
              'x-original-queue': 'notification.work',
              'x-original-routing-key': 'notification.hello.email',
              'x-first-failure': '2023-01-01T00:00:00.000Z',
              'x-last-failure': '2023-01-02T00:00:00.000Z',
            },
          },
        },
        errors: [FAILED],
      },
      {
        messageId: 'order-17-receipt',
        queue: 'notification.work',
        routingKey: 'notification.hello.email',
        firstFailureAt: '2023-01-01T00:00:00.000Z',
        lastFailureAt: '2023-01-02T00:00:00.000Z',
      },
    ],
    [
      { source: 'rabbitmq:/shop/old.dlq#3f2a', kind: 'unmapped', headers: { amqp: { routingKey: 'a.b' } } },
      { queue: 'old.dlq', routingKey: 'a.b', messageId: '7' },
    ],
    [
      { errors: [FAILED, { ...FAILED, at: '2024-03-02T00:00:00Z', message: 'last' }] },
      {
        error: 'last',
        firstFailureAt: '2024-03-01T10:00:01.000Z',
        lastFailureAt: '2024-03-02T00:00:00.000Z',
      },
    ],
    [{ payloadText: null }, { payload: null }],
  ])('%#: a dead letter says where it would have lain', (change, wanted) => {
    const { body } = render(retryContract, 'GET', '/dead-letters', {
      jobs: [job({ state: 'dead', finishedAt: AT, ...change })],
      total: 3,
    });
    const answer = JSON.parse(body ?? '') as { items: unknown[]; total: number };
    expect(answer.total).toBe(3);
    expect(answer.items[0]).toMatchObject(wanted);
  });
});

describe('a row’s message, as a client of the door is told it', () => {
  it.each([
    ['fetch failed: connect ECONNREFUSED 10.0.0.7:8080', 'fetch failed: connect ECONNREFUSED'],
    [
      'all failed: connect ECONNREFUSED ::1:5432; connect ECONNREFUSED 127.0.0.1:5432',
      'all failed: connect ECONNREFUSED; connect ECONNREFUSED',
    ],
    ['getaddrinfo ENOTFOUND db.internal: it is away', 'getaddrinfo ENOTFOUND: it is away'],
    ['connect ENOENT /var/run/app/.s.PGSQL.5432', 'connect ENOENT'],
    [
      'Connect Timeout Error (attempted addresses: 10.0.0.1:443, 10.0.0.2:443, timeout: 1000ms)',
      'Connect Timeout Error (attempted addresses: (address), (address), timeout: 1000ms)',
    ],
    ['HTTP 503 from bills.example.org', 'HTTP 503 from bills.example.org'],
    ['ERROR 4711 of version 1.2.3: EMAIL is missing', 'ERROR 4711 of version 1.2.3: EMAIL is missing'],
  ])('%s', (message, told) => {
    expect(withoutPlaces(message)).toBe(told);
    const errors = [{ at: '2026-01-02T03:04:05Z', attempt: 1, name: 'Error', message }];
    expect(lastError({ state: 'dead', errors } as unknown as Job)).toBe(told);
    expect(lastError({ state: 'done', errors } as unknown as Job)).toBeNull();
  });
});
