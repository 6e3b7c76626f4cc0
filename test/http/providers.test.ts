/**
 * Delivery by several providers under limits that all workers share: SendGrid's and Twilio's wire, failover, rate,
 * recipients' caps, the breaker, a refused login, the suppression list, statuses out. Against real HTTP and SMTP servers.
 */
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { createStore } from '../../src/jobs/store.js';
import { createWorker, type Worker } from '../../src/jobs/worker.js';
import { checkNotifyConfig, type NotifyConfig } from '../../src/notify/config.js';
import { createGate } from '../../src/notify/gate.js';
import { createNotifyHandlers } from '../../src/notify/index.js';
import { type FreshDatabase, freshMigratedDatabase } from '../support/services.js';
import { until } from '../support/until.js';
import { lateRetries } from '../support/workers.js';
import { type Sink, startSmtpSink } from './sinks.js';

interface Call {
  readonly url: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}
type Reply = readonly [status: number, headers?: Record<string, string>, body?: string];

const store = createStore();
let database: FreshDatabase;
let smtp: Sink;
let server: Server;
let url: string;
let calls: Call[] = [];
/** What the next calls are answered; then 202. */
let replies: (Reply | 'hang up')[] = [];
const workers: Worker[] = [];

beforeAll(async () => {
  server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      calls.push({
        url: request.url ?? '',
        headers: request.headers,
        body: Buffer.concat(chunks).toString('utf8'),
      });
      const reply = replies.shift() ?? [202, { 'x-message-id': 'sg-1' }, '{"sid":"SM1"}'];
      if (reply === 'hang up') request.socket.destroy();
      else response.writeHead(reply[0], reply[1] ?? {}).end(reply[2] ?? '');
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  [database, smtp] = await Promise.all([freshMigratedDatabase(), startSmtpSink()]);
});

afterEach(async () => {
  await Promise.all(workers.splice(0).map((worker) => worker.stop({ deadlineMs: 500 })));
  await database.pool.query(
    'truncate unbroker.jobs, unbroker.providers, unbroker.recipient_counts, unbroker.suppressions',
  );
  [calls, replies] = [[], []];
});

afterAll(async () => {
  server?.closeAllConnections();
  await new Promise<void>((resolve) => server?.close(() => resolve()) ?? resolve());
  await Promise.all([database?.close(), smtp?.close()]);
});

const FROM = 'Shop <shop@example.org>';
const sendgrid = () => ({ provider: 'sendgrid' as const, keyEnv: 'SG', url, from: FROM });
const twilio = () => ({
  provider: 'twilio' as const,
  accountSid: 'AC1',
  tokenEnv: 'TW',
  from: '+15550100',
  url,
});

function startWorker(config: NotifyConfig): Worker {
  const handlers = createNotifyHandlers({
    config: checkNotifyConfig({ allowedNetworks: ['127.0.0.0/8'], ...config }),
    directory: '/',
    environment: { SG: 'sg-key', TW: 'tw-token' },
    db: database.pool,
  });
  const worker = createWorker({ db: database.pool, handlers: lateRetries(handlers), pollMs: 20 });
  worker.start();
  workers.push(worker);
  return worker;
}

async function send(channel: string, to: string, more: object = {}): Promise<string> {
  const { rows } = await database.pool.query<{ id: string }>('select unbroker.enqueue($1, $2)::text as id', [
    `notify.${channel}`,
    JSON.stringify({ to, body: 'Hi', subject: 'Subject', ...more }),
  ]);
  return rows[0]?.id ?? '';
}

const settled = (id: string, state: string) =>
  until(
    `job ${id} is ${state}`,
    async () => {
      const job = await store.show(database.pool, id);
      return job?.state === state ? job : null;
    },
    { withinMs: 60_000 },
  );

it('SendGrid gets what its API takes; its id is kept', async () => {
  startWorker({ email: sendgrid() });
  const id = await send('email', 'ann@example.org', { unsubscribeUrl: 'https://example.org/u' });
  expect((await settled(id, 'done')).result).toEqual({ provider: 'sendgrid', providerId: 'sg-1' });
  const [call] = calls;
  expect(call?.url).toBe('/v3/mail/send');
  expect(call?.headers.authorization).toBe('Bearer sg-key');
  expect(JSON.parse(call?.body ?? '')).toEqual({
    personalizations: [{ to: [{ email: 'ann@example.org' }], custom_args: { notification_id: id } }],
    from: { email: 'shop@example.org', name: 'Shop' },
    subject: 'Subject',
    content: [{ type: 'text/plain', value: 'Hi' }],
    headers: {
      'X-Notification-Id': id,
      'List-Unsubscribe': '<https://example.org/u>',
      'List-Unsubscribe-Post': 'List-Unsubscribe=One-Click',
    },
  });
});

