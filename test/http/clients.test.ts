/**
 * The old system's own HTTP clients, unchanged, against the shims, with a worker that delivers for real: by SMTP, to an
 * HTTP gateway, to webhooks. Only the address is another.
 */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { createWorker, type Worker } from '../../src/jobs/worker.js';
import { createNotifyHandlers } from '../../src/notify/index.js';
import { ServiceError } from '../legacy/clients/http.js';
import { NotificationClient } from '../legacy/clients/notification-client.js';
import { RetryClient } from '../legacy/clients/retry-client.js';
import { SchedulingClient } from '../legacy/clients/scheduling-client.js';
import { until } from '../support/until.js';
import { lateRetries } from '../support/workers.js';
import { type ShimWorld, startShimWorld } from './shim-world.js';
import { type Sink, startHttpSink, startSmtpSink } from './sinks.js';

let world: ShimWorld;
let smtp: Sink;
let web: Sink;
let worker: Worker;
let notification: NotificationClient;
let scheduling: SchedulingClient;
let retry: RetryClient;

beforeAll(async () => {
  [smtp, web] = await Promise.all([startSmtpSink(), startHttpSink()]);
  const notify = {
    email: { url: smtp.url, from: 'Shop <shop@example.org>' },
    sms: { url: web.url },
    push: { url: web.url },
    webhook: {},
    allowedNetworks: ['127.0.0.0/8'],
  };
  world = await startShimWorld({ notify });
  const handlers = createNotifyHandlers({
    config: { templates: world.templates, ...notify },
    directory: '/',
  });
  worker = createWorker({ db: world.database.pool, handlers: lateRetries(handlers), pollMs: 20 });
  worker.start();
  notification = new NotificationClient(world.url);
  scheduling = new SchedulingClient(world.url);
  retry = new RetryClient(world.url);
});

afterEach(async () => {
  for (const sink of [smtp, web]) await sink.faults({ failNext: 0, failMatch: '', failAfterTaking: false });
});

afterAll(async () => {
  await worker?.stop({ deadlineMs: 1_000 });
  await world?.close();
  await Promise.all([smtp?.close(), web?.close()]);
});

const sqlNow = async (id: string): Promise<void> => {
  await world.database.pool.query('update unbroker.jobs set run_at = now() where id = $1', [id]);
};

const mailTo = (address: string) => smtp.received().filter(({ to }) => to.includes(address));

