/**
 * A claim that starts behind what was claimed last finds the same jobs, for far fewer pages where a forgotten
 * transaction keeps the entries of all that were claimed before; and what it may pass over is bounded.
 */
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import type { Floor } from '../../src/jobs/floors.js';
import type { ClaimedJob } from '../../src/jobs/job.js';
import { type JobsDatabase, jobsDatabase } from '../support/jobs.js';
import { ownPages } from '../support/own-pages.js';

let db: JobsDatabase;
beforeAll(async () => {
  db = await jobsDatabase();
});
afterAll(() => db.close());
beforeEach(() => db.clear());

const claim = (total: number, floors: readonly Floor[], kinds = ['a']): Promise<ClaimedJob[]> =>
  db.store.claim(
    db.pool,
    kinds.map((kind) => ({ kind, limit: total, park: false })),
    total,
    'w',
    30_000,
    floors,
  );
const ids = (jobs: readonly ClaimedJob[]): string[] => jobs.map(({ id }) => id);
const secondsAgo = (seconds: number): { runAt: Date } => ({ runAt: new Date(Date.now() - seconds * 1_000) });
const last = (jobs: readonly ClaimedJob[]): ClaimedJob[] => jobs.slice(-1);

test('beside an open snapshot it steps over none of the entries of claimed jobs', async () => {
  await db.put('a', Array(5_000).fill(0), secondsAgo(60));
  const holder = await db.session();
  await holder.query('begin isolation level repeatable read');
  await holder.query('select 1');
  const claimed = await claim(4_000, []);
  const session = await db.session();
  const demand = [{ kind: 'a', limit: 1, park: false }];
  const pages = (floors: readonly Floor[]): Promise<number> =>
    ownPages(session, async () => {
      expect(await db.store.claim(session, demand, 1, 'w', 60_000, floors)).toHaveLength(1);
    });
  const from = await pages([]);
  const behind = await pages(last(claimed));
  await holder.query('rollback');
  expect(from).toBeGreaterThan(150);
  expect(behind).toBeLessThan(60);
});

test('behind a floor come the jobs of the same time with a higher id, then later ones', async () => {
  const first = await db.put('a', [1, 2, 3], secondsAgo(60));
  const later = await db.put('a', [4], secondsAgo(30));
  const claimed = await claim(2, []);
  expect(ids(claimed)).toEqual(first.slice(0, 2));
  expect(ids(await claim(10, last(claimed)))).toEqual([first[2], ...later]);
});

test('every priority is found, known or not', async () => {
  const known = await db.put('a', [0], { priority: 5, ...secondsAgo(60) });
  const floors = await claim(1, []);
  expect(ids(floors)).toEqual(known);
  const between = await db.put('a', [0], { priority: 3, ...secondsAgo(90) });
  const below = await db.put('a', [0], { priority: -32_768, ...secondsAgo(90) });
  const above = await db.put('a', [0], { priority: 32_767, ...secondsAgo(90) });
  const same = await db.put('a', [0], { priority: 5, ...secondsAgo(30) });
  expect(ids(await claim(10, floors))).toEqual([...above, ...same, ...between, ...below]);
});

test('each kind has floors of its own', async () => {
  await db.put('a', [0], secondsAgo(30));
  const floors = await claim(1, []);
  const others = await db.put('b', [0], secondsAgo(60));
  expect(ids(await claim(10, floors, ['a', 'b']))).toEqual(others);
});

test('a job that came a little late is found, one that came very late waits for a claim from the head', async () => {
  await db.put('a', [0]);
  const floors = await claim(1, []);
  const late = await db.put('a', [0], secondsAgo(0.2));
  const veryLate = await db.put('a', [0], secondsAgo(60));
  expect(ids(await claim(10, floors))).toEqual(late);
  expect(ids(await claim(10, []))).toEqual(veryLate);
});

test('what is given back, or was committed late, is before the floors, and only that is', async () => {
  const put = await db.put('a', [1, 2, 3], secondsAgo(60));
  const floors = await claim(2, []);
  const [, second] = floors;
  expect(await db.store.late(db.pool, last(floors))).toBe(false);
  await db.store.release(db.pool, [second as ClaimedJob]);
  expect(await db.store.late(db.pool, last(floors))).toBe(true);
  expect(ids(await claim(1, []))).toEqual([put[1]]);
  // Not yet due, behind the floor, of another kind, of another priority.
  await db.put('a', [0], { delayMs: 60_000 });
  await db.put('b', [0], secondsAgo(90));
  await db.put('a', [0], { ...secondsAgo(90), priority: 1 });
  expect(await db.store.late(db.pool, last(floors))).toBe(false);
  expect(await db.store.late(db.pool, [])).toBe(false);
  await db.put('a', [0], secondsAgo(90));
  expect(await db.store.late(db.pool, last(floors))).toBe(true);
});

test('every job is claimed behind the floors or found before them: none lies between', async () => {
  await db.put('a', [1], secondsAgo(60));
  const floors = await claim(1, []);
  const [floor] = floors as [ClaimedJob];
  for (const us of [-1, 0, 1]) {
    const { rows } = await db.pool.query(
      `insert into unbroker.jobs (kind, payload, run_at)
       select 'a', 'null', run_at + $2 * interval '1 microsecond' from unbroker.jobs where id = $1 returning id::text`,
      [floor.id, us],
    );
    const late = await db.store.late(db.pool, floors);
    const found = ids(await claim(10, late ? [] : floors));
    expect([us, late, found]).toEqual([us, us < 0, [rows[0].id]]);
  }
});
