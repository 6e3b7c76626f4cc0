/** What the old trio did not have, or had from files: templates with versions, cron schedules, bulk acts on dead letters. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createWorker, type Worker } from '../../src/jobs/worker.js';
import { createNotifyHandlers } from '../../src/notify/index.js';
import { until } from '../support/until.js';
import { NOTIFY, type ShimWorld, startShimWorld } from './shim-world.js';
import { type Sink, startHttpSink, startSmtpSink } from './sinks.js';

let world: ShimWorld;
let smtp: Sink;
let web: Sink;
let worker: Worker;

beforeAll(async () => {
  [smtp, web] = await Promise.all([startSmtpSink(), startHttpSink()]);
  const notify = { ...NOTIFY, email: { url: smtp.url, from: 'Shop <shop@example.org>' } };
  world = await startShimWorld({ notify, serve: { kinds: ['team.report'] } });
  const handlers = createNotifyHandlers({
    config: { templates: world.templates, ...notify },
    directory: '/',
    db: world.database.pool,
  });
  worker = createWorker({ db: world.database.pool, handlers, pollMs: 20 });
  worker.start();
});
afterAll(async () => {
  await worker?.stop({ deadlineMs: 1_000 });
  await world?.close();
  await Promise.all([smtp?.close(), web?.close()]);
});

interface Answer {
  readonly status: number;
  readonly headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: whatever the server says
  readonly body: any;
}

async function ask(method: string, path: string, body?: unknown): Promise<Answer> {
  const init = body === undefined ? {} : { body: JSON.stringify(body) };
  const answer = await fetch(`${world.url}${path}`, {
    method,
    headers: body === undefined ? {} : { 'content-type': 'application/json' },
    ...init,
  });
  const text = await answer.text();
  return { status: answer.status, headers: answer.headers, body: text === '' ? null : JSON.parse(text) };
}

const sent = (to: string) =>
  until(`mail to ${to}`, () => smtp.received().find((mail) => mail.to.includes(to)) ?? null, {
    withinMs: 60_000,
  });

describe('templates', () => {
  const parts = (n: number) => ({ subject: `Hello {{name}} ${n}`, text: `Text ${n} for {{name}}` });

  it('a write is a new version; a notification is sent with the one it was accepted with', async () => {
    const first = await ask('PUT', '/templates/welcome', { locale: 'fr', channel: 'email', parts: parts(1) });
    expect(first.body).toEqual({
      key: 'welcome',
      locale: 'fr',
      channel: 'email',
      parts: parts(1),
      version: 1,
    });
    const later = { to: 'pin@example.org', template: 'welcome', locale: 'fr-CA', data: { name: 'Al' } };
    const { body } = await ask('POST', '/notifications', { ...later, delayMs: 600_000 });
    expect((await ask('PUT', '/templates/welcome', { locale: 'fr', parts: parts(2) })).body.version).toBe(2);
    expect(JSON.parse(await world.payloadText(body.id)).version).toBe(1);
    await ask('POST', '/notifications', { ...later, to: 'new@example.org' });
    expect((await sent('new@example.org')).subject).toBe('Hello Al 2');
    expect((await ask('POST', `/notifications/${body.id}/send-now`)).status).toBe(202);
    expect((await sent('pin@example.org')).subject).toBe('Hello Al 1');

    expect((await ask('GET', '/templates/welcome?version=1')).body.variants).toMatchObject([
      { locale: 'fr', parts: parts(1), version: 1 },
    ]);
    const preview = { locale: 'fr-CA', data: { name: 'Bo' }, version: 1 };
    expect((await ask('POST', '/templates/welcome/preview', preview)).body).toMatchObject({
      locale: 'fr',
      parts: { subject: 'Hello Bo 1', text: 'Text 1 for Bo' },
    });
    expect(await ask('POST', '/templates/welcome/preview', { locale: 'fr', data: {} })).toMatchObject({
      status: 422,
      body: { code: 'render-failed' },
    });
    expect((await ask('GET', '/templates/welcome/versions')).body.items).toMatchObject([
      { version: 2, locale: 'fr', channel: 'email', deleted: false },
      { version: 1 },
    ]);
  });

  it('locale chain: the exact one, the language, the default locale, default', async () => {
    for (const locale of ['default', 'en', 'fr', 'fr-CA'])
      await ask('PUT', '/templates/chain', { locale, parts: { subject: locale, text: locale } });
    for (const [asked, got] of [
      ['fr-CA', 'fr-CA'],
      ['fr-BE', 'fr'],
      ['de', 'en'],
    ])
      expect((await ask('POST', '/templates/chain/preview', { locale: asked, data: {} })).body.locale).toBe(
        got,
      );
    expect((await ask('DELETE', '/templates/chain?locale=en')).status).toBe(204);
    expect((await ask('POST', '/templates/chain/preview', { locale: 'de', data: {} })).body.locale).toBe(
      'default',
    );
  });

  it('the table hides a file of the same variant, and a deletion hides it, too', async () => {
    expect((await ask('GET', '/templates/order-paid')).body.variants[0].version).toBeUndefined();
    await ask('PUT', '/templates/order-paid', { parts: { subject: 'New', text: 'New' } });
    expect((await ask('GET', '/templates/order-paid?locale=en&channel=email')).body.variants).toMatchObject([
      { parts: { subject: 'New' }, version: 1 },
    ]);
    expect((await ask('DELETE', '/templates/order-paid')).status).toBe(204);
    expect((await ask('GET', '/templates/order-paid')).status).toBe(404);
    const send = { to: 'a@example.org', template: 'order-paid', data: {} };
    expect((await ask('POST', '/notifications', send)).body.code).toBe('template-unknown');
    expect((await ask('DELETE', '/templates/order-paid')).status).toBe(404);
  });

  it.each([
    [400, { parts: { subject: '{{#if' } }],
    [400, { parts: { subject: '{{> partial}}' } }],
    [400, { parts: {} }],
    [400, { parts: { body: 'x' } }],
    [400, { channel: 'fax', parts: { text: 'x' } }],
    [400, { locale: '../..', parts: { text: 'x' } }],
    [400, { parts: { text: 'x' }, more: 1 }],
  ])('%s for %j, and nothing is written', async (status, body) => {
    expect((await ask('PUT', '/templates/bad', body)).status).toBe(status);
    expect((await ask('GET', '/templates/bad')).status).toBe(404);
  });

  it('a key that could leave the folder is none', async () => {
    expect((await ask('PUT', '/templates/UPPER', { parts: { text: 'x' } })).status).toBe(422);
  });

  it('writers of one key get versions of their own', async () => {
    const put = (n: number) => ask('PUT', '/templates/busy', { locale: 'en', parts: parts(n) });
    const versions = (await Promise.all(Array.from({ length: 12 }, (_, n) => put(n)))).map(
      ({ body }) => body.version,
    );
    expect(versions.sort((a, b) => a - b)).toEqual(Array.from({ length: 12 }, (_, n) => n + 1));
  });
});

describe('cron schedules', () => {
  const target = () => ({ url: `${web.url}/fired` });

  it('made, read, listed, changed, paused, resumed, triggered, deleted', async () => {
    const made = await ask('POST', '/schedules', {
      name: 'nightly/report',
      cron: '30 2 * * *',
      timeZone: 'America/New_York',
      target: target(),
      payload: { n: 1 },
      retry: { type: 'fixed', delayMs: 1_000, maxAttempts: 3 },
    });
    expect(made.status).toBe(201);
    expect(made.headers.get('location')).toBe('/schedules/nightly%2Freport');
    expect(made.body).toMatchObject({ id: 'nightly/report', status: 'scheduled', payload: { n: 1 } });
    const again = { name: 'nightly/report', cron: '* * * * *', target: target() };
    expect((await ask('POST', '/schedules', again)).status).toBe(409);
  });

  it('by a name that may stand in a path', async () => {
    const path = '/schedules/nightly';
    const body = { cron: '30 2 * * *', timeZone: 'America/New_York', target: target(), payload: { n: 1 } };
    expect((await ask('PUT', path, body)).status).toBe(201);
    expect((await ask('PUT', path, body)).status).toBe(200);
    expect((await ask('GET', path)).body).toMatchObject({ cron: '30 2 * * *', target: target() });
    expect((await ask('GET', '/schedules?name=nightly')).body.items).toHaveLength(1);
    expect((await ask('GET', '/schedules?status=scheduled')).body.items.length).toBeGreaterThan(0);
    const runs = (await ask('GET', `${path}/next-runs?count=400`)).body.items as string[];
    expect(runs).toHaveLength(200);
    expect(new Set(runs.map((at) => at.slice(11, 16)))).toEqual(new Set(['06:30', '07:00', '07:30']));

    expect((await ask('PATCH', path, { payload: { n: 2 }, cron: '0 3 * * *' })).body).toMatchObject({
      payload: { n: 2 },
      cron: '0 3 * * *',
      timeZone: 'America/New_York',
    });
    expect((await ask('POST', `${path}/pause`)).body.status).toBe('paused');
    expect((await ask('GET', '/schedules?status=paused')).body.items).toMatchObject([{ id: 'nightly' }]);
    expect((await ask('POST', `${path}/resume`)).body.status).toBe('scheduled');
    const { body: fired } = await ask('POST', `${path}/trigger`);
    expect(fired.status).toBe('triggered');
    const call = await until('it is called', () =>
      web.received().find(({ to, text }) => to.includes('/fired') && text.includes(fired.id)),
    );
    expect(JSON.parse(call.text)).toMatchObject({ key: 'nightly', data: { n: 2 }, attempt: 1 });
    const history = await until('its history shows it', async () => {
      const { body: shown } = await ask('GET', `${path}/history`);
      return shown.items[0]?.status === 'fired' ? shown.items : null;
    });
    expect(history).toMatchObject([{ id: fired.id, attempts: 1, error: null }]);
    expect((await ask('DELETE', path)).status).toBe(204);
    expect((await ask('GET', path)).status).toBe(404);
    expect((await ask('POST', `${path}/pause`)).status).toBe(404);
  });

  it('another door’s schedule of that name is neither shown nor overwritten', async () => {
    await world.database.pool.query(
      `insert into unbroker.jobs (kind, dedupe_key, cron, time_zone, misfire, slots_until, source, run_at)
       values ('team.report', 'schedule:theirs', '@daily', 'UTC', 'once', now(), 'cli', now() + interval '1 day')`,
    );
    expect((await ask('GET', '/schedules/theirs')).status).toBe(404);
    expect((await ask('DELETE', '/schedules/theirs')).status).toBe(404);
    const body = { cron: '* * * * *', target: target() };
    expect((await ask('PUT', '/schedules/theirs', body)).status).toBe(409);
  });

  it('a one-off by name is replaced, moved, hurried', async () => {
    const body = { delayMs: 3_600_000, target: target(), payload: 1 };
    const first = (await ask('PUT', '/schedules/once', body)).body;
    const second = (await ask('PUT', '/schedules/once', { ...body, payload: 2 })).body;
    expect(second.id).not.toBe(first.id);
    expect((await ask('GET', `/schedules/${first.id}`)).body.status).toBe('cancelled');
    expect((await ask('GET', '/schedules?name=once&status=scheduled')).body.items).toHaveLength(1);
    const moved = await ask('PATCH', `/schedules/${second.id}`, {
      runAt: '2040-01-01T00:00:00Z',
      payload: { big: 3 },
    });
    expect(moved.body).toMatchObject({ runAt: '2040-01-01T00:00:00.000Z', payload: { big: 3 } });
    expect((await ask('GET', `/schedules/${second.id}/next-runs`)).body.items).toEqual([
      '2040-01-01T00:00:00.000Z',
    ]);
    expect((await ask('POST', `/schedules/${second.id}/pause`)).status).toBe(409);
    expect((await ask('POST', `/schedules/${second.id}/trigger`)).body.id).toBe(second.id);
    await until(
      'it fired',
      async () => (await ask('GET', `/schedules/${second.id}`)).body.status === 'fired',
    );
    expect((await ask('PATCH', `/schedules/${second.id}`, { delayMs: 1 })).status).toBe(409);
  });

  it('is not fired once it has expired', async () => {
    const { body } = await ask('POST', '/schedules', {
      delayMs: 3_600_000,
      expiresAt: '2030-01-01T00:00:00Z',
      target: target(),
      payload: 'late',
    });
    await world.database.pool.query(
      `update unbroker.jobs set headers = headers || '{"expiresAt":"2020-01-01T00:00:00Z"}', run_at = now() where id = $1`,
      [body.id],
    );
    const dead = await until('it is given up', async () => {
      const found = (await ask('GET', `/schedules/${body.id}`)).body;
      return found.status === 'failed' ? found : null;
    });
    expect(dead.error).toContain('expired');
    expect(web.received().some(({ text }) => text.includes('late'))).toBe(false);
  });
});

describe('dead letters', () => {
  async function kill(kind: string, error: string, count: number): Promise<string[]> {
    const { rows } = await world.database.pool.query<{ id: string }>(
      `insert into unbroker.jobs (kind, payload, state, finished_at, attempts, errors)
       select $1, '{"n":1}', 'dead', now(), 3, jsonb_build_array(jsonb_build_object('at', now(), 'attempt', 3, 'name', $2::text, 'message', 'x'))
       from generate_series(1, $3) returning id::text`,
      [kind, error, count],
    );
    return rows.map(({ id }) => id);
  }

  it('are grouped, counted, filtered, replayed and put aside by what they have in common', async () => {
    const [first = ''] = await kill('team.report', 'Timeout', 3);
    await kill('team.report', 'Broken', 2);
    await kill('team.other', 'Timeout', 1);
    const { items } = (await ask('GET', '/dead-letters/groups?kind=team.report')).body;
    expect(items).toMatchObject([
      { kind: 'team.report', error: 'Timeout', count: 3 },
      { kind: 'team.report', error: 'Broken', count: 2 },
    ]);
    expect((await ask('GET', '/dead-letters/stats')).body.kinds).toMatchObject({
      'team.report': 5,
      'team.other': 1,
    });
    expect((await ask('GET', '/dead-letters?kind=team.report&error=Broken')).body.total).toBe(2);
    expect((await ask('PATCH', `/dead-letters/${first}`, { payload: { n: 2 } })).status).toBe(200);
    expect(await world.payloadText(first)).toBe('{"n": 2}');

    const filter = { kind: 'team.report', error: 'Timeout' };
    const replayed = (await ask('POST', '/dead-letters/replay', { filter, limit: 2 })).body;
    expect(replayed).toMatchObject({ replayed: 2, more: true });
    expect((await ask('POST', '/dead-letters/replay', { filter })).body).toMatchObject({
      replayed: 1,
      more: false,
    });
    expect((await ask('PATCH', `/dead-letters/${first}`, { payload: 1 })).status).toBe(404);
    const [other = ''] = await kill('team.other', 'Timeout', 1);
    expect((await ask('POST', '/dead-letters/discard', { ids: [other, first, '999999'] })).body).toEqual({
      discarded: 1,
      ids: [other],
      notFound: [first, '999999'],
      more: false,
    });
    expect((await ask('POST', '/dead-letters/replay', { filter: {} })).status).toBe(400);
    expect((await ask('POST', '/dead-letters/replay', {})).status).toBe(400);
  });

  it('a failed call is tried again as it was made', async () => {
    const call = {
      url: `${web.url}/again`,
      method: 'PUT',
      headers: { 'X-Tenant': 'a b' },
      body: { n: 9007199254740991 },
    };
    const policy = { type: 'fixed', delayMs: 0, maxAttempts: 3 };
    const { body } = await ask('POST', '/retries', { httpRequest: call, policy, attempt: 1 });
    await until(
      'it succeeded',
      async () => (await ask('GET', `/retries/${body.id}`)).body.status === 'succeeded',
    );
    const got = web.received().find(({ to }) => to.includes('/again'));
    expect(got?.headers['x-tenant']).toBe('a b');
    for (const headers of [{ host: 'x' }, { 'x-a': 'a\r\nb: c' }, { 'bad name': 'x' }])
      expect((await ask('POST', '/retries', { httpRequest: { ...call, headers }, policy })).status).toBe(422);
  });
});

it('notifications are found and called off by tag', async () => {
  const send = (to: string, tags: string[]) =>
    ask('POST', '/notifications', { to, body: 'x', tags, delayMs: 600_000 });
  const a = (await send('t1@example.org', ['campaign-1', 'x'])).body.id;
  const b = (await send('t2@example.org', ['campaign-1'])).body.id;
  await send('t3@example.org', ['campaign-2']);
  const { items } = (await ask('GET', '/notifications?tag=campaign-1')).body;
  expect(items.map(({ id }: { id: string }) => id)).toEqual([b, a]);
  const done = (await ask('POST', '/notifications/cancel', { tag: 'campaign-1' })).body;
  expect([...done.ids].sort()).toEqual([a, b].sort());
  expect((await ask('GET', '/notifications?tag=campaign-1&status=cancelled')).body.items).toHaveLength(2);
  expect((await ask('GET', '/notifications?tag=campaign-2&status=accepted')).body.items).toHaveLength(1);
});
