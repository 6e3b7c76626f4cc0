/**
 * Kinds whose done jobs do not stay: the rows go with the statement that ends them, except those by which something is
 * known; under the fence as every other write; and never so that a job runs again.
 */
import { afterAll, beforeEach, expect, test } from 'vitest';
import { Discard } from '../../src/index.js';
import { jobsDatabase } from '../support/jobs.js';
import { startWorker } from '../support/workers.js';

const db = await jobsDatabase();
afterAll(() => db.close());
beforeEach(() => db.clear());

async function left(): Promise<Record<string, string>> {
  const { rows } = await db.pool.query<{ id: string; what: string }>(
    `select id, kind || ' ' || state as what from unbroker.jobs order by id`,
  );
  return Object.fromEntries(rows.map(({ id, what }) => [id, what]));
}

test('done rows of such a kind are gone, but for those by which something is known; dead ones and other kinds stay', async () => {
  await db.put('gone', Array(300).fill(0));
  const [once, ordered, sourced, dead, kept] = [
    ...(await db.put('gone', [1], { dedupeKey: 'once' })),
    ...(await db.put('gone', [2], { orderingKey: 'k' })),
    ...(await db.put('gone', [3], { source: 'amqp:orders' })),
    ...(await db.put('gone', ['dead'])),
    ...(await db.put('kept', [4])),
  ] as [string, string, string, string, string];
  const starts: string[] = [];
  const worker = startWorker({
    url: db.url,
    handlers: {
      gone: {
        keepDone: false,
        concurrency: 10,
        handle: ({ id, payload }) => {
          starts.push(id);
          if (payload === 'dead') throw new Discard('no');
          return { result: payload };
        },
      },
      kept: ({ id }) => void starts.push(id),
    },
  });
  await worker.untilEnded(305);
  await db.put('gone', [5], { dedupeKey: 'once' });
  await db.put('gone', ['last']);
  await worker.untilEnded(306);
  await worker.close();
  expect(await left()).toEqual({
    ...{ [once]: 'gone done', [ordered]: 'gone done', [sourced]: 'gone done' },
    ...{ [dead]: 'gone dead', [kept]: 'kept done' },
  });
  expect(new Set(starts).size).toBe(306);
  expect(starts).toHaveLength(306);
  expect(worker.settled().filter(({ outcome }) => outcome.type === 'complete')).toHaveLength(305);
  expect(worker.lost()).toEqual([]);
});

test("the worker's word counts for kinds that say nothing", async () => {
  await db.put('a', [1]);
  const [kept] = (await db.put('b', [2])) as [string];
  const worker = startWorker({
    ...{ url: db.url, keepDone: false },
    handlers: { a: () => {}, b: { keepDone: true, handle: () => {} } },
  });
  await worker.untilEnded(2);
  await worker.close();
  expect(await left()).toEqual({ [kept]: 'b done' });
});

test('a stale lease removes nothing; the one that counts does', async () => {
  const [id] = (await db.put('a', [1])) as [string];
  const [stale] = await db.claim('a');
  await db.expire();
  await db.store.reap(db.pool, 10);
  const fresh = await db.store.claimSolo(db.pool, [{ kind: 'a', limit: 1, park: false }], 'w2', 30_000);
  expect(stale?.id).toBe(id);
  expect(await db.store.completeAndRemove(db.pool, [stale ?? { id, leaseToken: '0' }])).toEqual([]);
  expect(await left()).toEqual({ [id]: 'a running' });
  expect(await db.store.completeAndRemove(db.pool, [fresh ?? { id, leaseToken: '0' }])).toEqual([id]);
  expect(await left()).toEqual({});
  expect(await db.store.completeAndRemove(db.pool, [fresh ?? { id, leaseToken: '0' }])).toEqual([]);
});

test('a row that another table refers to stays done: its job does not run again, nor do its neighbours', async () => {
  const ids = await db.put('a', [1, 2, 3]);
  await db.pool.query(
    'create table public.orders (job bigint references unbroker.jobs (id)); insert into public.orders select id from unbroker.jobs order by id limit 2',
  );
  const starts: string[] = [];
  const worker = startWorker({
    ...{ url: db.url, keepDone: false },
    handlers: {
      a: ({ id, payload }) => {
        starts.push(id);
        return payload === 1 ? undefined : { n: payload };
      },
    },
  });
  await worker.untilEnded(3);
  await worker.close();
  await db.pool.query('drop table public.orders');
  const [silent, told] = ids as [string, string];
  expect(await left()).toEqual({ [silent]: 'a done', [told]: 'a done' });
  expect((await db.job(told)).result).toEqual({ n: 2 });
  expect(starts.toSorted()).toEqual(ids.toSorted());
  expect(worker.lost()).toEqual([]);
});
