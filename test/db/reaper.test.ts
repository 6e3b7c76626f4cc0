/** Expired leases are taken back, once, whoever the worker was; what finished or extended meanwhile is left alone. */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import type { ClaimedJob } from '../../src/jobs/job.js';
import { Upkeep } from '../../src/jobs/upkeep.js';
import type { Reaped } from '../../src/jobs/upkeep-store.js';
import { migrate, readMigrations } from '../../src/migrate.js';
import { roleSql } from '../../src/roles.js';
import { auditReport, installAudit } from '../support/audit.js';
import { jobsDatabase, type Session } from '../support/jobs.js';
import { until } from '../support/until.js';

const db = await jobsDatabase();
await installAudit(db.pool);
afterAll(async () => {
  expect((await auditReport(db.pool)).problems).toEqual([]);
  await db.close();
});
beforeEach(() => db.clear());

const { store } = db;

describe('what becomes of an expired lease', () => {
  test('ready again, alone, its attempt spent and the reason noted', async () => {
    const [id] = (await db.put('a', [1], { maxAttempts: 2 })) as [string];
    await db.claim('a', { worker: 'gone:1' });
    await db.expire();
    expect(await store.reap(db.pool, 10)).toEqual([{ id, kind: 'a', state: 'ready' }]);
    const row = await db.job(id);
    expect(row).toMatchObject({
      state: 'ready',
      attempts: 1,
      lockedUntil: null,
      lockedBy: null,
      finishedAt: null,
    });
    expect(row.errors).toMatchObject([
      { attempt: 1, name: 'lease-expired', message: expect.stringContaining('gone:1') },
    ]);
    expect(await db.claim('a')).toEqual([]);
    expect(await store.claimSolo(db.pool, [{ kind: 'a', limit: 1, park: false }], 'w', 1_000)).toMatchObject({
      id,
      attempt: 2,
    });
  });

  test('dead when its attempts are used up', async () => {
    const [id] = (await db.put('a', [1], { maxAttempts: 1 })) as [string];
    await db.claim('a');
    await db.expire();
    expect(await store.reap(db.pool, 10)).toEqual([{ id, kind: 'a', state: 'dead' }]);
    expect(await db.job(id)).toMatchObject({
      state: 'dead',
      attempts: 1,
      finishedAt: expect.any(Date),
      errors: [{ name: 'lease-expired' }],
    });
  });

  test('dead at once when the kind parks, however many attempts are left', async () => {
    const [id] = (await db.put('a', [1])) as [string];
    await db.claim('a', { park: true });
    await db.expire();
    await store.reap(db.pool, 10);
    expect(await db.job(id)).toMatchObject({
      state: 'dead',
      attempts: 1,
      errors: [{ name: 'lease-expired-parked' }],
    });
    // An operator looked and lets it run again: the next claim decides anew.
    expect(await store.operatorRetry(db.pool, [id], 1)).toEqual([id]);
    await db.claim('a', { park: false });
    await db.expire();
    await store.reap(db.pool, 10);
    expect((await db.job(id)).state).toBe('ready');
  });

  test('nothing while it lasts, in whatever state', async () => {
    await db.put('a', [1, 2, 3]);
    await db.claim('a', { total: 1 });
    expect(await store.reap(db.pool, 10)).toEqual([]);
    expect(await db.states()).toEqual({ ready: 2, running: 1 });
  });

  test('of kinds that nobody here knows, too', async () => {
    await db.put('of another team', [1]);
    await db.claim('of another team');
    await db.expire();
    expect(await store.reap(db.pool, 10)).toHaveLength(1);
  });
});

