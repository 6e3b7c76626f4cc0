/** The unmodified @upstash/qstash client against the shim, and its Receiver against what the worker sends. */
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Client, Receiver } from '@upstash/qstash';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createWorker, type Worker } from '../../src/jobs/worker.js';
import { createNotifyHandlers } from '../../src/notify/index.js';
import { until } from '../support/until.js';
import { NOTIFY, rawPost, type ShimWorld, sendRaw, startShimWorld } from './shim-world.js';

const TOKEN = 't'.repeat(32);
const SIGNING_KEY = 's'.repeat(32);

interface Call {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}

let world: ShimWorld;
let worker: Worker;
let client: Client;
let target: Server;
let base: string;
const calls: Call[] = [];
/** Answers 500 to paths that hold `fail`. */
const status = (url: string): number => (url.includes('fail') ? 500 : 200);

beforeAll(async () => {
  target = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const { method = '', url = '', headers } = request;
      calls.push({ method, url, headers, body: Buffer.concat(chunks).toString('utf8') });
      response.writeHead(status(url)).end('{"seen":true}');
    });
  });
  await new Promise<void>((resolve) => target.listen(0, '127.0.0.1', resolve));
  base = `http://127.0.0.1:${(target.address() as AddressInfo).port}`;
  world = await startShimWorld({
    serve: { contracts: ['qstash'], keys: [{ name: 'app', env: 'TOKEN' }] },
    environment: { TOKEN },
  });
  const handlers = createNotifyHandlers({
    config: { ...NOTIFY, qstash: { signingKeyEnv: 'KEY' } },
    directory: '/',
    environment: { KEY: SIGNING_KEY },
    db: world.database.pool,
  });
  worker = createWorker({ db: world.database.pool, handlers, pollMs: 20 });
  worker.start();
  client = new Client({ token: TOKEN, baseUrl: world.url, retry: false, enableTelemetry: false });
});

afterAll(async () => {
  await worker?.stop({ deadlineMs: 1_000 });
  await world?.close();
  target?.closeAllConnections();
  await new Promise<void>((resolve) => target?.close(() => resolve()) ?? resolve());
});

const called = (path: string) =>
  until(`${path} is called`, () => calls.find(({ url }) => url === path) ?? null, { withinMs: 60_000 });
const countOf = (path: string): number => calls.filter(({ url }) => url === path).length;

