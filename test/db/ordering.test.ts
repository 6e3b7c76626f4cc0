/**
 * Ordering keys: jobs of a kind that share one run one at a time, in the order in which they were enqueued, whatever
 * fails, dies, comes late or is claimed at the same moment; and who waits for a turn is in nobody's way.
 */
import pg from 'pg';
import { afterAll, beforeEach, expect, test } from 'vitest';
import { enqueue, enqueueMany } from '../../src/enqueue.js';
import type { KindRule } from '../../src/jobs/claim-store.js';
import type { ClaimedJob } from '../../src/jobs/job.js';
import { Discard } from '../../src/jobs/settle.js';
import { TurnWalk } from '../../src/jobs/turns.js';
import { auditReport, installAudit } from '../support/audit.js';
import { jobsDatabase } from '../support/jobs.js';
import { ownPages } from '../support/own-pages.js';
import { TokenLog } from '../support/token-log.js';
import { until } from '../support/until.js';
import { startWorker } from '../support/workers.js';

const db = await jobsDatabase();
afterAll(() => db.close());
beforeEach(() => db.clear());

const ids = (jobs: readonly { readonly id: string }[]): string[] => jobs.map(({ id }) => id);
const X = { orderingKey: 'x' };

async function claimOne(rule?: KindRule): Promise<ClaimedJob> {
  const demand = { kind: 'a', limit: 10, park: false, ...(rule === undefined ? {} : { rule }) };
  const jobs = await db.store.claim(db.pool, [demand], 10, 'w', 30_000);
  expect(jobs).toHaveLength(1);
  return jobs[0] as ClaimedJob;
}

/** Done, and the next one of its key let go on, as a worker does it. */
async function done(job: ClaimedJob): Promise<void> {
  expect(await db.store.complete(db.pool, [{ ...job, resultText: null }])).toEqual([job.id]);
  await db.store.promote(db.pool, [{ kind: job.kind, key: job.orderingKey as string }]);
}

async function sweep(): Promise<void> {
  const walk = new TurnWalk();
  while (!(await walk.step(db.store, db.pool, 2)));
}

const failure = { delayMs: 60_000, name: 'Error', message: 'x' };

test('one of a key at a time, oldest first; other keys, other kinds and jobs without a key beside it', async () => {
  const mine = await db.put('a', [1, 2, 3], X);
  const others = [
    ...(await db.put('a', [1], { orderingKey: 'y' })),
    ...(await db.put('b', [1], X)),
    ...(await db.put('a', [1])),
  ];
  const first = await db.claim(['a', 'b']);
  expect(ids(first).sort()).toEqual([mine[0] as string, ...others].sort());
  expect(await db.claim(['a', 'b'])).toEqual([]);
  await done(first.find(({ id }) => id === mine[0]) as ClaimedJob);
  const second = await claimOne();
  expect(second).toMatchObject({ id: mine[1], orderingKey: 'x', attempt: 1 });
  expect(await db.claim('a')).toEqual([]);
  await done(second);
  expect((await claimOne()).id).toBe(mine[2]);
});

test('a higher priority or an earlier time does not overtake', async () => {
  const [head] = await db.put('a', [0], X);
  await db.put('a', [0], { ...X, priority: 9, runAt: new Date(0) });
  expect((await claimOne()).id).toBe(head);
  expect(await db.claim('a')).toEqual([]);
});

test('jobs with a key and jobs without share the slots of a kind, and either takes what the other leaves', async () => {
  for (let key = 0; key < 20; key += 1) await db.put('a', [0], { orderingKey: `k${key}` });
  await db.put('a', Array(20).fill(0));
  const half = await db.claim('a', { total: 10 });
  expect(half.filter(({ orderingKey }) => orderingKey !== null)).toHaveLength(5);
  expect(await db.claim('a', { total: 100 })).toHaveLength(30);
});

test.each(['retry', 'snooze', 'release'] as const)('a job back by %s keeps its key', async (how) => {
  const [head] = await db.put('a', [0], X);
  const job = await claimOne();
  expect(job.id).toBe(head);
  if (how === 'retry') await db.store.retry(db.pool, [{ ...job, ...failure }]);
  if (how === 'snooze') await db.store.snooze(db.pool, [{ ...job, delayMs: 60_000 }]);
  if (how === 'release') await db.store.release(db.pool, [job]);
  const [next] = await db.put('a', [0], X);
  if (how !== 'release') {
    expect(await db.claim('a')).toEqual([]);
    await sweep();
    expect(await db.claim('a')).toEqual([]);
  }
  await db.store.runNow(db.pool, [head as string]);
  const again = await claimOne();
  expect(again.id).toBe(head);
  await done(again);
  expect((await claimOne()).id).toBe(next);
});