describe('notification', () => {
  it('sends a mail from a template and says what became of it', async () => {
    const { id, status } = await notification.send({
      to: 'ann@example.org',
      template: 'order-receipt',
      data: { orderId: 17, total: '12.50', lines: [{ quantity: 2, sku: '<b>tea</b>' }] },
      reference: 'order-17',
    });
    expect(status).toBe('accepted');
    const sent = await until('it is sent', async () => {
      const found = await notification.get(id);
      return found.status === 'sent' ? found : null;
    });
    expect(sent).toMatchObject({
      id,
      status: 'sent',
      to: 'ann@example.org',
      channel: 'email',
      template: 'order-receipt',
      locale: 'en',
      reference: 'order-17',
      attempts: 1,
      error: null,
    });
    expect(Date.parse(sent.sentAt ?? '')).toBeGreaterThanOrEqual(Date.parse(sent.createdAt));
    const [mail] = mailTo('ann@example.org');
    expect(mail).toMatchObject({ subject: 'Receipt for order 17', id });
    expect(mail?.headers['message-id']).toBe(`<${id}@example.org>`);
    expect(mail?.headers['from']).toBe('Shop <shop@example.org>');
    expect(mail?.text).toContain('2 x <b>tea</b>');
  });

  it('takes the nearest locale', async () => {
    await notification.send({
      to: 'luc@example.org',
      template: 'order-receipt',
      locale: 'fr-CA',
      data: { orderId: 18, total: '1', lines: [] },
    });
    const mail = await until('it arrives', () => mailTo('luc@example.org')[0]);
    expect(mail.subject).toBe('Re\u00e7u de votre commande 18');
  });

  it('delivers sms to the gateway and a webhook to its URL, with the id as idempotency key', async () => {
    const sms = await notification.send({
      to: '+15550100',
      channel: 'sms',
      template: 'order-shipped',
      data: { orderId: 19, parcel: 'P"1' },
    });
    const hook = await notification.send({
      to: `${web.url}/hook`,
      channel: 'webhook',
      template: 'order-shipped',
      data: { orderId: 9_007, parcel: 'a"b\\c\n' },
    });
    const got = await until('both arrive', () => {
      const all = web.received();
      const found = [sms.id, hook.id].map((id) =>
        all.find((delivery) => delivery.headers['idempotency-key'] === id),
      );
      return found.every((delivery) => delivery !== undefined) ? found : null;
    });
    expect(JSON.parse(got[0]?.text ?? '')).toEqual({
      id: sms.id,
      channel: 'sms',
      to: '+15550100',
      text: 'Order 19 is on its way, parcel P"1',
    });
    expect(JSON.parse(got[1]?.text ?? '')).toEqual({
      event: 'order.shipped',
      orderId: 9_007,
      parcel: 'a"b\\c\n',
    });
    expect(got[1]?.headers['webhook-id']).toBe(hook.id);
  });

  it('answers a batch item by item', async () => {
    const results = await notification.sendBatch([
      { to: 'bo@example.org', template: 'order-paid', data: { orderId: 1, total: '1' } },
      { to: '', template: 'order-paid' },
    ]);
    expect(results).toEqual([
      { index: 0, id: expect.stringMatching(/^\d+$/), status: 'accepted' },
      { index: 1, status: 'rejected', error: expect.any(String) },
    ]);
  });

  it('lists by reference, status and time', async () => {
    const data = { orderId: 1, total: '1' };
    const first = await notification.send({
      to: 'cy@example.org',
      template: 'order-paid',
      data,
      reference: 'ref-1',
    });
    await notification.send({ to: 'cy@example.org', template: 'order-paid', data, reference: 'ref-10' });
    expect((await notification.list({ reference: 'ref-1' })).map(({ id }) => id)).toEqual([first.id]);
    await until(
      'it is sent',
      async () => (await notification.list({ reference: 'ref-1', status: 'sent' })).length === 1,
    );
    expect(await notification.list({ reference: 'ref-1', status: 'failed' })).toEqual([]);
    expect(await notification.list({ reference: 'ref-1', before: '2000-01-01T00:00:00Z' })).toEqual([]);
    expect(await notification.list({ limit: 2 })).toHaveLength(2);
  });

  it('a missing variable is a failure that names it; retried by nobody', async () => {
    const { id } = await notification.send({
      to: 'di@example.org',
      template: 'order-cancelled',
      data: { orderId: 1 },
    });
    const failed = await until('it failed', async () => {
      const found = await notification.get(id);
      return found.status === 'failed' ? found : null;
    });
    expect(failed.error).toContain('reason');
    expect(failed.attempts).toBe(1);
    expect(mailTo('di@example.org')).toEqual([]);
  });

  it('a refusal for now is retried, one for good is not', async () => {
    await smtp.faults({ failNext: 1, failCode: 451 });
    const later = await notification.send({
      to: 'ed@example.org',
      template: 'order-paid',
      data: { orderId: 1, total: '1' },
    });
    const retrying = await until('it is retrying', async () => {
      const found = await notification.get(later.id);
      return found.status === 'retrying' ? found : null;
    });
    expect(retrying.error).toBe('SMTP 451');
    await sqlNow(later.id);
    await until('it arrives', () => mailTo('ed@example.org').length === 1);
    await smtp.faults({ failMatch: 'nobody@', failCode: 550 });
    const never = await notification.send({
      to: 'nobody@example.org',
      template: 'order-paid',
      data: { orderId: 1, total: '1' },
    });
    const failed = await until('it failed', async () => {
      const found = await notification.get(never.id);
      return found.status === 'failed' ? found : null;
    });
    expect(failed).toMatchObject({ error: 'SMTP 550', attempts: 1 });
  });

  it('shows and previews templates', async () => {
    const { key, variants } = await notification.getTemplate('order-receipt');
    expect(key).toBe('order-receipt');
    expect(variants.map(({ locale }) => locale).sort()).toEqual(['en', 'fr']);
    const shown = await notification.preview('order-receipt', {
      locale: 'de',
      data: { orderId: 1, total: '<2>', lines: [] },
    });
    expect(shown).toMatchObject({ key: 'order-receipt', locale: 'en', channel: 'email' });
    expect(shown.parts['html']).toContain('&lt;2&gt;');
    await expect(notification.preview('order-receipt', { data: {} })).rejects.toMatchObject({
      status: 422,
      code: 'render-failed',
    });
    await expect(notification.getTemplate('unknown')).rejects.toMatchObject({ status: 404 });
    await expect(
      notification.putTemplate('order-paid', { locale: 'en', channel: 'email', parts: {} }),
    ).rejects.toMatchObject({ status: 400, code: 'invalid' });
  });

  it('says no as the old service did', async () => {
    await expect(notification.send({ to: '', template: 'order-paid' })).rejects.toBeInstanceOf(ServiceError);
    await expect(notification.send({ to: '', template: 'order-paid' })).rejects.toMatchObject({
      status: 400,
      code: 'invalid',
    });
    await expect(notification.get('00000000-0000-0000-0000-000000000000')).rejects.toMatchObject({
      status: 404,
      code: 'not-found',
    });
  });

  it('finds a drained message by the id that its sender gave it', async () => {
    await world.database.pool.query(
      `insert into unbroker.jobs (kind, payload, dedupe_key, run_at) values ('notify.email', '{"to":"x@example.org","template":"order-paid"}', 'order-17-receipt', now() + interval '1 day')`,
    );
    const found = await notification.get('order-17-receipt');
    expect(found).toMatchObject({ status: 'accepted', to: 'x@example.org' });
    const response = await fetch(`${world.url}/notifications/${found.id}/cancel`, { method: 'POST' });
    expect(response.status).toBe(202);
    expect((await notification.get('order-17-receipt')).status).toBe('cancelled');
  });
});

