/**
 * Whom an enqueue wakes: two of those that sleep and have a handler for its kind, not all; and what becomes of a job whose two
 * are full, deaf or gone.
 */
import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { createEnqueue, type EnqueueOptions } from '../../src/enqueue.js';
import { createStore } from '../../src/jobs/store.js';
import { Wake, type WakeOptions } from '../../src/jobs/wake.js';
import { createWorker, type Worker } from '../../src/jobs/worker.js';
import { SILENT } from '../../src/log.js';
import { migrate, readMigrations } from '../../src/migrate.js';
import { jobsDatabase } from '../support/jobs.js';
import { until } from '../support/until.js';

const MINUTE_MS = 60_000;
const db = await jobsDatabase();
const store = createStore();
afterAll(() => db.close());

const connect = async (url = db.url): Promise<pg.Client> => {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => undefined);
  await client.connect();
  return client;
};

const listener = await connect();
let heard: string[] = [];
beforeAll(async () => {
  // Not a worker that asks whether notifications come back.
  listener.on('notification', ({ payload = '' }) => {
    if (payload === '' || payload.includes(' ')) heard.push(payload);
  });
  await listener.query(`listen "${store.channel}"`);
});
afterAll(() => listener.end());

/** What was announced until now. */
const announced = async (): Promise<string[]> => {
  await listener.query('select 1');
  return heard.splice(0);
};
const sleeping = async (): Promise<string[]> => {
  const { rows } = await db.pool.query('select worker from unbroker.sleepers order by worker');
  return rows.map(({ worker }) => worker);
};

beforeEach(async () => {
  await db.clear();
  await db.pool.query('delete from unbroker.sleepers');
  heard = [];
});

const forms: [string, boolean, EnqueueOptions][] = [true, false].flatMap((prepared) =>
  (
    [
      ['of kind and payload alone', {}],
      ['with a priority', { priority: 1 }],
      ['with options', { maxAttempts: 2 }],
    ] as [string, EnqueueOptions][]
  ).map(([name, options]): [string, boolean, EnqueueOptions] => [
    `${prepared ? 'prepared' : 'not prepared'}, ${name}`,
    prepared,
    options,
  ]),
);

describe('an enqueue', () => {
  const sleep = (worker: string, kinds: readonly string[]) =>
    store.sleepUntil(db.pool, worker, MINUTE_MS, kinds);

  test.each(forms)('names two that have its kind, each as often: %s', async (_name, prepared, options) => {
    for (const worker of ['a', 'b', 'c', 'd']) await sleep(worker, ['other', 'of two words']);
    for (const worker of ['x', 'y']) await sleep(worker, ['other']);
    const client = createEnqueue(undefined, { prepared });
    const tx = await db.session();
    // What a connection says first does not know of kinds.
    await client.enqueue(tx, 'of two words', 1, options);
    await announced();
    for (let n = 0; n < 200; n += 1) await client.enqueue(tx, 'of two words', 1, options);
    const times = new Map<string, number>();
    for (const payload of await announced()) {
      const [, one = '', two = ''] = /^([a-d]),([a-d]) of two words$/.exec(payload) ?? [];
      expect(one).not.toBe(two);
      for (const worker of [one, two]) times.set(worker, (times.get(worker) ?? 0) + 1);
    }
    expect([...times.keys()].sort()).toEqual(['a', 'b', 'c', 'd']);
    for (const count of times.values()) expect(count).toBe(100);
    // With a dedupe key, too; and nobody for a key that is taken.
    for (let n = 0; n < 2; n += 1) await client.enqueue(tx, 'of two words', 1, { dedupeKey: 'k' });
    expect(await announced()).toEqual([expect.stringMatching(/^[a-d],[a-d] of two words$/)]);
    await tx.end();
  });

  test.each(forms)('names nobody for a kind that none of them has: %s', async (_name, prepared, options) => {
    await sleep('a', ['other']);
    const client = createEnqueue(undefined, { prepared });
    const tx = await db.session();
    await client.enqueue(tx, 'mine', 1, options);
    await announced();
    await client.enqueue(tx, 'mine', 1, options);
    expect(await announced()).toEqual([]);
    // It was not told that nobody sleeps.
    await client.enqueue(tx, 'other', 1, options);
    expect(await announced()).toEqual(['a,a other']);
    await tx.end();
  });

  test.each(forms)('wakes all when one of them knows nothing of kinds: %s', async (_n, prepared, options) => {
    await db.pool.query(
      `insert into unbroker.sleepers values ('old', clock_timestamp() + interval '1 minute')`,
    );
    await sleep('a', ['mine']);
    const client = createEnqueue(undefined, { prepared });
    const tx = await db.session();
    for (let n = 0; n < 3; n += 1) await client.enqueue(tx, 'mine', 1, options);
    expect(await announced()).toEqual(['', '', '']);
    await tx.end();
  });

  test('on a schema before that, with a worker of today: all are woken', async () => {
    const old = await jobsDatabase({ migrated: false });
    const own = readMigrations();
    const theirs = await connect(old.url);
    const said: string[] = [];
    theirs.on('notification', ({ payload = '' }) => said.push(payload));
    try {
      await migrate(old.pool, { migrations: own.filter(({ version }) => version <= 46) });
      await theirs.query(`listen "${store.channel}"`);
      const fallback = createStore();
      await fallback.sleepUntil(old.pool, 'a', MINUTE_MS, ['mine']);
      const client = createEnqueue(undefined, { prepared: true });
      const tx = await old.session();
      for (let n = 0; n < 3; n += 1) await client.enqueue(tx, 'mine');
      await theirs.query('select 1');
      expect(said).toEqual(['', '', '']);
      await migrate(old.pool, { migrations: own });
      await createStore().sleepUntil(old.pool, 'a', MINUTE_MS, ['mine']);
      for (let n = 0; n < 2; n += 1) await client.enqueue(tx, 'mine');
      await theirs.query('select 1');
      expect(said.at(-1)).toBe('a,a mine');
    } finally {
      await theirs.end();
      await old.close();
    }
  });
});

