import { expect, test } from 'vitest';
import { Floors } from '../../src/jobs/floors.js';
import type { ClaimedJob } from '../../src/jobs/job.js';

const job = (id: string, kind = 'a', priority = 0, runAtMs = Number(id)): ClaimedJob =>
  ({ id, kind, priority, runAtMs, orderingKey: null }) as ClaimedJob;
const ids = (floors: Floors): string[] => floors.next().map(({ id }) => id);

/** Past its first claim. */
const working = (): Floors => {
  const floors = new Floors();
  floors.next();
  return floors;
};

test('the first claim starts at the head, the next ones behind the last jobs of each kind and priority', () => {
  const floors = new Floors();
  expect(floors.next()).toEqual([]);
  floors.claimed([job('1'), job('2'), job('3', 'a', -1), job('4', 'b')], true);
  expect(floors.next()).toEqual([
    { id: '2', kind: 'a', priority: 0, runAtMs: 2 },
    { id: '3', kind: 'a', priority: -1, runAtMs: 3 },
    { id: '4', kind: 'b', priority: 0, runAtMs: 4 },
  ]);
  floors.claimed([job('5')], true);
  expect(ids(floors)).toEqual(['5', '3', '4']);
});

test('what came late moves no floor back, unless more of it may be left', () => {
  const floors = working();
  floors.claimed([job('5')], true);
  floors.claimed([job('7', 'a', 0, 3)], true);
  expect(ids(floors)).toEqual(['5']);
  floors.claimed([job('7', 'a', 0, 3)], false);
  expect(ids(floors)).toEqual(['7']);
});

test.each([Number.NEGATIVE_INFINITY, -2_000_000_000_000_000 - 0.001, -(2 ** 42)])(
  'a time that is not exact to the microsecond is no floor, and takes the one away behind which more of it may be left: %d',
  (runAtMs) => {
    const floors = working();
    floors.claimed([job('7', 'a', 0, runAtMs)], false);
    expect(ids(floors)).toEqual([]);
    floors.claimed([job('5'), job('6', 'b')], true);
    floors.claimed([job('8', 'a', 0, runAtMs)], true);
    expect(ids(floors)).toEqual(['5', '6']);
    floors.claimed([job('9', 'a', 0, runAtMs)], false);
    expect(ids(floors)).toEqual(['6']);
  },
);

test('a look is due three times a second; a found job has the next claim start at the head', () => {
  const floors = working();
  floors.claimed([job('1')], true);
  floors.looked(0, 10, false);
  expect(floors.shouldLook(309)).toBe(false);
  expect(floors.shouldLook(310)).toBe(true);
  expect(ids(floors)).toEqual(['1']);
  floors.looked(310, 320, true);
  // Not the one that was under way when it was found.
  floors.claimed([], true);
  expect(ids(floors)).toEqual([]);
  floors.claimed([], true);
  expect(ids(floors)).toEqual(['1']);
  floors.startAtHead();
  expect(ids(floors)).toEqual([]);
});

test('a look that takes longer than a claim goes with none, and is a tenth of the time at most', () => {
  const floors = working();
  expect(floors.cheap).toBe(true);
  floors.took(50);
  floors.looked(0, 150, false);
  expect(floors.cheap).toBe(false);
  expect(floors.shouldLook(1_149)).toBe(false);
  expect(floors.shouldLook(1_150)).toBe(true);
  // As slow as everything on a busy machine.
  floors.looked(1_150, 1_203, false);
  expect(floors.cheap).toBe(true);
  expect(floors.shouldLook(1_503)).toBe(true);
  floors.looked(2_000, 9_000, false);
  expect(floors.shouldLook(19_000)).toBe(true);
});

test('a job with an ordering key, and one of all time, are no floors', () => {
  const floors = working();
  floors.claimed([{ ...job('1'), orderingKey: 'k' }, job('2', 'b', 0, Number.NEGATIVE_INFINITY)], true);
  expect(ids(floors)).toEqual([]);
});

test('more than a hundred kinds and priorities are not kept', () => {
  const floors = working();
  floors.claimed(
    Array.from({ length: 150 }, (_, n) => job(String(n), `kind ${n}`)),
    true,
  );
  expect(floors.next()).toHaveLength(100);
  floors.claimed([job('200', 'kind 7')], true);
  expect(ids(floors)).toContain('200');
});
