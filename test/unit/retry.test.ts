/** When to try again: bounds, shapes and what counts as a policy. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { RetryPolicy } from '../../src/jobs/job.js';
import { MAX_RETRY_DELAY_MS, parseRetryPolicy, retryDelayMs } from '../../src/jobs/retry.js';

const plain: RetryPolicy = { type: 'exponential', baseMs: 1_000, factor: 2, maxMs: 60_000, jitter: 'none' };
const full: RetryPolicy = { ...plain, jitter: 'full' };

describe('delays', () => {
  test('exponential doubles from the base and stops at its maximum', () => {
    expect([1, 2, 3, 6, 7, 1_000].map((attempt) => retryDelayMs(plain, attempt, 0.5))).toEqual([
      1_000, 2_000, 4_000, 32_000, 60_000, 60_000,
    ]);
  });

  test('full jitter is uniform in [0, delay]; it is what is meant when nothing is said', () => {
    expect([0, 0.25, 0.999].map((random) => retryDelayMs(full, 3, random))).toEqual([0, 1_000, 3_996]);
    const { jitter: _, ...unsaid } = full;
    expect(retryDelayMs(unsaid, 3, 0.25)).toBe(1_000);
  });

  test('fixed stays, a ladder climbs and its last rung repeats', () => {
    expect([1, 9].map((attempt) => retryDelayMs({ type: 'fixed', delayMs: 7 }, attempt, 0))).toEqual([7, 7]);
    const ladder = { type: 'ladder', delaysMs: [10, 60, 300] } as const;
    expect([1, 2, 3, 4, 99].map((attempt) => retryDelayMs(ladder, attempt, 0))).toEqual([
      10, 60, 300, 300, 300,
    ]);
  });

  const delayMs = fc.double({ min: 0, max: MAX_RETRY_DELAY_MS, noNaN: true });
  const policy: fc.Arbitrary<RetryPolicy> = fc.oneof(
    fc.record({ type: fc.constant('fixed' as const), delayMs }),
    fc.record({
      type: fc.constant('ladder' as const),
      delaysMs: fc.array(delayMs, { minLength: 1, maxLength: 100 }),
    }),
    fc.record({
      type: fc.constant('exponential' as const),
      baseMs: delayMs,
      factor: fc.double({ min: 1, max: 100, noNaN: true }),
      maxMs: delayMs,
      jitter: fc.constantFrom('full' as const, 'none' as const),
    }),
  );
  const attempt = fc.oneof(fc.integer({ min: 0, max: 50 }), fc.integer({ min: 0, max: 2 ** 31 }));
  const random = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });

  test('property: a whole number of ms from 0 to 30 days, for any attempt up to 2^31', () => {
    fc.assert(
      fc.property(policy, attempt, random, (p, n, r) => {
        const ms = retryDelayMs(p, n, r);
        return Number.isInteger(ms) && ms >= 0 && ms <= MAX_RETRY_DELAY_MS;
      }),
      { numRuns: 10_000 },
    );
  });

  test('property: exponential never shrinks with the attempt and never passes its maximum', () => {
    fc.assert(
      fc.property(policy, fc.integer({ min: 1, max: 1_000 }), random, (p, n, r) => {
        if (p.type !== 'exponential') return true;
        const [now, next] = [retryDelayMs(p, n, r), retryDelayMs(p, n + 1, r)];
        return next >= now && next <= Math.ceil(p.maxMs);
      }),
      { numRuns: 10_000 },
    );
  });

  test('property: what is a policy is read as itself, also through JSON', () => {
    fc.assert(
      fc.property(policy, (p) => {
        const stored: unknown = JSON.parse(JSON.stringify(p));
        expect(parseRetryPolicy(stored)).toEqual(stored);
      }),
    );
  });
});

describe('what is a policy', () => {
  test.each([
    null,
    undefined,
    'fixed',
    [],
    {},
    { type: 'linear', delayMs: 1 },
    { type: 'fixed' },
    { type: 'fixed', delayMs: -1 },
    { type: 'fixed', delayMs: '5' },
    { type: 'fixed', delayMs: Number.NaN },
    { type: 'fixed', delayMs: MAX_RETRY_DELAY_MS + 1 },
    { type: 'ladder', delaysMs: [] },
    { type: 'ladder', delaysMs: Array(101).fill(1) },
    { type: 'ladder', delaysMs: [1, null] },
    { type: 'exponential', baseMs: 1, maxMs: 1 },
    { type: 'exponential', baseMs: 1, maxMs: 1, factor: 0.5 },
    { type: 'exponential', baseMs: 1, maxMs: 1, factor: 101 },
    { type: 'exponential', baseMs: 1, maxMs: 1, factor: 2, jitter: 'some' },
    { type: 'exponential', baseMs: 1, maxMs: Number.POSITIVE_INFINITY, factor: 2 },
  ])('%j is none', (value) => {
    expect(parseRetryPolicy(value)).toBeNull();
  });

  test('property: anything at all is a policy or null, never an exception', () => {
    fc.assert(
      fc.property(fc.anything(), (value) => void parseRetryPolicy(value)),
      { numRuns: 5_000 },
    );
  });

  test('at the limits', () => {
    expect(parseRetryPolicy({ type: 'fixed', delayMs: MAX_RETRY_DELAY_MS })).not.toBeNull();
    expect(parseRetryPolicy({ type: 'ladder', delaysMs: Array(100).fill(0) })).not.toBeNull();
    expect(parseRetryPolicy({ type: 'exponential', baseMs: 0, maxMs: 0, factor: 100 })).toEqual({
      ...{ type: 'exponential', baseMs: 0, maxMs: 0, factor: 100, jitter: 'full' },
    });
  });
});