describe('a worker that sleeps', () => {
  const wakes: Wake[] = [];
  afterEach(async () => {
    await Promise.all(wakes.splice(0).map((wake) => wake.stop()));
  });

  const sleeper = async (options: Partial<WakeOptions>): Promise<{ wake: Wake; woken: () => number }> => {
    let woken = 0;
    const wake = new Wake({
      ...{ store, db: db.pool, worker: 'me', kinds: ['mine', 'of two words'], connect, log: SILENT },
      ...{
        mayTake: () => true,
        onWake: () => {
          woken += 1;
        },
      },
      ...options,
    });
    wakes.push(wake);
    wake.start();
    await until('it sleeps', () => wake.asleep(true));
    return { wake, woken: () => woken };
  };

  test('wakes when it is named, and when all are, for its kinds alone', async () => {
    const { woken } = await sleeper({});
    const strangers = [
      'you mine',
      'me theirs',
      'mee,you mine',
      'you,them of two words',
      'me',
      ' mine',
      'mine',
    ];
    for (const payload of strangers) await store.notify(db.pool, payload);
    for (const payload of ['me mine', 'you,me mine', 'me,you of two words', ''])
      await store.notify(db.pool, payload);
    await until('it is woken', () => woken() === 4);
    await announced();
    expect(woken()).toBe(4);
  });

  test('that is full lets all know, and is named no more', async () => {
    const { wake, woken } = await sleeper({ mayTake: () => false });
    await announced();
    await store.notify(db.pool, 'me mine');
    await until('all are told', async () => (await announced()).includes(''));
    expect(await sleeping()).toEqual([]);
    expect(wake.listening).toBe(false);
    // All: it hears that, too.
    await until('it hears itself', () => woken() === 1);
  });

  test('that is full of one kind lets all know of that, and sleeps on for others', async () => {
    const { wake, woken } = await sleeper({ mayTake: (kind) => kind !== 'mine' });
    await announced();
    await store.notify(db.pool, 'me mine');
    await until('all are told', async () => (await announced()).includes(''));
    expect(await sleeping()).toEqual(['me']);
    expect(wake.listening).toBe(true);
    await until('it hears itself', () => woken() === 1);
    await store.notify(db.pool, 'me of two words');
    await until('it is woken', () => woken() === 2);
    expect((await announced()).filter((payload) => payload === '')).toEqual([]);
  });

  test('whose connection is lost is named no more until it hears again', async () => {
    const opened: pg.Client[] = [];
    let open = (): void => {};
    const gate = new Promise<void>((resolve) => {
      open = resolve;
    });
    const { wake } = await sleeper({
      connect: async () => {
        if (opened.length > 0) await gate;
        const client = await connect();
        opened.push(client);
        return client;
      },
    });
    expect(await sleeping()).toEqual(['me']);
    const { rows } = await opened[0]!.query('select pg_backend_pid() as pid');
    await db.pool.query('select pg_terminate_backend($1)', [rows[0].pid]);
    await until('it has said so', async () => (await sleeping()).length === 0);
    expect(wake.listening).toBe(false);
    open();
  });
});

