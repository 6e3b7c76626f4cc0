/**
 * A lease while its handler runs: prolonged as long as the worker lives, lost when it is taken away or cannot be
 * prolonged, and never outlived by the handler's right to run. Nothing a loser does reaches the row.
 */
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { afterAll, afterEach, beforeEach, describe, expect, test } from 'vitest';
import { LeaseLost } from '../../src/index.js';
import type { HandlerContext } from '../../src/jobs/handler.js';
import type { Queryable } from '../../src/jobs/job.js';
import { auditReport, installAudit } from '../support/audit.js';
import { startFaultProxy } from '../support/fault-proxy.js';
import { endLeases, jobsDatabase } from '../support/jobs.js';
import { until } from '../support/until.js';
import { startWorker, type TestWorker, type TestWorkerOptions } from '../support/workers.js';

const db = await jobsDatabase();
await installAudit(db.pool);
afterAll(async () => {
  expect(await auditReport(db.pool)).toMatchObject({ stale: 0, problems: [] });
  await db.close();
});
beforeEach(() => db.clear());

const workers: TestWorker[] = [];
function work(options: Omit<TestWorkerOptions, 'url'> & { url?: string }): TestWorker {
  const worker = startWorker({ url: db.url, ...options });
  workers.push(worker);
  return worker;
}
afterEach(async () => {
  await Promise.all(workers.splice(0).map((worker) => worker.close()));
});

/**
 * The reaper takes the job back, and nobody is to start it again while the test looks. In one transaction: between two of these
 * statements a worker that prolongs just then keeps its job after all, or starts it again.
 */
async function takeAway(): Promise<void> {
  const session = await db.session();
  await session.query('begin');
  await endLeases(session);
  expect(await db.store.reap(session, 10)).toHaveLength(1);
  await session.query(`update unbroker.jobs set run_at = run_at + interval '1 hour' where state = 'ready'`);
  await session.query('commit');
}

interface Gate {
  readonly opened: Promise<void>;
  open(): void;
}
function gate(): Gate {
  let open = (): void => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open: () => open() };
}

