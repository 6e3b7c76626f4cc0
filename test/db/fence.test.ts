/**
 * Every write of a worker is fenced: it changes its row under the newest lease and nothing under any other. Each write
 * is tried by its holder, then by one whose lease was taken over, has run out and been reaped, or is over.
 */
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import type { Held } from '../../src/jobs/held.js';
import type { Queryable } from '../../src/jobs/job.js';
import { isBlocked, jobsDatabase, type Session } from '../support/jobs.js';
import { until } from '../support/until.js';

const db = await jobsDatabase();
afterAll(() => db.close());
beforeEach(() => db.clear());

const { store } = db;
type Write = (held: Held, db: Queryable) => Promise<readonly string[]>;

/** What each leaves in the row, besides an empty lease. */
const writes: readonly (readonly [name: string, write: Write, leaves: Record<string, unknown>])[] = [
  ['extend', (h, q) => store.extend(q, [h], 3_600_000), { state: 'running', attempts: 1 }],
  [
    'complete',
    (h, q) => store.complete(q, [{ ...h, resultText: null }]),
    { state: 'done', attempts: 1, result: null },
  ],
  [
    'complete with a result',
    (h, q) => store.complete(q, [{ ...h, resultText: '{"a":1}' }]),
    { state: 'done', result: { a: 1 } },
  ],
  [
    'retry',
    (h, q) => store.retry(q, [{ ...h, delayMs: 60_000, name: 'E', message: 'm' }]),
    { state: 'ready', attempts: 1 },
  ],
  [
    'snooze',
    (h, q) => store.snooze(q, [{ ...h, delayMs: 60_000 }]),
    { state: 'ready', attempts: 0, errors: [] },
  ],
  [
    'discard',
    (h, q) => store.discard(q, [{ ...h, name: 'E', message: 'm' }]),
    { state: 'dead', attempts: 1 },
  ],
  ['release', (h, q) => store.release(q, [h]), { state: 'ready', attempts: 0, errors: [] }],
  [
    'checkpoint',
    async (h, q) => ((await store.checkpoint(q, h, '{"step":2}')) ? [h.id] : []),
    { state: 'running', progress: { step: 2 } },
  ],
];

const wholeRow = async (id: string): Promise<unknown> =>
  (await db.pool.query('select to_jsonb(j) as row from unbroker.jobs j where id = $1', [id])).rows[0].row;

async function claimOne(): Promise<Held> {
  const [job] = await db.claim('a', { total: 1 });
  if (job === undefined) throw new Error('nothing to claim');
  return job;
}

async function claimedOnce(): Promise<Held> {
  await db.put('a', [{ n: 1 }], { maxAttempts: 5 });
  return claimOne();
}

/** A write that meets a locked row: it waits, or passes it by, or is refused after it has waited for half a second. */
function begun(session: Session, writing: Promise<readonly string[]>) {
  let over = false;
  const answer = writing
    .catch((error: unknown) => {
      expect(error).toMatchObject({ code: '55P03' });
      return [];
    })
    .finally(() => {
      over = true;
    });
  const untilItWaitsOrIsOver = () =>
    until('it waits or is over', async () => over || (await isBlocked(db.pool, session.pid)));
  return { answer, untilItWaitsOrIsOver };
}

describe.each(writes)('%s', (_name, write, leaves) => {
  test('by the holder changes the row, and a lease stays exactly while it runs', async () => {
    const held = await claimedOnce();
    expect(await write(held, db.pool)).toEqual([held.id]);
    const row = await db.job(held.id);
    expect(row).toMatchObject(leaves);
    const final = ['done', 'dead'].includes(row.state);
    expect(row.finishedAt !== null).toBe(final);
    expect(row.lockedUntil !== null).toBe(row.state === 'running');
    expect(row.lockedBy !== null).toBe(row.state === 'running');
  });

  test('by an earlier holder, after another has claimed the job, changes nothing', async () => {
    const stale = await claimedOnce();
    await store.release(db.pool, [stale]);
    const held = await claimOne();
    expect(held.id).toBe(stale.id);
    const before = await wholeRow(held.id);
    expect(await write(stale, db.pool)).toEqual([]);
    expect(await wholeRow(held.id)).toEqual(before);
    expect(await write(held, db.pool)).toEqual([held.id]);
  });

  test('after the reaper has been there changes nothing', async () => {
    const stale = await claimedOnce();
    await db.expire();
    expect(await store.reap(db.pool, 10)).toHaveLength(1);
    const before = await wholeRow(stale.id);
    expect(await write(stale, db.pool)).toEqual([]);
    expect(await wholeRow(stale.id)).toEqual(before);
  });

  test.each(['done', 'dead', 'ready'])('of a job that is %s already changes nothing', async (state) => {
    const held = await claimedOnce();
    if (state === 'done') await store.complete(db.pool, [{ ...held, resultText: '1' }]);
    if (state === 'dead') await store.discard(db.pool, [{ ...held, name: 'E', message: 'm' }]);
    if (state === 'ready') await store.retry(db.pool, [{ ...held, delayMs: 0, name: 'E', message: 'm' }]);
    const before = await wholeRow(held.id);
    expect(await write(held, db.pool)).toEqual([]);
    expect(await wholeRow(held.id)).toEqual(before);
  });

  test('that meets the reaper finds the lease gone', async () => {
    const stale = await claimedOnce();
    await db.expire();
    const reaper = await db.session();
    await reaper.query('begin');
    expect(await store.reap(reaper, 10)).toHaveLength(1);
    const writer = await db.session();
    const writing = begun(writer, write(stale, writer));
    await writing.untilItWaitsOrIsOver();
    await reaper.query('commit');
    expect(await writing.answer).toEqual([]);
    expect(await write(stale, writer)).toEqual([]);
    expect((await db.job(stale.id)).state).toBe('ready');
    await reaper.end();
    await writer.end();
  });

  test('names only rows that it changed, among many', async () => {
    await db.put('a', [1, 2, 3]);
    const jobs = await db.claim('a');
    const lost = jobs[1] as Held;
    await store.release(db.pool, [lost]);
    const changed = await Promise.all(jobs.map((job) => write(job, db.pool)));
    expect(changed.flat()).toEqual(jobs.filter((job) => job.id !== lost.id).map(({ id }) => id));
  });
});