describe('three workers', () => {
  const workers: Worker[] = [];
  afterEach(async () => {
    await Promise.all(workers.splice(0).map((worker) => worker.stop({ deadlineMs: 0 })));
  });

  const start = (
    handle: (job: { payload: unknown }) => unknown,
    concurrency = 5,
  ): { claims: () => number } => {
    let claims = 0;
    const worker = createWorker({
      db: {
        query: (text: string, values?: unknown[]) => {
          claims += text.includes('finish_and_claim') ? 1 : 0;
          return db.pool.query(text, values);
        },
      },
      handlers: { mine: handle },
      pollMs: MINUTE_MS,
      concurrency,
      listen: connect,
    });
    workers.push(worker);
    worker.start();
    return { claims: () => claims };
  };

  test('claim twice for a job, not three times', async () => {
    const done: unknown[] = [];
    const counts = [1, 2, 3].map(() => start(({ payload }) => void done.push(payload)));
    const claims = () => counts.reduce((sum, each) => sum + each.claims(), 0);
    await until('they sleep', async () => (await sleeping()).length === 3);
    // Their second looks, of who has just fallen asleep.
    await until('they have looked', () => counts.every((each) => each.claims() >= 2), { withinMs: 30_000 });
    await vi.waitFor(async () => {
      const before = claims();
      await new Promise((resolve) => setTimeout(resolve, 150));
      expect(claims()).toBe(before);
    }, 30_000);
    const client = createEnqueue(undefined, { prepared: true });
    const tx = await db.session();
    await client.enqueue(tx, 'mine', 0);
    await until('the first is done', () => done.length === 1);
    const before = claims();
    for (let n = 1; n <= 20; n += 1) {
      await client.enqueue(tx, 'mine', n);
      await until(`job ${n} is done`, () => done.length === n + 1, { everyMs: 2, withinMs: 4_000 });
    }
    expect(claims() - before).toBeLessThanOrEqual(2 * 20 + 3);
    await tx.end();
  });

  test('of which two are full: the third has the job at once', async () => {
    let open = (): void => {};
    const gate = new Promise<void>((resolve) => {
      open = resolve;
    });
    const done: unknown[] = [];
    for (let n = 0; n < 3; n += 1)
      start(({ payload }) => (payload === 'long' ? gate : void done.push(payload)), 1);
    await until('they sleep', async () => (await sleeping()).length === 3);
    const client = createEnqueue(undefined, { prepared: true });
    const tx = await db.session();
    for (let n = 0; n < 2; n += 1) {
      await client.enqueue(tx, 'mine', 'long');
      await until('it runs', async () => (await db.states())['running'] === n + 1, { withinMs: 4_000 });
    }
    // Whoever is named: of three pairs, one has the free one not.
    for (let n = 1; n <= 12; n += 1) {
      await client.enqueue(tx, 'mine', n);
      await until(`job ${n} is done`, () => done.length === n, { everyMs: 2, withinMs: 4_000 });
    }
    open();
    await tx.end();
  });

  test('of which one stops: it is named no more, though what it runs goes on', async () => {
    let open = (): void => {};
    const gate = new Promise<void>((resolve) => {
      open = resolve;
    });
    start(() => gate);
    const [worker] = workers;
    await until('it sleeps', async () => (await sleeping()).length === 1);
    await createEnqueue(undefined, { prepared: true }).enqueue(db.pool, 'mine', 1);
    await until('it runs', () => worker?.running === 1);
    const stopped = worker?.stop({ deadlineMs: MINUTE_MS });
    await until('it does not sleep', async () => (await sleeping()).length === 0);
    open();
    await stopped;
  });
});
