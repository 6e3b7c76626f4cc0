/**
 * Wake-up: an enqueue wakes a sleeping worker at once; on a busy system nobody notifies; and whatever happens to the
 * connection that listens, polling goes on. The poll interval is a minute here, so that only a wake-up can be quick.
 */
import pg from 'pg';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { createEnqueue, enqueue, enqueueMany } from '../../src/enqueue.js';
import { Firing } from '../../src/jobs/firing.js';
import type { Queryable } from '../../src/jobs/job.js';
import { createStore } from '../../src/jobs/store.js';
import { Wake, type WakeOptions } from '../../src/jobs/wake.js';
import { createWorker, type Worker } from '../../src/jobs/worker.js';
import { SILENT } from '../../src/log.js';
import { migrate } from '../../src/migrate.js';
import { schedule, triggerSchedule } from '../../src/schedules.js';
import { type FreshDatabase, freshDatabase } from '../support/services.js';
import { until } from '../support/until.js';

const MINUTE_MS = 60_000;

describe('wake-up', () => {
  let database: FreshDatabase;
  let worker: Worker | undefined;
  const done: number[] = [];

  beforeEach(async () => {
    database = await freshDatabase();
    await migrate(database.pool);
    done.length = 0;
  });

  afterEach(async () => {
    await worker?.stop({ deadlineMs: 1_000 });
    await database.close();
  });

  const connect = async (): Promise<pg.Client> => {
    const client = new pg.Client({ connectionString: database.url });
    client.on('error', () => undefined);
    await client.connect();
    return client;
  };

  const start = (listen: (() => Promise<pg.Client>) | undefined, pollMs = MINUTE_MS): void => {
    worker = createWorker({
      db: database.pool,
      handlers: { noop: (job) => void done.push(job.payload as number) },
      pollMs,
      ...(listen === undefined ? {} : { listen }),
    });
    worker.start();
  };

  const wakeOf = (options: Partial<WakeOptions>): Wake =>
    new Wake({
      ...{ store: createStore(), db: database.pool, worker: 'w', kinds: ['noop'], connect, log: SILENT },
      ...{ mayTake: () => true, onWake: () => undefined },
      ...options,
    });
  /** Not a worker that asks whether notifications come back. */
  const isWake = (payload = ''): boolean => payload === '' || payload.includes(' ');

  const sleepers = async (): Promise<number> => {
    const { rows } = await database.pool.query(
      'select count(*)::int as n from unbroker.sleepers where sleeps_until > clock_timestamp()',
    );
    return rows[0].n;
  };

  it('starts a job long before the next poll', async () => {
    start(connect);
    await until('the worker sleeps', async () => (await sleepers()) === 1);
    for (let n = 1; n <= 5; n += 1) {
      await enqueue(database.pool, 'noop', n);
      await until(`job ${n} is done`, () => done.includes(n), { withinMs: 60_000, everyMs: 2 });
    }
    await enqueueMany(database.pool, [{ kind: 'noop', payload: 6, dedupeKey: 'six' }]);
    await enqueueMany(database.pool, [{ kind: 'noop', payload: 7 }]);
    await until('the last are done', () => done.length === 7, { withinMs: 60_000 });
  });

  it('looks twice more once it has said that it sleeps: at once, and when nobody goes by what he saw before', async () => {
    const said: string[] = [];
    worker = createWorker({
      db: {
        query: (text: string, values?: unknown[]) => {
          if (/finish_and_claim|into \S+sleepers/.test(text))
            said.push(/sleepers/.test(text) ? 'sleeps' : 'claims');
          return database.pool.query(text, values);
        },
      },
      handlers: { noop: () => undefined },
      pollMs: MINUTE_MS,
      listen: connect,
    });
    worker.start();
    // Its next poll by itself is a minute away.
    await until(
      'it looks',
      () => said.lastIndexOf('claims') >= said.indexOf('sleeps') + 2 && said.includes('sleeps'),
    );
  });

  it('says again that it sleeps while jobs come one by one, so that each is announced', async () => {
    start(connect);
    const saidUntil = async (): Promise<number> => {
      const { rows } = await database.pool.query(
        "select date_part('epoch', sleeps_until) as at from unbroker.sleepers",
      );
      return rows[0]?.at ?? 0;
    };
    await until('the worker sleeps', async () => (await sleepers()) === 1);
    const first = await saidUntil();
    const now = performance.now.bind(performance);
    let aheadMs = 0;
    const clock = vi.spyOn(performance, 'now').mockImplementation(() => now() + aheadMs);
    try {
      for (let n = 1; n <= 4; n += 1) {
        aheadMs += 3_000;
        await enqueue(database.pool, 'noop', n);
        await until(`job ${n} is done`, () => done.includes(n), { everyMs: 2 });
      }
      // In the rest after the second, so before the claim of the third.
      expect(await saidUntil()).toBeGreaterThan(first);
    } finally {
      clock.mockRestore();
    }
  });

  it.each([
    ['slots of their own', { concurrency: 2 }, {}],
    ['a limit across all workers', {}, { noop: { maxRunning: 2 } }],
    ['a rate across all workers', {}, { noop: { rate: { max: 50, perMs: 1_000, burst: 1 } } }],
  ])('does not wait to be woken for jobs that it left because of %s', async (_name, options, kinds) => {
    let claims = 0;
    worker = createWorker({
      db: {
        query: (text: string, values?: unknown[]) => {
          claims += text.includes('claim') ? 1 : 0;
          return database.pool.query(text, values);
        },
      },
      handlers: {
        noop: { ...options, handle: async (job) => void done.push(job.payload as number) },
        other: () => undefined,
      },
      pollMs: MINUTE_MS,
      kinds,
      listen: connect,
    });
    worker.start();
    await until('the worker sleeps', async () => (await sleepers()) === 1);
    const before = claims;
    const jobs = Array.from({ length: 30 }, (_, n) => ({ kind: 'noop', payload: n }));
    await enqueueMany(database.pool, jobs);
    await until('all are done', () => done.length === jobs.length, { withinMs: 2_500, everyMs: 2 });
    expect(claims - before).toBeLessThan(200);
  });

  it('looks often while so many enqueue that it lets nobody notify', async () => {
    let claims = 0;
    worker = createWorker({
      db: {
        query: (text: string, values?: unknown[]) => {
          claims += text.includes('finish_and_claim') ? 1 : 0;
          return database.pool.query(text, values);
        },
      },
      handlers: { noop: () => undefined },
      pollMs: MINUTE_MS,
      listen: connect,
    });
    worker.start();
    await until('the worker sleeps', async () => (await sleepers()) === 1);
    // The second of the storm does not end; the looks after it fell asleep are over.
    const stormAt = performance.now() + 1_000;
    const clock = vi.spyOn(performance, 'now').mockReturnValue(stormAt);
    try {
      for (let n = 0; n < 100; n += 1) await createStore().notify(database.pool, '');
      // The hundred wakes are a claim each at most. Of waits that double each time the tenth would take five seconds.
      const enough = claims + 120;
      for (let waits = 0; claims < enough && waits < 1_000; waits += 1)
        await new Promise((resolve) => setTimeout(resolve, 5));
      expect(claims).toBeGreaterThanOrEqual(enough);
      expect(await sleepers()).toBe(0);
    } finally {
      clock.mockRestore();
    }
  });

  it('does not count on being woken when that was taken back while the answer to a renewal was on its way', async () => {
    let answered = Promise.resolve();
    const late: Queryable = {
      async query(text, values) {
        const answer = await database.pool.query(text, values);
        if (/into \S+sleepers/.test(text)) await answered;
        return answer;
      },
    };
    const wake = wakeOf({ db: late });
    wake.start();
    await until('it sleeps', () => wake.asleep(true));
    const now = performance.now.bind(performance);
    const clock = vi.spyOn(performance, 'now').mockImplementation(() => now() + 6_000);
    try {
      let answer = (): void => {};
      answered = new Promise((resolve) => {
        answer = resolve;
      });
      const renewed = wake.asleep(false);
      await wake.awake();
      answer();
      expect(await renewed).toBe(false);
      expect(wake.listening).toBe(false);
    } finally {
      clock.mockRestore();
      await wake.stop();
    }
  });

  it('is not told of a job that is rolled back or not due', async () => {
    start(connect);
    await until('the worker sleeps', async () => (await sleepers()) === 1);
    const listener = await connect();
    const heard: string[] = [];
    listener.on('notification', ({ payload }) => void (isWake(payload) && heard.push('wake')));
    await listener.query(`listen "${createStore().channel}"`);
    const client = await database.pool.connect();
    await client.query('begin');
    await enqueue(client, 'noop', 1);
    await client.query('rollback');
    client.release();
    await enqueue(database.pool, 'noop', 2, { delayMs: MINUTE_MS });
    await listener.query('select 1');
    expect(heard).toEqual([]);
    await enqueue(database.pool, 'noop', 3);
    await until('the due one is announced', () => heard.length === 1);
    await listener.end();
  });

  it('is told of what a schedule fires, of a trigger, of the SQL function, of an operator’s retry and of every form of enqueue', async () => {
    const store = createStore();
    const { pool } = database;
    let prepared = createEnqueue(undefined, { prepared: true });
    await schedule(pool, { name: 's', kind: 'noop', everyMs: 3_600_000 });
    const listener = await connect();
    let heard = 0;
    listener.on('notification', () => {
      heard += 1;
    });
    await listener.query(`listen "${store.channel}"`);
    const acts: (() => Promise<unknown>)[] = [
      () => triggerSchedule(pool, 's'),
      () => new Firing({ store, db: pool, clock: () => new Date(Date.now() + 3_600_000) }).sweep(),
      () => pool.query(`select unbroker.enqueue('noop', dedupe_key => 'one')`),
      () => enqueueMany(pool, [{ kind: 'noop', dedupeKey: 'two' }]),
      async () => {
        const { rows } = await pool.query(`update unbroker.jobs set state = 'dead', finished_at = now()
          where dedupe_key = 'two' returning id::text`);
        return store.operatorRetry(pool, [rows[0].id], 1);
      },
      () => enqueue(pool, 'noop', 0, { orderingKey: 'x' }),
      () => enqueue(pool, 'noop', 0, { dedupeKey: 'three' }),
      () => prepared.enqueue(pool, 'noop'),
      () => prepared.enqueue(pool, 'noop', 0, { maxAttempts: 2 }),
      () => prepared.enqueue(pool, 'noop', 0, { dedupeKey: 'four' }),
    ];
    for (const act of acts) await act();
    await listener.query('select 1');
    expect(heard).toBe(0);
    await pool.query('delete from unbroker.jobs where dedupe_key is not null and misfire is null');
    await store.sleepUntil(pool, 'sleeper', MINUTE_MS, ['noop']);
    // This one was told just now that nobody sleeps.
    prepared = createEnqueue(undefined, { prepared: true });
    await pool.query(`update unbroker.jobs set run_at = now() where misfire is not null`);
    for (const [index, act] of acts.entries()) {
      await act();
      await until(`act ${index} is heard`, () => heard === index + 1);
    }
    await listener.end();
  });

  it('sends no notification while nobody sleeps', async () => {
    const listener = await connect();
    let heard = 0;
    listener.on('notification', ({ payload }) => {
      heard += isWake(payload) ? 1 : 0;
    });
    await listener.query(`listen "${createStore().channel}"`);
    await enqueueMany(
      database.pool,
      Array.from({ length: 2_000 }, (_, n) => ({ kind: 'noop', payload: n })),
    );
    start(connect, 200);
    // Saturated: every claim comes back full until the end.
    for (let n = 0; n < 200 && done.length < 2_000; n += 1) await enqueue(database.pool, 'noop', 2_000 + n);
    await until('all is done', () => done.length >= 2_000, { withinMs: 60_000 });
    await listener.query('select 1');
    expect(heard).toBeLessThanOrEqual(1);
    await listener.end();
  });

  it('listens again after its connection was cut', async () => {
    const opened: pg.Client[] = [];
    start(async () => {
      const client = await connect();
      opened.push(client);
      return client;
    });
    await until('the worker sleeps', async () => (await sleepers()) === 1);
    const { rows } = await opened[0]!.query('select pg_backend_pid() as pid');
    await database.pool.query('select pg_terminate_backend($1)', [rows[0].pid]);
    await until('it has connected again', () => opened.length === 2, { withinMs: 60_000 });
    await until(
      'it wakes',
      async () => {
        await enqueue(database.pool, 'noop', 1);
        return done.length > 0;
      },
      { withinMs: 60_000, everyMs: 200 },
    );
  });

  it('does not say that it sleeps when notifications do not reach it, and polls', async () => {
    start(async () => {
      const client = await connect();
      const query = client.query.bind(client) as (text: string) => Promise<pg.QueryResult>;
      // A transaction pooler: LISTEN is answered and lost.
      Object.assign(client, { query: (text: string) => query(/^listen/i.test(text) ? 'select 1' : text) });
      return client;
    }, 50);
    await enqueue(database.pool, 'noop', 1);
    await until('a poll has found it', () => done.length === 1);
    expect(await sleepers()).toBe(0);
  });
});
