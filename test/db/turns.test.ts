/**
 * The column `turn` of jobs with an ordering key: whoever ends a lease, in whatever words, it is right afterwards; where it is
 * wrong all the same, its key goes on; and what the version before had in it is taken over.
 */
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import type { ClaimedJob } from '../../src/jobs/job.js';
import { TurnWalk } from '../../src/jobs/turns.js';
import { migrate, readMigrations } from '../../src/migrate.js';
import { type JobsDatabase, jobsDatabase } from '../support/jobs.js';
import { ownPages } from '../support/own-pages.js';

const db = await jobsDatabase();
afterAll(() => db.close());
beforeEach(() => db.clear());

const X = { orderingKey: 'x' };

async function claim({ holds = false, in: where = db } = {}): Promise<ClaimedJob[]> {
  const demand = { kind: 'a', limit: 10, park: false, ...(holds ? { rule: { holds } } : {}) };
  return where.store.claim(where.pool, [demand], 10, 'w', 30_000);
}

const claimed = async (options?: Parameters<typeof claim>[0]): Promise<string[]> =>
  (await claim(options)).map(({ id }) => id);

async function sweep(where: JobsDatabase = db): Promise<void> {
  const walk = new TurnWalk();
  while (!(await walk.step(where.store, where.pool, 2)));
}

async function turns(where: JobsDatabase = db): Promise<(string | null)[]> {
  const { rows } = await where.pool.query('select turn from unbroker.jobs order by id');
  return rows.map(({ turn }) => turn);
}

/** How the version before ends a lease: it says nothing of the turn. */
const LEASE = 'locked_until = null, locked_by = null, lease_token = null, on_lease_expired = null';
const BEFORE = {
  retry: `state = 'ready', solo = false, run_at = clock_timestamp() + interval '1 hour', ${LEASE}`,
  release: `state = 'ready', attempts = attempts - 1, ${LEASE}`,
  discard: `state = 'dead', finished_at = clock_timestamp(), ${LEASE}`,
  finish: `state = 'done', finished_at = clock_timestamp(), ${LEASE}`,
  reap: `state = 'ready', solo = true, ${LEASE}`,
} as const;

type End = keyof typeof BEFORE;
const endAsBefore = (
  how: End,
  id: string | undefined,
  session: { query: (typeof db.pool)['query'] } = db.pool,
) => session.query(`update unbroker.jobs set ${BEFORE[how]} where id = $1 and state = 'running'`, [id]);

describe('a lease that the version before ends', () => {
  test.each<[End, boolean, string | null]>([
    ['retry', false, 'begun'],
    ['retry', true, 'holds'],
    ['release', false, 'begun'],
    ['reap', true, 'holds'],
    ['discard', false, 'begun'],
    ['discard', true, 'stops'],
    ['finish', true, null],
  ])('by %s (holds: %s) leaves the turn %s', async (how, holds, turn) => {
    const [head, next] = await db.put('a', [0, 0], X);
    expect(await claimed({ holds })).toEqual([head]);
    expect(await turns()).toEqual([holds ? 'runs-holds' : 'runs', 'waits']);
    await endAsBefore(how, head);
    expect((await turns())[0]).toBe(turn);
    await sweep();
    const passes = turn === null || (how === 'discard' && !holds);
    expect(await claimed({ holds })).toEqual(passes ? [next] : how === 'release' ? [head] : []);
  });

  test('keeps its key while that is not committed, and when it is', async () => {
    const [head] = await db.put('a', [0, 0], X);
    await claim();
    const before = await db.session();
    await before.query('begin');
    await before.query(`update unbroker.jobs set ${BEFORE.retry} where id = $1`, [head]);
    expect(await claim()).toEqual([]);
    await sweep();
    expect(await claim()).toEqual([]);
    await before.query('commit');
    await sweep();
    expect(await claim()).toEqual([]);
    await db.store.runNow(db.pool, [head as string]);
    expect(await claimed()).toEqual([head]);
  });
});

