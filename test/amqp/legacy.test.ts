/**
 * The old system, end to end on real servers: what its README promises, and the fault that this project exists for.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import amqp from 'amqplib';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { NotificationClient } from '../legacy/clients/notification-client.js';
import { RetryClient } from '../legacy/clients/retry-client.js';
import { SchedulingClient } from '../legacy/clients/scheduling-client.js';
import {
  type OrdersOptions,
  type Service,
  type Sink,
  startHttpSink,
  startOrders,
  startSmtpSink,
  startTrio,
  type Trio,
} from '../legacy/start.js';
import { type FreshDatabase, type FreshVhost, freshDatabase, freshVhost } from '../support/services.js';
import { until } from '../support/until.js';

/** Short rungs: the ladder's shape is tested, not its patience. */
const LADDER_MS = [50, 100, 150];

const folder = mkdtempSync(join(tmpdir(), 'unbroker-legacy-'));
let database: FreshDatabase;
let vhost: FreshVhost;
let smtp: Sink;
let provider: Sink;
let trio: Trio;
let notifications: NotificationClient;
let schedules: SchedulingClient;
let retries: RetryClient;
const running: Service[] = [];

beforeAll(async () => {
  [database, vhost, smtp, provider] = await Promise.all([
    freshDatabase(),
    freshVhost(),
    startSmtpSink(join(folder, 'smtp.jsonl')),
    startHttpSink(join(folder, 'http.jsonl')),
  ]);
  trio = await startTrio({
    amqpUrl: vhost.url,
    databaseUrl: database.url,
    smtpUrl: smtp.url,
    providerUrl: provider.url,
    ladderMs: LADDER_MS,
  });
  notifications = new NotificationClient(trio.notification.url);
  schedules = new SchedulingClient(trio.scheduling.url);
  retries = new RetryClient(trio.retry.url);
});

afterEach(async () => {
  await Promise.all(running.splice(0).map((service) => service.stop()));
  await Promise.all(
    [smtp, provider].map((sink) =>
      sink.control({ failNext: 0, failMatch: '', failAfterTaking: false, delayMs: 0 }),
    ),
  );
});

afterAll(async () => {
  await trio?.stop();
  await Promise.all([smtp?.stop(), provider?.stop(), vhost?.close(), database?.close()]);
  rmSync(folder, { recursive: true, force: true });
});

async function orders(options: Partial<OrdersOptions> = {}): Promise<Service> {
  const service = await startOrders({
    amqpUrl: vhost.url,
    databaseUrl: database.url,
    schedulingUrl: trio.scheduling.url,
    ...options,
  });
  running.push(service);
  return service;
}

async function post<T>(url: string, body: unknown = {}): Promise<T> {
  const response = await fetch(url, { method: 'POST', body: JSON.stringify(body) });
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
  return (await response.json()) as T;
}

const ORDER = { email: 'ann@example.org', items: [{ sku: 'mug', quantity: 2, priceCents: 950 }] };
const mailsOf = (id: string) => smtp.deliveries().filter((mail) => mail.id === id);

test('an order, its payment, its parcel and its refund each reach the customer once', async () => {
  const { url } = await orders();
  const { id } = await post<{ id: number }>(`${url}/orders`, ORDER);
  await post(`${url}/orders/${id}/pay`);
  await post(`${url}/orders/ship`, { ids: [id] });
  await post(`${url}/orders/${id}/refund`);
  const ids = ['receipt', 'paid', 'shipped', 'refunded'].map((event) => `order-${id}-${event}`);
  await until('four mails are there', () => ids.every((one) => mailsOf(one).length > 0));

  expect(ids.map((one) => mailsOf(one).length)).toEqual([1, 1, 1, 1]);
  const receipt = mailsOf(`order-${id}-receipt`)[0];
  expect(receipt).toMatchObject({ subject: `Receipt for order ${id}`, to: ['ann@example.org'] });
  expect(receipt?.text).toContain('2 x mug');
  expect(receipt?.text).toContain('Total: 19.00 EUR');
  const sent = await until('it is sent', async () => {
    const found = await notifications.get(`order-${id}-receipt`);
    return found.status === 'sent' && found;
  });
  expect(sent).toMatchObject({ attempts: 1, error: null, template: 'order-receipt', channel: 'email' });
});

