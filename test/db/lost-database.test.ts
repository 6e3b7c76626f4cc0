/**
 * A lost database ends no worker and makes none deaf: killed and started again, its backends ended or stopped, its
 * connections half-open, its pool used up. The same process goes on, at its old rate, and what it did is kept.
 */
import { execFileSync } from 'node:child_process';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { auditReport, installAudit } from '../support/audit.js';
import { startFaultProxy } from '../support/fault-proxy.js';
import { type JobsDatabase, jobsDatabase } from '../support/jobs.js';
import { type PostgresServer, startPostgres } from '../support/services.js';
import { until } from '../support/until.js';
import { startWorker, type TestWorker, type TestWorkerOptions } from '../support/workers.js';

let server: PostgresServer;
let db: JobsDatabase;
beforeAll(async () => {
  server = await startPostgres({ controllable: true });
  db = await jobsDatabase({ server });
  await installAudit(db.pool);
});
afterAll(async () => {
  expect(await auditReport(db.pool)).toMatchObject({ stale: 0, problems: [] });
  await db.close();
  await server.close();
});

const workers: TestWorker[] = [];
function work(options: Omit<TestWorkerOptions, 'url'> & { url?: string }): TestWorker {
  const worker = startWorker({ url: db.url, ...options });
  workers.push(worker);
  return worker;
}
afterEach(async () => {
  await Promise.all(workers.splice(0).map((worker) => worker.close()));
  await db.clear();
});

const done = async (): Promise<number> => (await db.states())['done'] ?? 0;
const token = (job: { leaseToken: string }): unknown => ({ token: job.leaseToken });

describe('killed and started again', () => {
  /** At its old rate means: with as many jobs at once. Jobs a second would be the machine's, too. */
  test('the same worker goes on at its old rate; nothing that was committed is lost; each job ends', async () => {
    let total = 0;
    const put = async (count: number): Promise<void> => {
      await db.put('a', Array(count).fill(0), { retryPolicy: { type: 'fixed', delayMs: 0 } });
      total += count;
    };
    let most = 0;
    await put(1_000);
    const worker = work({
      concurrency: 10,
      leaseMs: 2_000,
      upkeepMs: 200,
      handlers: {
        a: (job) => {
          most = Math.max(most, worker.running);
          return new Promise((resolve) => setTimeout(resolve, 20, token(job)));
        },
      },
    });
    await until('it works with all its slots', async () => most === 10 && (await done()) > 100);

    await server.kill();
    await until('it notices', () => !worker.ready);
    most = 0;
    await server.start();
    await until('all its slots are busy again', async () => {
      const { ready = 0 } = await db.states();
      if (ready < 200) await put(200);
      return most === 10;
    });
    await until('all are done', async () => (await done()) === total, { everyMs: 100 });
    expect(worker.errors().length).toBeGreaterThan(0);
  }, 180_000);

  test('a worker that starts while the database is away begins when it comes', async () => {
    await db.put('a', [1, 2, 3]);
    await server.kill();
    const worker = work({ handlers: { a: () => 1 }, upkeepMs: 100 });
    await until('it has tried', () => worker.errors().length > 2);
    expect(worker.ready).toBe(false);
    await server.start();
    await worker.untilEnded(3, 60_000);
    expect(worker.ready).toBe(true);
  }, 180_000);

  test('a job that ends while the database is away is written when it comes back within the lease', async () => {
    const [id] = (await db.put('a', [1])) as [string];
    let open = (): void => {};
    const gate = new Promise<void>((resolve) => {
      open = resolve;
    });
    const worker = work({ leaseMs: 60_000, handlers: { a: async (job) => gate.then(() => token(job)) } });
    await until('it runs', () => worker.running === 1);
    await server.stop('immediate');
    open();
    await until('the handler has ended', () => worker.running === 0);
    await until('it has tried to write', () => worker.errors().length > 1);
    await server.start();
    await worker.untilEnded(1, 60_000);
    expect(await db.job(id)).toMatchObject({ state: 'done', attempts: 1 });
    expect(worker.lost()).toEqual([]);
  }, 180_000);
});