describe('what a settled row says', () => {
  test('a retry waits by the database’s clock and notes the failure with its attempt', async () => {
    const held = await claimedOnce();
    await store.retry(db.pool, [{ ...held, delayMs: 60_000, name: 'RangeError', message: 'too far' }]);
    const { rows } = await db.pool.query(
      `select extract(epoch from run_at - clock_timestamp()) as left from unbroker.jobs where id = $1`,
      [held.id],
    );
    expect(Number(rows[0].left)).toBeGreaterThan(55);
    expect(Number(rows[0].left)).toBeLessThanOrEqual(60);
    expect((await db.job(held.id)).errors).toEqual([
      { at: expect.stringMatching(/^\d{4}-\d\d-\d\dT/), attempt: 1, name: 'RangeError', message: 'too far' },
    ]);
  });

  test('the last ten failures are kept, the newest last', async () => {
    await db.put('a', [1], { maxAttempts: 100 });
    for (let n = 1; n <= 13; n += 1) {
      const held = await claimOne();
      await store.retry(db.pool, [{ ...held, delayMs: 0, name: 'E', message: `m${n}` }]);
    }
    const [job] = await store.list(db.pool, {});
    expect(job?.errors.map((error) => error.message)).toEqual(
      [4, 5, 6, 7, 8, 9, 10, 11, 12, 13].map((n) => `m${n}`),
    );
    expect(job?.errors.map((error) => error.attempt)).toEqual([4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
  });

  test('a failure that returned by itself need not run alone; a release keeps that', async () => {
    const held = await claimedOnce();
    await db.expire();
    await store.reap(db.pool, 1);
    const demand = [{ kind: 'a', limit: 1, park: false }];
    const solo = (await store.claimSolo(db.pool, demand, 'w', 60_000)) as Held;
    await store.release(db.pool, [solo]);
    expect(await store.soloWaiting(db.pool, ['a'])).toBe(true);
    const again = (await store.claimSolo(db.pool, demand, 'w', 60_000)) as Held;
    await store.retry(db.pool, [{ ...again, delayMs: 0, name: 'E', message: 'm' }]);
    expect(await store.soloWaiting(db.pool, ['a'])).toBe(false);
    expect(await claimOne()).toMatchObject({ id: held.id });
  });

  test('settling many at once pairs each job with its own outcome', async () => {
    await db.put('a', Array(50).fill(0));
    const jobs = await db.claim('a');
    await store.complete(
      db.pool,
      jobs.map((job) => ({ ...job, resultText: JSON.stringify({ id: job.id }) })).reverse(),
    );
    const { rows } = await db.pool.query(
      `select count(*)::int as right from unbroker.jobs where result ->> 'id' = id::text`,
    );
    expect(rows[0].right).toBe(50);
  });
});

describe('many writers', () => {
  test('a worker that extends and completes the same jobs in other orders never deadlocks', async () => {
    await db.put('a', Array(200).fill(0));
    const jobs = await db.claim('a', { total: 200 });
    const first = await db.session();
    const second = await db.session();
    // Each holds a row that the other wants, if both take them in the order in which they are named.
    const blocker = await db.session();
    await blocker.query('begin');
    await blocker.query(`select from unbroker.jobs where id = $1 for update`, [jobs[100]?.id]);
    const ended = [...jobs].reverse().map((job) => ({ ...job, resultText: null }));
    const completing = begun(second, store.complete(second, ended));
    await completing.untilItWaitsOrIsOver();
    // Passes by what the other has, and what the third has.
    const extended = await store.extend(first, jobs, 60_000);
    expect(extended).not.toContain(jobs[100]?.id);
    expect(extended.length).toBeGreaterThanOrEqual(99);
    await blocker.query('commit');
    expect((await completing.answer).length).toBeOneOf([0, 200]);
    await Promise.all([first, second, blocker].map((session) => session.end()));
  });
});