it('Twilio gets a form; its code is in the error, its body is not', async () => {
  startWorker({ sms: twilio() });
  const id = await send('sms', '+15550199');
  expect((await settled(id, 'done')).result).toEqual({ provider: 'twilio', providerId: 'SM1' });
  expect(calls[0]?.url).toBe('/2010-04-01/Accounts/AC1/Messages.json');
  expect(Object.fromEntries(new URLSearchParams(calls[0]?.body))).toEqual({
    To: '+15550199',
    From: '+15550100',
    Body: 'Hi',
  });
  expect(calls[0]?.headers.authorization).toBe(`Basic ${Buffer.from('AC1:tw-token').toString('base64')}`);
  replies = [[400, {}, '{"code":21610,"message":"+15550199 has opted out"}']];
  const refused = await settled(await send('sms', '+15550199'), 'dead');
  expect(refused.errors.at(-1)?.message).toBe('HTTP 400 from Twilio, code 21610');
});

it('the next provider is asked where the first surely did not deliver, and only there', async () => {
  startWorker({ email: { providers: [sendgrid(), { url: smtp.url, from: FROM }] } });
  replies = [[503], [429, { 'retry-after': '3600' }], 'hang up', [400]];
  for (const to of ['f1@example.org', 'f2@example.org']) {
    expect((await settled(await send('email', to), 'done')).result).toMatchObject({ provider: 'smtp' });
    expect(smtp.received().filter((mail) => mail.to.includes(to))).toHaveLength(1);
  }
  const unclear = await settled(await send('email', 'f3@example.org'), 'dead');
  expect(unclear.errors.at(-1)?.name).toBe('ambiguous-delivery');
  const refused = await settled(await send('email', 'f4@example.org'), 'dead');
  expect(refused.errors.at(-1)).toMatchObject({
    name: 'delivery-refused',
    message: 'HTTP 400 from SendGrid',
  });
  expect(smtp.received().filter(({ to }) => /f[34]@/.test(to[0] ?? ''))).toEqual([]);
});

it('a refused login pauses the provider for everybody, and no attempt is spent', async () => {
  // It has been called before: its row is there.
  await database.pool.query("insert into unbroker.providers (name) values ('email.sendgrid')");
  startWorker({ email: sendgrid() });
  replies = [[401]];
  const first = await send('email', 'p1@example.org');
  await until(
    'it is put off',
    async () => calls.length === 1 && (await store.show(database.pool, first))?.state === 'ready',
  );
  const second = await send('email', 'p2@example.org');
  const waiting = await until('the other is put off unasked', async () => {
    const job = await store.show(database.pool, second);
    return job !== null && job.state === 'ready' && job.runAt.getTime() > Date.now() + 20_000 ? job : null;
  });
  expect([waiting.attempts, waiting.errors.length, calls.length]).toEqual([0, 0, 1]);
  expect((await store.show(database.pool, first))?.attempts).toBe(0);
});

it('after failures in a row the breaker opens; when it has been quiet, one success closes it', async () => {
  const limits = { breaker: { failures: 2, openMs: 60_000 } };
  startWorker({ email: { ...sendgrid(), limits } });
  replies = [[500], [500]];
  const ids = [await send('email', 'b1@example.org'), await send('email', 'b2@example.org')];
  // Called is not yet counted: what is sent in between is let through.
  await until('two have failed', async () => {
    const jobs = await Promise.all(ids.map((id) => store.show(database.pool, id)));
    return jobs.every((job) => job?.errors.length === 1);
  });
  const third = await send('email', 'b3@example.org');
  const waiting = await until('the third waits unasked', async () => {
    const job = await store.show(database.pool, third);
    return job !== null && job.runAt.getTime() > Date.now() + 20_000 ? job : null;
  });
  expect([waiting.attempts, calls.length]).toEqual([0, 2]);
  await database.pool.query(`update unbroker.providers set open_until = now(); `);
  await database.pool.query('update unbroker.jobs set run_at = now()');
  for (const id of [...ids, third]) await settled(id, 'done');
  const { rows } = await database.pool.query('select failures, open_until from unbroker.providers');
  expect(rows).toEqual([{ failures: 0, open_until: null }]);
});