describe('publish', () => {
  it('calls the URL in the path, signed, with what was to be forwarded', async () => {
    const { messageId } = await client.publishJSON({
      url: `${base}/hello//a?x=1&y=%2F`,
      body: { n: 1, text: 'é' },
      headers: { 'X-Tenant': 'a' },
      label: 'welcome',
    });
    const call = await called('/hello//a?x=1&y=%2F');
    expect(messageId).toMatch(/^msg_\d+$/);
    expect(call).toMatchObject({ method: 'POST', body: '{"n":1,"text":"é"}' });
    expect(call.headers).toMatchObject({
      'content-type': 'application/json',
      'x-tenant': 'a',
      'upstash-message-id': messageId,
      'upstash-retried': '0',
      'upstash-label': 'welcome',
    });
    const signature = String(call.headers['upstash-signature']);
    const request = { signature, body: call.body, url: `${base}/hello//a?x=1&y=%2F` };
    const right = new Receiver({ currentSigningKey: SIGNING_KEY, nextSigningKey: 'n'.repeat(32) });
    expect(await right.verify(request)).toBe(true);
    await expect(right.verify({ ...request, body: `${call.body} ` })).rejects.toThrow(/body hash/);
    await expect(right.verify({ ...request, url: `${base}/other` })).rejects.toThrow(/subject/);
    const wrong = new Receiver({ currentSigningKey: 'w'.repeat(32), nextSigningKey: 'v'.repeat(32) });
    await expect(wrong.verify(request)).rejects.toThrow();
  });

  it('other methods, text, bytes, no body', async () => {
    await client.publish({ url: `${base}/put`, method: 'PUT', body: 'plain' });
    expect(await called('/put')).toMatchObject({ method: 'PUT', body: 'plain' });
    await client.publish({ url: `${base}/get`, method: 'GET' });
    expect(await called('/get')).toMatchObject({ method: 'GET', body: '' });
    const bytes = Buffer.from([0, 255, 1]);
    const head = { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/octet-stream' };
    const answer = await sendRaw(world.port, [rawPost(`/v2/publish/${base}/bytes`, bytes, head)]);
    expect(answer.status).toBe(201);
    expect((await called('/bytes')).body).toBe(bytes.toString('utf8'));
  });

  it('a proxy that made one slash of two does not matter; a group does', async () => {
    const head = { authorization: `Bearer ${TOKEN}` };
    const one = base.replace('//', '/');
    expect((await sendRaw(world.port, [rawPost(`/v2/publish/${one}/one`, '{}', head)])).status).toBe(201);
    await called('/one');
    await expect(client.publishJSON({ urlGroup: 'team', body: {} })).rejects.toThrow(/URL groups/);
    await expect(client.publishJSON({ url: 'http://10.0.0.1/', body: {} })).rejects.toThrow(/private/);
    const anonymous = new Client({ token: 'x', baseUrl: world.url, retry: false, enableTelemetry: false });
    await expect(anonymous.publishJSON({ url: base, body: {} })).rejects.toThrow(/API key/);
  });

  it('delay and notBefore become run_at; get shows it, cancel takes it back', async () => {
    const { messageId } = (await client.publishJSON({
      url: `${base}/later`,
      body: 1,
      delay: '26h',
    })) as { messageId: string };
    const at = Math.floor(Date.now() / 1_000) + 7_200;
    const second = await client.publishJSON({ url: `${base}/later`, body: 2, notBefore: at });
    const shown = await client.messages.get(messageId);
    expect(shown).toMatchObject({
      messageId,
      url: `${base}/later`,
      method: 'POST',
      body: '1',
      maxRetries: 3,
    });
    expect(Math.abs((shown.notBefore ?? 0) - Date.now() - 26 * 3_600_000)).toBeLessThan(60_000);
    expect((await client.messages.get(second.messageId)).notBefore).toBe(at * 1_000);
    expect(await client.messages.cancel(messageId)).toEqual({ cancelled: 1 });
    await expect(client.messages.get(messageId)).rejects.toThrow(/not found/);
    await expect(client.messages.cancel(messageId)).rejects.toThrow(/not found/);
    expect(await client.messages.cancel([second.messageId, 'msg_0'])).toEqual({ cancelled: 1 });
    expect(countOf('/later')).toBe(0);
  });

  it('the same deduplication id, or content, is one message', async () => {
    const send = () =>
      client.publishJSON({ url: `${base}/dedupe`, body: 1, deduplicationId: 'd-1', delay: 60 });
    const [first, again] = [await send(), await send()];
    expect(again).toEqual({ messageId: first.messageId, deduplicated: true });
    const byContent = (body: number) =>
      client.publishJSON({ url: `${base}/dedupe`, body, contentBasedDeduplication: true, delay: 60 });
    const a = await byContent(1);
    expect((await byContent(1)).messageId).toBe(a.messageId);
    expect((await byContent(2)).messageId).not.toBe(a.messageId);
  });

  it('a batch is stored whole or not at all', async () => {
    const answers = await client.batchJSON([
      { url: `${base}/b1`, body: { n: 1 }, headers: { 'x-n': '1' } },
      { url: `${base}/b2`, body: { n: 2 }, queueName: 'q' },
    ]);
    expect(answers).toHaveLength(2);
    expect((await called('/b1')).headers['x-n']).toBe('1');
    expect((await called('/b2')).body).toBe('{"n":2}');
    const before = await world.jobCount();
    await expect(
      client.batchJSON([
        { url: `${base}/b3`, body: {} },
        { url: 'http://10.0.0.1/', body: {} },
      ]),
    ).rejects.toThrow(/private/);
    expect(await world.jobCount()).toBe(before);
  });
});

describe('retries and the dead letter queue', () => {
  it('tries again by the formula, then lies in the queue, is retried and deleted', async () => {
    const { messageId } = await client.publishJSON({
      url: `${base}/fail/1`,
      body: { n: 1 },
      retries: 2,
      retryDelay: 'max(0, retried * 10)',
      failureCallback: `${base}/failed`,
    });
    const told = await called('/failed');
    expect(JSON.parse(told.body)).toMatchObject({
      status: 500,
      retried: 2,
      maxRetries: 2,
      sourceMessageId: messageId,
      url: `${base}/fail/1`,
    });
    expect(countOf('/fail/1')).toBe(3);
    expect(
      calls.filter(({ url }) => url === '/fail/1').map(({ headers }) => headers['upstash-retried']),
    ).toEqual(['0', '1', '2']);
    const [dead] = await until('it is listed', async () => {
      const { messages } = await client.dlq.listMessages();
      return messages.length === 1 ? messages : null;
    });
    expect(dead).toMatchObject({
      messageId,
      responseStatus: 500,
      responseBody: '{"seen":true}',
      body: '{"n":1}',
    });
    await client.dlq.retry(dead?.dlqId ?? '');
    await until('it was tried again', () => countOf('/fail/1') > 3);
    await world.database.pool.query(
      `update unbroker.jobs set state = 'dead', finished_at = now(), locked_until = null, locked_by = null, lease_token = null where state <> 'dead' and payload ->> 'url' like '%/fail/1'`,
    );
    expect(await client.dlq.delete(dead?.dlqId ?? '')).toEqual({ deleted: 1 });
    expect((await client.dlq.listMessages()).messages).toEqual([]);
    await expect(client.dlq.delete(dead?.dlqId ?? '')).rejects.toThrow(/not found/);
  });

  it('pages, and acts on many', async () => {
    await world.database.pool.query(
      `insert into unbroker.jobs (kind, payload, state, finished_at)
       select 'qstash.deliver', jsonb_build_object('url', 'http://127.0.0.1:9/' || n), 'dead', now() from generate_series(1, 5) n`,
    );
    const first = await client.dlq.listMessages({ count: 3 });
    const rest = await client.dlq.listMessages({ count: 3, cursor: first.cursor ?? '' });
    expect([first.messages.length, rest.messages.length, rest.cursor]).toEqual([3, 2, undefined]);
    const ids = first.messages.map(({ dlqId }) => dlqId);
    expect(await client.dlq.delete(ids)).toMatchObject({ deleted: 3 });
  });

  it('a callback tells of a success, once', async () => {
    const { messageId } = await client.publishJSON({ url: `${base}/ok`, body: 1, callback: `${base}/done` });
    const told = JSON.parse((await called('/done')).body);
    expect(told).toMatchObject({ status: 200, sourceMessageId: messageId });
    for (const at of [told.createdAt, told.notBefore]) expect(at).toBe(Math.trunc(at));
    expect(Buffer.from(told.body, 'base64').toString()).toBe('{"seen":true}');
  });

  it.each([
    { retries: 5_000 },
    { retryDelay: 'process.exit(1)' },
    { retryDelay: 'pow(2' },
    { delay: 'soon' as '1s' },
    { timeout: 'x' as '1s' },
    { callback: 'http://169.254.169.254/' },
    { flowControl: { key: 'k', parallelism: 1 } },
  ])('refuses %j', async (options) => {
    const before = await world.jobCount();
    await expect(client.publishJSON({ url: `${base}/bad`, body: 1, ...options })).rejects.toThrow();
    expect(await world.jobCount()).toBe(before);
  });
});

describe('schedules', () => {
  it('create, get, list, pause, resume, delete; each run names its schedule', async () => {
    const { scheduleId } = await client.schedules.create({
      destination: `${base}/cron`,
      cron: 'CRON_TZ=Europe/Paris 30 2 * * *',
      body: '{"n":1}',
      headers: { 'Content-Type': 'application/json' },
      scheduleId: 'nightly',
    });
    expect(scheduleId).toBe('nightly');
    const shown = await client.schedules.get(scheduleId);
    expect(shown).toMatchObject({
      scheduleId,
      cron: 'CRON_TZ=Europe/Paris 30 2 * * *',
      destination: `${base}/cron`,
      body: '{"n":1}',
      retries: 3,
      isPaused: false,
    });
    await client.schedules.pause({ schedule: scheduleId });
    expect((await client.schedules.get(scheduleId)).isPaused).toBe(true);
    await client.schedules.resume({ schedule: scheduleId });
    expect((await client.schedules.list()).map(({ scheduleId: id, isPaused }) => [id, isPaused])).toEqual([
      ['nightly', false],
    ]);
    await world.database.pool.query(
      `update unbroker.jobs set run_at = now() where dedupe_key = 'schedule:nightly'`,
    );
    expect((await called('/cron')).headers['upstash-schedule-id']).toBe('nightly');
    await client.schedules.delete(scheduleId);
    await expect(client.schedules.get(scheduleId)).rejects.toThrow(/not found/);
    await expect(client.schedules.delete(scheduleId)).rejects.toThrow(/not found/);
    const drawn = await client.schedules.create({ destination: `${base}/cron`, cron: '0 0 1 1 *' });
    expect(drawn.scheduleId).toMatch(/^scd_/);
    await expect(
      client.schedules.create({ destination: `${base}/cron`, cron: '61 * * * *' }),
    ).rejects.toThrow(/cron/);
  });
});