test('every other way in which the application publishes', async () => {
  const { url } = await orders({ reviewDelayMs: 30 });
  const { id } = await post<{ id: number }>(`${url}/orders`, ORDER);
  await post(`${url}/orders/${id}/announce`, { phone: '+49 30 2' });
  await post(`${url}/orders/${id}/resend`);
  await post(`${url}/orders/${id}/note`, { note: 'We are late.' });
  await post(`${url}/orders/${id}/cancel`, { reason: 'Too late.' });
  const subjects = () => {
    const about = smtp
      .deliveries()
      .filter((mail) => mail.subject?.includes(`order ${id}`) || mail.subject?.includes(`Order ${id}`));
    return about.map((mail) => mail.subject).sort();
  };
  const expected = [
    `A word about your order ${id}`,
    `Order ${id} is cancelled`,
    `Order ${id} is on its way`,
    `Receipt for order ${id}`,
    `Receipt for order ${id}`,
  ];
  await until('all mails are there', () => subjects().length >= expected.length);
  expect(subjects()).toEqual(expected);
  await until('the sms is there', () => provider.deliveries().some((call) => call.text.includes('+49 30 2')));
  await expect(post(`${url}/orders/${id}/cancel`)).rejects.toThrow('409');
});

test('a kill between commit and publish leaves an order that nothing downstream knows of', async () => {
  const doomed = await orders({ killAfterCommit: 1 });
  await expect(post(`${doomed.url}/orders`, ORDER)).rejects.toThrow();
  expect((await doomed.process.waitForExit()).signal).toBe('SIGKILL');
  const { url } = await orders();
  const { id: next } = await post<{ id: number }>(`${url}/orders`, ORDER);
  await until('the next receipt is there', () => mailsOf(`order-${next}-receipt`).length > 0);

  const { rows } = await database.pool.query<{ id: number; status: string }>(
    'select id, status from orders where id = $1',
    [next - 1],
  );
  expect(rows).toEqual([{ id: next - 1, status: 'placed' }]);
  expect(mailsOf(`order-${next - 1}-receipt`)).toEqual([]);
  await expect(notifications.get(`order-${next - 1}-receipt`)).rejects.toMatchObject({ status: 404 });
});

test('the same seam in an autocommitted update', async () => {
  const { url } = await orders();
  const { id } = await post<{ id: number }>(`${url}/orders`, ORDER);
  const doomed = await orders({ killAfterStatement: "set status = 'cancelled'" });
  await expect(post(`${doomed.url}/orders/${id}/cancel`, { reason: 'Sorry.' })).rejects.toThrow();
  await doomed.process.waitForExit();

  const { rows } = await database.pool.query('select status from orders where id = $1', [id]);
  expect(rows).toEqual([{ status: 'cancelled' }]);
  await expect(notifications.get(`order-${id}-cancelled`)).rejects.toMatchObject({ status: 404 });
});

test('a transient failure goes over the ladder and is sent in the end', async () => {
  await smtp.control({ failNext: 2, failCode: 451 });
  const { id } = await notifications.send({
    to: 'bob@example.org',
    template: 'order-cancelled',
    data: { orderId: 7, reason: '' },
  });
  const sent = await until('it is sent', async () => {
    const found = await notifications.get(id);
    return found.status === 'sent' && found;
  });
  expect(sent.attempts).toBe(3);
  expect(mailsOf(id)).toHaveLength(1);
});

test('a provider that keeps failing leads to manual-review; a replay delivers', async () => {
  await smtp.control({ failMatch: 'down@', failCode: 451 });
  const { id } = await notifications.send({
    to: 'down@example.org',
    template: 'order-cancelled',
    data: { orderId: 8, reason: '' },
  });
  const dead = await until('it is parked', async () => {
    const { items } = await retries.deadLetters();
    return items.find((item) => item.messageId === id);
  });
  expect(dead).toMatchObject({
    queue: 'notification.work',
    routingKey: 'notification.order-cancelled.email',
    error: 'rejected from notification.work 4 times',
    attempts: 4,
    payload: { to: 'down@example.org', template: 'order-cancelled' },
  });
  expect(await notifications.get(id)).toMatchObject({ status: 'retrying', attempts: 4, error: 'SMTP 451' });
  expect(mailsOf(id)).toEqual([]);

  await smtp.control({ failMatch: '' });
  await retries.replay(dead.id);
  await until('it is sent', async () => (await notifications.get(id)).status === 'sent');
  expect(mailsOf(id)).toHaveLength(1);
  expect((await retries.deadLetters()).items.filter((item) => item.messageId === id)).toEqual([]);
});

