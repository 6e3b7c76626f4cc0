/** A dedupe key makes the second enqueue a no-op by unique index: also while the first is not yet committed. */
import pg from 'pg';
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import { type Enqueued, enqueue, enqueueMany } from '../../src/enqueue.js';
import { Pruning } from '../../src/jobs/pruning.js';
import { startFaultProxy } from '../support/fault-proxy.js';
import { jobsDatabase, type Session } from '../support/jobs.js';

const db = await jobsDatabase();
afterAll(() => db.close());
beforeEach(() => db.clear());

const put = (tx: Session | typeof db.pool, dedupeKey: string, kind = 'a'): Promise<Enqueued> =>
  enqueue(tx, kind, { from: dedupeKey }, { dedupeKey });
const count = async (): Promise<number> =>
  (await db.pool.query('select count(*)::int as n from unbroker.jobs')).rows[0].n;

describe('one after the other', () => {
  test('the same kind and key answers the first job; another kind or key is another job', async () => {
    const first = await put(db.pool, 'k');
    expect(first.inserted).toBe(true);
    expect(await put(db.pool, 'k')).toEqual({ id: first.id, inserted: false });
    expect((await put(db.pool, 'k', 'b')).inserted).toBe(true);
    expect((await put(db.pool, 'k2')).inserted).toBe(true);
    expect((await put(db.pool, 'K')).inserted).toBe(true);
    expect(await count()).toBe(4);
  });

  test('the first payload stays', async () => {
    const { id } = await enqueue(db.pool, 'a', 'first', { dedupeKey: 'k' });
    await enqueue(db.pool, 'a', 'second', { dedupeKey: 'k', priority: 9 });
    expect(await db.job(id)).toMatchObject({ payloadText: '"first"', priority: 0 });
  });

  test.each(['running', 'done', 'dead', 'cancelled'])(
    'a job that is %s still holds its key',
    async (state) => {
      const first = await put(db.pool, 'k');
      if (state === 'cancelled') await db.store.cancel(db.pool, [first.id]);
      else {
        const [job] = await db.claim('a');
        if (job === undefined) throw new Error('not claimed');
        if (state === 'done') await db.store.complete(db.pool, [{ ...job, resultText: null }]);
        if (state === 'dead') await db.store.discard(db.pool, [{ ...job, name: 'E', message: 'm' }]);
      }
      expect((await db.job(first.id)).state).toBe(state);
      expect(await put(db.pool, 'k')).toEqual({ id: first.id, inserted: false });
    },
  );

  test('a key is free again once its row is pruned', async () => {
    const first = await put(db.pool, 'k');
    await db.pool.query(`update unbroker.jobs set state = 'done', finished_at = now() - interval '2 hours'`);
    await new Pruning({
      store: db.store,
      db: db.pool,
      retention: { default: { maxAgeMs: 3_600_000 } },
    }).sweep();
    const again = await put(db.pool, 'k');
    expect(again.inserted).toBe(true);
    expect(again.id).not.toBe(first.id);
  });

  test('keys that differ only in their Unicode form are different keys', async () => {
    expect((await put(db.pool, 'caf\u00e9')).inserted).toBe(true);
    expect((await put(db.pool, 'cafe\u0301')).inserted).toBe(true);
  });
});

