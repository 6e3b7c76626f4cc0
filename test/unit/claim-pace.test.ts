/** How many a claim asks for, and when the next one comes. */
import { expect, test } from 'vitest';
import { ClaimPace, MAX_BUSY_POLL_MS, MIN_CLAIM_MS } from '../../src/jobs/claim-pace.js';

const POLL_MS = 200;

/** The waits until the next claim, one after the other. */
function waits(pace: ClaimPace, count: number): number[] {
  return Array.from({ length: count }, () => {
    const ms = pace.idleMs;
    pace.waited();
    return ms;
  });
}

test('waits double up to the longest, and begin anew when there may be work', () => {
  const pace = new ClaimPace(10, POLL_MS);
  expect(waits(pace, 8)).toEqual([5, 10, 20, 40, 80, 160, POLL_MS, POLL_MS]);
  pace.hurry();
  expect(waits(pace, 2)).toEqual([5, 10]);
});

test('few jobs call for the next claim at once, many that come together for a later one, none for none', () => {
  const pace = new ClaimPace(10, POLL_MS);
  const after = (claimed: number): number => {
    pace.brought(claimed, 10);
    return pace.idleMs;
  };
  waits(pace, 8);
  expect([after(0), after(1), after(0), after(5), after(0)]).toEqual([
    ...[POLL_MS, MIN_CLAIM_MS, MIN_CLAIM_MS, MAX_BUSY_POLL_MS, MAX_BUSY_POLL_MS],
  ]);
});

test('five full claims in a row are a backlog; one that is not full, or a lost database, ends it', () => {
  const pace = new ClaimPace(10, POLL_MS);
  const full = (): boolean[] =>
    Array.from({ length: 6 }, () => {
      pace.brought(10, 10);
      return pace.backlogBegins;
    });
  expect(full()).toEqual([false, false, false, false, true, false]);
  expect([pace.full, pace.mayLookAhead]).toEqual([true, true]);
  pace.brought(9, 10);
  expect([pace.full, pace.mayLookAhead]).toEqual([false, false]);
  expect(full()).toEqual([false, false, false, false, true, false]);
  pace.lost();
  expect([pace.full, pace.mayLookAhead]).toEqual([false, false]);
});

test('a claim asks for half the slots at least ten, and for what may wait besides', () => {
  expect([new ClaimPace(1, POLL_MS).total(1, 0), new ClaimPace(10, POLL_MS).total(9, 0)]).toEqual([1, 9]);
  const pace = new ClaimPace(100, POLL_MS);
  expect([pace.total(100, 0), pace.total(30, 0), pace.total(150, 80), pace.total(20, 80)]).toEqual([
    ...[50, 30, 130, 20],
  ]);
});

test('no claim is of more than a thousand, and one that lets jobs wait is one of few', () => {
  const pace = new ClaimPace(5_000, POLL_MS);
  expect([pace.total(5_000, 0), pace.isMany(pace.total(5_000, 0))]).toEqual([1_000, true]);
  const total = new ClaimPace(240, POLL_MS).total(700, 480);
  expect([total, pace.isMany(total)]).toEqual([249, false]);
});

test('a claim follows the last one after 5 ms, one of a backlog after 20; the first comes at once', () => {
  const pace = new ClaimPace(10, POLL_MS);
  expect([pace.pauseMs(0) > 0, pace.gatherMs(0) > 0]).toEqual([false, false]);
  pace.sent(100);
  expect([pace.pauseMs(102), pace.pauseMs(105), pace.gatherMs(102), pace.gatherMs(120)]).toEqual([
    3, 0, 18, 0,
  ]);
});
