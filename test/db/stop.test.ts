/**
 * Shutdown: claim nothing more, wait for what runs, give back what is left without spending an attempt, and end. The
 * command does it on a signal; a second signal ends it at once.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execPath } from 'node:process';
import { afterAll, afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { HandlerContext } from '../../src/jobs/handler.js';
import type { Queryable } from '../../src/jobs/job.js';
import { cliFile, startCli } from '../support/cli.js';
import { startFaultProxy } from '../support/fault-proxy.js';
import { jobsDatabase } from '../support/jobs.js';
import { type StartedProcess, startProcess } from '../support/processes.js';
import { until } from '../support/until.js';
import { startWorker, type TestWorker, type TestWorkerOptions } from '../support/workers.js';

const db = await jobsDatabase();
const folder = mkdtempSync(join(tmpdir(), 'unbroker-stop-'));
afterAll(async () => {
  await db.close();
  rmSync(folder, { recursive: true });
});
beforeEach(() => db.clear());

const workers: TestWorker[] = [];
function work(options: Omit<TestWorkerOptions, 'url'> & { url?: string }): TestWorker {
  const worker = startWorker({ url: db.url, ...options });
  workers.push(worker);
  return worker;
}
const processes: StartedProcess[] = [];
afterEach(async () => {
  await Promise.all(workers.splice(0).map((worker) => worker.close()));
  await Promise.all(processes.splice(0).map((process) => process.kill()));
});

const pause = (ms: number, value?: unknown): Promise<unknown> =>
  new Promise((resolve) => setTimeout(resolve, ms, value));

describe('stop()', () => {
  test('waits for what runs, keeps its leases meanwhile, claims nothing more', async () => {
    await db.put('a', Array(20).fill(0));
    let open = (): void => {};
    const gate = new Promise<void>((resolve) => {
      open = resolve;
    });
    // A machine that stands still for a second must not end them.
    const worker = work({ concurrency: 4, leaseMs: 1_800, handlers: { a: () => gate } });
    await until('four run', () => worker.running === 4);
    const firstEndMs = async (): Promise<number> => {
      const { rows } = await db.pool.query(
        `select 1000 * extract(epoch from min(locked_until)) as ms from unbroker.jobs where state = 'running'`,
      );
      return Number(rows[0].ms);
    };
    const stopping = worker.stop({ deadlineMs: 60_000 });
    const before = await firstEndMs();
    await until('their leases are prolonged twice', async () => (await firstEndMs()) > before + 700);
    open();
    await stopping;
    expect(await db.states()).toEqual({ done: 4, ready: 16 });
    expect(worker.lost()).toEqual([]);
    expect(worker.running).toBe(0);
  });

  test('after the deadline gives back what still runs: signal aborted, attempt not spent, due at once', async () => {
    const ids = await db.put('a', [1, 2]);
    const aborted: string[] = [];
    const worker = work({
      handlers: {
        a: (job, { signal }: HandlerContext) =>
          new Promise((resolve) => {
            signal.addEventListener('abort', () => {
              aborted.push(job.id);
              resolve('too late');
            });
          }),
      },
    });
    await until('both run', () => worker.running === 2);
    await worker.stop({ deadlineMs: 50 });
    for (const id of ids)
      expect(await db.job(id)).toMatchObject({
        state: 'ready',
        attempts: 0,
        errors: [],
        lockedUntil: null,
        result: null,
      });
    expect(aborted.sort()).toEqual([...ids].sort());
    expect(await db.claim('a')).toHaveLength(2);
    expect(worker.settled()).toEqual([]);
    expect(worker.lost()).toEqual([]);
  });

  test('gives back a job whose lease it lost while it ran, if nobody else has taken it', async () => {
    const [taken = '', left = ''] = await db.put('a', [1, 2], { maxAttempts: 1 });
    const worker = work({ leaseMs: 1_000, handlers: { a: () => new Promise(() => {}) } });
    await until('both run', () => worker.running === 2);
    // No extension gets at the rows until the leases are over.
    const other = await db.session();
    await other.query('begin');
    await other.query('select from unbroker.jobs for update');
    await until('both are lost', () => worker.lost().length === 2);
    await other.query('update unbroker.jobs set lease_token = lease_token + 1 where id = $1', [taken]);
    await other.query('commit');
    await worker.stop({ deadlineMs: 0 });
    expect(await db.job(left)).toMatchObject({ state: 'ready', attempts: 0 });
    expect(await db.job(taken)).toMatchObject({ state: 'running', attempts: 1 });
  });

  test('a hundred times in the middle of work: every job is done or ready, and no attempt is lost', async () => {
    const ids = await db.put('a', Array(300).fill(0));
    for (let round = 0; round < 100; round += 1) {
      const worker = startWorker({
        url: db.url,
        concurrency: 5,
        max: 3,
        handlers: { a: () => pause(Math.random() * 10) },
      });
      await pause(Math.random() * 15);
      await worker.close({ deadlineMs: Math.random() * 5 });
      const { running = 0 } = await db.states();
      expect(running).toBe(0);
    }
    const { rows } = await db.pool.query(
      `select count(*)::int as right from unbroker.jobs where attempts = case state when 'done' then 1 else 0 end and errors is null`,
    );
    expect(rows[0].right).toBe(ids.length);
  }, 180_000);

  test.each(['a row that is locked just then', 'another transaction in the way'])(
    '%s: what is given back goes back all the same',
    async (how) => {
      const [held] = (await db.put('a', [1, 2])) as [string, string];
      const holder = await db.session();
      let releases = 0;
      const meeting: Queryable = {
        async query(text, values) {
          const isRelease =
            text.includes("set state = 'ready'") && text.includes('attempts = j.attempts - 1');
          if (!isRelease || ++releases > 1) return db.pool.query(text, values);
          if (how.startsWith('another')) throw Object.assign(new Error('serialization'), { code: '40001' });
          await holder.query('begin');
          await holder.query('select from unbroker.jobs where id = $1 for update', [held]);
          const answer = await db.pool.query(text, values);
          await holder.query('rollback');
          return answer;
        },
      };
      const worker = work({ db: meeting, handlers: { a: () => new Promise(() => {}) } });
      await until('both run', () => worker.running === 2);
      await worker.stop({ deadlineMs: 0 });
      expect(await db.states()).toEqual({ ready: 2 });
      expect((await db.job(held)).attempts).toBe(0);
      expect(releases).toBeGreaterThan(1);
    },
  );

  test('at once after start, twice, and before start', async () => {
    await db.put('a', [1]);
    const worker = work({ handlers: { a: () => 1 } });
    await Promise.all([worker.stop(), worker.stop()]);
    await worker.stop();
    expect((await db.states())['running'] ?? 0).toBe(0);
  });

  test('while the database is away it ends all the same, and the leases run out', async () => {
    const proxy = await startFaultProxy(db.url);
    await db.put('a', [1]);
    let open = (): void => {};
    const gate = new Promise<void>((resolve) => {
      open = resolve;
    });
    const worker = work({ url: proxy.url, leaseMs: 600, handlers: { a: () => gate } });
    await until('it runs', () => worker.running === 1);
    proxy.refuse();
    proxy.cut();
    // Its outcome has nowhere to go.
    open();
    const startedAt = Date.now();
    await worker.stop({ deadlineMs: 1_000 });
    expect(Date.now() - startedAt).toBeLessThan(20_000);
    expect((await db.states())['running']).toBe(1);
    expect(worker.lost()).toHaveLength(1);
    await proxy.close();
  });

  test('what ended on a row that somebody else holds is told as lost, once, and free for the reaper', async () => {
    const [id = ''] = await db.put('a', [1, 2]);
    let open = (): void => {};
    const gate = new Promise<void>((resolve) => {
      open = resolve;
    });
    const worker = work({ leaseMs: 1_000, handlers: { a: () => gate } });
    await until('both run', () => worker.running === 2);
    const other = await db.session();
    await other.query('begin');
    await other.query('select from unbroker.jobs where id = $1 for update', [id]);
    open();
    await worker.stop();
    expect(worker.lost().map((job) => job.id)).toEqual([id]);
    expect(worker.settled()).toHaveLength(1);
    expect(worker.untold()).toEqual([]);
    await other.query('rollback');
    expect(await db.states()).toEqual({ done: 1, running: 1 });
  });
});

describe('unbroker work', () => {
  writeFileSync(
    join(folder, 'handlers.mjs'),
    `const pause = (ms, value) => new Promise((resolve) => setTimeout(resolve, ms, value));
     export default {
       quick: () => 'quick',
       slow: () => pause(1500, 'slow'),
       deaf: () => pause(3_600_000),
       forgets: () => {
         void Promise.reject(new TypeError('of hunter2'));
         return pause(3_600_000);
       },
     };`,
  );
  writeFileSync(
    join(folder, 'unbroker.config.mjs'),
    `export default { handlers: './handlers.mjs', worker: { concurrency: 4, pollMs: 20, logLevel: 'info' } };`,
  );
  function start(...args: string[]): StartedProcess {
    const process = startCli(['work', ...args], {
      cwd: folder,
      env: { DATABASE_URL: db.url, UNBROKER_LOG_LEVEL: undefined },
    });
    processes.push(process);
    return process;
  }

  test.each([
    // A terminal that was closed; SIGTERM has the same listener, see the next test.
    ['SIGHUP', 0],
    ['SIGINT', 130],
  ] as const)(
    '%s: finishes what runs, ends with %i, says what it did',
    async (signal, code) => {
      await db.put('slow', [1, 2]);
      const process = start();
      await until('both run', async () => (await db.states())['running'] === 2, { withinMs: 60_000 });
      process.signal(signal);
      expect(await process.waitForExit(90_000)).toEqual({ code, signal: null });
      expect(process.stdout).toContain(
        'Worker ended: 2 done, 0 retried, 0 snoozed, 0 dead, 0 lost, 0 released.',
      );
      expect(await db.states()).toEqual({ done: 2 });
    },
    180_000,
  );

  test('SIGTERM with a handler that hears nothing: given back after the grace, and the process is gone', async () => {
    const [id] = (await db.put('deaf', [1])) as [string];
    const process = start('--grace', '300ms');
    await until('it runs', async () => (await db.states())['running'] === 1, { withinMs: 60_000 });
    process.signal('SIGTERM');
    expect(await process.waitForExit(90_000)).toEqual({ code: 0, signal: null });
    expect(process.stdout).toContain(' 0 lost, 1 released.');
    expect(await db.job(id)).toMatchObject({ state: 'ready', attempts: 0 });
  }, 180_000);

  test('a second signal ends it at once; the lease runs out by itself', async () => {
    const [id] = (await db.put('deaf', [1])) as [string];
    const process = start();
    await until('it runs', async () => (await db.states())['running'] === 1, { withinMs: 60_000 });
    process.signal('SIGTERM');
    // Two signals that come before the first is heard are one.
    await process.waitFor('stopping');
    process.signal('SIGTERM');
    expect(await process.waitForExit(25_000)).toEqual({ code: 130, signal: null });
    expect((await db.job(id)).state).toBe('running');
  }, 180_000);

  test('a promise that a handler forgot ends it at once, in one line that says where and quotes nothing', async () => {
    const [id] = (await db.put('forgets', [1])) as [string];
    const process = start();
    expect(await process.waitForExit(90_000)).toEqual({ code: 1, signal: null });
    const line = process.stderr.split('\n').find((each) => each.startsWith('unbroker:'));
    expect(line).toMatch(/\(TypeError\) at .*forgets.* \(.*handlers\.mjs:\d+:\d+\)\. .* \[uncaught-error\]$/);
    expect(process.stdout + process.stderr).not.toContain('hunter2');
    expect(await db.job(id)).toMatchObject({ state: 'running', attempts: 1 });
  }, 180_000);

  test('--until-idle works through what is due, jobs that must run alone too, and ends; its log may have no room', async () => {
    await db.put('quick', Array(30).fill(0));
    const alone = await db.put('quick', [1, 2]);
    await db.pool.query('update unbroker.jobs set solo = true where id = any ($1)', [alone]);
    await db.put('quick', ['later'], { delayMs: 60_000 });
    const [program, ...flags] = cliFile.endsWith('.ts')
      ? ['--import', import.meta.resolve('tsx'), cliFile]
      : [cliFile];
    const process = startProcess(
      '/bin/sh',
      [
        '-c',
        'exec "$0" "$@" 2> /dev/full',
        execPath,
        program ?? '',
        ...flags,
        'work',
        '--until-idle',
        '--json',
      ],
      { cwd: folder, env: { DATABASE_URL: db.url, UNBROKER_LOG_LEVEL: undefined } },
    );
    processes.push(process);
    expect(await process.waitForExit(90_000)).toEqual({ code: 0, signal: null });
    expect(JSON.parse(process.stdout.trim().split('\n').at(-1) ?? '')).toMatchObject({ done: 32, lost: 0 });
    expect(await db.states()).toEqual({ done: 32, ready: 1 });
  }, 180_000);
});
