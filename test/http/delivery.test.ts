/**
 * Deliveries that nobody can vouch for: the worker is killed while the provider has the message, for real. And the
 * waiting that a provider asks for, which must not cost attempts.
 */

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SMTPServer } from 'smtp-server';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { createStore } from '../../src/jobs/store.js';
import { createWorker, type Worker } from '../../src/jobs/worker.js';
import type { NotifyConfig } from '../../src/notify/config.js';
import { createNotifyHandlers } from '../../src/notify/index.js';
import { type StartedProcess, startScript } from '../support/processes.js';
import { type FreshDatabase, freshMigratedDatabase } from '../support/services.js';
import { until } from '../support/until.js';
import { lateRetries } from '../support/workers.js';

const MAIN = join(import.meta.dirname, '..', '..', 'src', 'cli', 'main.ts');
const store = createStore();

let database: FreshDatabase;
let folder: string;
let smtp: SMTPServer;
let smtpUrl: string;
/** Message-IDs of the mails that the server has taken. */
const taken: string[] = [];
/** Called when a mail is in, before the server says so. */
let onTaken: () => Promise<void> = async () => undefined;
const workers: (StartedProcess | Worker)[] = [];
const servers: Server[] = [];

beforeAll(async () => {
  database = await freshMigratedDatabase();
  folder = mkdtempSync(join(tmpdir(), 'unbroker-delivery-'));
  mkdirSync(join(folder, 'templates', 'hello'), { recursive: true });
  writeFileSync(join(folder, 'templates', 'hello', 'en.email.subject'), 'Hello {{name}}\n');
  writeFileSync(join(folder, 'templates', 'hello', 'en.email.text'), 'Hello {{name}}, number {{n}}.\n');
  smtp = new SMTPServer({
    authOptional: true,
    disabledCommands: ['AUTH', 'STARTTLS'],
    disableReverseLookup: true,
    onData(stream, _session, callback) {
      const chunks: Buffer[] = [];
      stream.on('data', (chunk: Buffer) => chunks.push(chunk));
      stream.on('end', () => {
        taken.push(/^Message-ID: (\S+)/im.exec(Buffer.concat(chunks).toString('utf8'))?.[1] ?? '?');
        onTaken().then(() => callback(null), callback);
      });
    },
  });
  smtp.on('error', () => undefined);
  await new Promise<void>((resolve) => smtp.listen(0, '127.0.0.1', () => resolve()));
  smtpUrl = `smtp://127.0.0.1:${(smtp.server.address() as AddressInfo).port}`;
});

afterEach(async () => {
  onTaken = async () => undefined;
  for (const worker of workers.splice(0)) {
    if ('kill' in worker) await worker.kill();
    else await worker.stop({ deadlineMs: 500 });
  }
});

afterAll(async () => {
  for (const server of servers) {
    server.closeAllConnections();
    server.close();
  }
  await new Promise<void>((resolve) => smtp?.close(() => resolve()) ?? resolve());
  await database?.close();
  rmSync(folder, { recursive: true, force: true });
});

function notifyConfig(change: Partial<NotifyConfig> = {}): NotifyConfig {
  return {
    templates: './templates',
    email: { url: smtpUrl, from: 'shop@example.org' },
    allowedNetworks: ['127.0.0.0/8'],
    ...change,
  };
}

/** `unbroker work` as a process of its own, with a lease short enough to see it end. */
async function startWorkerProcess(notify: NotifyConfig): Promise<StartedProcess> {
  const file = join(folder, `config-${workers.length}-${taken.length}.json`);
  writeFileSync(file, JSON.stringify({ notify, worker: { leaseMs: 1_500, pollMs: 20 } }));
  const worker = startScript(MAIN, ['work', '--config', file], {
    env: { DATABASE_URL: database.url, UNBROKER_LOG_LEVEL: 'info' },
  });
  workers.push(worker);
  await worker.waitFor('working');
  return worker;
}

function startWorker(notify: NotifyConfig): Worker {
  const handlers = createNotifyHandlers({ config: notify, directory: folder });
  const worker = createWorker({
    ...{ db: database.pool, handlers: lateRetries(handlers) },
    ...{ pollMs: 20, upkeepMs: 200 },
  });
  worker.start();
  workers.push(worker);
  return worker;
}

