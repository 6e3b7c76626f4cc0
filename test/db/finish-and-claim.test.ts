/**
 * What ended and what is claimed next go in one statement: each answer is right whatever the other half meets, and neither
 * keeps the other waiting for long.
 */
import { afterAll, beforeEach, expect, test } from 'vitest';
import type { ClaimedJob, Queryable } from '../../src/jobs/job.js';
import { jobsDatabase } from '../support/jobs.js';
import { until } from '../support/until.js';
import { startWorker } from '../support/workers.js';

const db = await jobsDatabase();
afterAll(() => db.close());
beforeEach(() => db.clear());

const order = (total: number) => ({
  demands: [{ kind: 'a', limit: total, park: false }],
  ...{ total, worker: 'w', leaseMs: 30_000, floors: [], oldest: false },
});
const ended = ({ id, leaseToken }: ClaimedJob, resultText: string | null = null) => ({
  ...{ id, leaseToken, resultText },
});
const ids = (jobs: readonly { readonly id: string }[]): string[] => jobs.map(({ id }) => id);

test('what ended is done and what is due is claimed, each under its fence', async () => {
  const put = await db.put('a', [1, 2, 3, 4, 5]);
  const [first, second, third] = (await db.claim('a', { total: 3 })) as [ClaimedJob, ClaimedJob, ClaimedJob];
  const stale = { ...third, leaseToken: second.leaseToken + 1 };
  const both = await db.store.finishAndClaim(
    db.pool,
    [ended(second, '{"r":1}'), ended(first), ended(stale)],
    order(1),
  );
  expect([...both.finished].sort()).toEqual(put.slice(0, 2));
  expect(ids(both.jobs)).toEqual([put[3]]);
  expect((await db.job(second.id)).result).toEqual({ r: 1 });
  expect(await db.states()).toEqual({ done: 2, running: 2, ready: 1 });
  // Nothing to claim; nothing to finish; nothing that is still held.
  const none = await db.store.finishAndClaim(db.pool, [ended(third)], { ...order(1), demands: [] });
  expect(none).toEqual({ finished: [third.id], jobs: [] });
  expect(ids((await db.store.finishAndClaim(db.pool, [], order(9))).jobs)).toEqual([put[4]]);
  expect(await db.store.finishAndClaim(db.pool, [ended(first)], order(9))).toEqual({
    finished: [],
    jobs: [],
  });
});

test('jobs that end while claims go on are written with the next one, those of an idle worker at once', async () => {
  const asked: string[] = [];
  const counting: Queryable = {
    query(text, values) {
      if (/\.finish(_and_claim)?\(/.test(text)) {
        const written = String(values?.[0]) === '{}' ? 'nothing' : 'something';
        asked.push(`${text.includes('.finish(') ? 'alone' : 'claim'} ${written}`);
      }
      return db.pool.query(text, values);
    },
  };
  await db.put('a', Array(40).fill(0));
  const worker = startWorker({ url: db.url, db: counting, concurrency: 4, handlers: { a: () => undefined } });
  await worker.untilEnded(40);
  expect(asked.filter((what) => what === 'claim something').length).toBeGreaterThan(5);
  const before = asked.length;
  await until('it is idle', () => asked.slice(before).filter((what) => what === 'claim nothing').length > 4);
  await worker.close();
});

test('a row that somebody holds keeps its own end waiting, and no claim', async () => {
  const holder = await db.session();
  const [held] = (await db.put('a', [1])) as [string];
  const seen: string[] = [];
  let refused = 0;
  const watched: Queryable = {
    query: async (text, values) => {
      try {
        return await db.pool.query(text, values);
      } catch (error) {
        if ((error as { code?: string }).code === '55P03') refused += 1;
        throw error;
      }
    },
  };
  const worker = startWorker({
    ...{ url: db.url, db: watched, concurrency: 1 },
    handlers: {
      async a({ id }) {
        seen.push(id);
        if (id !== held) return;
        await holder.query('begin');
        await holder.query('select from unbroker.jobs where id = $1 for update', [id]);
        await db.put('a', [2]);
      },
    },
  });
  // With one slot its end goes with the next claim, which is refused that and then claims by itself.
  await until('the other one has run', () => seen.length === 2);
  expect(refused).toBe(1);
  expect((await db.job(held)).state).toBe('running');
  expect(worker.errors()).toEqual([]);
  await holder.query('rollback');
  await worker.untilEnded(2);
  expect(worker.lost()).toEqual([]);
  expect((await db.job(held)).attempts).toBe(1);
  await worker.close();
});
