/**
 * What ended and what is claimed next go in one statement: each answer is right whatever the other half meets, and neither
 * keeps the other waiting for long.
 */
import pg from 'pg';
import { afterAll, beforeEach, expect, test } from 'vitest';
import { Run } from '../../src/jobs/handler.js';
import type { ClaimedJob, Queryable } from '../../src/jobs/job.js';
import type { Settlement } from '../../src/jobs/settlement.js';
import { Settler } from '../../src/jobs/settler.js';
import { SILENT } from '../../src/log.js';
import { jobsDatabase } from '../support/jobs.js';
import { until } from '../support/until.js';
import { startWorker } from '../support/workers.js';

const db = await jobsDatabase();
afterAll(() => db.close());
beforeEach(() => db.clear());

const order = (total: number) => ({
  demands: [{ kind: 'a', limit: total, park: false }],
  ...{ total, worker: 'w', leaseMs: 30_000, floors: [], oldest: false },
});
const ended = ({ id, leaseToken }: ClaimedJob, resultText: string | null = null) => ({
  ...{ id, leaseToken, resultText },
});
const ids = (jobs: readonly { readonly id: string }[]): string[] => jobs.map(({ id }) => id);

test('what ended is done and what is due is claimed, each under its fence', async () => {
  const put = await db.put('a', [1, 2, 3, 4, 5]);
  const [first, second, third] = (await db.claim('a', { total: 3 })) as [ClaimedJob, ClaimedJob, ClaimedJob];
  const stale = { ...third, leaseToken: second.leaseToken + 1 };
  const both = await db.store.finishAndClaim(
    db.pool,
    [ended(second, '{"r":1}'), ended(first), ended(stale)],
    order(1),
  );
  expect([...both.finished].sort()).toEqual(put.slice(0, 2));
  expect(ids(both.jobs)).toEqual([put[3]]);
  expect((await db.job(second.id)).result).toEqual({ r: 1 });
  expect(await db.states()).toEqual({ done: 2, running: 2, ready: 1 });
  // Nothing to claim; nothing to finish; nothing that is still held.
  const none = await db.store.finishAndClaim(db.pool, [ended(third)], { ...order(1), demands: [] });
  expect(none).toEqual({ finished: [third.id], jobs: [] });
  expect(ids((await db.store.finishAndClaim(db.pool, [], order(9))).jobs)).toEqual([put[4]]);
  expect(await db.store.finishAndClaim(db.pool, [ended(first)], order(9))).toEqual({
    finished: [],
    jobs: [],
  });
});