describe('races', () => {
  /** Starts the reaper, waits until it has answered or is blocked, lets the other side commit, and returns its answer. */
  async function reapBeside(other: Session, end: 'commit' | 'rollback'): Promise<readonly Reaped[]> {
    const reaper = await db.session();
    const reaping = store.reap(reaper, 10);
    await Promise.race([reaping, reaper.untilBlocked()]);
    await other.query(end);
    const reaped = await reaping;
    await reaper.end();
    return reaped;
  }

  async function expiredJob(): Promise<ClaimedJob> {
    await db.put('a', [1]);
    const [job] = await db.claim('a');
    await db.expire();
    return job as ClaimedJob;
  }

  test('a job that completes at the same time stays done', async () => {
    const job = await expiredJob();
    const worker = await db.session();
    await worker.query('begin');
    expect(await store.complete(worker, [{ ...job, resultText: null }])).toEqual([job.id]);
    expect(await reapBeside(worker, 'commit')).toEqual([]);
    expect((await db.job(job.id)).state).toBe('done');
  });

  test('a lease that is prolonged at the same time stays with its worker', async () => {
    const job = await expiredJob();
    const worker = await db.session();
    await worker.query('begin');
    expect(await store.extend(worker, [job], 60_000)).toEqual([job.id]);
    expect(await reapBeside(worker, 'commit')).toEqual([]);
    expect(await db.job(job.id)).toMatchObject({ state: 'running', attempts: 1 });
    expect(await store.complete(db.pool, [{ ...job, resultText: null }])).toEqual([job.id]);
  });

  test('a completion that is rolled back leaves the job to the next sweep', async () => {
    const job = await expiredJob();
    const worker = await db.session();
    await worker.query('begin');
    await store.complete(worker, [{ ...job, resultText: null }]);
    await reapBeside(worker, 'rollback');
    await store.reap(db.pool, 10);
    expect((await db.job(job.id)).state).toBe('ready');
  });

  test('a row that is locked does not stop the sweep of the others', async () => {
    const ids = await db.put('a', [1, 2, 3]);
    await db.claim('a');
    await db.expire();
    const other = await db.session();
    await other.query('begin');
    await other.query('select from unbroker.jobs where id = $1 for update', [ids[0]]);
    const reaper = await db.session();
    await reaper.query(`set lock_timeout = '5s'`);
    expect((await store.reap(reaper, 10)).map(({ id }) => id).sort()).toEqual(ids.slice(1).sort());
    await other.query('rollback');
    await Promise.all([other.end(), reaper.end()]);
  });

  test('four reapers at once take each lease back once', async () => {
    await db.put('a', Array(400).fill(0));
    await db.claim('a', { total: 400 });
    await db.expire();
    const reapers = await Promise.all(Array.from({ length: 4 }, () => db.session()));
    const reaped = await Promise.all(
      reapers.map(async (reaper) => {
        const mine = [];
        // One that meets the others' claims gets nothing, so until there is nothing left.
        do mine.push(...(await store.reap(reaper, 30)));
        while (((await db.states()).running ?? 0) > 0);
        return mine;
      }),
    );
    const ids = reaped.flat().map(({ id }) => id);
    expect(ids).toHaveLength(400);
    expect(new Set(ids).size).toBe(400);
    const { rows } = await db.pool.query(
      `select count(*)::int as ok from unbroker.jobs where state = 'ready' and attempts = 1 and jsonb_array_length(errors) = 1`,
    );
    expect(rows[0].ok).toBe(400);
    await Promise.all(reapers.map((reaper) => reaper.end()));
  });
});

/** What the claims say, by lease token. */
async function claims() {
  const { rows } = await db.pool.query<{ token: string; remaining: number; ids: string[]; over: boolean }>(
    `select token::text, remaining, ids::text[] as ids, ends_at < clock_timestamp() as over
     from unbroker.claims order by token`,
  );
  return rows;
}

