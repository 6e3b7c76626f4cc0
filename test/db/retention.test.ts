/** Finished rows by kind, by age and by count, on a real table: what goes, what stays, how much one sweep touches. */
import { afterAll, afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { Queryable } from '../../src/jobs/job.js';
import { Pruning } from '../../src/jobs/pruning.js';
import type { Retention } from '../../src/jobs/retention.js';
import { createUpkeepStatements } from '../../src/jobs/upkeep-statements.js';
import { jobsDatabase } from '../support/jobs.js';
import { until } from '../support/until.js';
import { startWorker } from '../support/workers.js';

const db = await jobsDatabase();
afterAll(() => db.close());
beforeEach(() => db.clear());

const HOUR = 3_600_000;
const pruning = (retention: Retention, queryable: Queryable = db.pool) =>
  new Pruning({ store: db.store, db: queryable, retention });

/** Rules that keep all kinds but one of so many for long. */
const only = (kind: string, kinds: number): Retention['kinds'] =>
  Object.fromEntries(
    Array.from({ length: kinds }, (_, n) => `k${n}`)
      .filter((each) => each !== kind)
      .map((each) => [each, { maxAgeMs: 1_000 * HOUR }]),
  );

/** `count` rows of a kind, the n-th finished n hours ago. */
const finished = (kind: string, count: number, state = 'done') =>
  db.pool.query(
    `insert into unbroker.jobs (kind, state, finished_at)
     select $1, $3, now() - n * interval '1 hour' from generate_series(1, $2) as n`,
    [kind, count, state],
  );

async function left(): Promise<Record<string, number>> {
  const { rows } = await db.pool.query(
    `select kind || ' ' || state as what, count(*)::int from unbroker.jobs group by 1`,
  );
  return Object.fromEntries(rows.map(({ what, count }) => [what, count]));
}

test('each kind by its own rule, the rest by the default; unfinished ones are not touched', async () => {
  for (const kind of ['short', 'long', 'few', 'other']) await finished(kind, 50);
  await finished('few', 50, 'dead');
  await db.put('short', [1]);
  await pruning({
    default: { maxAgeMs: 20.5 * HOUR },
    kinds: { short: { maxAgeMs: 5.5 * HOUR }, long: { maxAgeMs: 1_000 * HOUR }, few: { maxCount: 3 } },
  }).sweep();
  expect(await left()).toEqual({
    'short done': 5,
    'short ready': 1,
    'long done': 50,
    'few done': 3,
    'few dead': 20,
    'other done': 20,
  });
  const { rows } = await db.pool.query(
    `select max(finished_at) > now() - interval '61 minutes' as newest, min(finished_at) > now() - interval '4 hours' as oldest
     from unbroker.jobs where kind = 'few' and state = 'done'`,
  );
  expect(rows).toEqual([{ newest: true, oldest: true }]);
});

test('many that finished in the same instant are each looked at once', async () => {
  await db.pool.query(
    `insert into unbroker.jobs (kind, state, finished_at)
     select 'burst', 'done', now() - interval '1 hour' from generate_series(1, 2345)`,
  );
  await pruning({ kinds: { burst: { maxCount: 1_000 } } }).sweep();
  expect(await left()).toEqual({ 'burst done': 1_000 });
});

test('two at once keep what they promise', async () => {
  await finished('few', 3_000);
  const retention = { kinds: { few: { maxCount: 700 } } };
  const three = [pruning(retention), pruning(retention), pruning(retention)];
  await Promise.all(three.map((each) => each.sweep()));
  expect((await left())['few done']).toBeGreaterThanOrEqual(700);
  // Who met another goes on where it stopped.
  for (const each of three) await each.sweep();
  expect(await left()).toEqual({ 'few done': 700 });
});

test('a job that was retried and ended anew while the walk was on its way stays', async () => {
  await finished('few', 2, 'dead');
  await finished('few', 1);
  const [oldest] = (await db.pool.query(`select id::text from unbroker.jobs order by finished_at limit 1`))
    .rows as { id: string }[];
  const racing: Queryable = {
    async query(text, values) {
      if (text.includes('remove_finished')) {
        await db.pool.query(
          `update unbroker.jobs set state = 'done', finished_at = clock_timestamp() where id = $1`,
          [oldest?.id],
        );
      }
      return db.pool.query(text, values);
    },
  };
  await pruning({ default: { maxAgeMs: 1.5 * HOUR }, kinds: { x: { maxCount: 1 } } }, racing).sweep();
  expect(await left()).toEqual({ 'few done': 2, 'few dead': 1 });
});

test('a sweep is bounded and the next one goes on', async () => {
  await db.pool.query(
    `insert into unbroker.jobs (kind, state, finished_at)
     select 'k', 'done', now() - n * interval '1 second' from generate_series(1, 12000) as n`,
  );
  const sweeper = pruning({ kinds: { k: { maxCount: 100 } } });
  // Much went, and there is more.
  expect(await sweeper.sweep()).toBe(true);
  expect(await left()).toEqual({ 'k done': 2_100 });
  expect(await sweeper.sweep()).toBe(false);
  expect(await left()).toEqual({ 'k done': 100 });
});

test('where little may go a sweep does not hurry', async () => {
  await db.pool.query(
    `insert into unbroker.jobs (kind, state, finished_at)
     select 'k' || n % 11, 'done', now() - interval '2 hours' - n * interval '1 second' from generate_series(1, 12000) as n`,
  );
  const sweeper = pruning({ default: { maxAgeMs: HOUR }, kinds: only('k0', 11) });
  expect(await sweeper.sweep()).toBe(false);
  expect((await left())['k0 done']).toBeGreaterThan(100);
});

test('what grows old does not wait for the end of a walk over all that is kept for longer', async () => {
  await db.pool.query(
    `insert into unbroker.jobs (kind, state, finished_at)
     select 'long', 'done', now() - interval '2 hours' - n * interval '1 second' from generate_series(1, 11000) as n`,
  );
  const sweeper = pruning({ default: { maxAgeMs: HOUR }, kinds: { long: { maxAgeMs: 1_000 * HOUR } } });
  await sweeper.sweep();
  await db.pool.query(
    `insert into unbroker.jobs (kind, state, finished_at)
     select k, 'done', now() - interval '61 minutes' from unnest('{short,long}'::text[]) k, generate_series(1, 700)`,
  );
  // Its walk is at the oldest thousand now.
  await sweeper.sweep();
  expect(await left()).toEqual({ 'long done': 11_700 });
});

test('each row is read once as it reaches an age, also among many of the same instant', async () => {
  const read: number[] = [];
  const counting: Queryable = {
    async query(text, values) {
      const answer = await db.pool.query(text, values);
      if (text.includes('order by j.finished_at, j.id')) read.push(answer.rows.length);
      return answer;
    },
  };
  const sweeper = pruning({ default: { maxAgeMs: HOUR } }, counting);
  await sweeper.sweep();
  await db.pool.query(
    `insert into unbroker.jobs (kind, state, finished_at)
     select 'burst', 'done', now() - interval '2 hours' from generate_series(1, 1234)`,
  );
  await sweeper.sweep();
  expect(await left()).toEqual({});
  await sweeper.sweep();
  expect(read).toEqual([500, 500, 234, 0]);
});

describe('what may not go', () => {
  afterEach(() =>
    db.pool.query('drop table if exists orders; drop trigger if exists keeps on unbroker.jobs'),
  );
  const retention = { default: { maxAgeMs: 0.5 * HOUR } };
  const refer = async (constraint: string): Promise<void> => {
    await db.pool.query(`create table orders (job bigint references unbroker.jobs (id) ${constraint})`);
    await db.pool.query('insert into orders select id from unbroker.jobs where id % 3 = 0');
  };
  const referred = async () =>
    (await db.pool.query('select count(*)::int as n from unbroker.jobs where id % 3 = 0')).rows[0].n;

  test.each(['', 'on delete restrict', 'deferrable initially deferred'])(
    'rows that a table of the caller’s refers to stay, and keep none of the others (%s)',
    async (constraint) => {
      await finished('a', 600);
      await refer(constraint);
      await pruning(retention).sweep();
      expect(await left()).toEqual({ 'a done': 200 });
      expect(await referred()).toBe(200);
    },
  );

  test.each([
    ['raises', `raise 'not this one'`],
    ['answers nothing', 'return null'],
  ])('rows that a trigger of the caller’s keeps stay: it %s', async (_what, body) => {
    await finished('a', 60);
    await db.pool.query(
      `create or replace function unbroker.keeps() returns trigger language plpgsql as $$ begin ${body}; end $$`,
    );
    await db.pool.query(
      'create trigger keeps before delete on unbroker.jobs for each row when (old.id % 3 = 0) execute function unbroker.keeps()',
    );
    await pruning(retention).sweep();
    expect(await left()).toEqual({ 'a done': 20 });
    expect(await referred()).toBe(20);
  });

  test('very many are tried again the later the more there are, and what is beyond a count meanwhile', async () => {
    const asked: number[] = [];
    const counting: Queryable = {
      async query(text, values) {
        if (text.includes('remove_finished')) asked.push((values?.[0] as unknown[] | undefined)?.length ?? 0);
        return db.pool.query(text, values);
      },
    };
    await db.pool.query(
      `insert into unbroker.jobs (kind, state, finished_at) select 'a', 'done', now() - interval '1 hour' - n * interval '1 ms' from generate_series(1, 20000) n`,
    );
    await db.pool.query('create table orders (job bigint unique references unbroker.jobs (id))');
    await db.pool.query('insert into orders select id from unbroker.jobs');
    await db.pool.query('analyze');
    const sweeper = pruning({ ...retention, kinds: { few: { maxCount: 1 } } }, counting);
    let now = performance.now();
    const clock = vi.spyOn(performance, 'now').mockImplementation(() => now);
    const askedAfter = async (minutes: number): Promise<number> => {
      now += minutes * 60_000;
      asked.length = 0;
      // What takes a walk of 20,000 rows to its end, and no more.
      for (let sweep = 0; sweep < 3; sweep += 1) await sweeper.sweep();
      return asked.reduce((sum, rows) => sum + rows, 0);
    };
    try {
      expect(await askedAfter(0)).toBe(20_000);
      await db.pool.query(
        `insert into unbroker.jobs (kind, state, finished_at) select 'few', 'done', now() from generate_series(1, 3)`,
      );
      expect(await askedAfter(12)).toBe(2);
      expect(await askedAfter(11)).toBe(20_000);
    } finally {
      clock.mockRestore();
    }
  }, 60_000);

  test('what takes longer than a statement may goes in smaller parts', async () => {
    await finished('a', 60);
    await db.pool.query(
      `create or replace function unbroker.keeps() returns trigger language plpgsql as $$ begin perform pg_sleep(0.01); return old; end $$`,
    );
    await db.pool.query(
      'create trigger keeps before delete on unbroker.jobs for each row execute function unbroker.keeps()',
    );
    const hurried = await db.session();
    await hurried.query(`set statement_timeout = '300ms'`);
    const sweeper = pruning(retention, hurried);
    for (const rows of [500, 50])
      await expect(sweeper.sweep(), `${rows} rows`).rejects.toMatchObject({ code: '57014' });
    await sweeper.sweep();
    expect(await left()).toEqual({});
  });

  test('a row that somebody holds is passed by, and goes with the next walk', async () => {
    await finished('a', 3);
    const holder = await db.session();
    await holder.query('begin');
    await holder.query('select from unbroker.jobs order by id limit 1 for update');
    await pruning(retention).sweep();
    expect(await left()).toEqual({ 'a done': 1 });
    await holder.query('commit');
    await pruning(retention).sweep();
    expect(await left()).toEqual({});
  });

  test('whoever holds what refers to a row is waited for half a second at most twice, not once a row', async () => {
    await finished('a', 90);
    await refer('');
    const holder = await db.session();
    await holder.query('begin');
    await holder.query('select from orders for update');
    const startAt = performance.now();
    await pruning(retention).sweep();
    // Thirty waits would be fifteen seconds.
    expect(performance.now() - startAt).toBeLessThan(10_000);
    expect(await referred()).toBe(30);
    await holder.query('commit');
    await pruning(retention).sweep();
    expect(await left()).toEqual({ 'a done': 30 });
  });
});

test('one session removes at a time, the others go on later', async () => {
  await finished('a', 1_200);
  const remover = await db.session();
  await remover.query('begin');
  await remover.query(`select unbroker.remove_finished('{}', '{}')`);
  const sweeper = pruning({ default: { maxAgeMs: 0 } });
  expect(await sweeper.sweep()).toBe(false);
  expect(await left()).toEqual({ 'a done': 1_200 });
  await remover.query('commit');
  await sweeper.sweep();
  expect(await left()).toEqual({});
});

test('a schema before the function prunes as it did', async () => {
  const before = await jobsDatabase();
  try {
    await before.pool.query('drop function unbroker.remove_finished');
    await before.pool.query(
      `insert into unbroker.jobs (kind, state, finished_at) select 'a', 'done', now() - interval '1 hour' from generate_series(1, 700)`,
    );
    await new Pruning({
      store: before.store,
      db: before.pool,
      retention: { default: { maxAgeMs: 0 } },
    }).sweep();
    expect(await before.states()).toEqual({});
  } finally {
    await before.close();
  }
});

test('a step of the walk reads a step of the index, in 200,000 rows', async () => {
  await db.pool.query(
    `insert into unbroker.jobs (kind, state, finished_at)
     select 'k' || n % 7, 'done', now() - n * interval '1 second' from generate_series(1, 200000) as n`,
  );
  await db.pool.query('analyze unbroker.jobs');
  const { rows } = await db.pool.query(
    `explain (analyze, buffers, format json) ${createUpkeepStatements(db.schema).finishedBelow}`,
    [0, new Date(Date.now() - 100_000_000).toISOString(), '1', 500],
  );
  const plan = JSON.stringify(rows[0]);
  expect(plan).not.toContain('Seq Scan');
  expect(plan).toContain('jobs_prune');
  expect(rows[0]['QUERY PLAN'][0].Plan['Shared Hit Blocks']).toBeLessThan(1_500);
});

test('a worker removes as many as end, however seldom it sweeps', async () => {
  await db.pool.query(
    `insert into unbroker.jobs (kind, state, finished_at) select 'a', 'done', now() - interval '1 hour' from generate_series(1, 25000)`,
  );
  const worker = startWorker({
    ...{ url: db.url, handlers: { idle: () => null } },
    ...{ upkeepMs: 600_000, retentionMs: 60_000 },
  });
  // A sweep is 10,000 at most.
  await until('none is left', async () => Object.keys(await left()).length === 0);
  await worker.close();
});

test('a worker does it', async () => {
  await finished('few', 10);
  const worker = startWorker({
    url: db.url,
    handlers: { idle: () => null },
    upkeepMs: 50,
    retention: { kinds: { few: { maxCount: 4 } } },
  });
  await until('four are left', async () => (await left())['few done'] === 4);
  await worker.close();
});
