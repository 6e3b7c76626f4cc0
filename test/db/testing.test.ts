/** The helpers for a team's own tests, used as the docs show it: one transaction a test, rolled back at the end. */
import { afterAll, afterEach, beforeEach, describe, expect, test } from 'vitest';
import { enqueue, enqueueMany } from '../../src/enqueue.js';
import { defineKind } from '../../src/jobs/kind.js';
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
/** What hourly and daily took for the time. */
const times: number[] = [];
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
    clumsy: async (job) => {
      await tx.query('create table made_by_handler (a int)');
      if (job.attempt === 1) await tx.query('select 1 / 0');
    },
    careless: async () => {
      await tx.query('select 1 / 0').catch(() => undefined);
      return 'went on';
    },
    closing: async () => {
      await tx.query('rollback');
    },
    hourly: {
      retryPolicy: { type: 'fixed', delayMs: 3_600_000 },
      handle: async (job, { databaseNow }) => {
        times.push(await databaseNow());
        if (job.attempt < 3) throw new Error('not yet');
      },
    },
    daily: async (_job, { databaseNow, snooze }) => {
      times.push(await databaseNow());
      snooze(86_400_000);
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

describe('what is no use to a test', () => {
  test('a pool has nothing to look into, and misspelt options are said', async () => {
    const code = 'testing-invalid';
    await expect(jobs.enqueued(db.pool)).rejects.toMatchObject({
      code,
      message: expect.stringContaining('pool'),
    });
    expect(() => createTesting({ handler: {} } as object)).toThrow(
      expect.objectContaining({ code, hint: expect.stringContaining('handlers') }),
    );
    expect(() => createTesting(null as never)).toThrow(expect.objectContaining({ code }));
    for (const options of [{ Now: new Date() }, { now: 'tomorrow' }, { now: new Date('') }, { max: 0 }, 5])
      await expect(jobs.runAll(tx, options as object)).rejects.toMatchObject({ code });
    for (const id of ['x', '-1', 17, { id: '17' }])
      await expect(jobs.runJob(tx, id as string)).rejects.toMatchObject({ code });
    for (const handle of [undefined, {}, { query: async () => [] }])
      for (const look of [jobs.enqueued, jobs.runAll])
        await expect(look(handle as never)).rejects.toMatchObject({
          code,
          hint: expect.stringContaining('unbroker/transactions'),
        });
    await enqueue(tx, 'receipt');
    await expect(createTesting().runAll(tx)).rejects.toMatchObject({ code });
    expect(await jobs.runAll(tx)).toHaveLength(1);
  });

  test('a kind with its schema is asked for by itself', async () => {
    const schema = { '~standard': { version: 1, vendor: 'test', validate: (value: unknown) => ({ value }) } };
    const receipt = defineKind('receipt', schema as never);
    await enqueueMany(tx, [{ kind: 'audit' }, { kind: 'receipt' }]);
    expect(await jobs.enqueued(tx, receipt)).toMatchObject([{ kind: 'receipt' }]);
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

describe('a handler that uses the transaction of the test', () => {
  test('a statement that fails takes back what the handler wrote, and the job is tried again', async () => {
    await enqueue(tx, 'clumsy');
    const [report] = await jobs.runAll(tx);
    expect(report).toMatchObject({ outcome: { type: 'retry', message: 'division by zero' } });
    expect((await tx.query("select to_regclass('made_by_handler') as made")).rows).toEqual([{ made: null }]);
    expect(await jobs.runAll(tx, { now: new Date(Date.now() + 60_000) })).toMatchObject([
      { attempt: 2, outcome: { type: 'complete' } },
    ]);
  });

  test('also one whose error the handler keeps to itself', async () => {
    await enqueue(tx, 'careless');
    expect(await jobs.runAll(tx)).toMatchObject([{ outcome: { type: 'complete' }, result: 'went on' }]);
  });

  test('one that ends the transaction is named', async () => {
    await enqueue(tx, 'closing');
    await expect(jobs.runAll(tx)).rejects.toMatchObject({
      code: 'transaction-ended',
      message: expect.stringContaining('closing'),
    });
  });
});

test('jobs of code that commits by itself run on a pool', async () => {
  await enqueue(db.pool, 'receipt', 'committed');
  expect(await jobs.runAll(db.pool)).toMatchObject([{ kind: 'receipt', outcome: { type: 'complete' } }]);
  await db.pool.query('delete from unbroker.jobs');
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

  test('the time goes on from job to job: each retry and snooze counts from the start before it', async () => {
    const startMs = Date.now();
    const hours = (n: number) => new Date(startMs + n * 3_600_000 + 60_000);
    times.length = 0;
    await enqueue(tx, 'hourly');
    expect(await jobs.runAll(tx, { now: hours(0) })).toHaveLength(1);
    expect(await jobs.runAll(tx, { now: hours(0.9) })).toHaveLength(0);
    expect(await jobs.runAll(tx, { now: hours(1) })).toHaveLength(1);
    expect(await jobs.runAll(tx, { now: hours(1.9) })).toHaveLength(0);
    expect(await jobs.runAll(tx, { now: hours(5) })).toMatchObject([{ outcome: { type: 'complete' } }]);
    expect(times.map((ms) => Math.round((ms - startMs) / 3_600_000))).toEqual([0, 1, 2]);

    times.length = 0;
    await enqueue(tx, 'daily', null, { runAt: hours(24) });
    expect(await jobs.runAll(tx, { now: hours(72) })).toHaveLength(3);
    expect(times.map((ms) => Math.round((ms - startMs) / 3_600_000))).toEqual([24, 48, 72]);
  });

  test('in the given time what comes due earlier runs before what is more urgent', async () => {
    await enqueue(tx, 'receipt', 'urgent, tomorrow', { priority: 9, delayMs: 86_400_000 });
    await enqueue(tx, 'receipt', 'in an hour', { delayMs: 3_600_000 });
    await enqueue(tx, 'receipt', 'now');
    await enqueue(tx, 'receipt', 'urgent', { priority: 9 });
    await jobs.runAll(tx, { now: new Date(Date.now() + 2 * 86_400_000) });
    expect(sent.slice(-4)).toEqual(['urgent', 'now', 'in an hour', 'urgent, tomorrow']);
  });

  test('what never ends is said', async () => {
    await enqueue(tx, 'pausing');
    await expect(jobs.runAll(tx, { max: 20 })).rejects.toMatchObject({ code: 'never-idle' });
  });
});
