/** The trio's dialect: each queue of test/legacy/README.md, with the shapes that lie in it. */
import { describe, expect, test } from 'vitest';
import { array, death, int, map, NOW_MS, text } from './delivery-builder.js';

const RULES = { rules: [] };
const notification = { to: 'ann@example.org', template: 'order-receipt', data: { id: 1 } };
const body = JSON.stringify(notification);
const iso = (ms: number) => new Date(ms).toISOString();
const wait = { role: 'wait' as const, ttlMs: 60_000, feeders: [] };
const ladder = {
  'x-original-queue': text('notification.work'),
  'x-original-exchange': text('notifications'),
  'x-original-routing-key': text('notification.order-receipt.sms'),
};

describe('notifications', () => {
  test('in the work queue: notify.<channel>, the body unchanged', () => {
    const { job, note } = map(
      {
        queue: 'notification.work',
        exchange: 'notifications',
        routingKey: 'notification.order-receipt.email',
        body,
      },
      RULES,
    );
    expect(job).toMatchObject({
      kind: 'notify.email',
      payloadText: body,
      attempts: 0,
      state: 'ready',
      runAtMs: null,
    });
    expect(note).toBe('trio');
  });

  test('on a rung: the first publish decides, the headers count and date it', () => {
    const due = NOW_MS + 7_000;
    const headers = { ...ladder, 'x-retry-count': int(2), 'x-retry-due': text(iso(due)) };
    const parts = {
      queue: 'retry.wait.60000',
      exchange: 'retry.wait.60000',
      routingKey: 'notification.work',
      headers,
      body,
    };
    const mapped = map(parts, { ...RULES, facts: wait });
    expect(mapped.job).toMatchObject({ kind: 'notify.sms', attempts: 2, runAtMs: due, state: 'ready' });
    expect(mapped.runAtExact).toBe(true);
  });

  test('back in the work queue: due now, its attempts kept', () => {
    const headers = { ...ladder, 'x-retry-count': int(1), 'x-retry-due': text(iso(NOW_MS + 60_000)) };
    const { job } = map(
      { queue: 'notification.work', routingKey: 'notification.work', headers, body },
      RULES,
    );
    expect(job).toMatchObject({ kind: 'notify.sms', attempts: 1, runAtMs: null });
  });

  test('just rejected: dead in its dead-letter queue, one attempt', () => {
    const headers = {
      'x-death': array(
        death({
          queue: 'notification.work',
          reason: 'rejected',
          count: 1,
          exchange: 'notifications',
          keys: ['notification.order-receipt.email'],
        }),
      ),
    };
    const parts = {
      queue: 'notification.dlq',
      exchange: 'retry.dlx',
      routingKey: 'notification.order-receipt.email',
      headers,
      body,
    };
    expect(map(parts, { ...RULES, facts: { role: 'dead' } }).job).toMatchObject({
      kind: 'notify.email',
      state: 'dead',
      attempts: 1,
      error: { name: 'dead-letter-rejected' },
    });
  });

  test('parked: dead with the last error and all attempts', () => {
    const headers = {
      ...ladder,
      'x-retry-count': int(3),
      'x-error': text('550 no such user'),
      'x-permanent': { tag: 't' as const, value: true },
    };
    expect(
      map({ queue: 'manual-review', headers, body }, { ...RULES, facts: { role: 'dead' } }).job,
    ).toMatchObject({
      kind: 'notify.sms',
      state: 'dead',
      attempts: 4,
      error: { name: 'permanent', message: '550 no such user' },
    });
  });
});

