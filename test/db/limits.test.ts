/**
 * Limits of a kind hold across all workers, whatever they claim at the same moment, and cost a job that has to wait
 * nothing; a low priority and another kind come to their turn; after an outage work grows step by step. Tokens and leases
 * are set back in the table, not slept for.
 */
import pg from 'pg';
import { afterAll, beforeEach, expect, test } from 'vitest';
import type { KindRule } from '../../src/jobs/claim-store.js';
import type { ClaimedJob, Queryable } from '../../src/jobs/job.js';
import { jobsDatabase } from '../support/jobs.js';
import { until } from '../support/until.js';
import { startWorker, type TestWorker } from '../support/workers.js';

const db = await jobsDatabase();
afterAll(() => db.close());
beforeEach(async () => {
  await db.clear();
  await db.pool.query('truncate unbroker.kind_limits');
});

const ids = (jobs: readonly { readonly id: string }[]): string[] => jobs.map(({ id }) => id);
const claim = (kind: string, rule: KindRule, from: Queryable = db.pool, limit = 100): Promise<ClaimedJob[]> =>
  db.store.claim(from, [{ kind, limit, park: false, rule }], limit, 'w', 30_000);
const complete = (jobs: readonly ClaimedJob[]): Promise<string[]> =>
  db.store.complete(
    db.pool,
    jobs.map((job) => ({ ...job, resultText: null })),
  );
/** As if so much time had passed since the bucket was filled. */
const passMs = (ms: number): Promise<unknown> =>
  db.pool.query(`update unbroker.kind_limits set refilled_at = refilled_at - $1 * interval '1 millisecond'`, [
    ms,
  ]);

test('at most so many run; one that ends, dies or is taken back makes room', async () => {
  const rule = { maxRunning: 3 };
  await db.put('a', Array(20).fill(0));
  const first = await claim('a', rule);
  expect(first).toHaveLength(3);
  expect(await claim('a', rule)).toEqual([]);
  await complete(first.slice(0, 1));
  const [fourth] = await claim('a', rule);
  expect(await claim('a', rule)).toEqual([]);
  await db.store.retry(db.pool, [{ ...(fourth as ClaimedJob), delayMs: 1, name: 'Error', message: 'x' }]);
  expect(await claim('a', rule)).toHaveLength(1);
  await db.expire(ids(first.slice(1)));
  await db.store.reap(db.pool, 10);
  expect(await claim('a', rule)).toHaveLength(2);
  expect(await claim('a', rule)).toEqual([]);
});

test('jobs with an ordering key and jobs that must run alone count, too', async () => {
  const rule = { maxRunning: 2 };
  for (const orderingKey of ['x', 'y', 'z']) await db.put('a', [0], { orderingKey });
  const claimed = await claim('a', rule);
  expect(claimed).toHaveLength(2);
  await db.expire(ids(claimed));
  await db.store.reap(db.pool, 10);
  const solo = () => db.store.claimSolo(db.pool, [{ kind: 'a', limit: 1, park: false, rule }], 'w', 30_000);
  expect(await solo()).not.toBeNull();
  expect(await claim('a', rule)).toHaveLength(1);
  expect(await solo()).toBeNull();
});

test('a claim does not wait for another that is deciding about the same kind; it does without', async () => {
  await db.put('a', Array(10).fill(0));
  const others = await db.put('b', [0]);
  // The kind's row is made by its first claim ever; whoever comes during that one waits for it.
  await claim('a', { maxRunning: 3 }, db.pool, 1).then(complete);
  const first = await db.session();
  await first.query('begin');
  expect(await claim('a', { maxRunning: 3 }, first)).toHaveLength(3);
  const demands = [
    { kind: 'a', limit: 10, park: false, rule: { maxRunning: 3 } },
    { kind: 'b', limit: 10, park: false },
  ];
  expect(ids(await db.store.claim(db.pool, demands, 20, 'w', 30_000))).toEqual(others);
  await first.query('rollback');
  expect(await claim('a', { maxRunning: 3 })).toHaveLength(3);
});

test('a rate: the bucket is full at first, fills with time and not beyond; who waits has spent no attempt', async () => {
  const rule = { rate: { max: 10, perMs: 60_000, burst: 4 } };
  await db.put('a', Array(100).fill(0));
  expect(await claim('a', rule)).toHaveLength(4);
  expect(await claim('a', rule)).toEqual([]);
  await passMs(12_000);
  expect(await claim('a', rule)).toHaveLength(2);
  await passMs(600_000);
  expect(await claim('a', rule, db.pool, 1)).toHaveLength(1);
  expect(await claim('a', rule)).toHaveLength(3);
  expect(await claim('a', rule)).toEqual([]);
  const { rows } = await db.pool.query(`select sum(attempts)::int as spent, count(*)::int as left
    from unbroker.jobs where state = 'ready'`);
  expect(rows).toEqual([{ spent: 0, left: 90 }]);
});

/** Ten workers on four pools; what `handle` is told: how many run now. */
function tenWorkers(kinds: Record<string, object>, handle: (running: number) => Promise<void>) {
  const pools = Array.from({ length: 4 }, () => new pg.Pool({ connectionString: db.url, max: 6 }));
  for (const pool of pools) pool.on('error', () => {});
  let running = 0;
  const workers = Array.from({ length: 10 }, (_, index): TestWorker => {
    return startWorker({
      url: db.url,
      db: pools[index % 4] as pg.Pool,
      concurrency: 5,
      kinds,
      handlers: {
        a: async () => {
          running += 1;
          await handle(running).finally(() => {
            running -= 1;
          });
        },
      },
    });
  });
  return async (): Promise<void> => {
    await Promise.all(workers.map((worker) => worker.close({ deadlineMs: 5_000 })));
    await Promise.all(pools.map((pool) => pool.end()));
  };
}

