import { expect, test } from 'vitest';
import { FailureRamp, ReturnRamp } from '../../src/jobs/ramp.js';

const times = (count: number, act: () => void): void => {
  for (let i = 0; i < count; i += 1) act();
};

test('a whole round of failures in a row halves the slots, down to one', () => {
  const ramp = new FailureRamp(40);
  times(39, () => ramp.failed());
  expect(ramp.slots).toBe(40);
  ramp.failed();
  expect(ramp.slots).toBe(20);
  times(20, () => ramp.failed());
  expect(ramp.slots).toBe(10);
  times(1_000, () => ramp.failed());
  expect(ramp.slots).toBe(1);
});

test('with few slots ten failures are a round', () => {
  const ramp = new FailureRamp(4);
  times(9, () => ramp.failed());
  expect(ramp.slots).toBe(4);
  ramp.failed();
  expect(ramp.slots).toBe(2);
});

test('a success between them and it is no outage', () => {
  const ramp = new FailureRamp(10);
  times(100, () => {
    times(9, () => ramp.failed());
    ramp.succeeded();
  });
  expect(ramp.slots).toBe(10);
});

test('each success gives a slot back, up to what it was', () => {
  const ramp = new FailureRamp(16);
  times(1_000, () => ramp.failed());
  const rounds = [1, 2, 3, 4].map(() => {
    times(ramp.slots, () => ramp.succeeded());
    return ramp.slots;
  });
  expect(rounds).toEqual([2, 4, 8, 16]);
  ramp.succeeded();
  expect(ramp.slots).toBe(16);
});

test('after the database was away: a tenth of the slots, at least one, doubled every second', () => {
  const ramp = new ReturnRamp();
  expect(ramp.slots(100, 0)).toBe(100);
  ramp.answered(10);
  expect(ramp.slots(100, 10)).toBe(100);
  ramp.lost();
  ramp.answered(5_000);
  expect([5_000, 6_000, 7_000, 8_000, 8_400].map((at) => ramp.slots(100, at))).toEqual([10, 20, 40, 80, 100]);
  expect(ramp.slots(3, 5_000)).toBe(1);
  ramp.answered(8_000);
  expect(ramp.slots(100, 9_000)).toBe(100);
});
