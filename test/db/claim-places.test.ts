/** A claim takes rows by their places: also those that moved while it looked, and never another row that stands there now. */
import { afterAll, beforeEach, expect, test } from 'vitest';
import type { Completion } from '../../src/jobs/held.js';
import { jobsDatabase } from '../support/jobs.js';

const db = await jobsDatabase();
afterAll(() => db.close());
beforeEach(() => db.clear());

test('what a look finds locked after it had moved, it finds in its new place', async () => {
  const ids = await db.put('a', [1, 2]);
  const looking = await db.session();
  await looking.query('begin');
  // A cursor looks when it is opened, and locks when rows are fetched.
  await looking.query(`
declare looked cursor for
select taken.id::text, taken.ctid::text as place
from (
  select j.id, j.ctid
  from unbroker.jobs j
  where j.finished_at is null and j.state = 'ready' and j.cron is null and not j.solo and j.ordering_key is null
    and j.kind = 'a' and j.priority = 0 and j.run_at <= now()
  order by j.run_at, j.id
  for update skip locked
) as taken`);
  const moved = await db.pool.query(
    `update unbroker.jobs set payload = '"moved"' returning id::text, ctid::text as place`,
  );
  const { rows } = await looking.query('fetch all from looked');
  expect(rows).toEqual(expect.arrayContaining(moved.rows));
  expect(rows.map((row) => (row as { id: string }).id)).toEqual(ids);
  await looking.query('rollback');
});

test('rows that move all the time are claimed once each, as they are then', async () => {
  const ids = await db.put('a', Array(600).fill({ moved: 0 }));
  let over = false;
  const movers = [0, 1].map(async (half) => {
    const session = await db.session();
    while (!over)
      await session.query(
        `update unbroker.jobs set payload = jsonb_build_object('moved', (payload ->> 'moved')::int + 1)
         where id in (select id from unbroker.jobs where state = 'ready' and id % 2 = $1 limit 20 for update skip locked)`,
        [half],
      );
  });
  const claimed = (
    await Promise.all(
      [0, 1, 2].map(async (n) => {
        const session = await db.session();
        const mine = [];
        // Nothing is there for a moment while the movers hold what is left.
        while (ids.length > 0) {
          const jobs = await db.claim('a', { total: 7, db: session, worker: `w${n}` });
          mine.push(...jobs);
          const { rows } = await session.query(`select from unbroker.jobs where state = 'ready' limit 1`);
          if (rows.length === 0) break;
        }
        return mine;
      }),
    )
  ).flat();
  over = true;
  await Promise.all(movers);
  expect(claimed.map(({ id }) => Number(id)).sort((a, b) => a - b)).toEqual(ids.map(Number));
  const { rows } = await db.pool.query(
    'select id::text, payload::text, attempts, lease_token::text as token from unbroker.jobs',
  );
  const now = new Map(rows.map((row) => [row.id, row]));
  for (const { id, payloadText, attempt, leaseToken } of claimed)
    expect(now.get(id)).toEqual({ id, payload: payloadText, attempts: attempt, token: leaseToken });
});

const completion = (job: { readonly id: string; readonly leaseToken: string }): Completion => ({
  id: job.id,
  leaseToken: job.leaseToken,
  resultText: null,
});

const claims = async (): Promise<number> => (await db.pool.query('select from unbroker.claims')).rows.length;

test.each([
  ['complete', { done: 3 }],
  ['completeAndRemove', {}],
] as const)('%s of one claim, of two, and of some that are not ours any more', async (write, states) => {
  await db.put('a', [1, 2, 3, 4, 5, 6, 7]);
  const first = (await db.claim('a', { total: 3 })).map(completion);
  const second = (await db.claim('a', { total: 2 })).map(completion);
  const third = (await db.claim('a', { total: 2 })).map(completion);
  expect(await claims()).toBe(3);
  // In another order than the table's, as jobs end.
  expect((await db.store[write](db.pool, [...first].reverse())).sort()).toEqual(
    first.map(({ id }) => id).sort(),
  );
  expect(await claims()).toBe(2);
  expect(await db.states()).toEqual({ ...states, running: 4 });
  await db.expire(second.slice(0, 1).map(({ id }) => id));
  await db.pool.query('select * from unbroker.reap(10)');
  // One claim, of which one was reaped; then two claims, of which one is over.
  expect(await db.store[write](db.pool, second)).toEqual([second[1]?.id]);
  const mixed = [...second, ...third];
  expect([...(await db.store[write](db.pool, mixed))].sort()).toEqual(third.map(({ id }) => id).sort());
  expect(await db.states()).toMatchObject({ ready: 1 });
  expect(await db.store[write](db.pool, first)).toEqual([]);
});

// The last, since it takes functions away.
test('on the schema before, too, ends of one claim are refused while somebody holds one of the rows', async () => {
  await db.pool.query('drop function unbroker.finish_of, unbroker.remove_of');
  await db.put('a', [1, 2, 3]);
  const ended = (await db.claim('a')).map(completion);
  const holder = await db.session();
  await holder.query('begin');
  await holder.query('select from unbroker.jobs where id = $1 for update', [ended[1]?.id]);
  await expect(db.store.complete(db.pool, ended)).rejects.toMatchObject({ code: '55P03' });
  await holder.query('rollback');
  const others = ended.slice(1);
  expect([...(await db.store.complete(db.pool, others))].sort()).toEqual(others.map(({ id }) => id).sort());
  expect(await db.store.completeAndRemove(db.pool, ended.slice(0, 1))).toEqual([ended[0]?.id]);
  expect(await db.states()).toEqual({ done: 2 });
});
