/** How long a migration waits for its lock, by what holds it. */
import { expect, test } from 'vitest';
import { type Autovacuum, FIRST_TRY, lockHint, nextTry, pauseMs } from '../../src/lock-tries.js';

const vacuum: Autovacuum = {
  ...{ pid: 7, table: 'unbroker.jobs', againstWraparound: false, deadlockTimeoutMs: 1_000 },
};

test('half a second without an autovacuum, and what it takes to have one give way beside it', () => {
  expect(FIRST_TRY.lockTimeoutMs).toBe(500);
  expect(nextTry(FIRST_TRY, null)).toEqual(FIRST_TRY);
  const patient = nextTry(FIRST_TRY, vacuum);
  expect(patient).toMatchObject({ lockTimeoutMs: 1_500, stays: false });
  expect(nextTry(patient, null)).toEqual(FIRST_TRY);
  expect(nextTry(FIRST_TRY, { ...vacuum, deadlockTimeoutMs: 5_000 }).lockTimeoutMs).toBe(5_500);
});

test('one against wraparound is not waited for longer, nor one that stayed when it could have given way', () => {
  expect(nextTry(FIRST_TRY, { ...vacuum, againstWraparound: true })).toMatchObject({
    ...{ lockTimeoutMs: 500, stays: true },
  });
  let how = nextTry(FIRST_TRY, vacuum);
  for (let tries = 0; tries < 3; tries += 1) {
    how = nextTry(how, vacuum);
    expect(how).toMatchObject({ lockTimeoutMs: 500, stays: true });
  }
  expect(nextTry(how, { ...vacuum, pid: 8 })).toMatchObject({ lockTimeoutMs: 1_500, stays: false });
});

test('nobody is held up for longer than ten seconds, and for less than there is a pause behind', () => {
  const longest = nextTry(FIRST_TRY, { ...vacuum, deadlockTimeoutMs: 86_400_000 });
  expect(longest.lockTimeoutMs).toBe(10_500);
  for (const how of [FIRST_TRY, nextTry(FIRST_TRY, vacuum), longest])
    expect(pauseMs(how, 0)).toBeGreaterThanOrEqual(how.lockTimeoutMs);
  expect([pauseMs(FIRST_TRY, 0), pauseMs(FIRST_TRY, 1)]).toEqual([1_000, 2_000]);
});

test('the next step: end the transaction, or let the autovacuum end', () => {
  for (const how of [FIRST_TRY, nextTry(FIRST_TRY, vacuum)]) expect(lockHint(how)).toContain('end it');
  const hint = lockHint(nextTry(FIRST_TRY, { ...vacuum, againstWraparound: true }));
  expect(hint).toMatch(/autovacuum of unbroker\.jobs \(pid 7\) does not give way.*unbroker migrate$/);
});
