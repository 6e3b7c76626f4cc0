/**
 * A claim of many is answered as one text and taken apart later: each field of each job must be what a claim of few
 * brings, in the same order, and a worker that takes them apart later must keep its limits and give them back when it stops.
 */
import pg from 'pg';
import { afterAll, beforeEach, expect, test } from 'vitest';
import type { ClaimedJob, Queryable } from '../../src/jobs/job.js';
import { jobsDatabase } from '../support/jobs.js';
import { until } from '../support/until.js';
import { startWorker } from '../support/workers.js';

const db = await jobsDatabase();
afterAll(() => db.close());
beforeEach(() => db.clear());

const MANY = 600;
const demands = (limits: Readonly<Record<string, number>>) =>
  Object.entries(limits).map(([kind, limit]) => ({ kind, limit, park: false }));

const order = (wanted: ReturnType<typeof demands>) => ({
  ...{ demands: wanted, total: MANY, worker: 'w1', leaseMs: 30_000, floors: [], oldest: false },
});

/** What differs from claim to claim. */
const withoutLease = ({ leaseToken, ...job }: ClaimedJob) => {
  expect(leaseToken).toMatch(/^\d+$/);
  return job;
};

test('every field as a claim of few brings it, in its order, whatever stands in a job', async () => {
  await db.put('a', [{ n: 1 }, null, 'text', '\u001e \u001f " \\ \n é €', [1, 2.5, { a: [] }], '']);
  await db.put('a', [{ long: 'x'.repeat(5_000) }, { n: 2 }, { long: 'y'.repeat(1_000_000) }]);
  await db.put('b', [{ n: 3 }], {
    ...{
      headers: { 'x\u001e': 'y\u001f' },
      source: 'src \u001e',
      orderingKey: 'k\u001f',
      priority: -7,
      maxAttempts: 3,
    },
    retryPolicy: { type: 'fixed', delayMs: 5 },
  });
  await db.put('b', ['once'], { dedupeKey: 'd\u001ed' });
  await db.pool.query(
    `insert into unbroker.jobs (kind, payload, body, content_type, progress, attempts)
     values ('a', null, '\\x1e1f00ff', 'x/y', '{"at": 9007199254740993}', 4), ('a', null, '', null, null, 0), ('a', '7', '\\x00', 'z', null, 1)`,
  );
  await db.put('a', [{ unusual: 'priority' }], { priority: 3, headers: { h: 1 } });
  await db.put('a', [{ unusual: 'attempts' }], { maxAttempts: 19 });
  await db.put('a', [{ unusual: 'token' }], { orderingKey: 'alone' });
  await db.put('a', [{ usual: 'but for its source' }], { source: '{' });
  await db.pool.query(
    `insert into unbroker.jobs (kind, payload, run_at) values ('a', '{"unusual": "time"}', now() - interval '1.0005 seconds')`,
  );
  await db.put('a', [{ last: true }]);
  // With one kind, and with several, of whose jobs each says which it is.
  for (const [wanted, counts, all] of [
    [demands({ a: 100 }), { a: 18 }, 18],
    [demands({ b: 100, a: 100 }), { a: 18, b: 2 }, 20],
  ] as const) {
    const { client } = await db.session();
    await client.query('begin');
    await client.query('savepoint before');
    const few = await db.store.claim(client, wanted, MANY, 'w1', 30_000);
    await client.query('rollback to savepoint before');
    const many = await db.store.claimMany(client, order(wanted));
    await client.query('rollback');
    expect(Object.fromEntries(many.byKind())).toEqual(counts);
    expect([few.length, many.count]).toEqual([all, all]);
    expect(many.jobs().map(withoutLease)).toEqual(few.map(withoutLease));
    expect(many.last().map(withoutLease)).toEqual(few.slice(-1).map(withoutLease));
    const { rows } = await db.pool.query<{ id: string }>(
      'select id::text from unbroker.jobs where ordering_key is not null',
    );
    const tokens = (keyed: boolean) =>
      new Set(
        many
          .jobs()
          .filter(({ id }) => rows.some((row) => row.id === id) === keyed)
          .map(({ leaseToken }) => leaseToken),
      );
    expect(tokens(false).size).toBe(1);
    expect([...tokens(true)]).not.toContain([...tokens(false)][0]);
  }
  const none = await db.store.claimMany(db.pool, order(demands({ nobody: 1 })));
  expect([none.count, none.last(), none.jobs()]).toEqual([0, [], []]);
});

