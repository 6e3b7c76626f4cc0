/** When a job came too late: what the doors and the drain wrote, and what is no time at all. */
import { describe, expect, test } from 'vitest';
import { expiryOfOrigin, refuseExpired, refuseExpiredAt } from '../../src/jobs/expiry.js';
import type { Json } from '../../src/jobs/job.js';
import { Discard, Snooze } from '../../src/jobs/settle.js';

const NOW_MS = Date.parse('2026-03-01T12:00:00Z');
const AT = '2026-03-01T12:00:00Z';
const AFTER = '2026-03-01T12:00:00.001Z';

const clock = () => Promise.resolve(NOW_MS);
const thrownBy = (act: Promise<void>): Promise<unknown> =>
  act.then(
    () => undefined,
    (error: unknown) => error,
  );

describe('an expiry that a drain kept', () => {
  const refused = async (headers: Json): Promise<unknown> => {
    const expiresAt = expiryOfOrigin(headers);
    return expiresAt === undefined ? undefined : thrownBy(refuseExpiredAt(expiresAt, clock));
  };

  test('from its instant on: discarded as expired, with the time', async () => {
    const error = await refused({ origin: { dialect: 'celery', expiresAt: AT } });
    expect(error).toBeInstanceOf(Discard);
    expect(error).toMatchObject({ reason: 'expired', message: expect.stringContaining(AT) });
    expect(await refused({ origin: { dialect: 'celery', expiresAt: AFTER } })).toBeUndefined();
  });

  test.each<[string, Json]>([
    ['no headers', null],
    ['no origin', { expiresAt: AT }],
    ['an origin of somebody else', { origin: { expiresAt: AT } }],
    ['a list', { origin: [AT] }],
    ['no text', { origin: { dialect: 'celery', expiresAt: 0 } }],
    ['no time', { origin: { dialect: 'celery', expiresAt: 'soon' } }],
  ])('%s: runs, and no clock is asked', (_, headers) => expect(expiryOfOrigin(headers)).toBeUndefined());
});

test('an expiry that a door wrote is on top of the headers', async () => {
  expect(await thrownBy(refuseExpired({ expiresAt: AT }, clock))).toMatchObject({ reason: 'expired' });
  const others: Json[] = [
    { expiresAt: AFTER },
    { origin: { dialect: 'celery', expiresAt: AT } },
    {},
    null,
    7,
  ];
  for (const headers of others) expect(await thrownBy(refuseExpired(headers, clock))).toBeUndefined();
});

test('a clock that does not answer puts the job off and spends no attempt', async () => {
  const silent = () => Promise.reject(new Error('gone'));
  expect(await thrownBy(refuseExpiredAt(AT, silent))).toBeInstanceOf(Snooze);
  expect(await thrownBy(refuseExpired({ expiresAt: AT }, silent))).toBeInstanceOf(Snooze);
});
