import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { untilTurnMs } from '../../src/jobs/shared-looks.js';

const NOW = 1_764_590_000_123;

/** Looks of so many sleepers within `forMs`, in ms from the start: each is asked again when its turn is over. */
function looks(of: number, pollMs: number, forMs: number, alive = (_rank: number) => true): number[] {
  const times: number[] = [];
  for (let rank = 0; rank < of; rank += 1) {
    if (!alive(rank)) continue;
    // Each got its seat at another time, and its clock says so.
    const seatedMs = rank * 37;
    const seat = { rank, of, databaseMs: NOW + seatedMs };
    for (let at = seatedMs; ; ) {
      at += untilTurnMs(seat, at - seatedMs, pollMs);
      if (at > forMs) break;
      times.push(at);
      // A timer is late, and a look takes a moment.
      at += (at * 7) % 9;
    }
  }
  return times.sort((a, b) => a - b);
}

const gaps = (times: readonly number[], fromMs: number): number[] =>
  times.slice(1).flatMap((at, i) => ((times[i] ?? 0) >= fromMs ? [at - (times[i] ?? 0)] : []));

describe('looks of those that sleep', () => {
  test.each([1, 2])('%i of them look every pollMs, each for itself', (of) => {
    for (const rank of Array.from({ length: of }, (_, n) => n))
      expect(untilTurnMs({ rank, of, databaseMs: NOW }, 12, 200)).toBe(200);
  });

  test.each([3, 10, 20])('%i of them look every half of pollMs between them', (of) => {
    const times = looks(of, 200, 20_000);
    expect(Math.max(...gaps(times, 2_000))).toBeLessThanOrEqual(101);
    expect(times.length).toBeLessThanOrEqual(20_000 / 100 + of);
  });

  test('fifty look no seldomer than every 2 s each', () => {
    const times = looks(50, 200, 20_000);
    expect(Math.max(...gaps(times, 2_000))).toBeLessThanOrEqual(101);
    expect(times.length).toBeGreaterThanOrEqual(50 * 9);
    expect(times.length).toBeLessThanOrEqual(50 * 10 + 50);
  });

  test('one of ten that died makes no look later than pollMs', () => {
    expect(
      Math.max(
        ...gaps(
          looks(10, 200, 20_000, (rank) => rank !== 4),
          2_000,
        ),
      ),
    ).toBeLessThanOrEqual(201);
  });

  test('with a long pollMs none waits for a turn', () => {
    expect(untilTurnMs({ rank: 3, of: 10, databaseMs: NOW }, 0, 5_000)).toBe(5_000);
  });

  test('is never at once, and never longer than a round', () => {
    fc.assert(
      fc.property(
        fc.nat(500),
        fc.nat(500),
        fc.double({ min: 0, max: 4e12, noNaN: true }),
        fc.double({ min: 0, max: 15_000, noNaN: true }),
        fc.integer({ min: 5, max: 60_000 }),
        (rank, behind, databaseMs, sinceMs, pollMs) => {
          const until = untilTurnMs({ rank, of: rank + 1 + behind, databaseMs }, sinceMs, pollMs);
          expect(until).toBeGreaterThanOrEqual(Math.min(pollMs / 4, 1));
          expect(until).toBeLessThanOrEqual(Math.max(pollMs, 2_000 + pollMs));
        },
      ),
    );
  });
});