test('a job put off to the future that was never started keeps nobody waiting', async () => {
  const [later] = await db.put('a', [0], { ...X, delayMs: 60_000 });
  const [now] = await db.put('a', [0], X);
  const job = await claimOne();
  expect(job.id).toBe(now);
  await db.store.runNow(db.pool, [later as string]);
  expect(await db.claim('a')).toEqual([]);
  await done(job);
  expect((await claimOne()).id).toBe(later);
});

test('a dead job lets the others pass', async () => {
  const [, next] = await db.put('a', [0, 0], X);
  const job = await claimOne();
  expect(await db.claim('a')).toEqual([]);
  await db.store.discard(db.pool, [{ ...job, ...failure }]);
  await sweep();
  expect((await claimOne()).id).toBe(next);
});

test.each(['done after a retry', 'dismissed'])('or blocks them until it is %s', async (how) => {
  const [head, next] = await db.put('a', [0, 0], X);
  const holds = { holds: true };
  const job = await claimOne(holds);
  await db.store.discard(db.pool, [{ ...job, ...failure }]);
  await db.store.promote(db.pool, [{ kind: 'a', key: 'x' }]);
  expect(await db.claim('a')).toEqual([]);
  await sweep();
  expect((await db.job(next as string)).waitsForTurn).toBe(true);
  if (how === 'dismissed') {
    await db.store.dismiss(db.pool, [head as string]);
    await sweep();
  } else {
    await db.store.operatorRetry(db.pool, [head as string], 1);
    const again = await claimOne(holds);
    expect(again.id).toBe(head);
    await done(again);
  }
  expect((await claimOne(holds)).id).toBe(next);
});

test('a job whose worker died keeps its key until it has run alone', async () => {
  const [head, next] = await db.put('a', [0, 0], X);
  await claimOne();
  await db.expire();
  await db.store.reap(db.pool, 10);
  await sweep();
  expect(await db.claim('a')).toEqual([]);
  const demand = { kind: 'a', limit: 1, park: false };
  const solo = await db.store.claimSolo(db.pool, [demand], 'w', 30_000);
  expect(solo).toMatchObject({ id: head, orderingKey: 'x' });
  await done(solo as ClaimedJob);
  expect((await claimOne()).id).toBe(next);
});

test('a job committed late with a lower id meets a claim of its key that is not committed: one of them waits', async () => {
  const late = await db.session();
  await late.query('begin');
  const { id: lower } = await enqueue(late, 'a', 0, X);
  const [higher] = await db.put('a', [0], X);
  const first = await db.session();
  await first.query('begin');
  expect(ids(await db.claim('a', { db: first }))).toEqual([higher]);
  await late.query('commit');
  const second = await db.session();
  const claiming = db.claim('a', { db: second });
  await second.untilBlocked();
  await first.query('commit');
  expect(await claiming).toEqual([]);
  const running = await db.job(higher as string);
  expect([running.state, (await db.job(lower)).state]).toEqual(['running', 'ready']);
});

test('a job that ends while a claim takes the next one out of the way is not forgotten', async () => {
  await db.put('a', [0], X);
  const job = await claimOne();
  const [next] = await db.put('a', [0], X);
  const claimer = await db.session();
  await claimer.query('begin');
  expect(await db.claim('a', { db: claimer })).toEqual([]);
  await db.store.complete(db.pool, [{ ...job, resultText: null }]);
  const worker = await db.session();
  const promoting = db.store.promote(worker, [{ kind: 'a', key: 'x' }]);
  await worker.untilBlocked();
  await claimer.query('commit');
  await promoting;
  expect((await claimOne()).id).toBe(next);
});

test('twenty thousand that wait for one key are in nobody’s way', async () => {
  await db.pool.query(
    `insert into unbroker.jobs (kind, ordering_key, run_at)
     select 'a', 'x', now() - interval '1 hour' from generate_series(1, 20000)`,
  );
  const others = [];
  for (let key = 0; key < 30; key += 1) others.push(...(await db.put('a', [0], { orderingKey: `y${key}` })));
  const found: string[] = [];
  for (let claims = 0; claims < 10 && found.length < 31; claims += 1) found.push(...ids(await db.claim('a')));
  expect(found.slice(1).sort()).toEqual(others.sort());
  const session = await db.session();
  const claim = () => db.claim('a', { db: session, total: 10 });
  await db.pool.query('vacuum unbroker.jobs');
  await claim();
  expect(await ownPages(session, claim)).toBeLessThan(300);
});