describe('what claims leave beside the rows', () => {
  test('a claim that nobody ends is taken back, and its row goes with it', async () => {
    const ids = await db.put('a', [1, 2, 3]);
    await db.claim('a', { worker: 'killed:9' });
    const [claim] = await claims();
    expect(claim).toMatchObject({ remaining: 3, over: false });
    expect(claim?.ids.sort()).toEqual([...ids].sort());
    await db.expire();
    expect(await store.reap(db.pool, 100)).toHaveLength(3);
    expect(await claims()).toEqual([]);
  });

  test('each way to claim leaves a row, each way to end takes its count off; the last takes the row away', async () => {
    await db.put('a', Array(9).fill(0));
    const [first, ...jobs] = await db.claim('a', { total: 8 });
    const [solo] = await db.put('b', [1]);
    await db.pool.query('update unbroker.jobs set solo = true where id = $1', [solo]);
    const demand = [{ kind: 'b', limit: 1, park: false }];
    const alone = (await store.claimSolo(db.pool, demand, 'w', 30_000)) as ClaimedJob;
    const order = { demands: [{ kind: 'a', limit: 1, park: false }], total: 1, worker: 'w', leaseMs: 30_000 };
    const many = (await store.claimMany(db.pool, { ...order, floors: [], oldest: false })).jobs();
    expect((await claims()).map(({ remaining }) => remaining)).toEqual([8, 1, 1]);
    const remaining = async () => (await claims()).map((claim) => claim.remaining);

    const result = { resultText: null };
    const error = { name: 'e', message: 'm' };
    await store.complete(db.pool, [{ ...(first as ClaimedJob), ...result }]);
    expect(await remaining()).toEqual([7, 1, 1]);
    await store.completeEach(db.pool, [
      { ...(jobs[0] as ClaimedJob), ...result },
      { ...(jobs[1] as ClaimedJob), ...result },
      { ...alone, ...result },
    ]);
    expect(await remaining()).toEqual([5, 1]);
    await store.complete(db.pool, [{ ...(many[0] as ClaimedJob), ...result }]);
    expect(await remaining()).toEqual([5]);
    await store.retry(db.pool, [{ ...(jobs[2] as ClaimedJob), ...error, delayMs: 0 }]);
    await store.snooze(db.pool, [{ ...(jobs[3] as ClaimedJob), delayMs: 0 }]);
    await store.discard(db.pool, [{ ...(jobs[4] as ClaimedJob), ...error }]);
    expect(await remaining()).toEqual([2]);
    await store.completeAndRemove(db.pool, [jobs[5] as ClaimedJob]);
    expect(await remaining()).toEqual([1]);
    // What was not ours to end is not counted.
    await store.complete(db.pool, [
      { ...(jobs[0] as ClaimedJob), ...result },
      { ...alone, ...result },
    ]);
    await store.release(db.pool, [jobs[5] as ClaimedJob]);
    expect(await remaining()).toEqual([1]);
    await store.release(db.pool, [jobs[6] as ClaimedJob]);
    expect(await remaining()).toEqual([]);
  });

  test('a lease that was extended is left alone until its own end', async () => {
    const ids = await db.put('a', [1, 2]);
    const [job, other] = await db.claim('a');
    await db.expire();
    await store.extend(db.pool, [job as ClaimedJob], 60_000);
    expect(await store.reap(db.pool, 100)).toMatchObject([{ id: other?.id }]);
    expect(await claims()).toMatchObject([{ ids: [job?.id], remaining: 0, over: false }]);
    // Nobody counts any more, so the end leaves the row to the reaper.
    await store.complete(db.pool, [{ ...(job as ClaimedJob), resultText: null }]);
    expect(await claims()).toHaveLength(1);
    await db.expire(ids);
    expect(await store.reap(db.pool, 100)).toEqual([]);
    expect(await claims()).toEqual([]);
  });

  test('an end that is counted late takes nothing from what was counted anew', async () => {
    await db.put('a', [1, 2, 3]);
    const jobs = await db.claim('a');
    const token = jobs[0]?.leaseToken;
    await db.pool.query(`update unbroker.claims set ends_at = clock_timestamp() - interval '1 second'`);
    await store.reap(db.pool, 100);
    // As finish_each does it: three ended one by one, their count comes after the reaper's look.
    await db.pool.query('select unbroker.count_ends(array[$1, $1, $1]::bigint[])', [token]);
    expect(await claims()).toMatchObject([{ token, ids: expect.arrayContaining(jobs.map(({ id }) => id)) }]);
  });

  test('one that somebody has locked keeps nobody waiting', async () => {
    await db.put('a', [1, 2, 3, 4]);
    const jobs = await db.claim('a', { total: 3 });
    const other = await db.session();
    await other.query('begin');
    await other.query('select from unbroker.claims for update');
    const worker = await db.session();
    await worker.query(`set lock_timeout = '5s'`);
    const ended = jobs.map((job) => ({ ...job, resultText: null }));
    expect(await store.complete(worker, ended.slice(0, 1))).toHaveLength(1);
    expect(await store.completeEach(worker, ended.slice(1, 2))).toEqual(['written']);
    expect(await store.complete(worker, ended.slice(1))).toHaveLength(1);
    expect(await db.claim('a', { db: worker })).toHaveLength(1);
    expect(await store.reap(worker, 10)).toEqual([]);
    await other.query('commit');
    // Nobody could count: the reaper clears it when it ought to have ended.
    expect((await claims()).map(({ remaining }) => remaining)).toEqual([3, 1]);
    await db.expire(jobs.map(({ id }) => id));
    expect(await store.reap(worker, 10)).toEqual([]);
    expect((await claims()).map(({ remaining }) => remaining)).toEqual([1]);
    await Promise.all([other.end(), worker.end()]);
  });

  test('many that ended without being counted keep no expired lease waiting for the next sweep', async () => {
    const [id] = (await db.put('a', [1])) as [string];
    await db.claim('a');
    await db.expire();
    await db.pool.query(
      `insert into unbroker.claims (token, ends_at, remaining, ids)
       select -n, clock_timestamp() - interval '1 hour', 1, array[$1::bigint] from generate_series(1, 3000) n`,
      [id],
    );
    expect(await store.reap(db.pool, 500)).toMatchObject([{ id }]);
    expect(await claims()).toEqual([]);
  });

  test('after thousands of jobs nothing is left of them, and of those that run only their claims', async () => {
    await db.pool.query(`insert into unbroker.jobs (kind) select 'a' from generate_series(1, 10000)`);
    await db.put('last', [1]);
    await db.claim('last');
    for (let round = 0; round < 10; round += 1) {
      const jobs = await db.claim('a', { total: 1_000 });
      const ended = jobs.map((job) => ({ ...job, resultText: null }));
      expect(await store.complete(db.pool, ended.slice(0, 700))).toHaveLength(700);
      expect(await store.complete(db.pool, ended.slice(700))).toHaveLength(300);
    }
    expect((await claims()).map(({ remaining }) => remaining)).toEqual([1]);
  });
});

