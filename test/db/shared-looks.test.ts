/**
 * Workers that sleep take turns in looking for jobs whose time has come: who counts whom, how often they look, and that a
 * burst reaches all of them.
 */
import pg from 'pg';
import { afterAll, afterEach, beforeEach, describe, expect, test } from 'vitest';
import { createStore } from '../../src/jobs/store.js';
import { createWorker, type Worker } from '../../src/jobs/worker.js';
import { jobsDatabase } from '../support/jobs.js';
import { until } from '../support/until.js';

const MINUTE_MS = 60_000;
const WORKERS = 6;
const db = await jobsDatabase();
const store = createStore();
afterAll(() => db.close());

beforeEach(async () => {
  await db.clear();
  await db.pool.query('delete from unbroker.sleepers');
});

const connect = async (): Promise<pg.Client> => {
  const client = new pg.Client({ connectionString: db.url });
  client.on('error', () => undefined);
  await client.connect();
  return client;
};

test('a seat is among those that sleep now and have all of its kinds', async () => {
  const sleep = (worker: string, kinds: string[]) => store.sleepUntil(db.pool, worker, MINUTE_MS, kinds);
  await db.pool.query(`
    insert into unbroker.sleepers (worker, sleeps_until, kinds) values
      ('a-gone', clock_timestamp() - interval '1 second', '{x}'),
      ('a-old', clock_timestamp() + interval '1 minute', null)`);
  expect(await sleep('b', ['x', 'y'])).toMatchObject({ rank: 0, of: 1 });
  expect(await sleep('a', ['x'])).toMatchObject({ rank: 0, of: 2 });
  expect(await sleep('c', ['y'])).toMatchObject({ rank: 1, of: 2 });
  expect(await sleep('d', ['x'])).toMatchObject({ rank: 2, of: 3 });
  // Said again: itself counts once, and those that came since do, too.
  expect(await sleep('a', ['x'])).toMatchObject({ rank: 0, of: 3 });
  const seat = await sleep('e', ['z']);
  expect(seat).toMatchObject({ rank: 0, of: 1 });
  const { rows } = await db.pool.query('select extract(epoch from clock_timestamp())::float8 * 1000 as now');
  expect(Math.abs((seat?.databaseMs ?? 0) - rows[0].now)).toBeLessThan(10_000);
});

describe('six workers that sleep', () => {
  const workers: Worker[] = [];
  afterEach(async () => {
    await Promise.all(workers.splice(0).map((worker) => worker.stop({ deadlineMs: 0 })));
  });

  /** How often each has looked. */
  const start = (pollMs: number, handle: () => unknown): number[] => {
    const looks = Array.from({ length: WORKERS }, () => 0);
    for (const index of looks.keys()) {
      const worker = createWorker({
        db: {
          query: (text: string, values?: unknown[]) => {
            if (text.includes('finish_and_claim')) looks[index] = (looks[index] ?? 0) + 1;
            return db.pool.query(text, values);
          },
        },
        handlers: { mine: handle },
        ...{ pollMs, concurrency: 1, upkeepMs: 0, listen: connect },
      });
      workers.push(worker);
      worker.start();
    }
    return looks;
  };

  /** They sleep, and each knows of all. */
  const asleep = async (): Promise<void> => {
    await until('all sleep', async () => {
      const { rows } = await db.pool.query('select count(*)::int as n from unbroker.sleepers');
      return rows[0].n === WORKERS;
    });
    // It is said again every 5 s.
    const { rows } = await db.pool.query('select max(sleeps_until) as last from unbroker.sleepers');
    await until(
      'all have said it again',
      async () => {
        const said = await db.pool.query('select 1 from unbroker.sleepers where sleeps_until <= $1', [
          rows[0].last,
        ]);
        return said.rows.length === 0;
      },
      { withinMs: 20_000 },
    );
  };

  test('look twice in pollMs between them, not six times, and each does', async () => {
    const looks = start(200, () => undefined);
    await asleep();
    const before = [...looks];
    const startAt = performance.now();
    await until('a while is over', () => performance.now() - startAt > 3_000);
    const each = looks.map((count, index) => count - (before[index] ?? 0));
    const seconds = (performance.now() - startAt) / 1_000;
    const total = each.reduce((sum, count) => sum + count, 0);
    // Five looks a second each would be 30.
    expect(total / seconds).toBeLessThan(15);
    expect(Math.min(...each)).toBeGreaterThan(0);
  });

  test('are all told by the one that finds more than it can take', async () => {
    let open = (): void => {};
    const gate = new Promise<void>((resolve) => {
      open = resolve;
    });
    const listener = await connect();
    const heard: string[] = [];
    listener.on('notification', ({ payload = '' }) => heard.push(payload));
    start(600, () => gate);
    await asleep();
    await listener.query(`listen "${store.channel}"`);
    await db.pool.query(
      `insert into unbroker.jobs (kind, payload, run_at)
       select 'mine', '1', clock_timestamp() + interval '500 milliseconds' from generate_series(1, $1)`,
      [WORKERS],
    );
    await until('each has one', async () => (await db.states())['running'] === WORKERS, { withinMs: 10_000 });
    await listener.query('select 1');
    expect(heard).toContain('');
    open();
    await listener.end();
  });
});
