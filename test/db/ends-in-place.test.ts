/**
 * An end of all jobs of a claim finds the rows where the claim left them, and ends exactly those that it would have ended by
 * their ids: whatever moved them, wherever the hint points, whoever has them now.
 */
import fc from 'fast-check';
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import type { Held } from '../../src/jobs/held.js';
import { ids } from '../../src/jobs/held.js';
import type { Queryable } from '../../src/jobs/job.js';
import { jobsDatabase } from '../support/jobs.js';
import { ownPages } from '../support/own-pages.js';

/** UNBROKER_TEST_LONG=1: as many as find what is rare; otherwise a sample of seconds. */
const LONG = Boolean(process.env['UNBROKER_TEST_LONG']);
const RUNS = LONG ? 2_000 : 30;

const db = await jobsDatabase();
// Time is set here: an autovacuum in between would move or prune rows when no step says so.
await db.pool.query('alter table unbroker.jobs set (autovacuum_enabled = false)');
const session = await db.session();
// note_running() was compiled for 0.8 s each time.
await session.query('set jit = off');
afterAll(() => db.close());
beforeEach(() => db.clear());

const { store } = db;
const WRITES = ['complete', 'completeAndRemove'] as const;
type EndOf = (typeof WRITES)[number];

async function claimMany(total: number, on: Queryable = session): Promise<Held[]> {
  const demands = [{ kind: 'a', limit: total, park: false }];
  const order = { demands, total, worker: 'w1', leaseMs: 30_000, floors: [], oldest: false };
  return [...(await store.claimMany(on, order)).jobs()].map(heldOf);
}

const heldOf = ({ id, leaseToken }: Held): Held => ({ id, leaseToken });

/** Jobs without results, as they end. */
const end = (how: EndOf, ended: readonly Held[], on: Queryable = session): Promise<string[]> =>
  store[how](
    on,
    ended.map((held) => ({ ...held, resultText: null })),
  );

const sorted = (some: readonly string[]): string[] => [...some].sort((a, b) => Number(a) - Number(b));
const idsOf = (held: readonly Held[]): string[] => sorted(held.map(({ id }) => id));

type Row = Readonly<Record<string, unknown>> & {
  readonly state: string;
  readonly lease_token: number | null;
};

async function rowsById(): Promise<Map<string, Row>> {
  const { rows } = await session.client.query<{ id: string; row: Row }>(
    'select id::text, to_jsonb(j) as row from unbroker.jobs j order by id',
  );
  return new Map(rows.map(({ id, row }) => [id, row]));
}

/** What an end leaves of a lease. */
const ENDED = {
  ...{ state: 'done', lease_token: null, locked_until: null, locked_by: null },
  ...{ on_lease_expired: null, turn: null },
};

/** A row's line tells all of it. */
const lines = (table: ReadonlyMap<string, Row>): string[] =>
  [...table.values()].map((row) => JSON.stringify(row));

/**
 * Ends these, all under one token, and compares with what the rows say that an end by ids would find; was there any that could
 * be found by its place?
 */
async function endAndCompare(how: EndOf, ended: readonly Held[], transaction: string): Promise<boolean> {
  const before = await rowsById();
  const named = new Set(ended.map(({ id }) => id));
  const mine = new Set<string>();
  for (const [id, { state, lease_token }] of before)
    if (named.has(id) && state === 'running' && String(lease_token) === ended[0]?.leaseToken) mine.add(id);
  const { rows } = await session.client.query<{ known: boolean }>(
    'select unbroker.places_of($1, $2) is not null as known',
    [ended[0]?.leaseToken, ids(ended)],
  );
  const [begin, over] = TRANSACTIONS[transaction] ?? [];
  if (begin !== undefined) await session.query(begin);
  const answer = await end(how, ended);
  if (over !== undefined) await session.query(over);
  expect(sorted([...new Set(answer)])).toEqual(sorted([...mine]));
  const expected = new Map(before);
  const after = await rowsById();
  if (over !== 'rollback')
    for (const id of mine) {
      // Whenever it was; that a done row has it is the table's to see to.
      const finished = { ...ENDED, finished_at: after.get(id)?.['finished_at'] };
      if (how === 'complete') expected.set(id, { ...(before.get(id) as Row), ...finished });
      else expected.delete(id);
    }
  expect(lines(after)).toEqual(lines(expected));
  return rows[0]?.known === true && ended.length >= 10 && mine.size > 0;
}