async function enqueueMail(name: string): Promise<string> {
  const payload = { to: `${name}@example.org`, template: 'hello', data: { name, n: 1 } };
  const { rows } = await database.pool.query<{ id: string }>('select unbroker.enqueue($1, $2)::text as id', [
    'notify.email',
    JSON.stringify(payload),
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

/** Kills the worker when its mail is in: it never learns that it was taken. */
async function killAtTheWorstMoment(notify: NotifyConfig, name: string): Promise<string> {
  const worker = await startWorkerProcess(notify);
  onTaken = async () => {
    await worker.kill('SIGKILL');
    onTaken = async () => undefined;
  };
  const before = taken.length;
  const id = await enqueueMail(name);
  await until('the mail is in and the worker dead', () => taken.length === before + 1 && !worker.running);
  return id;
}

it('killed between the provider and the mark: parked, not sent again; an operator may send it', async () => {
  const before = taken.length;
  const id = await killAtTheWorstMoment(notifyConfig(), 'ann');
  expect((await store.show(database.pool, id))?.progress).toMatchObject({ unconfirmed: 'smtp' });
  startWorker(notifyConfig());
  const dead = await settled(id, 'dead');
  expect(dead.errors.at(-1)).toMatchObject({ name: 'ambiguous-delivery' });
  expect(taken.length).toBe(before + 1);

  expect(await store.operatorRetry(database.pool, [id], 5)).toEqual([id]);
  const done = await settled(id, 'done');
  expect(done.result).toEqual({ provider: 'smtp', providerId: `<${id}@example.org>` });
  expect(taken.slice(before)).toEqual([`<${id}@example.org>`, `<${id}@example.org>`]);
});

it('the same where the kind says resend: sent again under the same id', async () => {
  const notify = notifyConfig({ email: { url: smtpUrl, from: 'shop@example.org', onAmbiguous: 'resend' } });
  const before = taken.length;
  const id = await killAtTheWorstMoment(notify, 'bo');
  startWorker(notify);
  await settled(id, 'done');
  expect(taken.slice(before)).toEqual([`<${id}@example.org>`, `<${id}@example.org>`]);
});

it('noted as sent but not settled: the next start sends nothing and keeps the id', async () => {
  const before = taken.length;
  const id = await enqueueMail('cy');
  await database.pool.query(
    `update unbroker.jobs set progress = '{"sent":{"provider":"smtp","providerId":"<kept>"}}' where id = $1`,
    [id],
  );
  startWorker(notifyConfig());
  expect((await settled(id, 'done')).result).toEqual({ provider: 'smtp', providerId: '<kept>' });
  expect(taken.length).toBe(before);
});

it('a payload with a line break in the rendered subject is refused at the send, too', async () => {
  const before = taken.length;
  const id = await enqueueMail('di\r\nBcc: eve@example.org');
  startWorker(notifyConfig());
  const dead = await settled(id, 'dead');
  expect(dead.errors.at(-1)?.name).toMatch(/delivery-refused|header-injection/);
  const { rows } = await database.pool.query<{ id: string }>('select unbroker.enqueue($1, $2)::text as id', [
    'notify.email',
    JSON.stringify({
      to: 'di@example.org',
      template: 'hello',
      data: { name: 'x\r\nBcc: eve@example.org', n: 1 },
    }),
  ]);
  expect((await settled(rows[0]?.id ?? '', 'dead')).errors.at(-1)?.name).toBe('header-injection');
  expect(taken.length).toBe(before);
});

it('Retry-After and a refused login wait without spending attempts; a plain 503 spends one', async () => {
  const answers: [number, Record<string, string>][] = [
    [429, { 'retry-after': '3600' }],
    [401, {}],
    [503, {}],
  ];
  const keys: string[] = [];
  const server = createServer((request, response) => {
    keys.push(String(request.headers['idempotency-key']));
    const [status, headers] = answers.shift() ?? [200, {}];
    request.resume().on('end', () => response.writeHead(status, headers).end('{"id":"gw-1"}'));
  });
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  startWorker(notifyConfig({ sms: { url } }));
  const payload = { to: '+15550100', body: 'hi' };
  const { rows } = await database.pool.query<{ id: string }>('select unbroker.enqueue($1, $2)::text as id', [
    'notify.sms',
    JSON.stringify(payload),
  ]);
  const id = rows[0]?.id ?? '';
  for (const [asked, attempts, waitS] of [
    [1, 0, 3_600],
    [2, 0, 60],
    [3, 1, 0],
  ] as const) {
    const job = await until(`answer ${asked} is settled`, async () => {
      const found = await store.show(database.pool, id);
      return keys.length === asked && found?.state === 'ready' ? found : null;
    });
    expect(job.attempts).toBe(attempts);
    if (waitS > 0) expect(Math.abs(job.runAt.getTime() - Date.now() - waitS * 1_000)).toBeLessThan(30_000);
    await database.pool.query('update unbroker.jobs set run_at = now() where id = $1', [id]);
  }
  const done = await settled(id, 'done');
  expect(done.result).toEqual({ provider: 'gateway', providerId: 'gw-1' });
  expect(done.attempts).toBe(2);
  expect(new Set(keys)).toEqual(new Set([id]));
});

it('a gateway that vanishes with the request parks the job; one that is not there does not', async () => {
  const server = createServer((request) => void request.resume().on('end', () => request.socket.destroy()));
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const worker = startWorker(notifyConfig({ sms: { url: `http://127.0.0.1:${port}` } }));
  const send = async (): Promise<string> => {
    const { rows } = await database.pool.query<{ id: string }>(
      'select unbroker.enqueue($1, $2)::text as id',
      ['notify.sms', '{"to":"+15550100","body":"hi"}'],
    );
    return rows[0]?.id ?? '';
  };
  const lost = await send();
  expect((await settled(lost, 'dead')).errors.at(-1)).toMatchObject({ name: 'ambiguous-delivery' });
  await worker.stop();
  await new Promise<void>((resolve) => server.close(() => resolve()));
  startWorker(notifyConfig({ sms: { url: `http://127.0.0.1:${port}` } }));
  const early = await send();
  const retried = await until('it was tried', async () => {
    const job = await store.show(database.pool, early);
    return job?.errors.length === 1 ? job : null;
  });
  expect(retried.state).toBe('ready');
  expect(retried.errors[0]?.message).toContain('ECONNREFUSED');
});
