/**
 * The old trio recorded through the proxy, then replayed against the shims: nothing differs but what is declared, and each
 * declaration is there for a reason. And the OpenAPI document of all that can be mounted.
 */
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Validator } from '@seriousme/openapi-schema-validator';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { compare, type Declared, Ids } from '../../src/shims/transcript/compare.js';
import { type Exchange, readTranscript } from '../../src/shims/transcript/exchange.js';
import { type Recorder, startRecorder } from '../../src/shims/transcript/record.js';
import { replay } from '../../src/shims/transcript/replay.js';
import { startTrio, type Trio } from '../legacy/start.js';
import { type FreshDatabase, type FreshVhost, freshDatabase, freshVhost } from '../support/services.js';
import { NOTIFY, type ShimWorld, startShimWorld } from './shim-world.js';

const folder = mkdtempSync(join(tmpdir(), 'unbroker-transcript-'));
const FILE = join(folder, 'trio.ndjson');
const SECRET = 'sk-never-written';
let world: ShimWorld;
let database: FreshDatabase;
let vhost: FreshVhost;
let trio: Trio;
const recorders: Recorder[] = [];

beforeAll(async () => {
  [database, vhost] = await Promise.all([freshDatabase(), freshVhost()]);
  trio = await startTrio({ amqpUrl: vhost.url, databaseUrl: database.url, smtpUrl: 'smtp://127.0.0.1:9' });
  world = await startShimWorld({
    notify: NOTIFY,
    serve: {
      contracts: ['trio', 'qstash', 'govuk-notify'],
      targets: { 'exchange:schedule.events': 'schedule.event' },
      keys: [{ name: 'app', env: 'APP' }],
    },
    environment: { APP: 'k'.repeat(32) },
  });
});
afterAll(async () => {
  await Promise.all(recorders.map((recorder) => recorder.close().catch(() => undefined)));
  await Promise.all([world?.close(), trio?.stop()]);
  await Promise.all([database?.close(), vhost?.close()]);
  rmSync(folder, { recursive: true, force: true });
});

/** What the shims do otherwise on purpose. docs/lookup/contracts.md says so, too. */
const DECLARED: readonly Declared[] = [
  { request: '*', status: 400, at: 'header.content-type', reason: 'errors are problem+json' },
  { request: '*', status: 404, at: 'header.content-type', reason: 'errors are problem+json' },
  { request: '*', status: 422, at: 'header.content-type', reason: 'errors are problem+json' },
  ...['type', 'title', 'status', 'code', 'detail'].map((name) => ({
    request: '*',
    at: `body.${name}`,
    reason: 'members that problem+json adds beside the old ones',
  })),
  { request: '*', status: 400, at: 'body.message', reason: 'the same code in other words' },
  { request: '*', status: 422, at: 'body.message', reason: 'the same code in other words' },
  {
    request: 'POST /schedules',
    status: 400,
    at: 'body.error',
    reason: 'unknown fields have a code of their own',
  },
  { request: 'PUT /templates/*', at: 'body.version', reason: 'templates have versions' },
  { request: 'GET /templates/*', at: 'body.variants[*].version', reason: 'templates have versions' },
  { request: 'POST /templates/*/preview', at: 'body.version', reason: 'templates have versions' },
];