describe('at the same time', () => {
  test('the second waits for the first: after its commit it is a no-op with the first id', async () => {
    const [one, two] = [await db.session(), await db.session()];
    await one.query('begin');
    const first = await put(one, 'k');
    const second = put(two, 'k');
    await two.untilBlocked();
    await one.query('commit');
    expect(await second).toEqual({ id: first.id, inserted: false });
    expect(await count()).toBe(1);
  });

  test('after its rollback the second is the first', async () => {
    const [one, two] = [await db.session(), await db.session()];
    await one.query('begin');
    await put(one, 'k');
    const second = put(two, 'k');
    await two.untilBlocked();
    await one.query('rollback');
    expect((await second).inserted).toBe(true);
    expect(await count()).toBe(1);
  });

  test('a caller whose process dies in between takes nothing along', async () => {
    const [one, two] = [await db.session(), await db.session()];
    await one.query('begin');
    await put(one, 'k');
    const second = put(two, 'k');
    await two.untilBlocked();
    await db.pool.query('select pg_terminate_backend($1)', [one.pid]);
    expect((await second).inserted).toBe(true);
    expect(await count()).toBe(1);
  });

  test('the second’s own transaction goes on and commits its other rows', async () => {
    await db.pool.query('create table if not exists orders (id int)');
    const [one, two] = [await db.session(), await db.session()];
    await one.query('begin');
    await put(one, 'k');
    await two.query('begin');
    await two.query('insert into orders values (2)');
    const second = put(two, 'k');
    await two.untilBlocked();
    await one.query('commit');
    expect((await second).inserted).toBe(false);
    await two.query('commit');
    expect((await db.pool.query('select id from orders')).rows).toEqual([{ id: 2 }]);
  });

  test('fifty at once make one row, and all hear the same id', async () => {
    const answers = await Promise.all(Array.from({ length: 50 }, () => put(db.pool, 'k')));
    expect(new Set(answers.map(({ id }) => id)).size).toBe(1);
    expect(answers.filter(({ inserted }) => inserted)).toHaveLength(1);
    expect(await count()).toBe(1);
  });

  test('in a repeatable read transaction a key that another has won since is an error to retry, never a second row', async () => {
    const one = await db.session();
    await one.query('begin isolation level repeatable read');
    await one.query('select from unbroker.jobs');
    await put(db.pool, 'k');
    await expect(put(one, 'k')).rejects.toMatchObject({ code: '40001' });
    await one.query('rollback');
    expect(await count()).toBe(1);
  });
});

describe('a COMMIT whose answer is lost', () => {
  test('happened or not, the caller cannot know: the same again with the same key makes one job', async () => {
    await db.pool.query('create table if not exists orders_once (id int primary key)');
    const proxy = await startFaultProxy(db.url);
    const attempt = async (): Promise<Enqueued> => {
      const client = new pg.Client({ connectionString: proxy.url });
      client.on('error', () => {});
      await client.connect();
      try {
        await client.query('begin');
        await client.query('insert into orders_once values (1) on conflict do nothing');
        const enqueued = await enqueue(client, 'a', 1, { dedupeKey: 'order-1' });
        await client.query('commit');
        return enqueued;
      } finally {
        await client.end().catch(() => undefined);
      }
    };
    const dropped = proxy.dropReply(/^commit$/);
    await expect(attempt()).rejects.toThrow();
    await dropped;
    expect(await count()).toBe(1);
    expect((await attempt()).inserted).toBe(false);
    expect(await count()).toBe(1);
    await proxy.close();
  });
});