test('a permanent failure is parked at once, with its reason; a discard removes it', async () => {
  await smtp.control({ failMatch: 'nobody@', failCode: 550 });
  const refused = await notifications.send({
    to: 'nobody@example.org',
    template: 'order-cancelled',
    data: { orderId: 9, reason: '' },
  });
  const incomplete = await notifications.send({ to: 'a@example.org', template: 'order-cancelled', data: {} });
  const [bounce, gap] = await until('both are parked', async () => {
    const { items } = await retries.deadLetters();
    const found = [refused, incomplete].map(({ id }) => items.find((item) => item.messageId === id));
    return found.every((item) => item !== undefined) && found;
  });
  expect(bounce).toMatchObject({ error: 'SMTP 550', attempts: 1, queue: 'notification.work' });
  expect(gap?.error).toContain('orderId');
  expect(await notifications.get(refused.id)).toMatchObject({ status: 'failed', attempts: 1 });

  for (const item of [bounce, gap]) await retries.discard(item?.id ?? '');
  await expect(retries.discard(bounce?.id ?? '')).rejects.toMatchObject({ status: 404 });
});

test('a provider that fails after it took the mail gets it twice', async () => {
  await smtp.control({ failNext: 1, failCode: 451, failAfterTaking: true });
  const { id } = await notifications.send({
    to: 'cy@example.org',
    template: 'order-cancelled',
    data: { orderId: 10, reason: '' },
  });
  await until('it is sent', async () => (await notifications.get(id)).status === 'sent');
  expect(mailsOf(id)).toHaveLength(2);
});

test('schedules fire with the documented envelope, a cancelled one does not, a reminder becomes a mail', async () => {
  const connection = await amqp.connect(vhost.url);
  try {
    const channel = await connection.createChannel();
    const { queue } = await channel.assertQueue('', { exclusive: true });
    await channel.bindQueue(queue, 'schedule.events', '#');
    // Cancelled long before its time also on a slow machine, and its time is over before that of the last.
    const cancelled = await schedules.create({ name: 'never', delayMs: 800, payload: 1 });
    const kept = await schedules.create({ name: 'soon', delayMs: 850, payload: { n: 1 } });
    await schedules.cancel(cancelled.id);
    channel.publish('schedule', 'by-message', Buffer.from('{"n":2}'), {
      headers: { 'x-delay': 900 },
      messageId: 'message-1',
    });
    for (const id of [kept.id, 'message-1'])
      await until(`${id} has fired`, async () => (await schedules.get(id)).status === 'fired');

    const events: { key: string; event: unknown }[] = [];
    for (let message = await channel.get(queue); message !== false; message = await channel.get(queue))
      events.push({ key: message.fields.routingKey, event: JSON.parse(message.content.toString()) });
    // Timers 50 ms apart fire in either order where the machine stands still meanwhile.
    events.sort((a, b) => b.key.localeCompare(a.key));
    expect(events.map(({ key }) => key)).toEqual(['soon', 'by-message']);
    const triggerTime = expect.stringMatching(/^\d{4}-.*Z$/);
    expect(events.map(({ event }) => event)).toEqual([
      { id: kept.id, key: 'soon', data: { n: 1 }, triggerTime, attempt: 1 },
      { id: 'message-1', key: 'by-message', data: { n: 2 }, triggerTime, attempt: 1 },
    ]);
    expect(await schedules.get(cancelled.id)).toMatchObject({ status: 'cancelled', firedAt: null });
    await expect(schedules.cancel(kept.id)).rejects.toMatchObject({ status: 409 });
  } finally {
    await connection.close();
  }

  const { url } = await orders({ reminderDelayMs: 50, reviewDelayMs: 50 });
  const { id } = await post<{ id: number }>(`${url}/orders`, ORDER);
  const { scheduleId } = await post<{ scheduleId: string }>(`${url}/orders/${id}/remind`);
  await post(`${url}/orders/${id}/review`);
  await until(
    'both mails are there',
    () => mailsOf(scheduleId).length + mailsOf(`order-${id}-review`).length === 2,
  );
  expect(mailsOf(scheduleId)[0]?.subject).toBe(`Order ${id} waits for your payment`);
});