it('the old trio, recorded and replayed, has no difference that is not declared', async () => {
  const through = async (target: string) => {
    const recorder = await startRecorder({ target, file: FILE });
    recorders.push(recorder);
    return async (method: string, path: string, body?: unknown): Promise<Record<string, string>> => {
      const answer = await fetch(`${recorder.url}${path}`, {
        method,
        headers: {
          authorization: `Bearer ${SECRET}`,
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      const text = await answer.text();
      return text === '' ? {} : JSON.parse(text);
    };
  };
  const notification = await through(trio.notification.url);
  // Within the reach of the old service's wait queues.
  const later = { runAt: new Date(Date.now() + 7_200_000).toISOString() };
  const mail = {
    to: 'ann@example.org',
    template: 'order-paid',
    data: { orderId: 1, total: '5' },
    reference: 'r-1',
  };
  await notification('POST', '/notifications', mail);
  await notification('POST', '/notifications/batch', {
    notifications: [mail, { ...mail, reference: 'r-2' }],
  });
  for (const bad of [{}, { to: 5 }, { ...mail, template: undefined }, { ...mail, channel: 'pigeon' }])
    await notification('POST', '/notifications', bad);
  await notification('GET', '/notifications/00000000-0000-4000-8000-000000000000');
  await notification('GET', '/notifications?reference=nobody');
  await notification('GET', '/templates/order-receipt');
  await notification('GET', '/templates/unknown');
  const receipt = { locale: 'fr-CA', data: { orderId: 1, total: '<2>', lines: [] } };
  await notification('POST', '/templates/order-receipt/preview', receipt);
  await notification('POST', '/templates/order-receipt/preview', { data: {} });
  const parts = { subject: 'Hi {{name}}', text: 'Dear {{name}}' };
  await notification('PUT', '/templates/fresh', { locale: 'en', channel: 'email', parts });
  await notification('GET', '/templates/fresh');
  await notification('POST', '/templates/fresh/preview', { data: { name: 'Al' } });
  await notification('PUT', '/templates/fresh', { locale: 'en', channel: 'email', parts: { text: '{{#if' } });
  await notification('DELETE', '/templates/fresh');
  await notification('GET', '/templates/fresh');

  const scheduling = await through(trio.scheduling.url);
  const target = { url: 'http://127.0.0.1:9/hook' };
  const { id = '' } = await scheduling('POST', '/schedules', {
    ...later,
    name: 'one',
    target,
    payload: { n: 1 },
  });
  await scheduling('GET', `/schedules/${id}`);
  await scheduling('GET', '/schedules?name=one');
  await scheduling('DELETE', `/schedules/${id}`);
  await scheduling('GET', `/schedules/${id}`);
  await scheduling('DELETE', '/schedules/00000000-0000-4000-8000-000000000000');
  for (const bad of [{}, { runAt: 'tomorrow' }, { ...later, target: { nowhere: 1 } }])
    await scheduling('POST', '/schedules', bad);

  const retry = await through(trio.retry.url);
  const policy = { type: 'fixed', delayMs: 3_600_000, maxAttempts: 5 };
  const asked = { payload: { n: 1 }, target, error: 'HTTP 503', attempt: 2, policy };
  const { id: retried = '' } = await retry('POST', '/retries', asked);
  await retry('GET', `/retries/${retried}`);
  for (const bad of [{}, { payload: 1 }, { payload: 1, target, policy: { type: 'never' } }])
    await retry('POST', '/retries', bad);
  await retry('GET', '/retries/00000000-0000-4000-8000-000000000000');
  await retry('POST', '/dead-letters/00000000-0000-4000-8000-000000000000/replay');

  const text = readFileSync(FILE, 'utf8');
  expect(text).not.toContain(SECRET);
  expect(statSync(FILE).mode & 0o077).toBe(0);
  const exchanges = readTranscript(text);
  expect(exchanges).toHaveLength(recorders.reduce((sum, { count }) => sum + count, 0));
  const options = { url: world.url, key: 'k'.repeat(32) };
  const result = await replay(exchanges, { ...options, declared: DECLARED });
  expect(result.undeclared).toEqual([]);
  expect(result.unused).toEqual([]);
  const bare = await replay(exchanges.slice(0, 4), { ...options, declared: [] });
  expect(bare.undeclared.map(({ at }) => at)).toContain('body.detail');
});

const exchange = (status: number, body: unknown, headers: Record<string, string> = {}): Exchange => ({
  request: { method: 'GET', target: '/a/1?x=1', headers: {}, body: '' },
  response: { status, headers, body: typeof body === 'string' ? body : JSON.stringify(body) },
});

it.each<[string, Exchange, Exchange, string[]]>([
  ['the same', exchange(200, { a: [1, { b: null }] }), exchange(200, { a: [1, { b: null }] }), []],
  ['a status', exchange(200, {}), exchange(201, {}), ['status']],
  ['a header', exchange(200, {}, { a: '1' }), exchange(200, {}), ['header.a']],
  [
    'a charset',
    exchange(200, {}, { 'content-type': 'application/json' }),
    exchange(200, {}, { 'content-type': 'Application/JSON; charset=utf-8' }),
    [],
  ],
  ['members more and fewer', exchange(200, { a: 1 }), exchange(200, { b: 1 }), ['body.a', 'body.b']],
  ['an item more', exchange(200, { l: [1] }), exchange(200, { l: [1, 2] }), ['body.l[1]']],
  ['null and absent', exchange(200, { a: null }), exchange(200, {}), ['body.a']],
  ['a number and its text', exchange(200, { a: 1 }), exchange(200, { a: '1' }), ['body.a']],
  [
    'two times',
    exchange(200, { at: '2024-01-01T00:00:00Z' }),
    exchange(200, { at: '2030-01-01T01:00:00.5+02:00' }),
    [],
  ],
  [
    'a time and none',
    exchange(200, { at: '2024-01-01T00:00:00Z' }),
    exchange(200, { at: null }),
    ['body.at'],
  ],
  ['plain text', exchange(200, 'Message queued.'), exchange(200, 'queued'), ['body']],
  ['a short id', exchange(200, { id: '1' }), exchange(200, { id: '2' }), ['body.id']],
])('%s', (_name, was, is, at) => {
  expect(compare(1, was, is.response, new Ids()).map((one) => one.at)).toEqual(at);
});

it('an id that was learnt is expected from then on', () => {
  const ids = new Ids();
  const [old, now] = ['11111111-aaaa', '42424242'];
  expect(compare(1, exchange(200, { id: old }), exchange(200, { id: now }).response, ids)).toEqual([]);
  expect(ids.translate(`/a/${old}/b`)).toBe(`/a/${now}/b`);
  const other = exchange(200, { orderId: '99999999' }).response;
  expect(compare(2, exchange(200, { parent: old }), exchange(200, { parent: now }).response, ids)).toEqual(
    [],
  );
  expect(
    compare(3, exchange(200, { parent: old }), { ...other, body: '{"parent":"other"}' }, ids),
  ).toHaveLength(1);
});

it('a transcript that cannot be read is named by its line', () => {
  writeFileSync(join(folder, 'bad'), '{}\n');
  expect(() => readTranscript('\n{"request":{}}\n')).toThrow(/Line 2/);
});

it('all contracts are described by a valid OpenAPI document', async () => {
  const answer = await fetch(`${world.url}/openapi.json`, { headers: { 'x-api-key': 'k'.repeat(32) } });
  const document = (await answer.json()) as {
    paths: Record<string, Record<string, { operationId: string }>>;
  };
  const { valid, errors } = await new Validator().validate(document as never);
  expect(errors ?? null).toBeNull();
  expect(valid).toBe(true);
  const operations = Object.values(document.paths).flatMap((path) => Object.values(path));
  const names = operations.map(({ operationId }) => operationId);
  expect(new Set(names).size).toBe(names.length);
  for (const path of [
    '/notifications',
    '/schedules/{id}/next-runs',
    '/v2/publish/{rest}',
    '/v2/template/{id}/preview',
  ])
    expect(Object.keys(document.paths)).toContain(path);
  expect((await fetch(`${world.url}/openapi.json`)).status).toBe(401);
});