const TRANSACTIONS: Readonly<Record<string, readonly [string, string]>> = {
  committed: ['begin', 'commit'],
  'rolled back': ['begin', 'rollback'],
  'repeatable read': ['begin isolation level repeatable read', 'commit'],
};

/** What is ended of a claim, and what else with it. All under one token. */
const PARTS: Readonly<Record<string, (claim: readonly Held[], other: readonly Held[]) => readonly Held[]>> = {
  whole: (claim) => claim,
  reversed: (claim) => [...claim].reverse(),
  'by id': (claim) => [...claim].sort((a, b) => Number(a.id) - Number(b.id)),
  'all but one': (claim) => claim.slice(1),
  'one twice': (claim) => [...claim, ...claim.slice(0, 1)],
  'one twice in the place of another': (claim) => [...claim.slice(1), ...claim.slice(1, 2)],
  "another claim's in the place of one": ([first, ...rest], [of]) =>
    first === undefined ? [] : [...rest, { ...first, id: of?.id ?? '0' }],
  "another claim's, too": (claim, [of]) => [
    ...claim,
    { id: of?.id ?? '0', leaseToken: claim[0]?.leaseToken ?? '0' },
  ],
  "another claim's token": (claim, [of]) =>
    claim.map(({ id }) => ({ id, leaseToken: of?.leaseToken ?? '0' })),
};

interface Step {
  readonly what: string;
  /** Which claim, or of what shape. */
  readonly which: number;
  /** Every how manieth of its jobs. */
  readonly nth: number;
  readonly how: EndOf;
  readonly part: string;
  readonly transaction: string;
}

/** Often what a claim and its end are made of; seldom what rewrites the table. */
const what = fc.constantFrom(
  ...['put', 'put', 'claim', 'claim', 'claim', 'claim as before', 'extend', 'extend', 'extend', 'checkpoint'],
  ...['end', 'end', 'end', 'end', 'end', 'end', 'end', 'end', 'retry', 'release', 'reap', 'look', 'cancel'],
  ...['vacuum', 'rewrite', 'note', 'save', 'restore', 'restore', 'forge', 'forge', 'forget'],
);
const steps = fc.array(
  fc.record<Step>({
    ...{ what, which: fc.nat(1_000), nth: fc.integer({ min: 1, max: 4 }), how: fc.constantFrom(...WRITES) },
    part: fc.oneof({ weight: 2, arbitrary: fc.constant('whole') }, fc.constantFrom(...Object.keys(PARTS))),
    transaction: fc.constantFrom('alone', 'alone', ...Object.keys(TRANSACTIONS)),
  }),
  { minLength: 10, maxLength: 40, size: 'max' },
);

const PUT: readonly string[] = [
  `insert into unbroker.jobs (kind, payload) select 'a', to_jsonb(n) from generate_series(1, 25) n`,
  `insert into unbroker.jobs (kind, payload, priority) select 'a', to_jsonb(n), n % 3 from generate_series(1, 25) n`,
  `insert into unbroker.jobs (kind, payload, body) select 'a', null, '\\x00ff1e' from generate_series(1, 15)`,
  // A page holds few of these, so that versions go to other pages.
  `insert into unbroker.jobs (kind, payload) select 'a', to_jsonb(repeat(md5(n::text), 50)) from generate_series(1, 15) n`,
  `insert into unbroker.jobs (kind, payload, ordering_key) select 'a', to_jsonb(n), 'k' || n % 12 from generate_series(1, 15) n`,
];

