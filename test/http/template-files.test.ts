/**
 * Templates that are only files: a notification is sent as its file was when it was accepted, whatever became of the file
 * since; through each door that accepts one. What was kept nowhere is said, not sent.
 */
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createStore } from '../../src/jobs/store.js';
import { createWorker, type Worker } from '../../src/jobs/worker.js';
import { createNotifyHandlers, type NotifyConfig } from '../../src/notify/index.js';
import { until } from '../support/until.js';
import { type ShimWorld, startShimWorld } from './shim-world.js';
import { type Sink, startSmtpSink } from './sinks.js';

const store = createStore();
let world: ShimWorld;
let smtp: Sink;
let notify: Omit<NotifyConfig, 'templates'>;

beforeAll(async () => {
  smtp = await startSmtpSink();
  notify = { email: { url: smtp.url, from: 'shop@example.org' } };
  world = await startShimWorld({
    notify,
    serve: { contracts: ['trio'], targets: { 'queue:notes': 'notify.email' } },
  });
});
afterAll(() => Promise.all([world?.close(), smtp?.close()]));

const file = (part: string): string => join(world.templates, 'order-note', `en.email.${part}`);
function write(word: string): void {
  writeFileSync(file('subject'), `${word} for {{name}}\n`);
  writeFileSync(file('text'), `${word}, {{name}}.\n`);
}
/** An edit is believed within a second: until the door's own preview shows it. */
async function seen(word: string): Promise<void> {
  await until(`${word} is seen`, async () => {
    const response = await post('/templates/order-note/preview', { data: { name: 'x' } });
    return JSON.stringify(response).includes(word);
  });
}

