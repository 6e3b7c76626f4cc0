/** When a job came too late: what the doors and the drain wrote, and what is no time at all. */
import { describe, expect, test } from 'vitest';
import { refuseExpired, refuseExpiredOrigin } from '../../src/jobs/expiry.js';
import type { Json } from '../../src/jobs/job.js';
import { Discard } from '../../src/jobs/settle.js';

const NOW_MS = Date.parse('2026-03-01T12:00:00Z');
const AT = '2026-03-01T12:00:00Z';
const AFTER = '2026-03-01T12:00:00.001Z';

const thrownBy = (act: () => void): unknown => {
  try {
    act();
    return undefined;
  } catch (error) {
    return error;
  }
};

describe('an expiry that a drain kept', () => {
  const refused = (headers: Json) => thrownBy(() => refuseExpiredOrigin(headers, NOW_MS));

  test('from its instant on: discarded as expired, with the time', () => {
    const error = refused({ origin: { dialect: 'celery', expiresAt: AT } });
    expect(error).toBeInstanceOf(Discard);
    expect(error).toMatchObject({ reason: 'expired', message: expect.stringContaining(AT) });
    expect(refused({ origin: { dialect: 'celery', expiresAt: AFTER } })).toBeUndefined();
  });

  test.each<[string, Json]>([
    ['no headers', null],
    ['no origin', { expiresAt: AT }],
    ['an origin of somebody else', { origin: { expiresAt: AT } }],
    ['a list', { origin: [AT] }],
    ['no text', { origin: { dialect: 'celery', expiresAt: 0 } }],
    ['no time', { origin: { dialect: 'celery', expiresAt: 'soon' } }],
  ])('%s: runs', (_, headers) => expect(refused(headers)).toBeUndefined());
});

test('an expiry that a door wrote is on top of the headers', () => {
  expect(thrownBy(() => refuseExpired({ expiresAt: AT }, NOW_MS))).toMatchObject({ reason: 'expired' });
  const others: Json[] = [
    { expiresAt: AFTER },
    { origin: { dialect: 'celery', expiresAt: AT } },
    {},
    null,
    7,
  ];
  for (const headers of others) expect(thrownBy(() => refuseExpired(headers, NOW_MS))).toBeUndefined();
});