test('every door takes the key', async () => {
  await enqueue(db.pool, 'a', 0, X);
  await enqueue(db.pool, 'a', 0, { ...X, dedupeKey: 'd1' });
  await enqueueMany(db.pool, [{ kind: 'a', ...X }]);
  await enqueueMany(db.pool, [{ kind: 'a', ...X, dedupeKey: 'd2' }]);
  await db.pool.query(`select unbroker.enqueue('a', ordering_key => 'x')`);
  const { rows } = await db.pool.query(
    `select distinct ordering_key, dedupe_key from unbroker.jobs order by dedupe_key nulls first`,
  );
  expect(rows).toEqual([null, 'd1', 'd2'].map((key) => ({ ordering_key: 'x', dedupe_key: key })));
  await expect(enqueue(db.pool, 'a', 0, { orderingKey: '' })).rejects.toThrow(TypeError);
  await expect(enqueue(db.pool, 'a', 0, { orderingKey: 'x'.repeat(501) })).rejects.toThrow(TypeError);
});

test('a worker goes from one to the next by itself, without upkeep', async () => {
  const worker = startWorker({
    url: db.url,
    handlers: {
      a: (job) => {
        if (job.payload === 3) throw new Discard('x');
      },
    },
  });
  const put = await db.put('a', [1, 2, 3, 4, 5], X);
  await worker.untilEnded(5);
  await worker.close();
  expect(worker.settled().map(({ job }) => job.id)).toEqual(put);
});

test('twenty workers, forty keys, jobs that fail, snooze and die: never two of a key, always in order', async () => {
  await installAudit(db.pool);
  const log = new TokenLog();
  const running = new Set<string>();
  const wrong: string[] = [];
  const ended = new Map<string, number[]>();
  const pools = Array.from({ length: 4 }, () => new pg.Pool({ connectionString: db.url, max: 10 }));
  for (const pool of pools) pool.on('error', () => {});
  const KEYS = 40;
  const EACH = 15;
  for (let n = 0; n < EACH; n += 1) {
    await enqueueMany(
      db.pool,
      Array.from({ length: KEYS }, (_, key) => ({
        kind: 'a',
        payload: n,
        orderingKey: `key-${key}`,
        priority: (n * 7 + key) % 3,
        maxAttempts: 3,
        retryPolicy: { type: 'fixed', delayMs: 1 },
      })),
    );
  }
  const workers = Array.from({ length: 20 }, (_, index) =>
    startWorker({
      url: db.url,
      db: pools[index % pools.length] as pg.Pool,
      concurrency: 10,
      upkeepMs: index === 0 ? 200 : 0,
      handlers: {
        a: async (job, { snooze }) => {
          const key = job.orderingKey as string;
          const n = job.payload as number;
          if (running.has(key)) wrong.push(`two of ${key}`);
          running.add(key);
          await new Promise((resolve) => setTimeout(resolve, Math.random() * 3));
          running.delete(key);
          if (n % 5 === 1 && job.attempt === 1) throw new Error('again');
          if (n % 5 === 2 && job.progress === null && Math.random() < 0.5) snooze(1);
          if (n % 5 === 3) throw new Error('dead in the end');
          const before = ended.get(key) ?? [];
          if ((before.at(-1) ?? -1) >= n) wrong.push(`${key}: ${n} after ${before.at(-1)}`);
          ended.set(key, [...before, n]);
        },
      },
      onEvent: (event) => log.record(`w${index}`, event),
    }),
  );
  const over = async (): Promise<boolean> => {
    const { done: all = 0, dead = 0 } = await db.states();
    return all + dead === KEYS * EACH;
  };
  await until('all have ended', over, { withinMs: 60_000, everyMs: 100 });
  await Promise.all(workers.map((worker) => worker.close({ deadlineMs: 5_000 })));
  await Promise.all(pools.map((pool) => pool.end()));

  expect(wrong).toEqual([]);
  expect(log.problems()).toEqual([]);
  expect(await db.states()).toEqual({ done: (KEYS * EACH * 4) / 5, dead: (KEYS * EACH) / 5 });
  expect(await auditReport(db.pool)).toMatchObject({ stale: 0, problems: [] });
}, 180_000);