describe('scheduling', () => {
  it('fires a URL target with the envelope, exactly', async () => {
    const { id, name, status } = await scheduling.create({
      name: 'hourly',
      delayMs: 0,
      target: { url: `${web.url}/fired` },
      payload: { a: 1 },
    });
    expect({ name, status }).toEqual({ name: 'hourly', status: 'scheduled' });
    const fired = await until('it fires', async () => {
      const found = await scheduling.get(id);
      return found.status === 'fired' ? found : null;
    });
    expect(fired).toMatchObject({
      id,
      name: 'hourly',
      target: { url: `${web.url}/fired` },
      payload: { a: 1 },
      attempts: 1,
      error: null,
    });
    const delivery = web.received().find(({ to }) => to.includes('/fired'));
    expect(JSON.parse(delivery?.text ?? '')).toEqual({
      id,
      key: 'hourly',
      data: { a: 1 },
      triggerTime: expect.any(String),
      attempt: 1,
    });
  });

  it('carries a notification to its time', async () => {
    const { id, runAt } = await scheduling.create({
      runAt: '2100-01-01T00:00:00.000Z',
      target: { exchange: 'notifications', routingKey: 'notification.order-reminder.email' },
      payload: { to: 'flo@example.org', template: 'order-reminder', data: { orderId: 5, total: '1' } },
    });
    expect(runAt).toBe('2100-01-01T00:00:00.000Z');
    expect(await scheduling.get(id)).toMatchObject({ status: 'scheduled', firedAt: null });
    await sqlNow(id);
    await until('it arrives', () => mailTo('flo@example.org').length === 1);
    await until('it is fired', async () => (await scheduling.get(id)).status === 'fired');
  });

  it('counts a delay by the database clock', async () => {
    const { id, runAt } = await scheduling.create({
      delayMs: 3_600_000,
      target: { url: `${web.url}/later` },
    });
    const { rows } = await world.database.pool.query<{ off: number }>(
      'select extract(epoch from run_at - created_at)::float8 * 1000 as off from unbroker.jobs where id = $1',
      [id],
    );
    expect(rows[0]?.off).toBe(3_600_000);
    expect(Math.abs(Date.parse(runAt) - Date.now() - 3_600_000)).toBeLessThan(60_000);
  });

  it('cancels what is still to come, twice without complaint, and nothing that fired', async () => {
    const { id } = await scheduling.create({ delayMs: 3_600_000, target: { url: `${web.url}/never` } });
    await scheduling.cancel(id);
    await scheduling.cancel(id);
    expect((await scheduling.get(id)).status).toBe('cancelled');
    const done = await scheduling.create({ delayMs: 0, target: { url: `${web.url}/now` } });
    await until('it fires', async () => (await scheduling.get(done.id)).status === 'fired');
    await expect(scheduling.cancel(done.id)).rejects.toMatchObject({ status: 409, code: 'conflict' });
    await expect(scheduling.cancel('999999')).rejects.toMatchObject({ status: 404 });
  });

  it('a 4xx ends it, a 5xx is tried again', async () => {
    await web.faults({ failMatch: '/gone', failCode: 410 });
    const gone = await scheduling.create({ delayMs: 0, target: { url: `${web.url}/gone` } });
    await until('it failed', async () => (await scheduling.get(gone.id)).status === 'failed');
    expect((await scheduling.get(gone.id)).error).toContain('HTTP 410');
    await web.faults({ failMatch: '', failNext: 1, failCode: 503 });
    const later = await scheduling.create({ delayMs: 0, target: { url: `${web.url}/flaky` } });
    await until('it was tried', async () => (await scheduling.get(later.id)).error !== null);
    await sqlNow(later.id);
    const fired = await until('it fires', async () => {
      const found = await scheduling.get(later.id);
      return found.status === 'fired' ? found : null;
    });
    expect(fired).toMatchObject({ attempts: 2, error: null });
  });

  it('lists by name and status', async () => {
    const { id } = await scheduling.create({
      name: 'weekly',
      delayMs: 3_600_000,
      target: { url: `${web.url}/w` },
    });
    await scheduling.create({ name: 'weekly-2', delayMs: 3_600_000, target: { url: `${web.url}/w` } });
    expect((await scheduling.list({ name: 'weekly' })).map((found) => found.id)).toEqual([id]);
    expect(await scheduling.list({ name: 'weekly', status: 'fired' })).toEqual([]);
    expect((await scheduling.list({ status: 'scheduled', limit: 1 })).length).toBe(1);
  });
});