test('what ran before there were claims is taken back, also what a claim under way left; a role of the version before ends, claims and sweeps', async () => {
  const before = await jobsDatabase({ migrated: false });
  const role = `ub_before_${randomBytes(4).toString('hex')}`;
  try {
    const own = readMigrations();
    const upTo = (name: string) =>
      migrate(before.pool, {
        migrations: own.slice(
          0,
          own.findIndex((m) => m.name.endsWith(name)),
        ),
      });
    await before.pool.query('alter default privileges revoke execute on routines from public');
    await upTo('_claims');
    // What that version granted: it knew of no claims.
    for (const text of roleSql('unbroker', { worker: role }, { create: true }))
      if (!text.includes('.claims')) await before.pool.query(text);
    const ids = await before.put('a', [1, 2, 3]);
    const [job] = (await before.claim('a')) as [ClaimedJob];
    await upTo('_open');
    const [late] = await before.put('b', [1]);
    await before.claim('b');
    expect((await before.pool.query('select from unbroker.claims')).rows).toHaveLength(1);
    await migrate(before.pool);

    const worker = await before.session();
    await worker.query(`set role ${role}`);
    expect(await before.store.complete(worker, [{ ...job, resultText: null }])).toEqual([job.id]);
    expect(await before.store.reap(worker, 10)).toEqual([]);
    await before.put('c', [1]);
    expect(await before.claim('c', { db: worker, total: 1 })).toHaveLength(1);
    await before.expire();
    const reaped = (await before.store.reap(worker, 10)).map(({ id, kind }) => kind === 'c' || id);
    expect(reaped.sort()).toEqual([...ids.filter((id) => id !== job.id), late, true].sort());
    expect((await before.pool.query('select from unbroker.claims')).rows).toEqual([]);
  } finally {
    await before.pool.query(`drop owned by ${role}`).catch(() => undefined);
    await before.pool.query(`drop role if exists ${role}`).catch(() => undefined);
    await before.close();
  }
});