// As pg_restore does it: rows as they were, wherever they come to stand.
const RESTORE = `
begin;
set local session_replication_role = replica;
truncate unbroker.jobs;
insert into unbroker.jobs overriding system value select * from pg_temp.saved order by md5(id::text || $);
commit`;

/** Plays the steps; how many ends were found by place. */
async function play(list: readonly Step[]): Promise<number> {
  // Where the play before failed within a transaction.
  await session.query('rollback');
  await db.clear();
  await session.query('drop table if exists pg_temp.saved');
  for (const put of PUT.slice(0, 2)) await session.query(put);
  const claims = [await claimMany(12), await claimMany(23)];
  let saved = false;
  let byPlace = 0;
  const keep = (jobs: readonly Held[]): void => {
    for (const token of new Set(jobs.map(({ leaseToken }) => leaseToken)))
      claims.push(jobs.filter(({ leaseToken }) => leaseToken === token).map(heldOf));
  };
  for (const { what: step, which, nth, how, part, transaction } of list) {
    const claim = claims[which % claims.length] ?? [];
    const other = claims[(which + 1) % claims.length] ?? [];
    const some = claim.filter((_, i) => i % nth === which % nth);
    switch (step) {
      case 'put':
        await session.query(PUT[which % PUT.length] ?? '');
        break;
      case 'claim':
        keep(await claimMany(10 + (which % 25)));
        break;
      case 'claim as before':
        // It says nothing of places, as what older workers call.
        keep(await db.claim('a', { total: 10 + (which % 25), db: session }));
        break;
      case 'extend':
        await store.extend(session, some, 60_000);
        break;
      case 'checkpoint':
        for (const held of some.slice(0, 3))
          await store.checkpoint(session, held, JSON.stringify('x'.repeat(100 * (which % 40))));
        break;
      case 'retry':
        await store.retry(
          session,
          some.map((held) => ({ ...held, delayMs: 0, name: 'Error', message: 'no' })),
        );
        break;
      case 'release':
        await store.release(session, some);
        break;
      case 'reap':
        await db.expire(some.map(({ id }) => id));
        await store.reap(session, 1_000);
        // Those are claimed alone; here they shall come with others again.
        await session.query('update unbroker.jobs set solo = false where solo');
        break;
      case 'look':
        // The reaper meets a claim whose leases were extended: it leaves the jobs, and names those that still run.
        await session.query(
          `update unbroker.claims set ends_at = now() - interval '1 second' where token = $1`,
          [claim[0]?.leaseToken],
        );
        await store.reap(session, 1_000);
        break;
      case 'cancel':
        await store.cancel(
          session,
          some.map(({ id }) => id),
        );
        break;
      case 'vacuum':
        await session.query('vacuum unbroker.jobs');
        break;
      case 'rewrite':
        await session.query(
          which % 2 === 0 ? 'vacuum full unbroker.jobs' : 'cluster unbroker.jobs using jobs_pkey',
        );
        break;
      case 'note':
        await session.query('select unbroker.note_running()');
        break;
      case 'save':
        await session.query(
          'drop table if exists pg_temp.saved; create temp table saved as table unbroker.jobs',
        );
        saved = true;
        break;
      case 'restore':
        if (saved) await session.query(RESTORE.replace('$', () => `'${which}'`));
        break;
      case 'forge':
        // Every row that there is, and places that there are not: whatever the hint says, the fence decides.
        await session.query(
          `update unbroker.claims set places = (
             select array_agg(ctid order by md5(id::text || $1)) || '{"(4000000,1)","(0,2000)"}'::tid[] from unbroker.jobs)
           where token % $2::int = 0`,
          [String(which), nth],
        );
        break;
      case 'forget':
        await session.query('delete from unbroker.claims where token = $1', [claim[0]?.leaseToken]);
        break;
      default: {
        const ended = PARTS[part]?.(claim, other) ?? [];
        if (ended.length > 1 && (await endAndCompare(how, ended, transaction))) byPlace += 1;
      }
    }
  }
  return byPlace;
}

