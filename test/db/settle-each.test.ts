/**
 * Ends that are each written by themselves (`settleBatch: 1`): many a call, each in a transaction of its own, under its own
 * fence, and none of them a hostage of its neighbours.
 */
import { afterAll, afterEach, beforeEach, expect, test } from 'vitest';
import { Run } from '../../src/jobs/handler.js';
import type { ClaimedJob, Queryable } from '../../src/jobs/job.js';
import { Settler } from '../../src/jobs/settler.js';
import { createStore } from '../../src/jobs/store.js';
import { SILENT } from '../../src/log.js';
import { jobsDatabase } from '../support/jobs.js';
import { until } from '../support/until.js';
import { startWorker, type TestWorker, type TestWorkerOptions } from '../support/workers.js';

const db = await jobsDatabase();
afterAll(() => db.close());
beforeEach(() => db.clear());

const workers: TestWorker[] = [];
function work(options: Omit<TestWorkerOptions, 'url'>): TestWorker {
  const worker = startWorker({ url: db.url, settleBatch: 1, ...options });
  workers.push(worker);
  return worker;
}
afterEach(async () => {
  await Promise.all(workers.splice(0).map((worker) => worker.close()));
});

const ended = ({ id, leaseToken }: ClaimedJob, resultText: string | null = null) => ({
  ...{ id, leaseToken, resultText },
});

/** How many transactions ended these rows: rows of one have one xmin. */
async function transactions(): Promise<number> {
  const { rows } = await db.pool.query(
    `select count(distinct xmin::text)::int as n from unbroker.jobs where state = 'done'`,
  );
  return rows[0].n;
}

test('each is a transaction of its own, under its own fence; one that is refused takes no other with it', async () => {
  await db.put('a', [1, 2, 3, 4]);
  const [first, stale, odd, last] = (await db.claim('a')) as [ClaimedJob, ClaimedJob, ClaimedJob, ClaimedJob];
  const old = { ...stale, leaseToken: String(BigInt(stale.leaseToken) - 1n) };
  const answers = await db.store.completeEach(db.pool, [
    ended(first, '{"r":1}'),
    ended(old),
    ended(odd, 'no JSON'),
    ended(last),
  ]);
  expect(answers).toEqual(['written', 'stale', 'refused', 'written']);
  expect(await db.states()).toEqual({ done: 2, running: 2 });
  expect((await db.job(first.id)).result).toEqual({ r: 1 });
  expect(await transactions()).toBe(2);
});

test('what is answered is on disk, also when the last one was stale', async () => {
  await db.put('a', [1, 2]);
  const [first, second] = (await db.claim('a')) as [ClaimedJob, ClaimedJob];
  const stale = { ...second, leaseToken: String(BigInt(second.leaseToken) - 1n) };
  const session = await db.session();
  const { rows } = await session.query('select pg_current_wal_insert_lsn()::text as before');
  const { before } = rows[0] as { before: string };
  expect(await db.store.completeEach(session, [ended(first), ended(stale)])).toEqual(['written', 'stale']);
  const after = await session.query(`select pg_current_wal_flush_lsn() > $1::pg_lsn as flushed`, [before]);
  expect(after.rows).toEqual([{ flushed: true }]);
});

test('a worker writes a hundred ends in a hundred transactions and in fewer calls, odd ones beside', async () => {
  let calls = 0;
  const counting: Queryable = {
    query(text, values) {
      if (/\.finish_(one|each)\(/.test(text)) calls += 1;
      return db.pool.query(text, values);
    },
  };
  await db.put('a', Array(100).fill(0));
  await db.put('b', [1, 2], { maxAttempts: 1 });
  const worker = work({
    db: counting,
    concurrency: 24,
    handlers: { a: () => 'fine', b: () => Promise.reject(new Error('odd')) },
  });
  await worker.untilEnded(102);
  expect(await db.states()).toEqual({ done: 100, dead: 2 });
  expect(await transactions()).toBe(100);
  expect(calls).toBeLessThan(100);
  expect(worker.lost()).toEqual([]);
});

test('a database that wraps what it is asked in a transaction gets them one by one', async () => {
  const asked: string[] = [];
  const wrapping: Queryable = {
    async query(text, values) {
      const client = await db.pool.connect();
      try {
        if (text.includes('.finish_one(')) asked.push('one');
        if (text.includes('.finish_each(')) asked.push('call');
        await client.query('begin');
        const answer = await client.query(text, values);
        await client.query('commit');
        return answer;
      } catch (error) {
        await client.query('rollback');
        throw error;
      } finally {
        client.release();
      }
    },
  };
  await db.put('a', Array(60).fill(0));
  const worker = work({ db: wrapping, concurrency: 24, handlers: { a: () => 'fine' } });
  await worker.untilEnded(60);
  expect(await db.states()).toEqual({ done: 60 });
  expect(worker.lost()).toEqual([]);
  expect(asked.filter((what) => what === 'one')).toHaveLength(60);
  expect(asked).toContain('call');
});

test('a schema that is migrated after its workers: what ran is done all the same, and once', async () => {
  const older = await jobsDatabase();
  const options = { url: older.url, concurrency: 10, handlers: { a: () => 'fine' } };
  try {
    await older.pool.query('drop procedure unbroker.finish_each; drop function unbroker.finish_one');
    await older.put('a', Array(40).fill(0));
    for (const settleBatch of [1, 1_000]) {
      const worker = startWorker({ ...options, settleBatch });
      workers.push(worker);
      await older.put('a', [0]);
      await until('all are done', async () => Object.keys(await older.states()).join() === 'done');
      expect(worker.lost()).toEqual([]);
    }
    expect(await older.states()).toEqual({ done: 42 });
  } finally {
    await Promise.all(workers.splice(0).map((worker) => worker.close()));
    await older.close();
  }
});

test('where the procedure is not there a settler asks once a minute for it, and uses it once it is', async () => {
  const older = await jobsDatabase();
  let nowMs = 1_000;
  const store = createStore('unbroker', () => nowMs);
  const asked: string[] = [];
  const errors: unknown[] = [];
  const watching: Queryable = {
    query(text, values) {
      const name = /\.finish_(one|each)\(/.exec(text)?.[1];
      if (name !== undefined) asked.push(name);
      return older.pool.query(text, values);
    },
  };
  let written = 0;
  const settler = new Settler({
    ...{ store, db: watching, batch: 1, removes: () => false },
    onSettled: (_settlement, done) => {
      if (done) written += 1;
    },
    onError: (error) => errors.push(error),
  });
  const end = async (): Promise<string> => {
    await older.put('a', [1, 2]);
    asked.length = 0;
    for (const job of await older.claim('a')) {
      const run = new Run(job, performance.now() + 60_000, SILENT, store, older.pool);
      settler.push({ run, outcome: { type: 'complete', resultText: null } });
    }
    await settler.drained();
    return asked.join();
  };
  try {
    await older.pool.query('alter procedure unbroker.finish_each rename to away');
    expect([await end(), await end()]).toEqual(['each,one,one', 'one,one']);
    await older.pool.query('alter procedure unbroker.away rename to finish_each');
    nowMs += 59_999;
    expect(await end()).toBe('one,one');
    nowMs += 1;
    expect([await end(), await end()]).toEqual(['each', 'each']);
    expect(written).toBe(10);
    expect(errors).toEqual([]);
    expect(await older.states()).toEqual({ done: 10 });
  } finally {
    settler.close();
    await older.close();
  }
});