test('jobs that end while claims go on are written with the next one, those of an idle worker at once', async () => {
  const asked: string[] = [];
  const counting: Queryable = {
    query(text, values) {
      if (/\.finish(_and_claim)?\(/.test(text)) {
        const written = String(values?.[0]) === '{}' ? 'nothing' : 'something';
        asked.push(`${text.includes('.finish(') ? 'alone' : 'claim'} ${written}`);
      }
      return db.pool.query(text, values);
    },
  };
  const worker = startWorker({
    ...{ url: db.url, db: counting, concurrency: 50 },
    handlers: { a: () => undefined },
  });
  // Fewer than a claim asks for: with a backlog they are written beside the claims.
  let put = 0;
  await until('a claim took some along', async () => {
    await db.put('a', Array(5).fill(0));
    put += 5;
    await worker.untilEnded(put);
    return asked.includes('claim something');
  });
  await worker.close();
});

test('what begins in the place of an end that came too late, and ends at once, is written with the next claim', async () => {
  await db.put('a', [1, 2]);
  const [late, next] = (await db.claim('a')) as [ClaimedJob, ClaimedJob];
  const completed = (job: ClaimedJob, deadlineAt: number): Settlement => ({
    run: new Run(job, deadlineAt, SILENT, db.store, db.pool),
    outcome: { type: 'complete', resultText: null },
  });
  const settled: [string, boolean][] = [];
  const settler: Settler = new Settler({
    ...{ store: db.store, db: db.pool, removes: () => false, claimsSoon: () => true },
    onSettled: ({ run }, written) => {
      settled.push([run.job.id, written]);
      if (!written) settler.push(completed(next, Number.POSITIVE_INFINITY));
    },
    onError: (error) => {
      throw error;
    },
  });
  settler.push(completed(late, performance.now()));
  expect(settler.take()).toEqual([]);
  await settler.drained();
  expect(settled).toEqual([
    [late.id, false],
    [next.id, true],
  ]);
  expect(settler.pending).toBe(0);
});

test('a row that somebody holds keeps its own end waiting, and no claim for long', async () => {
  const [held, other] = (await db.put('a', [1, 2])) as [string, string];
  const [job] = (await db.claim('a', { total: 1 })) as [ClaimedJob];
  const holder = await db.session();
  await holder.query('begin');
  await holder.query('select from unbroker.jobs where id = $1 for update', [held]);
  const refused = db.store.finishAndClaim(db.pool, [ended(job)], order(1));
  await expect(refused).rejects.toMatchObject({ code: '55P03' });
  expect(await db.states()).toEqual({ running: 1, ready: 1 });
  expect(ids(await db.claim('a'))).toEqual([other]);
  await holder.query('rollback');
  expect((await db.store.finishAndClaim(db.pool, [ended(job)], order(1))).finished).toEqual([held]);
});

test.each([
  ['55P03', 'its own limit', undefined],
  ['57014', 'a limit of the server', '-c statement_timeout=300'],
])(
  '%s: a claim refused by %s puts back what it took along: written once, and nothing is done twice',
  async (code, _by, options) => {
    const pool = new pg.Pool({ connectionString: db.url, max: 5, options });
    const refused: string[] = [];
    let alone = 0;
    const watched: Queryable = {
      async query(text, values) {
        if (/\.finish(_one|_each|_soon)?\(|set state = 'done'/.test(text)) alone += 1;
        try {
          return await pool.query(text, values);
        } catch (error) {
          const took = text.includes('.finish_and_claim(') && String(values?.[0]) !== '{}';
          if (took) refused.push((error as { code: string }).code);
          throw error;
        }
      },
    };
    const started: unknown[] = [];
    let end = (): void => {};
    let gate = Promise.resolve();
    const worker = startWorker({
      // Claims that come so often take along what ended.
      ...{ url: db.url, db: watched, pollMs: 5 },
      handlers: {
        a: async ({ payload }) => {
          started.push(payload);
          if (typeof payload === 'number') await gate;
        },
      },
    });
    try {
      const holder = await db.session();
      let held = '';
      let tries = 0;
      // Where claims are slow an end goes by itself before the next: then it is the turn of another.
      while (!refused.includes(code)) {
        if (tries > 0) {
          await holder.query('rollback');
          await worker.untilEnded(tries);
        }
        gate = new Promise((resolve) => {
          end = resolve;
        });
        [held = ''] = await db.put('a', [tries]);
        tries += 1;
        await until('it runs', () => started.length === tries);
        await holder.query('begin');
        await holder.query('select from unbroker.jobs where id = $1 for update', [held]);
        const before = alone;
        end();
        await until('its end was asked for', () => refused.includes(code) || alone > before);
      }
      await db.put('a', ['later', 'later']);
      await until('the others run and are written', async () => (await db.states())['done'] === tries + 1);
      expect((await db.job(held)).state).toBe('running');
      await holder.query('rollback');
      const all = tries + 2;
      await worker.untilEnded(all);
      expect(started.slice(tries - 1)).toEqual([tries - 1, 'later', 'later']);
      expect(worker.settled().map(({ outcome }) => outcome.type)).toEqual(Array(all).fill('complete'));
      expect(worker.lost()).toEqual([]);
      expect(await db.states()).toEqual({ done: all });
    } finally {
      end();
      await worker.close();
      await pool.end();
    }
  },
);