test(
  `${RUNS} random lives: by places ends what would end by ids, and nothing else`,
  async () => {
    let byPlace = 0;
    await fc.assert(
      fc.asyncProperty(steps, async (list) => {
        byPlace += await play(list);
      }),
      {
        numRuns: RUNS,
        endOnFailure: false,
      },
    );
    expect(byPlace).toBeGreaterThan(RUNS / 2);
  },
  LONG ? 3_600_000 : 120_000,
);

/** How often this session looked a job up by its id while it did this, in a transaction of its own. */
async function looksById(act: () => Promise<unknown>): Promise<number> {
  const looks = async (): Promise<number> => {
    const { rows } = await session.client.query<{ looks: string }>(
      `select pg_stat_get_xact_numscans('unbroker.jobs_pkey'::regclass) as looks`,
    );
    return Number(rows[0]?.looks);
  };
  await session.query('begin');
  // From an end before, too, as long as it was not reported.
  const before = await looks();
  await act();
  const made = (await looks()) - before;
  await session.query('commit');
  return made;
}

describe.each(WRITES)('%s', (how) => {
  const over = (count: number): Record<string, number> => (how === 'complete' ? { done: count } : {});
  const claimsLeft = async (): Promise<number> =>
    (await session.query('select from unbroker.claims')).rows.length;

  test.each([
    ['in the order of the claim', (claim: readonly Held[]) => claim],
    ['by id', PARTS['by id'] as (claim: readonly Held[]) => readonly Held[]],
    [
      'in the order in which they happen to end',
      (claim: readonly Held[]) => [...claim.slice(7), ...claim.slice(0, 7)],
    ],
  ])('looks up none by its id, %s', async (_order, ended) => {
    for (const put of PUT.slice(0, 4)) await session.query(put);
    const claim = await claimMany(1_000);
    expect(claim).toHaveLength(80);
    expect(idsOf(claim)).not.toEqual(claim.map(({ id }) => id));
    let answer: string[] = [];
    expect(
      await looksById(async () => {
        answer = await end(how, ended(claim));
      }),
    ).toBe(0);
    expect(sorted(answer)).toEqual(idsOf(claim));
    expect(await db.states()).toEqual(over(80));
    expect(await claimsLeft()).toBe(0);
  });

  test.each([
    ['as a server says', 'jit = off'],
    ['no scans by place', 'enable_tidscan = off'],
    ['no index scans', 'enable_indexscan = off'],
    ['dear random pages', 'random_page_cost = 10000'],
  ])(
    'planned on an empty table reads few pages of a full one, also of what moved: %s',
    async (_name, setting) => {
      await session.query('vacuum analyze unbroker.jobs');
      const planned = await db.session();
      await planned.query(`set ${setting}`);
      for (let i = 0; i < 6; i += 1) {
        await db.put('a', Array(10).fill(0));
        const few = await claimMany(10);
        if (i > 2) await store.extend(session, few.slice(0, 1), 60_000);
        await end(how, few, planned);
        await db.clear();
      }
      await session.query(
        `insert into unbroker.jobs (kind, payload) select 'b', to_jsonb(repeat('x', 500)) from generate_series(1, 8000) n`,
      );
      await db.put('a', Array(60).fill(0));
      for (const moved of [0, 2]) {
        const claim = await claimMany(30);
        await store.extend(session, claim.slice(0, moved), 60_000);
        // Each some of its own and of its indexes; the table alone has more than 1,000.
        expect(await ownPages(planned, () => end(how, claim, planned))).toBeLessThan(700);
      }
      await planned.end();
    },
  );

  /** Compiling and planning anew cost time, and no pages; without the last the pages above were as few. */
  test('pins what no count of pages shows', async () => {
    const name = how === 'complete' ? 'finish_of' : 'remove_of';
    const { rows } = await session.client.query<{ proconfig: string[] }>(
      'select proconfig from pg_proc where oid = $1::regproc',
      [`unbroker.${name}`],
    );
    expect(rows[0]?.proconfig).toEqual(
      expect.arrayContaining(['jit=off', 'plan_cache_mode=force_generic_plan', 'enable_tidscan=on']),
    );
  });

  test('of rows that moved, finds those by their ids', async () => {
    await db.put('a', Array(20).fill(0));
    const claim = await claimMany(20);
    const { rows } = await session.client.query<{ id: string; place: string }>(
      'select id::text, ctid::text as place from unbroker.jobs',
    );
    expect(await store.extend(session, claim.slice(3, 5), 60_000)).toHaveLength(2);
    const moved = await session.client.query<{ id: string; place: string }>(
      'select id::text, ctid::text as place from unbroker.jobs',
    );
    const places = new Map(rows.map(({ id, place }) => [id, place]));
    expect(idsOf(claim.slice(3, 5))).toEqual(
      sorted(moved.rows.filter(({ id, place }) => places.get(id) !== place).map(({ id }) => id)),
    );
    let answer: string[] = [];
    expect(
      await looksById(async () => {
        answer = await end(how, claim);
      }),
    ).toBeGreaterThan(0);
    expect(sorted(answer)).toEqual(idsOf(claim));
    expect(await db.states()).toEqual(over(20));
    expect(await claimsLeft()).toBe(0);
  });

  test('ends no job of another, wherever the places point', async () => {
    await db.put('a', Array(60).fill(0));
    const [claim, other] = [await claimMany(20), await claimMany(20)];
    await session.query('update unbroker.claims set places = (select array_agg(ctid) from unbroker.jobs)');
    expect(sorted(await end(how, claim))).toEqual(idsOf(claim));
    expect(await db.states()).toEqual({ ...over(20), running: 20, ready: 20 });
    expect(sorted(await end(how, other))).toEqual(idsOf(other));
  });

  test('ends only those that are named, also when they are as many as those of the claim', async () => {
    await db.put('a', Array(40).fill(0));
    const [claim, other] = [await claimMany(20), await claimMany(20)];
    const [{ leaseToken }] = claim as [Held];
    const foreign = other.map(({ id }) => ({ id, leaseToken }));
    expect(await end(how, foreign)).toEqual([]);
    expect(sorted(await end(how, [...claim.slice(2), ...foreign.slice(0, 2)]))).toEqual(
      idsOf(claim.slice(2)),
    );
    expect(await end(how, [...Array(19).fill(claim[1]), claim[2]])).toEqual([claim[1]?.id]);
    expect(await db.states()).toEqual({ ...over(19), running: 21 });
    expect(await end(how, claim)).toEqual([claim[0]?.id]);
    expect(await claimsLeft()).toBe(1);
  });

  test.each([
    ['where the claim left it', false],
    ['and that moved', true],
  ])('is refused for a row that somebody holds, %s, and writes the others then', async (_where, moved) => {
    await db.put('a', Array(20).fill(0));
    const claim = await claimMany(20);
    const one = claim[7] as Held;
    if (moved) await store.extend(session, [one], 60_000);
    const holder = await db.session();
    await holder.query('begin');
    await holder.query('select from unbroker.jobs where id = $1 for update', [one.id]);
    const began = performance.now();
    await expect(end(how, claim)).rejects.toMatchObject({ code: '55P03' });
    expect(performance.now() - began).toBeGreaterThan(490);
    expect(await db.states()).toEqual({ running: 20 });
    const free = how === 'complete' ? 'completeFree' : 'completeAndRemoveFree';
    const written = await store[free](
      session,
      claim.map((held) => ({ ...held, resultText: null })),
    );
    expect(sorted(written)).toEqual(idsOf(claim.filter((held) => held !== one)));
    await holder.query('rollback');
    await holder.end();
    expect(await end(how, claim)).toEqual([one.id]);
    expect(await db.states()).toEqual(over(20));
    expect(await claimsLeft()).toBe(0);
  });

  /** Until it is not refused because the other was slower than half a second. */
  const endAgain = async (claim: readonly Held[], on: Queryable): Promise<string[]> => {
    for (;;)
      try {
        return await end(how, claim, on);
      } catch (error) {
        if ((error as { code?: string }).code !== '55P03') throw error;
      }
  };

  test('twice at once is once', async () => {
    await db.put('a', Array(20).fill(0));
    const claim = await claimMany(20);
    const [first, second] = [await db.session(), await db.session()];
    await first.query('begin');
    expect(idsOf(claim)).toEqual(sorted(await end(how, claim, first)));
    const again = endAgain(claim, second);
    await second.untilBlocked();
    await first.query('commit');
    expect(await again).toEqual([]);
    expect(await db.states()).toEqual(over(20));
    await Promise.all([first.end(), second.end()]);
  });

  test('waits for an extension, and ends what it extended', async () => {
    await db.put('a', Array(20).fill(0));
    const claim = await claimMany(20);
    const [first, second] = [await db.session(), await db.session()];
    await first.query('begin');
    await store.extend(first, claim.slice(5, 8), 60_000);
    const ended = endAgain(claim, second);
    await second.untilBlocked();
    await first.query('commit');
    expect(sorted(await ended)).toEqual(idsOf(claim));
    expect(await db.states()).toEqual(over(20));
    await Promise.all([first.end(), second.end()]);
  });

  test('waits for whoever gives one back and claims it again, and leaves it', async () => {
    await db.put('a', Array(20).fill(0));
    const claim = await claimMany(20);
    const [first, second] = [await db.session(), await db.session()];
    await first.query('begin');
    await store.release(first, claim.slice(5, 6));
    const [next] = (await claimMany(10, first)) as [Held];
    expect(next.id).toBe(claim[5]?.id);
    const ended = endAgain(claim, second);
    await second.untilBlocked();
    await first.query('commit');
    expect(sorted(await ended)).toEqual(idsOf(claim.filter(({ id }) => id !== next.id)));
    expect(await db.states()).toEqual({ ...over(19), running: 1 });
    expect((await rowsById()).get(next.id)).toMatchObject({ lease_token: Number(next.leaseToken) });
    await Promise.all([first.end(), second.end()]);
  });

  test('of all that the reaper left of a claim ends none that came back with a restored table', async () => {
    await db.put('a', Array(20).fill(0));
    const claim = await claimMany(20);
    await session.query('drop table if exists pg_temp.saved; create temp table saved as table unbroker.jobs');
    const [back, ...rest] = claim as [Held, ...Held[]];
    await store.retry(session, [{ ...back, delayMs: 0, name: 'Error', message: 'no' }]);
    // Their leases go on, but the claim is due for a look: it then names only those.
    await session.query(`update unbroker.claims set ends_at = now() - interval '1 second'`);
    await store.reap(session, 100);
    await session.query(RESTORE.replace('$', "'1'"));
    await session.query(`update unbroker.claims set places = (select array_agg(ctid) from unbroker.jobs)`);
    expect(sorted(await end(how, rest))).toEqual(idsOf(rest));
    expect((await rowsById()).get(back.id)).toMatchObject({ state: 'running' });
  });
});

test('a claim says where it left each row without a key; of what stands elsewhere, nothing', async () => {
  for (const put of PUT) await session.query(put);
  const claim = await claimMany(1_000);
  const { rows } = await session.query(
    `select c.token::text, cardinality(c.ids) as size, cardinality(c.places) as places,
            (select count(*)::int from unbroker.jobs j where j.ctid = any (c.places) and j.lease_token = c.token) as there
     from unbroker.claims c order by c.token`,
  );
  const tokens = [...new Set(claim.map(({ leaseToken }) => leaseToken))].sort(
    (a, b) => Number(a) - Number(b),
  );
  const sizes = tokens.map((token) => claim.filter(({ leaseToken }) => leaseToken === token).length);
  expect(rows).toEqual(
    tokens.map((token, i) =>
      sizes[i] === 80
        ? { token, size: 80, places: 80, there: 80 }
        : { token, size: sizes[i], places: null, there: 0 },
    ),
  );
  expect(sizes).toContain(80);
  expect(sizes.length).toBeGreaterThan(1);
});