describe('connections that end', () => {
  test('backends ended again and again: every job is done, none twice, the process lives', async () => {
    const total = 3_000;
    await db.put('a', Array(total).fill(0));
    const runs = new Map<string, number>();
    const worker = work({
      applicationName: 'shot-at',
      concurrency: 20,
      leaseMs: 60_000,
      handlers: {
        a: (job) => {
          runs.set(job.id, (runs.get(job.id) ?? 0) + 1);
          return new Promise((resolve) => setTimeout(resolve, 2, token(job)));
        },
      },
    });
    for (let i = 0; i < 20; i += 1) {
      await new Promise((resolve) => setTimeout(resolve, 60));
      await db.pool.query(
        `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'shot-at'`,
      );
    }
    await db.expire(await claimedByNobody(worker));
    const upkeep = work({ upkeepMs: 50, handlers: { a: token } });
    await until('all are done', async () => (await done()) === total, { withinMs: 60_000, everyMs: 50 });
    expect([...runs.values()].every((n) => n === 1)).toBe(true);
    void upkeep;
  }, 180_000);

  /** A claim whose answer was lost with its connection: leased to a worker that does not know it. */
  async function claimedByNobody(worker: TestWorker): Promise<string[]> {
    // While it still claims, a claim that is on its way would look like a lost one.
    await until('nothing is left to claim', async () => !((await db.states())['ready'] ?? 0));
    const idle = () => worker.events.filter(({ type }) => type === 'idle').length;
    const before = idle();
    await until('its last claim was answered', () => idle() > before);
    const known = new Set(worker.claimed().map(({ id }) => id));
    const { rows } = await db.pool.query<{ id: string }>(
      `select id::text from unbroker.jobs where state = 'running'`,
    );
    return rows.map(({ id }) => id).filter((id) => !known.has(id));
  }

  test('a pool of the caller that nobody listens to does not end the process', async () => {
    const pool = new pg.Pool({ connectionString: db.url, max: 3, application_name: 'unheard' });
    const worker = work({ db: pool, handlers: { a: () => 1 }, pollMs: 1_000 });
    await until('it is idle', () => worker.events.some(({ type }) => type === 'idle'));
    await until('its connections are idle', () => pool.idleCount > 0);
    await db.pool.query(
      `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'unheard'`,
    );
    await db.put('a', [1]);
    await worker.untilEnded(1);
    await worker.close();
    workers.splice(0);
    await pool.end();
  });

  test.each([
    ['by itself', { settleBatch: 1 }],
    ['with a claim', {}],
  ])(
    'the reply to a finished write %s is lost with its connection: the job is done, once, and not run again',
    async (_how, options) => {
      const proxy = await startFaultProxy(db.url);
      const [id] = (await db.put('a', [1])) as [string];
      let runs = 0;
      let dropped: Promise<void> | undefined;
      const worker = work({
        url: proxy.url,
        upkeepMs: 100,
        ...options,
        handlers: {
          a: (job) => {
            runs += 1;
            // Not the claim that brought it: what is written next, by itself or with the next claim.
            dropped ??= proxy.dropReply(/"unbroker"\.finish/);
            return token(job);
          },
        },
      });
      await until('it has run', () => dropped !== undefined);
      await dropped;
      await worker.untilEnded(1);
      expect(await db.job(id)).toMatchObject({ state: 'done', attempts: 1 });
      await db.put('a', [2]);
      await worker.untilEnded(2);
      expect(runs).toBe(2);
      await proxy.close();
    },
  );

  test('the reply to a claim is lost: its jobs run again after the lease, alone, with one attempt spent', async () => {
    const proxy = await startFaultProxy(db.url);
    const ids = await db.put('a', [1, 2, 3]);
    const dropped = proxy.dropReply(/unbroker"\.finish_and_claim\(/);
    const worker = work({ url: proxy.url, leaseMs: 60_000, upkeepMs: 100, handlers: { a: token } });
    await dropped;
    await until('they are leased, to nobody who knows', async () => (await db.states())['running'] === 3);
    await db.expire();
    await worker.untilEnded(3);
    for (const id of ids) expect(await db.job(id)).toMatchObject({ state: 'done', attempts: 2 });
    await proxy.close();
  });
});

describe('a failover behind the same address', () => {
  test('connections to a server that takes no writes any more are left for new ones', async () => {
    // What a demoted primary says to those that stayed connected; only to this worker, by its role.
    const role = `${db.name}_moved`;
    await db.pool.query(`create role ${role} superuser login`);
    await db.pool.query(`alter role ${role} set default_transaction_read_only = on`);
    const url = new URL(db.url);
    url.username = role;
    await db.put('a', [1]);
    const worker = work({ url: url.href, handlers: { a: token } });
    const refused = (error: unknown): boolean => (error as { code?: string }).code === '25006';
    await until('it has met the refusal', () => worker.errors().some(refused));
    expect(worker.ready).toBe(false);
    await db.pool.query(`alter role ${role} reset default_transaction_read_only`);
    await worker.untilEnded(1);
    expect(worker.ready).toBe(true);
    await worker.close();
    workers.splice(0);
    await db.pool.query(`drop role ${role}`);
  });
});

describe('connections that do not answer', () => {
  test('half-open: the worker finds another within seconds, though its pool was full of them', async () => {
    const proxy = await startFaultProxy(db.url);
    await db.put('a', Array(50).fill(0));
    const worker = work({ url: proxy.url, max: 3, leaseMs: 3_000, upkeepMs: 200, handlers: { a: token } });
    await worker.untilEnded(50);
    await until('its pool is open', () => proxy.open === 3);
    proxy.blackHole({ onlyOpen: true });
    await db.put('a', Array(50).fill(0));
    const startedAt = Date.now();
    await worker.untilEnded(100);
    // TCP itself would give up after a quarter of an hour.
    expect(Date.now() - startedAt).toBeLessThan(30_000);
    await proxy.close();
  }, 180_000);

  test('backends that are stopped: the same', async () => {
    if (process.platform !== 'linux' || server.way === 'docker') return;
    const worker = work({
      applicationName: 'stopped',
      max: 3,
      leaseMs: 3_000,
      upkeepMs: 200,
      handlers: { a: token },
    });
    await until('it is idle', () => worker.events.some(({ type }) => type === 'idle'));
    const backends = async (): Promise<{ pid: number; state: string }[]> =>
      (await db.pool.query(`select pid, state from pg_stat_activity where application_name = 'stopped'`))
        .rows;
    let pids: string[] = [];
    // One that stops in a statement may hold what every other session of the server waits for.
    await until('all are stopped between their statements', async () => {
      pids = (await backends()).map(({ pid }) => String(pid));
      execFileSync('kill', ['-STOP', ...pids]);
      if ((await backends()).every(({ state }) => state === 'idle')) return true;
      execFileSync('kill', ['-CONT', ...pids]);
      return false;
    });
    try {
      await db.put('a', Array(50).fill(0));
      await worker.untilEnded(50);
    } finally {
      execFileSync('kill', ['-CONT', ...pids]);
    }
  }, 180_000);

  test('the whole server stopped for a while and resumed: it goes on by itself', async () => {
    const worker = work({ leaseMs: 3_000, upkeepMs: 200, handlers: { a: token } });
    await db.put('a', [1]);
    await worker.untilEnded(1);
    await server.pause();
    await until('it notices', () => !worker.ready, { withinMs: 60_000 });
    await server.resume();
    await db.put('a', [1, 2]);
    await worker.untilEnded(3);
  }, 180_000);

  test('a pool that others use up: leases are kept, and it goes on when there is room', async () => {
    const pool = new pg.Pool({ connectionString: db.url, max: 3, connectionTimeoutMillis: 500 });
    pool.on('error', () => {});
    const worker = work({ db: pool, leaseMs: 4_000, handlers: { a: token } });
    await db.put('a', [1]);
    await worker.untilEnded(1);
    const taken = await Promise.all(Array.from({ length: 3 }, () => pool.connect()));
    await db.put('a', [2]);
    await until('it notices', () => !worker.ready);
    for (const client of taken) client.release();
    await worker.untilEnded(2);
    await worker.close();
    workers.splice(0);
    await pool.end();
  });
});
