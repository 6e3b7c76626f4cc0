/** Metrics of a real worker on a real table: what is served, how often the table is asked, what a lost database does. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach, expect, onTestFinished, test, vi } from 'vitest';
import { warnOfReadOnly } from '../../src/cli/read-only.js';
import type { Queryable } from '../../src/jobs/job.js';
import { createMetrics } from '../../src/jobs/worker-metrics.js';
import { SILENT } from '../../src/log.js';
import { startCli } from '../support/cli.js';
import { parseExposition, sampleOf } from '../support/exposition.js';
import { jobsDatabase } from '../support/jobs.js';
import type { StartedProcess } from '../support/processes.js';
import { until } from '../support/until.js';
import { startWorker } from '../support/workers.js';

const db = await jobsDatabase();
const folder = mkdtempSync(join(tmpdir(), 'unbroker-metrics-'));
afterAll(async () => {
  rmSync(folder, { recursive: true, force: true });
  await db.close();
});
beforeEach(() => db.clear());

test('a worker’s outcomes and what waits in the table', async () => {
  const metrics = createMetrics({ db: db.pool });
  await db.put('ok', [1, 2, 3]);
  await db.put('fails', [1], { maxAttempts: 1 });
  const origin = { dialect: 'celery', expiresAt: new Date(Date.now() - 1_000).toISOString() };
  const [late = ''] = await db.put('late', [1], { headers: { origin } });
  const handledLate = vi.fn();
  await db.put('nobody', [1, 2], { runAt: new Date(Date.now() - 90_000) });
  await db.put('later', [1], { delayMs: 3_600_000 });
  await db.put('held', [1]);
  await db.claim('held');
  await db.expire();
  const worker = startWorker({
    url: db.url,
    handlers: {
      ok: () => null,
      fails: () => {
        throw new Error('no');
      },
      late: handledLate,
    },
    onEvent: metrics.onEvent,
  });
  await worker.untilEnded(5);
  await worker.close();
  const families = parseExposition(await metrics.text());
  const value = (name: string, labels = {}) => sampleOf(families, name, labels);
  expect(value('unbroker_jobs_settled_total', { kind: 'ok', outcome: 'complete' })).toBe(3);
  expect(value('unbroker_jobs_settled_total', { kind: 'fails', outcome: 'discard' })).toBe(1);
  // What its own library would not have run any more has not been started here.
  expect(handledLate).not.toHaveBeenCalled();
  expect(await db.job(late)).toMatchObject({ state: 'dead', errors: [{ name: 'expired', attempt: 1 }] });
  expect(value('unbroker_jobs_expired_total', { kind: 'late' })).toBe(1);
  expect(value('unbroker_jobs_expired_total', { kind: 'fails' })).toBe(0);
  expect(value('unbroker_job_duration_seconds_count', { kind: 'ok' })).toBe(3);
  expect(value('unbroker_worker_jobs')).toBe(0);
  expect(value('unbroker_jobs_due', { kind: 'nobody' })).toBe(2);
  expect(value('unbroker_jobs_due', { kind: 'later' })).toBe(0);
  expect(value('unbroker_jobs_oldest_due_seconds', { kind: 'nobody' })).toBeGreaterThanOrEqual(89);
  expect(value('unbroker_jobs_running', { kind: 'held' })).toBe(1);
  expect(value('unbroker_leases_expired', { kind: 'held' })).toBe(1);
  expect(value('unbroker_table_up')).toBe(1);
});

test('the kinds of others leave a worker’s own their names', async () => {
  const metrics = createMetrics({ db: db.pool, maxKinds: 3, sampleMs: 0 });
  for (const kind of ['a', 'b', 'c', 'd']) await db.put(kind, [1]);
  await db.put('own', [1, 2]);
  const before = parseExposition(await metrics.text());
  expect(sampleOf(before, 'unbroker_jobs_due', { kind: '(other)' })).toBe(3);
  const worker = startWorker({ url: db.url, handlers: { own: () => null }, onEvent: metrics.onEvent });
  await worker.untilEnded(2);
  await worker.close();
  await db.put('own', [3]);
  const families = parseExposition(await metrics.text());
  expect(sampleOf(families, 'unbroker_jobs_claimed_total', { kind: 'own' })).toBe(2);
  expect(sampleOf(families, 'unbroker_jobs_due', { kind: 'own' })).toBe(1);
  expect(sampleOf(families, 'unbroker_jobs_due', { kind: '(other)' })).toBe(1);
});

test('however many scrape, the table is asked once a quarter of a minute', async () => {
  let asked = 0;
  const counting: Queryable = {
    query: (text, values) => {
      asked += 1;
      return db.pool.query(text, values);
    },
  };
  await createMetrics({ db: counting }).text();
  const once = asked;
  asked = 0;
  const metrics = createMetrics({ db: counting });
  await Promise.all(Array.from({ length: 20 }, () => metrics.text()));
  await metrics.text();
  expect(asked).toBe(once);
  expect(once).toBeLessThanOrEqual(4);
});

test('a lost database takes the gauges away and says so; its return brings them back', async () => {
  await db.put('waits', [1]);
  let away = false;
  const flaky: Queryable = {
    query: (text, values) =>
      away ? Promise.reject(new Error('terminating connection')) : db.pool.query(text, values),
  };
  const metrics = createMetrics({ db: flaky, sampleMs: 0 });
  const due = async () => {
    const families = parseExposition(await metrics.text());
    return [
      sampleOf(families, 'unbroker_jobs_due', { kind: 'waits' }),
      sampleOf(families, 'unbroker_table_up'),
    ];
  };
  expect(await due()).toEqual([1, 1]);
  away = true;
  expect(await due()).toEqual([undefined, 0]);
  away = false;
  expect(await due()).toEqual([1, 1]);
});

/** Starts a verb with --metrics-port 0; where it serves them. */
async function startWatched(...args: string[]) {
  const child = startCli([...args, '--metrics-port', '0'], { cwd: folder, env: { DATABASE_URL: db.url } });
  const url = await until(
    'it says where',
    () => /"listening":"(http:\/\/127\.0\.0\.1:\d+)\/metrics"/.exec(child.stderr)?.[1],
    { withinMs: 60_000 },
  );
  return { child, url };
}

