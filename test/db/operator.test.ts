/** What an operator may do to a job, from which states, and that a worker who is faster wins. */
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import type { Job, JobState } from '../../src/jobs/job.js';
import { auditReport, installAudit } from '../support/audit.js';
import { jobsDatabase } from '../support/jobs.js';

const db = await jobsDatabase();
await installAudit(db.pool);
afterAll(async () => {
  expect((await auditReport(db.pool)).problems).toEqual([]);
  await db.close();
});
beforeEach(() => db.clear());

const { store } = db;
const STATES: readonly JobState[] = ['ready', 'running', 'done', 'dead', 'cancelled'];

/** One job of each state; by name. */
async function oneOfEach(): Promise<Record<JobState, string>> {
  const ids = {} as Record<JobState, string>;
  for (const state of STATES) {
    const [id] = (await db.put(state, [state], { maxAttempts: 3 })) as [string];
    ids[state] = id;
    if (state === 'ready') continue;
    if (state === 'cancelled') await store.cancel(db.pool, [id]);
    else {
      const [job] = await db.claim(state);
      if (job === undefined) throw new Error('not claimed');
      if (state === 'done') await store.complete(db.pool, [{ ...job, resultText: '1' }]);
      if (state === 'dead') await store.discard(db.pool, [{ ...job, name: 'E', message: 'm' }]);
    }
  }
  return ids;
}

const acts: readonly (readonly [
  string,
  (ids: string[]) => Promise<string[]>,
  readonly JobState[],
  JobState,
])[] = [
  ['retry', (ids) => store.operatorRetry(db.pool, ids, 2), ['dead', 'cancelled'], 'ready'],
  ['discard', (ids) => store.operatorDiscard(db.pool, ids), ['ready'], 'dead'],
  ['cancel', (ids) => store.cancel(db.pool, ids), ['ready'], 'cancelled'],
  ['dismiss', (ids) => store.dismiss(db.pool, ids), ['dead'], 'cancelled'],
  ['runNow', (ids) => store.runNow(db.pool, ids), ['ready'], 'ready'],
];

describe.each(acts)('%s', (_name, act, from, to) => {
  test('changes jobs of its states, leaves all others exactly as they are, and names the changed', async () => {
    const ids = await oneOfEach();
    const before = new Map<string, Job>();
    for (const id of Object.values(ids)) before.set(id, await db.job(id));
    const changed = await act([...Object.values(ids), '424242']);
    expect([...changed].sort()).toEqual(from.map((state) => ids[state]).sort());
    for (const state of STATES) {
      const job = await db.job(ids[state]);
      if (from.includes(state)) expect(job.state).toBe(to);
      else expect(job).toEqual(before.get(ids[state]));
    }
    expect(await act([])).toEqual([]);
  });

  test('a worker that has just claimed the job keeps it', async () => {
    const [id] = (await db.put('a', [1])) as [string];
    const claimer = await db.session();
    await claimer.query('begin');
    expect(await db.claim('a', { db: claimer })).toHaveLength(1);
    const acting = act([id]);
    await claimer.query('commit');
    expect(await acting).toEqual([]);
    expect((await db.job(id)).state).toBe('running');
    await claimer.end();
  });

  test('two at once in opposite orders do not deadlock, and each job is changed once', async () => {
    const ids = await db.put('a', Array(60).fill(0));
    if (from[0] === 'dead') await store.operatorDiscard(db.pool, ids);
    const blocker = await db.session();
    await blocker.query('begin');
    await blocker.query('select from unbroker.jobs where id = $1 for update', [ids[30]]);
    const both = [act(ids), act([...ids].reverse())];
    await new Promise((resolve) => setTimeout(resolve, 100));
    await blocker.query('commit');
    const changed = (await Promise.all(both)).flat();
    if (to !== 'ready' || from[0] !== 'ready') expect(changed.sort()).toEqual([...ids].sort());
    await blocker.end();
  });
});

describe('a retried job', () => {
  test('is due now, keeps its history, may start as often as said, and need not run alone', async () => {
    const [id] = (await db.put('a', [1], { maxAttempts: 1 })) as [string];
    await db.claim('a');
    await db.expire();
    await store.reap(db.pool, 1);
    expect((await db.job(id)).state).toBe('dead');
    expect(await store.operatorRetry(db.pool, [id], 2)).toEqual([id]);
    expect(await db.job(id)).toMatchObject({
      state: 'ready',
      attempts: 1,
      maxAttempts: 3,
      finishedAt: null,
      errors: [{ name: 'lease-expired' }],
    });
    for (const attempt of [2, 3]) {
      const [job] = await db.claim('a');
      expect(job).toMatchObject({ id, attempt });
      if (job) await store.retry(db.pool, [{ ...job, delayMs: 0, name: 'E', message: 'm' }]);
    }
  });

  test('never gets more starts than the limit of all, nor fewer than it had', async () => {
    await db.pool.query(
      `insert into unbroker.jobs (kind, state, finished_at, attempts, max_attempts) values
         ('a', 'dead', now(), 999, 1000), ('b', 'dead', now(), 1000, 1000), ('c', 'cancelled', now(), 2, 20)`,
    );
    const ids = (await store.list(db.pool, {})).map((job) => job.id);
    const changed = await store.operatorRetry(db.pool, ids, 5);
    const { rows } = await db.pool.query(
      'select kind, state, max_attempts as max from unbroker.jobs order by kind',
    );
    expect(rows).toEqual([
      { kind: 'a', state: 'ready', max: 1_000 },
      { kind: 'b', state: 'dead', max: 1_000 },
      { kind: 'c', state: 'ready', max: 20 },
    ]);
    expect(changed).toHaveLength(2);
  });
});