test('a URL target: 5xx is tried again through the ladder, 4xx ends the schedule', async () => {
  await provider.control({ failNext: 1, failCode: 503 });
  const target = { url: `${provider.url}/hook` };
  const slow = await schedules.create({ name: 'hook', delayMs: 20, target, payload: { n: 3 } });
  await until('it has fired', async () => (await schedules.get(slow.id)).status === 'fired');
  const calls = provider.deliveries().filter((call) => call.to[0] === '/hook');
  expect(calls.map((call) => JSON.parse(call.text))).toMatchObject([
    { id: slow.id, key: 'hook', attempt: 2 },
  ]);

  await provider.control({ failNext: 1, failCode: 410 });
  const gone = await schedules.create({ name: 'gone', delayMs: 20, target });
  await until('it has failed', async () => (await schedules.get(gone.id)).status === 'failed');
});

test('a retry request reaches its target; without one it ends in manual-review with its attempts', async () => {
  const { id } = await retries.submit({
    payload: { to: 'dee@example.org', template: 'order-cancelled', data: { orderId: 11, reason: '' } },
    target: { exchange: 'notifications', routingKey: 'notification.order-cancelled.email' },
    error: 'SMTP 451',
  });
  await until('the mail is there', () => mailsOf(id).length > 0);
  const done = await until('it says so', async () => {
    const found = await retries.get(id);
    return found.status === 'succeeded' && found;
  });
  expect(done).toMatchObject({ attempt: 2, attempts: [{ attempt: 2, error: null }] });

  const lost = await retries.submit({
    payload: {},
    target: { queue: 'no-such-queue' },
    policy: { type: 'fixed', delayMs: 40, maxAttempts: 3 },
  });
  await until('it is dead', async () => (await retries.get(lost.id)).status === 'dead');
  const { items } = await retries.deadLetters();
  const parked = items.find((item) => item.messageId === lost.id);
  expect(parked).toMatchObject({ queue: 'retry.scheduled', payload: { attempt: 3 } });
  expect(parked?.error).toContain('no-such-queue');
});

test('sms, batch, lists and templates answer as documented', async () => {
  const [sms, wrong] = await notifications.sendBatch([
    {
      to: '+49 30 1',
      channel: 'sms',
      template: 'order-shipped',
      data: { orderId: 12, parcel: 'P-1' },
      reference: 'o12',
    },
    { to: '', template: 'order-shipped' },
  ]);
  expect(sms).toMatchObject({ index: 0, status: 'accepted' });
  expect(wrong).toEqual({ index: 1, status: 'rejected', error: 'to is missing' });
  const call = await until('the provider has it', () =>
    provider.deliveries().find((one) => sms?.status === 'accepted' && one.id === sms.id),
  );
  expect(JSON.parse(call.text)).toMatchObject({ to: '+49 30 1', text: 'Order 12 is on its way, parcel P-1' });
  expect(await notifications.list({ reference: 'o12' })).toHaveLength(1);

  const variant = { locale: 'en', channel: 'email', parts: { subject: 'Hi {{name}}', text: 'x' } };
  await notifications.putTemplate('welcome', variant);
  expect((await notifications.getTemplate('welcome')).variants).toEqual([variant]);
  const preview = await notifications.preview('welcome', { locale: 'de', data: { name: 'Eve' } });
  expect(preview.parts).toEqual({ subject: 'Hi Eve', text: 'x' });
  await expect(notifications.preview('welcome', { data: {} })).rejects.toMatchObject({ status: 422 });
  await notifications.deleteTemplate('welcome');
  await expect(notifications.getTemplate('welcome')).rejects.toMatchObject({ status: 404 });
});

test('a service stopped in the middle finishes what is in hand and leaves the rest to the queue', async () => {
  await smtp.control({ delayMs: 300 });
  const sent = await Promise.all(
    Array.from({ length: 30 }, (_, n) =>
      notifications.send({
        to: `n${n}@example.org`,
        template: 'order-cancelled',
        data: { orderId: n, reason: '' },
      }),
    ),
  );
  await trio.notification.stop();
  expect((await trio.notification.process.exit).code).toBe(0);
  const connection = await amqp.connect(vhost.url);
  const channel = await connection.createChannel();
  const { messageCount } = await channel.checkQueue('notification.work');
  await connection.close();
  const delivered = sent.filter(({ id }) => mailsOf(id).length === 1).length;
  expect(messageCount).toBeGreaterThan(0);
  // Ten is the prefetch: they were in hand.
  expect(delivered).toBeGreaterThanOrEqual(10);
  expect(delivered + messageCount).toBe(30);
});
