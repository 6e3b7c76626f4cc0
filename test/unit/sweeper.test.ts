/** Over and over: with a pause, without one while there is more, and not once it is stopped. Time is set. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Sweeper } from '../../src/jobs/sweeper.js';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** Sweeps that take 100 ms each and answer one after the other; the last answer again and again. */
function sweeping(...answers: (boolean | Error)[]) {
  const began: number[] = [];
  const errors: unknown[] = [];
  const startAt = performance.now();
  const sweeper = new Sweeper({
    async sweep() {
      const answer = answers[Math.min(began.length, answers.length - 1)];
      began.push(performance.now() - startAt);
      await new Promise((resolve) => setTimeout(resolve, 100));
      if (answer instanceof Error) throw answer;
      return answer === true;
    },
    everyMs: 8_000,
    onError: (error) => errors.push(error),
  });
  return { sweeper, began, errors };
}

test('while there is more, half of the time; then after a pause of a quarter more or less', async () => {
  const { sweeper, began } = sweeping(true, true, false);
  sweeper.start();
  await vi.advanceTimersByTimeAsync(7_000);
  expect(began).toEqual([0, 200, 400]);
  await vi.advanceTimersByTimeAsync(3_000);
  expect(began).toHaveLength(4);
  expect(began[3]).toBeGreaterThanOrEqual(500 + 7_000);
  expect(began[3]).toBeLessThanOrEqual(500 + 9_000);
});

test('an error is told, and tried again after a pause', async () => {
  const { sweeper, began, errors } = sweeping(new Error('away'), false);
  sweeper.start();
  await vi.advanceTimersByTimeAsync(6_000);
  expect([began.length, errors.length]).toEqual([1, 1]);
  await vi.advanceTimersByTimeAsync(4_000);
  expect([began.length, errors.length]).toEqual([2, 1]);
});

test('none after it was stopped, whether one is under way or not; the first one when it is due', async () => {
  const { sweeper, began } = sweeping(true);
  sweeper.start(1_000);
  await vi.advanceTimersByTimeAsync(1_050);
  expect(began).toEqual([1_000]);
  sweeper.stop();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(began).toHaveLength(1);
  const other = sweeping(false);
  other.sweeper.start();
  await vi.advanceTimersByTimeAsync(500);
  other.sweeper.stop();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(other.began).toEqual([0]);
});
