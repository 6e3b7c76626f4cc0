/**
 * A row that somebody holds locked, and a server that cuts statements short: the job in question waits, its neighbours do not, and
 * what was written is told as written also when the answer was lost.
 */
import { afterAll, afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Discard, Snooze } from '../../src/index.js';
import { Run } from '../../src/jobs/handler.js';
import type { ClaimedJob, Queryable } from '../../src/jobs/job.js';
import { Leases } from '../../src/jobs/leases.js';
import { SILENT } from '../../src/log.js';
import { jobsDatabase } from '../support/jobs.js';
import { until } from '../support/until.js';
import { startWorker, type TestWorker, type TestWorkerOptions } from '../support/workers.js';

const db = await jobsDatabase();
afterAll(() => db.close());
beforeEach(() => db.clear());

const workers: TestWorker[] = [];
function work(options: Omit<TestWorkerOptions, 'url'>): TestWorker {
  const worker = startWorker({ url: db.url, concurrency: 24, ...options });
  workers.push(worker);
  return worker;
}
afterEach(async () => {
  await Promise.all(workers.splice(0).map((worker) => worker.close()));
});

/** Handlers of four kinds that all end at once, each in its way. */
function gated() {
  let open = (): void => {};
  const gate = new Promise<void>((resolve) => {
    open = resolve;
  });
  const handlers = {
    done: () => gate,
    failed: () => gate.then(() => Promise.reject(new Error('again'))),
    snoozed: () => gate.then(() => Promise.reject(new Snooze(3_600_000))),
    dead: () => gate.then(() => Promise.reject(new Discard('no'))),
  };
  return { open, handlers };
}

describe('a row that somebody holds', () => {
  test.each([
    ['many in a statement', {}],
    ['each by itself', { settleBatch: 1 }],
    ['removed when it is done', { keepDone: false }],
  ])('its end comes when it is free, the others at once: %s', async (_how, options) => {
    const kinds = ['done', 'failed', 'snoozed', 'dead'] as const;
    const held: string[] = [];
    for (const kind of kinds) {
      const ids = await db.put(kind, Array(6).fill(0), {
        retryPolicy: { type: 'fixed', delayMs: 3_600_000 },
      });
      held.push(...ids.slice(2, 4));
    }
    const { open, handlers } = gated();
    const worker = work({ ...options, handlers });
    await until('all of them run', () => worker.running === 24);
    const holder = await db.session();
    await holder.query('begin');
    await holder.query('select from unbroker.jobs where id = any ($1) for update', [held]);
    open();
    await until('the others have ended', () => worker.settled().length === 16);
    const { rows } = await db.pool.query(
      `select count(*)::int as running, count(*) filter (where id = any ($1))::int as held
       from unbroker.jobs where state = 'running'`,
      [held],
    );
    expect(rows).toEqual([{ running: 8, held: 8 }]);
    await until('no backend waits for the rows', async () => (await waiting()) === 0);
    await holder.query('rollback');
    await worker.untilEnded(24);
    expect(worker.lost()).toEqual([]);
    const { done: _removed = 0, ...others } = await db.states();
    expect(others).toEqual({ ready: 12, dead: 6 });
    await holder.end();
  });

  async function waiting(): Promise<number> {
    const { rows } = await db.pool.query<{ n: number }>(
      `select count(*)::int as n from pg_stat_activity
       where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0`,
    );
    return rows[0]?.n ?? 0;
  }

  test('its lease alone is not extended, and is not lost for that; taken over it is', async () => {
    await db.put('a', [1, 2, 3]);
    const jobs = (await db.claim('a', { leaseMs: 60_000 })) as [ClaimedJob, ClaimedJob, ClaimedJob];
    const startAt = performance.now() + 1_000;
    const runs = jobs.map((job) => new Run(job, startAt, SILENT, db.store, db.pool));
    const lost: Run[] = [];
    const leases = new Leases({
      ...{ store: db.store, db: db.pool, leaseMs: 60_000, onLost: (run: Run) => void lost.push(run) },
      onError: (error) => {
        throw error;
      },
    });
    for (const run of runs) leases.add(run);
    const holder = await db.session();
    await holder.query('begin');
    await holder.query('update unbroker.jobs set lease_token = nextval($1) where id = $2', [
      'unbroker.lease_tokens',
      jobs[1].id,
    ]);
    await leases.extend();
    expect(runs.map((run) => run.deadlineAt > startAt)).toEqual([true, false, true]);
    expect(lost).toEqual([]);
    await holder.query('commit');
    await leases.extend();
    expect(lost).toEqual([runs[1]]);
    await holder.end();
  });
});

test('the next job of an ordering key that somebody holds keeps no other key waiting', async () => {
  await db.put('a', [1, 2], { orderingKey: 'x' });
  await db.put('a', [1, 2], { orderingKey: 'y' });
  const { open, handlers } = gated();
  // As the server says it after two seconds.
  const refusing: Queryable = {
    query(text, values) {
      const isHeld = text.includes('.promote(') && String(values?.[1]).includes('x');
      if (isHeld) return Promise.reject(Object.assign(new Error('held'), { code: '55P03' }));
      return db.pool.query(text, values);
    },
  };
  const worker = work({ db: refusing, handlers: { a: handlers.done } });
  await until('a claim has met those that wait', async () => {
    const { rows } = await db.pool.query(`select from unbroker.jobs where turn = 'waits'`);
    return worker.running === 2 && rows.length === 2;
  });
  open();
  await until('the other key has gone on', () => worker.settled().length === 3);
  expect(await db.states()).toEqual({ done: 3, ready: 1 });
});