describe('many in one call', () => {
  test('repeated keys: the first of them is inserted, the others hear its id; the order of answers is that of the jobs', async () => {
    const taken = await put(db.pool, 'taken');
    const answers = await enqueueMany(db.pool, [
      { kind: 'a', payload: 0 },
      { kind: 'a', payload: 1, dedupeKey: 'x' },
      { kind: 'a', payload: 2, dedupeKey: 'taken' },
      { kind: 'b', payload: 3, dedupeKey: 'x' },
      { kind: 'a', payload: 4, dedupeKey: 'x' },
      { kind: 'a', payload: 5 },
      { kind: 'a', payload: 6, dedupeKey: 'x' },
    ]);
    expect(answers.map(({ inserted }) => inserted)).toEqual([true, true, false, true, false, true, false]);
    expect(answers[2]?.id).toBe(taken.id);
    expect([answers[4]?.id, answers[6]?.id]).toEqual([answers[1]?.id, answers[1]?.id]);
    for (const [index, payload] of [0, 1, 3, 5].map((n) => [n, n] as const))
      expect((await db.job(answers[index]?.id ?? '')).payloadText).toBe(String(payload));
    expect(await count()).toBe(5);
  });

  test('a key repeated across statements of 1,000', async () => {
    const answers = await enqueueMany(
      db.pool,
      Array.from({ length: 2_500 }, (_, n) => ({
        kind: 'a',
        payload: n,
        ...(n % 1_250 === 7 ? { dedupeKey: 'x' } : {}),
      })),
    );
    expect(answers.filter(({ inserted }) => !inserted)).toEqual([{ id: answers[7]?.id, inserted: false }]);
    expect(await count()).toBe(2_499);
    const { rows } = await db.pool.query('select id::text, payload from unbroker.jobs');
    const byId = new Map(rows.map((row: { id: string; payload: number }) => [row.id, row.payload]));
    for (const [n, { id, inserted }] of answers.entries()) if (inserted) expect(byId.get(id)).toBe(n);
  });

  test('a thousand taken keys cost a few statements, not a thousand', async () => {
    const jobs = Array.from({ length: 1_000 }, (_, n) => ({ kind: 'a', payload: n, dedupeKey: `k${n}` }));
    const first = await enqueueMany(db.pool, jobs);
    let statements = 0;
    const counting = {
      query: (text: string, values?: unknown[]) => {
        statements += 1;
        return db.pool.query(text, values);
      },
    };
    const second = await enqueueMany(counting, [...jobs].reverse());
    expect(second.map(({ id }) => id)).toEqual(first.map(({ id }) => id).reverse());
    expect(second.every(({ inserted }) => !inserted)).toBe(true);
    expect(statements).toBeLessThanOrEqual(3);
  });

  test('two callers with the same keys in opposite orders never deadlock', async () => {
    const jobs = Array.from({ length: 300 }, (_, n) => ({ kind: 'a', payload: n, dedupeKey: `k${n}` }));
    const [blocker, one, two] = [await db.session(), await db.session(), await db.session()];
    await blocker.query('begin');
    await put(blocker, 'k150');
    const answers = [enqueueMany(one, jobs), enqueueMany(two, [...jobs].reverse())];
    await one.untilBlocked();
    await two.untilBlocked();
    await blocker.query('commit');
    const [first = [], second = []] = await Promise.all(answers);
    expect(second.map(({ id }) => id).reverse()).toEqual(first.map(({ id }) => id));
    expect(await count()).toBe(300);
  });
});

describe('a row that is pruned between the two looks', () => {
  /** Deletes the holder of the key just before it is looked up, `times` times. */
  function pruning(times: number) {
    let left = times;
    return {
      query: async (text: string, values?: unknown[]) => {
        if (/^\s*select/.test(text) && text.includes('dedupe_key = ') && left > 0) {
          left -= 1;
          await db.pool.query(`delete from unbroker.jobs where dedupe_key = 'k'`);
          const answer = await db.pool.query(text, values);
          // Somebody else has it again at once.
          if (left > 0) await put(db.pool, 'k');
          return answer;
        }
        return db.pool.query(text, values);
      },
    };
  }

  test('is put in again; three times in a row is an error that says so', async () => {
    await put(db.pool, 'k');
    expect((await enqueue(pruning(1), 'a', 1, { dedupeKey: 'k' })).inserted).toBe(true);
    await expect(enqueue(pruning(9), 'a', 1, { dedupeKey: 'k' })).rejects.toMatchObject({
      code: 'dedupe-unsettled',
    });
    await db.clear();
    await put(db.pool, 'k');
    const many = await enqueueMany(pruning(1), [
      { kind: 'a', payload: 1 },
      { kind: 'a', payload: 2, dedupeKey: 'k' },
    ]);
    expect(many.map(({ inserted }) => inserted)).toEqual([true, true]);
    expect(await count()).toBe(2);
  });
});

describe('from SQL', () => {
  const viaSql = async (tx: Session | typeof db.pool, key: string | null) =>
    (
      (await tx.query(`select unbroker.enqueue('a', '{"n": 1}', dedupe_key => $1)::text as id`, [key])) as {
        rows: { id: string }[];
      }
    ).rows[0]?.id;

  test('the function answers the first job’s id, also to one that waited', async () => {
    const id = await viaSql(db.pool, 'k');
    expect(await viaSql(db.pool, 'k')).toBe(id);
    expect(await put(db.pool, 'k')).toEqual({ id, inserted: false });
    const [one, two] = [await db.session(), await db.session()];
    await one.query('begin');
    const first = await viaSql(one, 'other');
    const second = viaSql(two, 'other');
    await two.untilBlocked();
    await one.query('commit');
    expect(await second).toBe(first);
    expect(await viaSql(db.pool, null)).not.toBe(await viaSql(db.pool, null));
  });
});