/** From now on sessions that begin may only read, until the answer is called or the test ends; it ends those of the commands. */
async function noWrites(): Promise<() => Promise<void>> {
  const session = await db.session();
  await session.query(`alter database ${db.name} set default_transaction_read_only = on`);
  const allow = async (): Promise<void> => {
    await session.query(`alter database ${db.name} reset default_transaction_read_only`);
    await session.query(
      `select pg_terminate_backend(pid) from pg_stat_activity
       where datname = current_database() and application_name = 'unbroker'`,
    );
  };
  onTestFinished(allow);
  return allow;
}

/** What it says at its start, and that it is not ready, nor says so before. */
async function expectNotReady(child: StartedProcess, url: string, meanwhile: string): Promise<void> {
  const said = `the database takes no writes; until it does ${meanwhile}. `;
  await until('it says so', () => child.stderr.includes(said));
  expect(child.stderr.split('\n').find((line) => line.includes(said))).toMatch(/"level":40.*DATABASE_URL/);
  for (let times = 0; times < 5; times += 1) expect((await fetch(`${url}/readyz`)).status).toBe(503);
}

const untilReady = (url: string) =>
  until('it is ready', async () => (await fetch(`${url}/readyz`)).status === 200);

test('unbroker serve: not ready while the database takes no writes; counts its answers by route, never by path', async () => {
  writeFileSync(join(folder, 'unbroker.config.json'), '{}');
  const allowWrites = await noWrites();
  const { child, url } = await startWatched('serve', '--port', '0');
  try {
    await expectNotReady(child, url, 'nothing is accepted');
    const api = await until('it listens', () => /listening on (\S+)/.exec(child.stdout)?.[1]);
    expect((await fetch(`${api}/readyz`)).status).toBe(503);
    expect((await fetch(`${api}/livez`)).status).toBe(200);
    await allowWrites();
    for (const at of [url, api]) await untilReady(at);
    await fetch(`${api}/v1/secret-path/4711`);
    await fetch(`${api}/v1/secret-path/4712`, { method: 'DELETE' });
    const text = await (await fetch(`${url}/metrics`)).text();
    expect(text).not.toContain('secret-path');
    expect(parseExposition(text).get('unbroker_http_requests_total')?.samples).toEqual([
      {
        name: 'unbroker_http_requests_total',
        labels: { method: '(any)', route: '(none)', status: '404' },
        value: 2,
      },
    ]);
  } finally {
    child.signal('SIGTERM');
    await child.waitForExit(90_000);
  }
});

test('unbroker work: not ready while the database takes no writes; then it is, and serves what it did', async () => {
  writeFileSync(join(folder, 'unbroker.config.json'), '{"handlers": "./handlers.mjs"}');
  writeFileSync(join(folder, 'handlers.mjs'), 'export default { ok: async () => null };');
  const allowWrites = await noWrites();
  const { child, url } = await startWatched('work', '--no-listen');
  try {
    // Nothing is due: the worker's own questions are all answered.
    await expectNotReady(child, url, 'no job is run');
    await allowWrites();
    await untilReady(url);
    await db.put('ok', [1, 2]);
    const text = await until('both are done', async () => {
      const answer = await fetch(`${url}/metrics`);
      expect(answer.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8');
      const body = await answer.text();
      const done = sampleOf(parseExposition(body), 'unbroker_jobs_settled_total', {
        kind: 'ok',
        outcome: 'complete',
      });
      return done === 2 ? body : null;
    });
    expect(sampleOf(parseExposition(text), 'unbroker_table_up')).toBe(1);
    expect((await fetch(`${url}/livez`)).status).toBe(200);
    expect((await fetch(`${url}/else`)).status).toBe(404);
    expect((await fetch(`${url}/metrics`, { method: 'POST' })).status).toBe(405);
  } finally {
    child.signal('SIGTERM');
    await child.waitForExit(90_000);
  }
});

test('of a database that does not answer nobody says that it takes no writes', async () => {
  const warn = vi.fn();
  const query = () => Promise.reject(new Error('terminating connection'));
  await warnOfReadOnly({ ...SILENT, warn }, { query }, 'nothing happens');
  expect(warn).not.toHaveBeenCalled();
});