async function post(path: string, body: object, method = 'POST'): Promise<Record<string, unknown>> {
  const response = await fetch(`${world.url}${path}`, {
    method,
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  return (await response.json()) as Record<string, unknown>;
}

const DELAY_MS = 3_600_000;
const note = (name: string) => ({ to: `${name}@example.org`, template: 'order-note', data: { name } });

/** All that waits is due, and has ended. */
async function deliverAll(db = true): Promise<void> {
  const { pool } = world.database;
  await pool.query(`update unbroker.jobs set run_at = now() where state = 'ready' and cron is null`);
  const handlers = createNotifyHandlers({
    config: { templates: world.templates, ...notify },
    directory: '/',
    ...(db ? { db: pool } : {}),
  });
  const worker: Worker = createWorker({ db: pool, handlers, pollMs: 20 });
  worker.start();
  await until(
    'all have ended',
    async () => {
      const { rows } = await pool.query(
        `select from unbroker.jobs where state in ('ready', 'running') and cron is null`,
      );
      return rows.length === 0;
    },
    { withinMs: 60_000 },
  );
  await worker.stop({ deadlineMs: 1_000 });
}

const subjectTo = (name: string): string[] =>
  smtp
    .received()
    .filter(({ to }) => to.includes(`${name}@example.org`))
    .map(({ subject }) => subject ?? '');

it('edited, edited again, deleted: each is sent as it was accepted, through every door', async () => {
  write('First');
  await seen('First');
  await post('/notifications', { ...note('ann'), delayMs: DELAY_MS });
  await post('/notifications/batch', { notifications: [{ ...note('bo'), delayMs: DELAY_MS }] });
  await post('/schedules', { delayMs: DELAY_MS, target: { queue: 'notes' }, payload: note('cy') });
  const { id } = await post('/retries', {
    payload: note('di'),
    target: { kind: 'notify.email' },
    policy: { type: 'fixed', delayMs: DELAY_MS, maxAttempts: 3 },
  });
  write('Second');
  await seen('Second');
  await post('/notifications', { ...note('ed'), delayMs: DELAY_MS });
  rmSync(file('subject'));
  rmSync(file('text'));
  await until('it is gone', async () => (await post('/notifications', note('fay')))['status'] === 422);
  expect(id).toBeDefined();
  await deliverAll();
  expect(['ann', 'bo', 'cy', 'di', 'ed'].map((name) => subjectTo(name))).toEqual([
    ['First for ann'],
    ['First for bo'],
    ['First for cy'],
    ['First for di'],
    ['Second for ed'],
  ]);
  // Once for each content, not for each notification.
  const { rows } = await world.database.pool.query<{ subject: string }>(
    `select parts ->> 'subject' as subject from unbroker.template_files where parts ->> 'text' like '%{{name}}%' order by 1`,
  );
  expect(rows.map(({ subject }) => subject.trim())).toEqual(
    expect.arrayContaining(['First for {{name}}', 'Second for {{name}}']),
  );
  expect(rows.filter(({ subject }) => subject.startsWith('First'))).toHaveLength(1);
});

it('a cron fires with the template of that day, as the old service did; with a version where it asks for one', async () => {
  write('Spring');
  await seen('Spring');
  const cron = { cron: '0 9 * * *', target: { queue: 'notes' }, payload: note('gus') };
  const trigger = async (name: string) => {
    const { status } = await fetch(`${world.url}/schedules/${name}/trigger`, { method: 'POST' });
    expect(status).toBe(202);
    await deliverAll();
  };
  await post('/schedules/weekly', cron, 'PUT');
  await trigger('weekly');
  write('Summer');
  await seen('Summer');
  await trigger('weekly');
  expect(subjectTo('gus')).toEqual(['Spring for gus', 'Summer for gus']);

  const put = (word: string) =>
    post(
      '/templates/order-note-kept',
      { channel: 'email', parts: { subject: `${word} for {{name}}`, text: 'x' } },
      'PUT',
    );
  await put('One');
  const kept = (name: string) => ({ ...note(name), template: 'order-note-kept' });
  await post('/schedules/newest', { ...cron, payload: kept('hob') }, 'PUT');
  await post('/schedules/first', { ...cron, payload: { ...kept('ivy'), version: 1 } }, 'PUT');
  await put('Two');
  // Given another target it is still a schedule, and still follows.
  await post('/schedules/newest', { target: { kind: 'notify.email' } }, 'PATCH');
  await trigger('newest');
  await trigger('first');
  expect(subjectTo('hob')).toEqual(['Two for hob']);
  expect(subjectTo('ivy')).toEqual(['One for ivy']);
  for (const name of ['weekly', 'newest', 'first'])
    await fetch(`${world.url}/schedules/${name}`, { method: 'DELETE' });
});

it('what nobody kept: dead, saying so; the same content in the folder is as good as kept', async () => {
  write('Autumn');
  await seen('Autumn');
  const made = await post('/notifications', { ...note('hal'), delayMs: DELAY_MS });
  await deliverAll(false);
  expect(subjectTo('hal')).toEqual(['Autumn for hal']);
  expect((await store.show(world.database.pool, String(made['id'])))?.state).toBe('done');
  const lost = await post('/notifications', { ...note('ida'), delayMs: DELAY_MS });
  write('Winter');
  await world.database.pool.query('truncate unbroker.template_files');
  await deliverAll();
  const job = await store.show(world.database.pool, String(lost['id']));
  expect([job?.state, job?.errors.at(-1)?.name, job?.attempts]).toEqual(['dead', 'template-changed', 1]);
  expect(subjectTo('ida')).toEqual([]);
  // Replayed with another payload it takes the file as it is.
  await seen('Winter');
  await post(`/dead-letters/${job?.id}`, { payload: note('ida') }, 'PATCH');
  await fetch(`${world.url}/dead-letters/${job?.id}/replay`, { method: 'POST' });
  await deliverAll();
  expect(subjectTo('ida')).toEqual(['Winter for ida']);
});

it('an edit that needs a template which is not in memory reads it and starts again', async () => {
  const payload = note('jo');
  const target = { kind: 'notify.email' };
  const { id } = await post('/retries', { payload, target, attempt: 9 });
  // What the door knew of the key is forgotten with it.
  await post('/templates/order-note', { parts: { subject: 'Written for {{name}}', text: 'x' } }, 'PUT');
  expect(await post(`/dead-letters/${id}`, { payload }, 'PATCH')).toMatchObject({ id });
  await fetch(`${world.url}/dead-letters/${id}/replay`, { method: 'POST' });
  await deliverAll();
  expect(subjectTo('jo')).toEqual(['Written for jo']);
});