describe('schedules', () => {
  const schedule = (target: unknown, data: unknown = notification) =>
    JSON.stringify({ id: 's1', key: 'reminder', runAt: iso(NOW_MS + 90_000), target, data, attempt: 1 });
  const waiting = (text: string, rules: Parameters<typeof map>[1] = RULES) =>
    map(
      { queue: 'schedule.wait.90000', body: text, properties: { type: 'schedule' } },
      { ...rules, facts: { ...wait, ttlMs: 90_000 } },
    ).job;

  test('for the notification service: its job, the carried data as written, due when it says', () => {
    const data = '{"to":"a@example.org","n":9007199254740993}';
    const text = `{"id":"s1","key":"k","runAt":"${iso(NOW_MS + 90_000)}","target":{"exchange":"notifications","routingKey":"notification.reminder.email"},"data":${data},"attempt":1}`;
    expect(waiting(text)).toMatchObject({
      kind: 'notify.email',
      payloadText: data,
      runAtMs: NOW_MS + 90_000,
      state: 'ready',
    });
  });

  test('for a URL: relay.http with url, key and data', () => {
    const job = waiting(schedule({ url: 'https://example.org/hook' }));
    expect(job.kind).toBe('relay.http');
    expect(JSON.parse(job.payloadText ?? '')).toEqual({
      url: 'https://example.org/hook',
      key: 'reminder',
      data: notification,
    });
  });

  test('for an exchange or nobody: by the rule of where it would be fired, the body unchanged', () => {
    const rules = [
      { match: { exchange: 'schedule.events', routingKey: 'reminder' }, kind: 'order.remind' },
      { match: { exchange: 'billing' }, kind: 'billing.{routingKey}' },
    ];
    const text = schedule(null);
    expect(waiting(text, { rules })).toMatchObject({ kind: 'order.remind', payloadText: text });
    expect(waiting(schedule({ exchange: 'billing', routingKey: 'dun' }), { rules }).kind).toBe('billing.dun');
    expect(waiting(text).kind).toBe('scheduling.event');
    expect(waiting(schedule({ queue: 'billing.in' })).kind).toBe('scheduling.amqp');
  });

  test('due already: at once', () => {
    const text = JSON.stringify({
      id: 's',
      key: 'k',
      runAt: iso(NOW_MS - 1),
      target: null,
      data: null,
      attempt: 1,
    });
    expect(map({ queue: 'schedule.due', body: text }, RULES).job).toMatchObject({
      kind: 'scheduling.event',
      runAtMs: null,
    });
  });

  test('a request not yet read: x-delay wins, counted from when it was published', () => {
    const parts = {
      queue: 'schedule.requests',
      exchange: 'schedule',
      routingKey: 'reminder',
      headers: { 'x-delay': int(600_000) },
      properties: { timestamp: BigInt(NOW_MS / 1_000 - 60) },
      body: JSON.stringify({
        delayMs: 5,
        target: { exchange: 'notifications', routingKey: 'notification.r.push' },
        data: notification,
      }),
    };
    expect(map(parts, RULES).job).toMatchObject({
      kind: 'notify.push',
      payloadText: body,
      runAtMs: NOW_MS + 540_000,
    });
  });

  test('a request whose own routing key is that of the notification it is to fire', () => {
    const parts = {
      queue: 'schedule.requests',
      exchange: 'schedule',
      routingKey: 'notification.review-request.email',
      headers: { 'x-delay': int(5_000) },
      body: JSON.stringify({
        key: 'notification.review-request.email',
        target: { exchange: 'notifications', routingKey: 'notification.review-request.email' },
        data: notification,
      }),
    };
    expect(map(parts, RULES).job).toMatchObject({ kind: 'notify.email', payloadText: body });
  });

  test('a request that is itself the data', () => {
    const parts = { queue: 'schedule.requests', exchange: 'schedule', routingKey: 'reminder', body };
    expect(map(parts, RULES).job).toMatchObject({
      kind: 'scheduling.event',
      payloadText: body,
      runAtMs: null,
    });
  });
});

describe('retry requests', () => {
  const request = (target: unknown, more = {}) =>
    JSON.stringify({
      id: 'r1',
      payload: notification,
      target,
      error: null,
      attempt: 2,
      policy: null,
      ...more,
    });

  test('the payload goes to its target, with the attempts made', () => {
    const target = { exchange: 'notifications', routingKey: 'notification.receipt.email' };
    const text = request(target, { policy: { type: 'fixed', delayMs: 1_000, maxAttempts: 5 } });
    expect(map({ queue: 'retry.scheduled', body: text }, RULES).job).toMatchObject({
      kind: 'notify.email',
      payloadText: body,
      attempts: 2,
      maxAttempts: 5,
    });
    const http = map(
      { queue: 'retry.scheduled', body: request({ url: 'https://example.org/x' }) },
      RULES,
    ).job;
    expect(http.kind).toBe('relay.http');
    expect(JSON.parse(http.payloadText ?? '')).toEqual({ url: 'https://example.org/x', body: notification });
    expect(map({ queue: 'retry.scheduled', body: request({ queue: 'billing' }) }, RULES).job.kind).toBe(
      'retry.amqp',
    );
  });

  test('on a rung it is still one', () => {
    const headers = {
      'x-original-queue': text('retry.scheduled'),
      'x-retry-count': int(2),
      'x-retry-due': text(iso(NOW_MS + 500)),
    };
    const parts = {
      queue: 'retry.wait.1000',
      routingKey: 'retry.scheduled',
      headers,
      body: request({ queue: 'billing' }),
    };
    expect(map(parts, { ...RULES, facts: wait }).job).toMatchObject({
      kind: 'retry.amqp',
      attempts: 2,
      runAtMs: NOW_MS + 500,
    });
  });
});

test('what is not of the trio is not claimed', () => {
  const { note, outcome } = map(
    { queue: 'orders', routingKey: 'order.paid', body: '{"id":"1","key":"k"}' },
    RULES,
  );
  expect({ note, outcome }).toEqual({ note: null, outcome: 'unmapped' });
});