test('an operator’s retry of a dead job that stops its key lets it go first', async () => {
  const [head, next] = await db.put('a', [0, 0], X);
  const [job] = await claim({ holds: true });
  await db.store.discard(db.pool, [{ ...(job as ClaimedJob), name: 'Error', message: 'x' }]);
  await sweep();
  expect(await claim({ holds: true })).toEqual([]);
  await db.store.operatorRetry(db.pool, [head as string], 1);
  expect(await turns()).toEqual(['holds', 'waits']);
  expect(await claimed({ holds: true })).toEqual([head]);
  await db.store.cancel(db.pool, [next as string]);
  expect(await turns()).toEqual(['runs-holds', null]);
});

describe('one that is said to run and does not, where triggers were off', () => {
  test.each<[End, string | null]>([
    ['release', 'begun'],
    ['discard', 'begun'],
    ['finish', null],
  ])('after %s, stops its key until the next sweep, and nobody else', async (how, turn) => {
    const [head, next] = await db.put('a', [0, 0], X);
    await claim();
    const session = await db.session();
    await session.query(`set session_replication_role = replica`);
    await session.query(`update unbroker.jobs set ${BEFORE[how]} where id = $1`, [head]);
    await session.end();
    const [other] = await db.put('a', [0], { orderingKey: 'y' });
    const [last] = await db.put('a', [0], X);
    expect(await turns()).toEqual(['runs', 'waits', null, null]);
    expect(await claimed()).toEqual([other]);
    await sweep();
    expect((await turns())[0]).toBe(turn);
    expect(await claimed()).toEqual([how === 'release' ? head : next]);
    expect((await db.job(last as string)).waitsForTurn).toBe(true);
  });
});

test('behind a dead job that stops them, twenty thousand cost a claim and a sweep nothing', async () => {
  const [head] = await db.put('a', [0], X);
  await claim({ holds: true });
  await endAsBefore('discard', head);
  await db.pool.query(
    `insert into unbroker.jobs (kind, ordering_key, run_at, turn)
     select 'a', 'x', now() - interval '1 hour', 'waits' from generate_series(1, 20000)`,
  );
  await db.put('a', [0], X);
  const [other] = await db.put('a', [0], { orderingKey: 'y' });
  const session = await db.session();
  const act = async (): Promise<void> => {
    const demand = { kind: 'a', limit: 10, park: false };
    expect(await db.store.claim(session, [demand], 10, 'w', 30_000)).toMatchObject([{ id: other }]);
    await new TurnWalk().step(db.store, session, 10);
  };
  // Each row that is looked at is a page.
  expect(await ownPages(session, act)).toBeLessThan(300);
});

test('what ran, was dead or waited in the version before is taken over, what a claim under way left as well', async () => {
  const before = await jobsDatabase({ migrated: false });
  try {
    const own = readMigrations();
    const upTo = async (name: string) =>
      migrate(before.pool, {
        migrations: own.slice(
          0,
          own.findIndex((m) => m.name.endsWith(name)),
        ),
      });
    await upTo('_claims');
    const row = `insert into unbroker.jobs (kind, ordering_key, turn, state, lease_token, locked_by, locked_until, finished_at)`;
    const running = `'running', nextval('unbroker.lease_tokens'), 'w', now() + interval '1 minute', null`;
    const dead = `'dead', null, null, null, now()`;
    await before.pool.query(
      `${row} values ('a', 'x', 'begun', ${running}), ('a', 'y', 'holds', ${running}), ('a', 'z', 'holds', ${dead}),
         ('a', 'u', 'begun', ${dead}), ('a', 'z', 'waits', 'ready', null, null, null, null)`,
    );
    await upTo('_open');
    const taken = ['runs', 'runs-holds', 'stops', 'begun', 'waits'];
    expect(await turns(before)).toEqual(taken);
    await before.pool.query(`${row} values ('a', 'v', 'begun', ${running})`);
    await migrate(before.pool);
    expect(await turns(before)).toEqual([...taken, 'runs']);
    await before.put('a', [0], { orderingKey: 'v' });
    await before.put('a', [0], { orderingKey: 'x' });
    await before.put('a', [0], { orderingKey: 'z' });
    const [free] = await before.put('a', [0], { orderingKey: 'u' });
    expect(await claimed({ in: before })).toEqual([free]);
    await sweep(before);
    expect(await claimed({ in: before })).toEqual([]);
  } finally {
    await before.close();
  }
});
