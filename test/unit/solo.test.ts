/** For how long ordinary work stands back for a job that must run alone. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { SoloPatience } from '../../src/jobs/solo.js';

const LEASE = 30_000;

describe('patience', () => {
  test('looks once a second, and stands back when one waits', () => {
    const solo = new SoloPatience(LEASE);
    expect(solo.shouldLook(0)).toBe(true);
    solo.looked(0, false, false);
    expect([solo.waiting, solo.shouldLook(999), solo.shouldLook(1_000)]).toEqual([false, false, true]);
    solo.looked(1_000, true, false);
    expect(solo.waiting).toBe(true);
  });

  test('a wait in vain ends after a lease, ordinary work goes on for as long, the next wait is twice as long', () => {
    const solo = new SoloPatience(LEASE);
    solo.looked(0, true, false);
    expect(solo.goOn(LEASE, true)).toBe(true);
    expect(solo.goOn(LEASE + 1, true)).toBe(false);
    solo.looked(2 * LEASE, true, false);
    expect(solo.waiting).toBe(false);
    solo.looked(2 * LEASE + 2, true, false);
    expect(solo.goOn(4 * LEASE, true)).toBe(true);
    expect(solo.goOn(4 * LEASE + 3, true)).toBe(false);
  });

  test('an idle worker rests for nobody', () => {
    const solo = new SoloPatience(LEASE);
    solo.looked(0, true, false);
    solo.goOn(LEASE + 1, true);
    solo.looked(LEASE + 2, true, true);
    expect(solo.waiting).toBe(true);
  });

  test('one that is claimed has a lease for itself, however long the wait before it was', () => {
    const solo = new SoloPatience(LEASE);
    solo.looked(0, true, false);
    solo.goOn(LEASE, true);
    solo.claimed(LEASE, true);
    expect(solo.goOn(2 * LEASE, true)).toBe(true);
    expect(solo.goOn(2 * LEASE + 1, true)).toBe(false);
  });

  test('one after the other, for a lease in all; then ordinary work for as long', () => {
    const solo = new SoloPatience(LEASE);
    solo.looked(0, true, false);
    let now = 0;
    let runs = 0;
    while (solo.goOn(now, false)) {
      solo.claimed(now, true);
      runs += 1;
      now += 1_000;
    }
    expect(runs).toBe(31);
    solo.looked(now + 30_000, true, false);
    expect(solo.waiting).toBe(false);
    solo.looked(now + 31_001, true, false);
    expect(solo.waiting).toBe(true);
  });

  test('when none is left, ordinary work goes on at once', () => {
    const solo = new SoloPatience(LEASE);
    solo.looked(0, true, false);
    solo.claimed(5, false);
    expect(solo.waiting).toBe(false);
    solo.looked(6, true, false);
    expect(solo.waiting).toBe(true);
  });
});

/** A worker beside an endless backlog of jobs of one length, with one job that must run alone. */
function simulate(
  jobMs: number,
  slots: number,
): { readonly startedAt: number; readonly standingBackMs: number } {
  const solo = new SoloPatience(LEASE);
  const ends: number[] = [];
  let standingBackMs = 0;
  for (let now = 0; now < 100 * (jobMs + LEASE); now += 200) {
    for (let i = ends.length - 1; i >= 0; i -= 1) if ((ends[i] as number) <= now) ends.splice(i, 1);
    if (solo.shouldLook(now)) solo.looked(now, true, false);
    if (solo.waiting && solo.goOn(now, ends.length > 0)) {
      if (ends.length === 0) return { startedAt: now, standingBackMs };
      standingBackMs += 200;
      continue;
    }
    while (ends.length < slots) ends.push(now + jobMs * (0.5 + (ends.length + 1) / slots / 2));
  }
  return { startedAt: Number.POSITIVE_INFINITY, standingBackMs };
}

test('property: beside jobs of any length it starts in the end, and stands back for half of the time at most', () => {
  fc.assert(
    fc.property(fc.integer({ min: 10, max: 3_600_000 }), fc.integer({ min: 1, max: 20 }), (jobMs, slots) => {
      const { startedAt, standingBackMs } = simulate(jobMs, slots);
      expect(startedAt).toBeLessThan(8 * jobMs + 2 * LEASE);
      expect(standingBackMs).toBeLessThanOrEqual(startedAt / 2 + jobMs + LEASE);
    }),
    { numRuns: 30 },
  );
});