test('only long ones, and only one', async () => {
  const long = Array.from({ length: 3 }, (_, n) => ({ n, long: 'x'.repeat(3_000) }));
  for (const payloads of [long, [{ n: 'one' }]]) {
    const ids = await db.put('a', payloads);
    const many = await db.store.claimMany(db.pool, order(demands({ a: 9 })));
    expect(many.count).toBe(ids.length);
    const jobs = many.jobs();
    expect(jobs.map(({ id }) => id)).toEqual(ids);
    expect(jobs.map(({ payloadText }) => JSON.parse(payloadText ?? ''))).toEqual(payloads);
  }
});

test.each([
  { name: 'of each kind', limits: { a: 120, b: 300 } },
  { name: 'in all, and no kind waits until another is through', limits: { a: 120, b: 1_000 } },
])(
  'a worker of many slots runs each job once, and no more at a time than it may: $name',
  async ({ limits }) => {
    const slots: Readonly<Record<string, number>> = { ...limits, all: 1_000 };
    for (const kind of Object.keys(limits)) await db.put(kind, Array(900).fill(0));
    const running: Record<string, number> = { a: 0, b: 0, all: 0 };
    const tooMany: string[] = [];
    const starts: ClaimedJob[] = [];
    let gate: Promise<void> | undefined;
    // A claim too many was on its way before these are answered.
    const answered = async (): Promise<void> => {
      for (let n = 0; n < 20; n += 1) await db.states();
    };
    const count = (kind: string, change: 1 | -1): void => {
      const now = (running[kind] ?? 0) + change;
      running[kind] = now;
      if (now > (slots[kind] ?? 0)) tooMany.push(`${now} of ${kind}`);
    };
    const handle = async (job: ClaimedJob): Promise<void> => {
      starts.push(job);
      count(job.kind, 1);
      count('all', 1);
      gate ??= answered();
      await gate;
      count(job.kind, -1);
      count('all', -1);
    };
    const handlers = Object.fromEntries(
      Object.entries(limits).map(([kind, concurrency]) => [kind, { handle, concurrency }]),
    );
    const worker = startWorker({ url: db.url, concurrency: 1_000, handlers });
    await worker.untilEnded(1_800);
    await worker.close();
    expect(tooMany).toEqual([]);
    expect([starts.length, new Set(starts.map(({ id }) => id)).size]).toEqual([1_800, 1_800]);
    expect(starts.findIndex(({ kind }) => kind === 'a')).toBeLessThan(900);
    expect(await db.states()).toEqual({ done: 1_800 });
  },
);

test('jobs that arrive while it stops are not started, and given back by the time that stop() resolves', async () => {
  await db.put('a', Array(2_000).fill(0));
  let started = 0;
  let states: Promise<Record<string, number>> | undefined;
  const worker = startWorker({
    ...{ url: db.url, concurrency: 1_000 },
    handlers: {
      a: () => {
        started += 1;
      },
    },
    // None of these has been started, and the next claim is on its way.
    onEvent: ({ type }) => {
      if (type === 'claimed') stop();
    },
  });
  const stop = (): void =>
    void worker.stop({ deadlineMs: 60_000 }).then(() => {
      states ??= db.states();
    });
  await until('it has stopped', () => states !== undefined);
  expect(await states).toEqual({ ready: 2_000 });
  expect(started).toBe(0);
  const { rows } = await db.pool.query('select max(attempts) as attempts from unbroker.jobs');
  expect(rows).toEqual([{ attempts: 0 }]);
  await worker.close();
});

test('a worker of many slots claims no more long jobs at once than a claim may bring', async () => {
  await db.pool.query(
    `insert into unbroker.jobs (kind, payload)
     select 'a', to_jsonb(repeat('x', 262000)) from generate_series(1, 170)`,
  );
  const claims: number[] = [];
  const pool = new pg.Pool({ connectionString: db.url, max: 5 });
  pool.on('error', () => {});
  const counted: Queryable = {
    async query(text, values) {
      const answer = await pool.query(text, values);
      if (text.includes('claim_lines')) {
        const rows = answer.rows as { n: number }[];
        const brought = (rows[0]?.n ?? 0) + rows.length - 1;
        if (brought > 0) claims.push(brought);
      }
      return answer;
    },
  };
  const worker = startWorker({
    ...{ url: db.url, db: counted, concurrency: 1_000 },
    handlers: { a: () => {} },
  });
  await worker.untilEnded(170);
  await worker.close();
  await pool.end();
  expect(claims[0]).toBeLessThanOrEqual(100);
  // 64 of them are 16 MiB; a machine on which those take seconds asks for fewer.
  for (const brought of claims.slice(1)) expect(brought).toBeLessThanOrEqual(64);
  expect(claims.reduce((sum, brought) => sum + brought)).toBeGreaterThanOrEqual(170);
});