describe('extension', () => {
  test('a handler that takes many leases keeps its job, and nobody reaps it', async () => {
    const [id] = (await db.put('a', [1])) as [string];
    const worker = work({
      // Short, but a machine that stands still for a second must not end it.
      leaseMs: 1_500,
      handlers: { a: () => new Promise((resolve) => setTimeout(resolve, 3_200)) },
    });
    let reaped = 0;
    while (worker.settled().length === 0) {
      reaped += (await db.store.reap(db.pool, 10)).length;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    expect(reaped).toBe(0);
    expect(await db.job(id)).toMatchObject({ state: 'done', attempts: 1 });
    expect(worker.lost()).toEqual([]);
  });

  test('prolonging is a heap-only update: no index is touched', async () => {
    await db.put('a', [1]);
    const jobs = await db.claim('a');
    const session = await db.session();
    await session.query('begin');
    for (let i = 0; i < 10; i += 1) await db.store.extend(session, jobs, 60_000);
    const { rows } = await session.query(
      `select n_tup_upd::int as all, n_tup_hot_upd::int as hot from pg_stat_xact_user_tables where relname = 'jobs'`,
    );
    await session.query('commit');
    expect(rows[0]).toEqual({ all: 10, hot: 10 });
  });

  test('a job that was taken away: the signal aborts, the outcome is not written, the next holder is left alone', async () => {
    const [id] = (await db.put('a', [1])) as [string];
    const { opened, open } = gate();
    let signal: AbortSignal | undefined;
    const worker = work({
      // Prolonged every half second, which is when it is missed; a machine that stands still for a second does not end it.
      leaseMs: 1_500,
      handlers: {
        a: async (job, context: HandlerContext) => {
          ({ signal } = context);
          await opened;
          return { token: job.leaseToken };
        },
      },
    });
    await until('it runs', () => worker.running === 1);
    await takeAway();
    await until('the signal aborts', () => signal?.aborted);
    expect(signal?.reason).toBeInstanceOf(LeaseLost);
    expect(worker.lost().map((job) => job.id)).toEqual([id]);
    const before = await db.job(id);
    open();
    await until('the handler has ended', () => worker.running === 0);
    await worker.close();
    workers.splice(0);
    expect(await db.job(id)).toEqual(before);
    expect(worker.settled()).toEqual([]);
    expect(worker.lost()).toHaveLength(1);
  });

  test('a checkpoint that finds the lease gone throws LeaseLost and is counted once', async () => {
    const [id] = (await db.put('a', [1])) as [string];
    const { opened, open } = gate();
    const errors: unknown[] = [];
    const worker = work({
      leaseMs: 60_000,
      handlers: {
        a: async (_job, { checkpoint }: HandlerContext) => {
          await opened;
          await checkpoint({ late: true }).catch((error: unknown) => {
            errors.push(error);
            throw error;
          });
        },
      },
    });
    await until('it runs', () => worker.running === 1);
    await takeAway();
    open();
    await worker.untilEnded(1);
    expect(errors).toEqual([expect.any(LeaseLost)]);
    expect(worker.lost()).toHaveLength(1);
    expect(await db.job(id)).toMatchObject({
      state: 'ready',
      progress: null,
      errors: [{ name: 'lease-expired' }],
    });
  });

  test('a handler that returns after its job was taken over changes nothing, and is not told the other’s signal', async () => {
    const [id] = (await db.put('a', [1])) as [string];
    const gates = [gate(), gate()];
    const worker = work({
      leaseMs: 60_000,
      concurrency: 2,
      handlers: {
        a: async (job) => {
          await gates[job.attempt - 1]?.opened;
          return { token: job.leaseToken, attempt: job.attempt };
        },
      },
    });
    await until('it runs', () => worker.running === 1);
    await db.expire();
    await db.store.reap(db.pool, 10);
    // Ordinary again, so that the same worker may take it beside its own first run.
    await db.pool.query('update unbroker.jobs set solo = false');
    await until('it runs twice', () => worker.running === 2);
    gates[0]?.open();
    await until('the first has ended', () => worker.running === 1);
    await worker.untilEnded(1);
    expect((await db.job(id)).state).toBe('running');
    gates[1]?.open();
    await worker.untilEnded(2);
    expect(await db.job(id)).toMatchObject({ state: 'done', result: { attempt: 2 } });
    expect(worker.settled().map(({ job }) => job.attempt)).toEqual([2]);
    expect(worker.lost().map((job) => job.attempt)).toEqual([1]);
  });
});

describe('a database that does not answer', () => {
  test('the handler’s signal aborts before its lease ends, by the worker’s own clock', async () => {
    const proxy = await startFaultProxy(db.url);
    await db.put('a', [1]);
    const loop = monitorEventLoopDelay({ resolution: 5 });
    loop.enable();
    let abortedAt = 0;
    const worker = work({
      url: proxy.url,
      leaseMs: 1_500,
      handlers: {
        a: (_job, { signal }: HandlerContext) =>
          new Promise((resolve) => {
            signal.addEventListener('abort', () => {
              abortedAt = Date.now();
              resolve(undefined);
            });
          }),
      },
    });
    await until('it runs', () => worker.running === 1);
    proxy.blackHole();
    await until('the signal aborts', () => abortedAt > 0);
    // Whatever was prolonged before the hole counts: the row itself says when the lease ends.
    const { rows } = await db.pool.query(
      `select extract(epoch from locked_until) * 1000 as end, extract(epoch from clock_timestamp()) * 1000 as now from unbroker.jobs`,
    );
    const skewMs = Date.now() - Number(rows[0].now);
    // A timer can be no earlier than the process gets to it.
    const heldUpMs = loop.max / 1_000_000;
    loop.disable();
    expect(abortedAt - skewMs - heldUpMs).toBeLessThan(Number(rows[0].end));
    await until('it is counted', () => worker.lost().length === 1);
    await proxy.close();
  });

  test('an extension that hangs leaves the lease time for another', async () => {
    const [id] = (await db.put('a', [1])) as [string];
    const { opened, open } = gate();
    let extensions = 0;
    const hanging: Queryable = {
      query: (text, values) => {
        if (text.includes('set locked_until') && ++extensions === 1) return new Promise(() => {});
        return db.pool.query(text, values);
      },
    };
    const worker = work({ db: hanging, leaseMs: 3_000, handlers: { a: () => opened } });
    // The third is asked for only if the job was still held after the second.
    await until('it was prolonged after all', () => extensions > 2);
    expect(worker.lost()).toEqual([]);
    open();
    await worker.untilEnded(1);
    expect(await db.job(id)).toMatchObject({ state: 'done', attempts: 1 });
  });
});

describe('a worker that is gone', () => {
  test('park: its jobs go dead for a person to look at; the others run again', async () => {
    const [parked] = (await db.put('charge', [1])) as [string];
    const [again] = (await db.put('mail', [1])) as [string];
    const { opened, open } = gate();
    const lost = work({
      leaseMs: 60_000,
      handlers: { charge: { handle: () => opened, onLeaseExpired: 'park' }, mail: () => opened },
    });
    await until('both run', () => lost.running === 2);
    await db.expire();
    const other = work({
      upkeepMs: 50,
      handlers: { charge: { handle: () => 'charged twice', onLeaseExpired: 'park' }, mail: () => 'sent' },
    });
    await other.untilEnded(1);
    expect(await db.job(parked)).toMatchObject({
      state: 'dead',
      attempts: 1,
      errors: [{ name: 'lease-expired-parked' }],
    });
    expect(await db.job(again)).toMatchObject({ state: 'done', attempts: 2, result: 'sent' });
    open();
  });

  test('a worker without upkeep of its own still takes what another has reaped', async () => {
    const [id] = (await db.put('a', [1])) as [string];
    await db.claim('a');
    await db.expire();
    await db.store.reap(db.pool, 10);
    const worker = work({ upkeepMs: 0, handlers: { a: () => 'again' } });
    await worker.untilEnded(1);
    expect(await db.job(id)).toMatchObject({ state: 'done', result: 'again' });
  });

  test('it runs alone: neither before it, beside it nor together with another of its kind', async () => {
    await db.put('a', Array(30).fill('plain'));
    const solo = await db.put('a', Array(3).fill('solo'));
    await db.pool.query('update unbroker.jobs set solo = true where id = any ($1)', [solo]);
    let now = 0;
    const beside: number[] = [];
    const worker = work({
      concurrency: 10,
      handlers: {
        a: async ({ payload }) => {
          now += 1;
          if (payload === 'solo') beside.push(now);
          await new Promise((resolve) => setTimeout(resolve, 20));
          if (payload === 'solo') beside.push(now);
          now -= 1;
        },
      },
    });
    await worker.untilEnded(33);
    expect(beside).toEqual([1, 1, 1, 1, 1, 1]);
  });

  test('it waits until the outcomes before it are written, however long that takes', async () => {
    await db.put('a', Array(5).fill('plain'));
    const { opened, open } = gate();
    let looks = 0;
    const slow: Queryable = {
      query: async (text, values) => {
        if (text.includes('as waiting')) looks += 1;
        if (text.includes('.finish(')) await new Promise((resolve) => setTimeout(resolve, 300));
        return db.pool.query(text, values);
      },
    };
    let beside: unknown;
    const worker = work({
      db: slow,
      handlers: {
        a: async ({ payload }) => {
          if (payload === 'solo') beside = await db.states();
          else await opened;
        },
      },
    });
    await until('all run', () => worker.running === 5);
    await db.pool.query(`insert into unbroker.jobs (kind, payload, solo) values ('a', '"solo"', true)`);
    const before = looks;
    await until('it was seen', () => looks > before + 1);
    open();
    await worker.untilEnded(6);
    // It alone is running: no other's end is still on its way.
    expect(beside).toEqual({ done: 5, running: 1 });
  });

  test('beside an endless stream of long jobs it still gets its turn', async () => {
    const solo = await db.put('a', [0]);
    await db.pool.query('update unbroker.jobs set solo = true');
    await db.put('a', Array(200).fill(700));
    const worker = work({
      concurrency: 4,
      leaseMs: 900,
      handlers: { a: ({ payload }) => new Promise((resolve) => setTimeout(resolve, payload as number)) },
    });
    await until('it is done', async () => (await db.job(solo[0] ?? '')).state === 'done', {
      withinMs: 60_000,
    });
    expect(worker.lost()).toEqual([]);
  });
});
