/** The helpers for a team's own tests, used as the docs show it: one transaction a test, rolled back at the end. */
import { afterAll, afterEach, beforeEach, describe, expect, test } from 'vitest';
import { enqueue, enqueueMany } from '../../src/enqueue.js';
import { Discard } from '../../src/jobs/settle.js';
import { createTesting } from '../../src/testing.js';
import { jobsDatabase, type Session } from '../support/jobs.js';

const db = await jobsDatabase();
afterAll(() => db.close());

let tx: Session;
beforeEach(async () => {
  tx = await db.session();
  await tx.query('begin');
});
afterEach(async () => {
  await tx.query('rollback');
  await tx.end();
  expect(await db.states()).toEqual({});
});

const sent: unknown[] = [];
const jobs = createTesting({
  handlers: {
    receipt: (job) => {
      sent.push(job.payload);
      return { sent: true };
    },
    flaky: {
      retryPolicy: { type: 'fixed', delayMs: 60_000 },
      handle: (job) => {
        if (job.attempt < 3) throw new Error(`attempt ${job.attempt}`);
      },
    },
    parent: async () => {
      await enqueue(tx, 'receipt', 'child');
    },
    hopeless: () => {
      throw new Discard('no address');
    },
    pausing: (job, { snooze }) => snooze(job.progress === null ? 0 : 1),
  },
});

describe('what a transaction has enqueued', () => {
  test('its own jobs in order, through savepoints too; nobody else’s, nothing that was rolled back', async () => {
    const other = await db.session();
    await other.query('begin');
    await enqueue(other, 'receipt', 'not ours');
    await enqueue(tx, 'receipt', { orderId: 17 }, { dedupeKey: 'order-17', priority: 2 });
    await tx.query('savepoint a');
    await enqueueMany(tx, [{ kind: 'audit', payload: [1] }]);
    await tx.query('savepoint b');
    await enqueue(tx, 'receipt', 'gone');
    await tx.query('rollback to savepoint b');
    expect(await jobs.enqueued(tx)).toMatchObject([
      { kind: 'receipt', payload: { orderId: 17 }, dedupeKey: 'order-17', priority: 2, maxAttempts: 20 },
      { kind: 'audit', payload: [1] },
    ]);
    expect(await jobs.enqueued(tx, 'audit')).toHaveLength(1);
    await other.query('rollback');
    await other.end();
  });

  test('what was committed before is not among them', async () => {
    const { id } = await enqueue(db.pool, 'receipt', 'before');
    expect(await jobs.enqueued(tx)).toEqual([]);
    await db.pool.query('delete from unbroker.jobs where id = $1', [id]);
  });
});

describe('one job now', () => {
  test('runs through its handler and is written as a worker writes it', async () => {
    const { id } = await enqueue(tx, 'receipt', { orderId: 17 }, { delayMs: 3_600_000 });
    const report = await jobs.runJob(tx, id);
    expect(report.error).toBeUndefined();
    expect(report).toMatchObject({
      kind: 'receipt',
      attempt: 1,
      result: { sent: true },
      outcome: { type: 'complete' },
    });
    expect(sent).toContainEqual({ orderId: 17 });
    expect(await db.store.show(tx, id)).toMatchObject({ state: 'done', attempts: 1, result: { sent: true } });
    await expect(jobs.runJob(tx, id)).rejects.toMatchObject({ code: 'job-not-ready' });
  });

  test('a failure is an outcome, not an exception', async () => {
    const { id } = await enqueue(tx, 'hopeless');
    const report = await jobs.runJob(tx, id);
    expect(report).toMatchObject({ outcome: { type: 'discard', message: 'no address' }, result: undefined });
    expect(report.error).toBeInstanceOf(Discard);
    expect(await db.store.show(tx, id)).toMatchObject({ state: 'dead', errors: [{ message: 'no address' }] });
  });
});

describe('until nothing is due', () => {
  test('in the order of a worker, with what is enqueued on the way; kinds without a handler are left', async () => {
    await enqueue(tx, 'parent');
    await enqueue(tx, 'receipt', 'first', { priority: 9 });
    await enqueue(tx, 'unknown');
    await enqueue(tx, 'receipt', 'tomorrow', { delayMs: 86_400_000 });
    const reports = await jobs.runAll(tx);
    expect(reports.map(({ kind }) => kind)).toEqual(['receipt', 'parent', 'receipt']);
    expect(sent.slice(-2)).toEqual(['first', 'child']);
  });

  test('the time is given: retries that are due by then run, later ones do not', async () => {
    await enqueue(tx, 'flaky');
    expect((await jobs.runAll(tx)).map(({ outcome }) => outcome.type)).toEqual(['retry']);
    const inAnHour = new Date(Date.now() + 3_600_000);
    const later = await jobs.runAll(tx, { now: inAnHour });
    expect(later.map(({ attempt, outcome }) => [attempt, outcome.type])).toEqual([
      [2, 'retry'],
      [3, 'complete'],
    ]);
  });

  test('what never ends is said', async () => {
    await enqueue(tx, 'pausing');
    await expect(jobs.runAll(tx, { max: 20 })).rejects.toMatchObject({ code: 'never-idle' });
  });
});
