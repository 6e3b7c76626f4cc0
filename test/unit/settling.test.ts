/** Two small decisions about ends: how many go into a statement, and how often a cause is said. */
import { describe, expect, test } from 'vitest';
import { OncePerCause } from '../../src/jobs/database-says.js';
import { Fitting } from '../../src/jobs/fitting.js';
import type { ClaimedJob } from '../../src/jobs/job.js';
import { became, type RowNow } from '../../src/jobs/recheck.js';
import type { Outcome } from '../../src/jobs/settle.js';

describe('rows of a statement', () => {
  test('half of what was cut short, one at least', () => {
    const fitting = new Fitting();
    expect(fitting.most).toBe(Number.POSITIVE_INFINITY);
    const seen = [500, 250, 3, 1].map((rows) => {
      fitting.cutShort(rows);
      return fitting.most;
    });
    expect(seen).toEqual([250, 125, 1, 1]);
  });

  test('twice as many after eight full ones, until there is no limit', () => {
    const fitting = new Fitting();
    fitting.cutShort(200);
    for (let i = 0; i < 7; i += 1) fitting.written(100);
    fitting.written(99);
    expect(fitting.most).toBe(100);
    fitting.written(100);
    expect(fitting.most).toBe(200);
    for (let i = 0; i < 24; i += 1) fitting.written(fitting.most);
    expect(fitting.most).toBe(Number.POSITIVE_INFINITY);
  });
});

test('a cause is said at once, then once a minute with how often it came', () => {
  const said = new OncePerCause();
  expect([0, 1, 59_999].map((at) => said.times('full', at))).toEqual([1, null, null]);
  expect(said.times('another', 2)).toBe(1);
  expect(said.times('full', 60_000)).toBe(3);
  expect(said.times('full', 60_001)).toBeNull();
});

describe('what became of an end that found nothing to write', () => {
  const job = { id: '1', leaseToken: '7', attempt: 3 } as ClaimedJob;
  const row = (changes: Partial<RowNow>): RowNow => ({
    ...{ id: '1', state: 'ready', leaseToken: null, attempts: 3, errors: [], ...changes },
  });
  const complete: Outcome = { type: 'complete', resultText: null };
  const retry: Outcome = { type: 'retry', delayMs: 1, name: 'E', message: 'm' };
  const discard: Outcome = { type: 'discard', name: 'E', message: 'm' };
  const snooze: Outcome = { type: 'snooze', delayMs: 1 };
  const ours = [{ attempt: 3, name: 'E' }];

  test.each<[string, Outcome, RowNow | undefined, string]>([
    ['done under our attempt', complete, row({ state: 'done' }), 'written'],
    ['done under a later one', complete, row({ state: 'done', attempts: 4 }), 'lost'],
    ['still ours', complete, row({ state: 'running', leaseToken: '7' }), 'held'],
    ['under another lease', complete, row({ state: 'running', leaseToken: '8', attempts: 4 }), 'lost'],
    ['gone', complete, undefined, 'lost'],
    ['taken back by the reaper', retry, row({ errors: [{ attempt: 3, name: 'lease-expired' }] }), 'lost'],
    ['our failure noted', retry, row({ errors: ours }), 'written'],
    [
      'our failure noted, running again',
      retry,
      row({ state: 'running', leaseToken: '9', errors: ours }),
      'written',
    ],
    ['dead of it', discard, row({ state: 'dead', errors: ours }), 'written'],
    ['dead of an earlier one', discard, row({ state: 'dead', errors: [{ attempt: 2, name: 'E' }] }), 'lost'],
    ['a snooze, of which nothing is noted', snooze, row({ attempts: 2 }), 'lost'],
  ])('%s', (_name, outcome, now, expected) => {
    expect(became(job, outcome, now)).toBe(expected);
  });
});
