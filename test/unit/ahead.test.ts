/** How many jobs may be claimed before there is a slot for them. */
import { expect, test } from 'vitest';
import { Ahead, MAX_AHEAD_MS, parted } from '../../src/jobs/ahead.js';
import type { Run } from '../../src/jobs/handler.js';

const run = (id: number, attempt = 1): Run =>
  ({ job: { id: String(id), attempt, maxAttempts: 3 } }) as unknown as Run;

/** `jobs` ended within `ms`. */
function after(slots: number, jobs: number, ms: number): Ahead {
  const ahead = new Ahead(slots, 0);
  for (let n = 0; n < jobs; n += 1) ahead.ended();
  ahead.most(ms);
  return ahead;
}

test('as many as end within 25 ms at the present pace, at most twice the slots', () => {
  expect(after(24, 100, 100).most(100)).toBe(25);
  expect(after(24, 10_000, 100).most(100)).toBe(48);
  expect(after(24, 2, 1_000).most(1_000)).toBe(0);
});

test('the pace is asked anew: jobs that stop ending let none wait', () => {
  const ahead = after(24, 1_000, 100);
  expect(ahead.most(105)).toBe(48);
  expect(ahead.most(10_000)).toBe(0);
});

test('none with few slots, whatever the pace', () => {
  expect(after(7, 10_000, 100).most(100)).toBe(0);
});

test('begun in the order in which they came; given back all at once when nothing begins for a second', () => {
  const ahead = new Ahead(24, 0);
  ahead.put([run(1), run(2), run(3)], 100);
  expect(ahead.next()?.job.id).toBe('1');
  expect(ahead.stale(100 + MAX_AHEAD_MS - 1)).toBe(false);
  expect(ahead.stale(100 + MAX_AHEAD_MS)).toBe(true);
  expect(ahead.empty().map(({ job }) => job.id)).toEqual(['2', '3']);
  expect(ahead.size).toBe(0);
  expect(ahead.stale(1e9)).toBe(false);
});

test.each([
  [2, '3,5', '1,2,4', ''],
  [1, '3', '1,2,4', '5'],
  [0, '', '1,2,4', '3,5'],
  [-1, '', '1,2,4', '3,5'],
  [4, '3,5,1,2', '4', ''],
  [9, '3,5,1,2,4', '', ''],
])(
  'of five with two on their last attempt and %i slots these begin first: %s',
  (slots, begun, waiting, back) => {
    const runs = [run(1), run(2), run(3, 3), run(4, 2), run(5, 3)];
    const ids = (some: readonly Run[]): string => some.map(({ job }) => job.id).join();
    const parts = parted(runs, slots);
    expect([ids(parts.begun), ids(parts.waiting), ids(parts.mustNotWait)]).toEqual([begun, waiting, back]);
  },
);