it('a rate holds for all workers together', async () => {
  const limits = { maxPerSecond: 20, maxBurst: 2 };
  const [one, other] = [startWorker, startWorker].map((start) => start({ email: { ...sendgrid(), limits } }));
  expect(one).not.toBe(other);
  const startedAt = performance.now();
  const ids = await Promise.all(Array.from({ length: 14 }, (_, n) => send('email', `r${n}@example.org`)));
  for (const id of ids) expect((await settled(id, 'done')).attempts).toBe(1);
  // 2 at once, then 12 at 20 a second. Slower on a slow machine, never faster.
  expect(performance.now() - startedAt).toBeGreaterThan(590);
  expect(calls).toHaveLength(14);
});

it('tokens: many askers at once get as many as there are', async () => {
  const gate = createGate(database.pool, 'unbroker');
  const limits = { maxPerSecond: 1, maxBurst: 5 };
  const asked = await Promise.all(Array.from({ length: 20 }, () => gate.admit('email.x', limits)));
  const went = asked.filter(({ type }) => type === 'go').length;
  expect(went).toBeGreaterThanOrEqual(5);
  expect(went).toBeLessThanOrEqual(7);
  for (const one of asked) if (one.type === 'wait') expect(one.afterMs).toBeLessThanOrEqual(1_000);
});

it('one recipient gets no more than the cap within a window, whatever the case of the address', async () => {
  const limits = { maxPerRecipient: { count: 2, windowMs: 31 * 86_400_000 } };
  startWorker({ email: { ...sendgrid(), limits } });
  const ids: string[] = [];
  for (const to of ['Cap@example.org', 'cap@example.org', 'CAP@example.org'])
    ids.push(await send('email', to));
  await settled(await send('email', 'other@example.org'), 'done');
  const states = await until('two are out and one waits', async () => {
    const jobs = await Promise.all(ids.map((id) => store.show(database.pool, id)));
    const found = jobs.map((job) => job?.state);
    return found.filter((state) => state === 'done').length === 2 ? jobs : null;
  });
  const held = await until('one is put off', async () => {
    const job = await store.show(database.pool, states.find((one) => one?.state !== 'done')?.id ?? '');
    return job !== null && job.state === 'ready' && job.attempts === 0 && job.runAt > new Date() ? job : null;
  });
  expect(held.errors).toEqual([]);
  expect(calls).toHaveLength(3);
});

it('the suppression list is read when it is sent', async () => {
  await database.pool.query(
    `insert into unbroker.suppressions (channel, recipient, reason) values ('email', 'no@example.org', 'complaint')`,
  );
  startWorker({ email: sendgrid() });
  const dead = await settled(await send('email', 'No@Example.org'), 'dead');
  expect(dead.errors.at(-1)?.name).toBe('suppressed');
  expect(calls).toEqual([]);
});

it('statuses go out as jobs for the broker, once each', async () => {
  startWorker({ email: sendgrid(), statusEvents: {} });
  replies = [[500], [400]];
  const id = await send('email', 'st@example.org', { template: undefined });
  await until('it failed once', async () => (await store.show(database.pool, id))?.errors.length === 1);
  await database.pool.query('update unbroker.jobs set run_at = now() where id = $1', [id]);
  await settled(id, 'dead');
  const events = await until('both are told', async () => {
    const { rows } = await database.pool.query(
      `select payload from unbroker.jobs where kind = 'relay.amqp' order by id`,
    );
    return rows.length === 2 ? rows : null;
  });
  expect(events.map(({ payload }) => payload)).toMatchObject([
    {
      exchange: 'notification.status',
      routingKey: 'status.retrying',
      body: { id, attempt: 1, channel: 'email' },
    },
    { routingKey: 'status.failed', body: { status: 'failed', error: 'HTTP 400 from SendGrid' } },
  ]);
});

it.each([
  { email: { provider: 'sendgrid', from: FROM } },
  { email: { provider: 'pigeon', from: FROM } },
  { email: { providers: [] } },
  { email: { providers: [{ url: 'smtp://a', from: FROM, limits: {} }] } },
  { sms: { provider: 'twilio', accountSid: 'a/b', tokenEnv: 'T', from: '+1' } },
  { sms: { url: 'http://a', urlEnv: 'B' } },
  { email: { url: 'smtp://a', from: FROM, limits: { maxPerSecond: 0 } } },
])('a config that means nothing is refused: %j', (config) => {
  expect(() => checkNotifyConfig(config)).toThrow(expect.objectContaining({ code: 'config-invalid' }));
});