describe('retry', () => {
  it('tries again by the policy and says what it did', async () => {
    const { id, status } = await retry.submit({
      payload: { order: 1 },
      target: { url: `${web.url}/retried` },
      error: 'HTTP 500',
      attempt: 2,
      policy: { type: 'fixed', delayMs: 3_600_000, maxAttempts: 5 },
    });
    expect(status).toBe('waiting');
    const waiting = await retry.get(id);
    expect(waiting).toMatchObject({
      status: 'waiting',
      attempt: 2,
      error: 'HTTP 500',
      payload: { order: 1 },
      attempts: [],
      policy: { type: 'fixed', delayMs: 3_600_000, maxAttempts: 5 },
    });
    expect(
      Math.abs(Date.parse(waiting.nextAttemptAt ?? '') - Date.parse(waiting.createdAt) - 3_600_000),
    ).toBeLessThan(60_000);
    await sqlNow(id);
    const done = await until('it succeeded', async () => {
      const found = await retry.get(id);
      return found.status === 'succeeded' ? found : null;
    });
    expect(done).toMatchObject({
      attempt: 3,
      error: null,
      nextAttemptAt: null,
      attempts: [{ attempt: 3, error: null }],
    });
    expect(web.received().find(({ to }) => to.includes('/retried'))?.text).toBe('{"order": 1}');
  });

  it('dies when its attempts are spent, is listed, replayed and discarded', async () => {
    await web.faults({ failMatch: '/down', failCode: 503 });
    const { id } = await retry.submit({
      payload: 'x',
      target: { url: `${web.url}/down` },
      policy: { type: 'ladder', delaysMs: [0] },
    });
    await until('it is dead', async () => (await retry.get(id)).status === 'dead');
    const { items, total } = await retry.deadLetters();
    expect(total).toBe(items.length);
    expect(items.find((item) => item.id === id)).toMatchObject({
      id,
      queue: 'retry.scheduled',
      attempts: 2,
      payload: 'x',
      error: expect.stringContaining('HTTP 503'),
    });
    expect((await retry.get(id)).attempts).toEqual([
      { attempt: 2, at: expect.any(String), error: expect.stringContaining('HTTP 503') },
    ]);

    await web.faults({ failMatch: '' });
    expect(await retry.replay(id)).toEqual({ id, status: 'replayed' });
    await until('it succeeded', async () => (await retry.get(id)).status === 'succeeded');
    await expect(retry.replay(id)).rejects.toMatchObject({ status: 404, code: 'not-found' });

    const spent = await retry.submit({
      payload: 1,
      target: { url: `${web.url}/x` },
      attempt: 9,
      policy: { type: 'fixed', delayMs: 1, maxAttempts: 3 },
    });
    expect((await retry.get(spent.id)).status).toBe('dead');
    await retry.discard(spent.id);
    expect((await retry.deadLetters()).items.some((item) => item.id === spent.id)).toBe(false);
    await expect(retry.replay(spent.id)).rejects.toMatchObject({ status: 404 });
    await expect(retry.discard('424242')).rejects.toMatchObject({ status: 404 });
  });

  it('a failed notification is a dead letter of its old queue; replayed once the cause is mended', async () => {
    await smtp.faults({ failMatch: 'gus@', failCode: 550 });
    const { id } = await notification.send({
      to: 'gus@example.org',
      template: 'order-paid',
      data: { orderId: 1, total: '1' },
    });
    await until('it failed', async () => (await notification.get(id)).status === 'failed');
    const dead = (await retry.deadLetters(200)).items.find((item) => item.id === id);
    expect(dead).toMatchObject({
      queue: 'notification.work',
      routingKey: 'notification.order-paid.email',
      attempts: 1,
    });
    await smtp.faults({ failMatch: '' });
    await retry.replay(id);
    await until('it is sent', async () => (await notification.get(id)).status === 'sent');
    expect(mailTo('gus@example.org')).toHaveLength(1);
  });

  it('sends a notification again through its old target', async () => {
    const payload = { to: 'hal@example.org', template: 'order-paid', data: { orderId: 1, total: '1' } };
    const { id } = await retry.submit({
      payload,
      target: { exchange: 'notifications', routingKey: 'notification.order-paid.email' },
      policy: { type: 'fixed', delayMs: 0, maxAttempts: 3 },
    });
    await until('it succeeded', async () => (await retry.get(id)).status === 'succeeded');
    expect(mailTo('hal@example.org')).toHaveLength(1);
  });
});