test('ten workers: never more than the limit at once, and as many', async () => {
  await db.put('a', Array(300).fill(0));
  let most = 0;
  const stop = tenWorkers({ a: { maxRunning: 4 } }, async (running) => {
    most = Math.max(most, running);
    await new Promise((resolve) => setTimeout(resolve, 2));
  });
  await until('all are done', async () => (await db.states())['done'] === 300, {
    withinMs: 60_000,
    everyMs: 50,
  });
  await stop();
  expect(most).toBe(4);
}, 180_000);

test('ten workers: never faster than the rate', async () => {
  await db.put('a', Array(60).fill(0));
  const starts: number[] = [];
  const startAt = performance.now();
  const stop = tenWorkers({ a: { rate: { max: 40, perMs: 1_000, burst: 20 } } }, async () => {
    starts.push(performance.now() - startAt);
  });
  await until('all are done', async () => (await db.states())['done'] === 60, {
    withinMs: 60_000,
    everyMs: 50,
  });
  await stop();
  // Each was claimed at or before its start, the bucket was made after startAt.
  const early = starts.filter((atMs, index) => index + 1 > 20 + (atMs * 40) / 1_000);
  expect(early).toEqual([]);
  expect(starts).toHaveLength(60);
}, 180_000);

test('a claim may begin with what has waited longest: at most a tenth, and one at least', async () => {
  const [low] = await db.put('a', [0], { priority: -5, runAt: new Date(Date.now() - 60_000) });
  await db.put('a', [0], { priority: -3, delayMs: 60_000 });
  await db.put('a', Array(100).fill(0), { priority: 5 });
  const demands = [{ kind: 'a', limit: 20, park: false }];
  const plain = await db.store.claim(db.pool, demands, 20, 'w', 30_000);
  expect(plain.every(({ priority }) => priority === 5)).toBe(true);
  const reserve = await db.store.claim(db.pool, demands, 20, 'w', 30_000, [], true);
  expect(reserve).toHaveLength(20);
  expect(reserve.filter(({ priority }) => priority !== 5).map(({ id }) => id)).toEqual([low]);
});

test('a low priority comes to its turn beside one that never ends', async () => {
  const [low] = await db.put('a', ['low'], { priority: -1 });
  const worker = startWorker({
    url: db.url,
    concurrency: 1,
    handlers: {
      a: async (job) => {
        if (job.payload === 'high') await db.put('a', ['high'], { priority: 9 });
      },
    },
  });
  await db.put('a', Array(20).fill('high'), { priority: 9 });
  await until('the low one is done', async () => (await db.job(low as string)).state === 'done', {
    withinMs: 60_000,
  });
  await worker.close();
  expect(worker.settled().filter(({ job }) => job.priority === 9).length).toBeGreaterThan(8);
});

test('a kind that is at its limit holds up no other', async () => {
  await db.put('a', Array(500).fill(0));
  const others = await db.put('b', Array(50).fill(0));
  const worker = startWorker({
    url: db.url,
    concurrency: 10,
    kinds: { a: { rate: { max: 1, perMs: 60_000 } } },
    handlers: { a: () => {}, b: () => {} },
  });
  await worker.untilEnded(51);
  await worker.close();
  const kinds = worker.settled().map(({ job }) => job.kind);
  expect(kinds.filter((kind) => kind === 'b')).toHaveLength(others.length);
  expect(kinds.filter((kind) => kind === 'a')).toHaveLength(1);
});

test('when all fail fewer may run; when they succeed again each success makes room for one more', async () => {
  let running = 0;
  let open = (): void => {};
  const gates: Promise<void>[] = [];
  const newGate = (): void => {
    gates.push(
      new Promise((resolve) => {
        open = resolve;
      }),
    );
  };
  newGate();
  const worker = startWorker({
    url: db.url,
    concurrency: 32,
    handlers: {
      a: async (job) => {
        if (job.payload === 'fails') throw new Error('the provider is away');
        running += 1;
        await gates.at(-1);
        running -= 1;
      },
    },
  });
  await db.put('a', Array(64).fill('fails'), { retryPolicy: { type: 'fixed', delayMs: 3_600_000 } });
  await worker.untilEnded(64);
  await db.put('a', Array(100).fill('waits'));
  // 32 failures left 16 slots, 16 more 8, 10 more 4; the last 6 are no round.
  for (const slots of [4, 8, 16, 32]) {
    await until(`${slots} run`, () => running >= slots);
    await db.states();
    expect(running).toBe(slots);
    const go = open;
    newGate();
    go();
  }
  open();
  await worker.close();
});

test.each([
  [{ maxRunning: 0 }, 'maxRunning'],
  [{ maxRunning: 1.5 }, 'maxRunning'],
  [{ rate: { max: 0, perMs: 1 } }, 'rate.max'],
  [{ rate: { max: 1, perMs: 0 } }, 'rate.perMs'],
  [{ rate: { max: 1, perMs: 1, burst: -1 } }, 'rate.burst'],
])('%j is refused', (limits, name) => {
  expect(() => startWorker({ url: db.url, kinds: { a: limits }, handlers: { a: () => {} } })).toThrow(name);
});