describe('bounds', () => {
  test('at most the limit, the oldest ids first, the rest in the next round', async () => {
    const ids = await db.put('a', Array(10).fill(0));
    await db.claim('a');
    await db.expire();
    const first = await store.reap(db.pool, 3);
    expect(first.map(({ id }) => Number(id)).sort((a, b) => a - b)).toEqual(ids.slice(0, 3).map(Number));
    expect(await store.reap(db.pool, 100)).toHaveLength(7);
  });

  test('leases that still run hide no expired one behind them, however many they are', async () => {
    await db.put('a', Array(1_200).fill(0));
    const jobs = await db.claim('a', { total: 1_200 });
    const last = jobs
      .map(({ id }) => id)
      .sort((a, b) => Number(a) - Number(b))
      .slice(-5);
    await db.expire(last);
    expect((await store.reap(db.pool, 2)).length).toBe(2);
    expect((await store.reap(db.pool, 10)).length).toBe(3);
  });

  test('one row with a damaged history does not stop the sweep', async () => {
    const ids = await db.put('a', [1, 2, 3]);
    await db.claim('a');
    await db.expire();
    // On one connection: its error arrives before the server has let go of the row.
    const session = await db.session();
    const damaged = session.query(`update unbroker.jobs set errors = '{"not": "a list"}' where id = $1`, [
      ids[1],
    ]);
    // Either the table refuses the damage or the reaper copes with it.
    await damaged.catch((error: { code?: string }) => expect(error.code).toBe('23514'));
    expect(await store.reap(session, 10)).toHaveLength(3);
  });

  test('what a whole fleet held is taken back, however seldom a worker sweeps', async () => {
    await db.pool.query(
      `insert into unbroker.jobs (kind, state, attempts, lease_token, locked_until, locked_by)
       select 'a', 'running', 1, nextval('unbroker.lease_tokens'), now() - interval '1 minute', 'gone' from generate_series(1, 12000)`,
    );
    await db.pool.query('select unbroker.note_running()');
    let reaped = 0;
    const upkeep = new Upkeep({
      store,
      db: db.pool,
      everyMs: 600_000,
      onReaped: (jobs) => (reaped += jobs.length),
    });
    upkeep.start();
    await until('all are back', () => reaped === 12_000);
    upkeep.stop();
    expect(await db.states()).toEqual({ ready: 12_000 });
  });

  test('a sweep goes on while rounds come back full', async () => {
    await db.put('a', Array(1_100).fill(0));
    await db.claim('a', { total: 1_100 });
    await db.expire();
    let reaped = 0;
    const upkeep = new Upkeep({
      store,
      db: db.pool,
      onReaped: (jobs) => (reaped += jobs.length),
    });
    await upkeep.sweep();
    expect(reaped).toBe(1_100);
    expect(await db.states()).toEqual({ ready: 1_100 });
  });
});