describe('a write whose answer is lost', () => {
  test.each([
    ['with the next claim', { pollMs: 5 }],
    ['by itself', { settleBatch: 1 }],
  ])('%s: what it wrote is told as written', async (_how, options) => {
    let unanswered = 0;
    const forgetful: Queryable = {
      async query(text, values) {
        const answer = await db.pool.query(text, values);
        // A claim that took ends along has their ids first; so has every statement that only ends.
        const wrote = /\.finish|errors =/.test(text) && values?.[0] !== '{}';
        if (!wrote || unanswered === 3) return answer;
        unanswered += 1;
        throw Object.assign(new Error('gone'), { code: 'ECONNRESET' });
      },
    };
    await db.put('done', Array(8).fill(0));
    await db.put('failed', Array(8).fill(0), { retryPolicy: { type: 'fixed', delayMs: 3_600_000 } });
    await db.put('dead', Array(8).fill(0));
    const { open, handlers } = gated();
    const worker = work({ ...options, db: forgetful, handlers });
    await until('all of them run', () => worker.running === 24);
    open();
    await worker.untilEnded(24);
    expect(unanswered).toBe(3);
    expect(worker.lost()).toEqual([]);
    expect(worker.settled()).toHaveLength(24);
    expect(await db.states()).toEqual({ done: 8, ready: 8, dead: 8 });
  });

  test('a commit that is refused after others of its call: those are told as written, and it is asked again', async () => {
    const ids = await db.put('done', Array(6).fill(0));
    await db.pool.query(`
      create sequence refusals;
      create function refuse_once() returns trigger language plpgsql as $$ begin
        if nextval('refusals') = 1 then raise exception 'meets another' using errcode = '40001'; end if;
        return null;
      end $$;
      create constraint trigger refuse after update on unbroker.jobs deferrable initially deferred
        for each row when (new.state = 'done' and new.id = ${ids[3]}) execute function refuse_once()`);
    try {
      const { open, handlers } = gated();
      const worker = work({ settleBatch: 1, handlers });
      await until('all of them run', () => worker.running === 6);
      open();
      await worker.untilEnded(6);
      expect(worker.errors().map((error) => (error as { code?: string }).code)).toEqual(['40001']);
      expect(worker.lost()).toEqual([]);
      expect(await db.states()).toEqual({ done: 6 });
    } finally {
      await db.pool.query(
        'drop trigger refuse on unbroker.jobs; drop function refuse_once; drop sequence refusals',
      );
    }
  });
});

describe('a server that cuts statements short', () => {
  /** As a statement_timeout does that is enough for `most` rows, and never for the row with `id`. Of claims, or of ends. */
  async function cutShort(
    most: number,
    { id = '0', which = '<>' }: { id?: string | undefined; which?: '=' | '<>' } = {},
  ): Promise<() => Promise<unknown>> {
    await db.pool.query(`
      create function cut_short() returns trigger language plpgsql as $$ begin
        if (select count(*) from written where state ${which} 'running') > ${most}
          or exists (select from written where state ${which} 'running' and id = ${id}) then
          raise exception 'canceling statement due to statement timeout' using errcode = '57014';
        end if;
        return null;
      end $$;
      create trigger cut_short after update on unbroker.jobs
        referencing new table as written for each statement execute function cut_short()`);
    return () => db.pool.query('drop trigger cut_short on unbroker.jobs; drop function cut_short');
  }

  test('more ends than fit into a statement get through', async () => {
    await db.put('done', Array(24).fill(0));
    const restore = await cutShort(5);
    try {
      const { open, handlers } = gated();
      const worker = work({ handlers });
      await until('all of them run', () => worker.running === 24);
      open();
      await worker.untilEnded(24);
      expect(worker.lost()).toEqual([]);
      expect(await db.states()).toEqual({ done: 24 });
      expect(worker.errors().length).toBeGreaterThan(0);
    } finally {
      await restore();
    }
  });

  test('a claim of more than fits into a statement comes down to what does', async () => {
    await db.put('done', Array(24).fill(0));
    const restore = await cutShort(3, { which: '=' });
    try {
      const worker = work({ concurrency: 24, handlers: { done: () => 1 } });
      await worker.untilEnded(24);
      expect(worker.lost()).toEqual([]);
      expect(await db.states()).toEqual({ done: 24 });
      expect(worker.errors().map((error) => (error as { code?: string }).code)).toContain('57014');
    } finally {
      await restore();
    }
  });

  test.each([[{}], [{ settleBatch: 1 }]])(
    'one that never fits keeps no other waiting, and is written when it does: %j',
    async (options) => {
      const ids = await db.put('done', Array(24).fill(0));
      const restore = await cutShort(1_000, { id: ids[7] });
      const { open, handlers } = gated();
      const worker = work({ ...options, handlers });
      await until('all of them run', () => worker.running === 24);
      open();
      await until('the others are done', async () => (await db.states())['done'] === 23);
      expect(await db.states()).toEqual({ done: 23, running: 1 });
      await restore();
      await worker.untilEnded(24);
      expect(worker.lost()).toEqual([]);
    },
  );
});
