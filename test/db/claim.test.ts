/** Which jobs a claim takes, how many, in which order, and what it writes; also under plans that tempt it to more. */
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import { jobsDatabase } from '../support/jobs.js';

const db = await jobsDatabase();
afterAll(() => db.close());
beforeEach(() => db.clear());

const payloads = (jobs: readonly { payloadText: string | null }[]) =>
  jobs.map((job) => JSON.parse(job.payloadText ?? ''));

describe('what is taken', () => {
  test('due and ready jobs of the kinds asked for; everything else is left as it is', async () => {
    const [due] = await db.put('a', [1]);
    await db.put('a', [2], { delayMs: 60_000 });
    await db.put('unknown', [3]);
    await db.pool.query(`
      insert into unbroker.jobs (kind, payload, cron, state, finished_at) values
        ('a', '4', '* * * * *', 'ready', null), ('a', '5', null, 'done', now()), ('a', '6', null, 'dead', now()),
        ('a', '7', null, 'cancelled', now())`);
    const untouched = `select to_jsonb(j) as row from unbroker.jobs j where id <> $1 order by id`;
    const before = await db.pool.query(untouched, [due]);
    const claimed = await db.claim(['a', 'b']);
    expect(claimed.map(({ id }) => id)).toEqual([due]);
    expect(await db.claim(['a', 'b'])).toEqual([]);
    expect((await db.pool.query(untouched, [due])).rows).toEqual(before.rows);
  });

  test('higher priority first, then the longest due, then the oldest', async () => {
    for (const [payload, priority, delayMs] of [
      ['late low', -5, 0],
      ['early high', 7, 0],
      ['middle', 0, 0],
      ['late high', 7, 0],
    ] as const)
      await db.put('a', [payload], { priority, delayMs });
    await db.put('a', ['longest due'], { runAt: new Date(Date.now() - 3_600_000) });
    await db.pool.query('analyze unbroker.jobs');
    const order: unknown[] = [];
    for (let i = 0; i < 5; i += 1) order.push(...payloads(await db.claim('a', { total: 1 })));
    expect(order).toEqual(['early high', 'late high', 'longest due', 'middle', 'late low']);
  });

  test('at most the limit of each kind and the total of all, in the order of the demands', async () => {
    for (const kind of ['a', 'b', 'c']) await db.put(kind, [1, 2, 3, 4]);
    const demands = [
      { kind: 'b', limit: 2, park: false },
      { kind: 'a', limit: 0, park: false },
      { kind: 'c', limit: 4, park: false },
      { kind: 'nothing', limit: 9, park: false },
    ];
    const claimed = await db.store.claim(db.pool, demands, 5, 'w', 1_000);
    expect(claimed.map(({ kind }) => kind).sort()).toEqual(['b', 'b', 'c', 'c', 'c']);
    expect(await db.store.claim(db.pool, demands, 0, 'w', 1_000)).toEqual([]);
    expect(await db.store.claim(db.pool, [], 5, 'w', 1_000)).toEqual([]);
  });

  test('a kind that waits in the future hides no other, nor a lower priority', async () => {
    await db.put('a', [1, 2], { priority: 9, delayMs: 60_000 });
    await db.put('a', [3], { priority: 1 });
    await db.put('b', [4]);
    expect(payloads(await db.claim(['a', 'b']))).toEqual([3, 4]);
  });
});

describe('what is written', () => {
  test('attempts, a fresh token, the worker and the lease, all at the claim', async () => {
    const [id] = (await db.put('a', [{ x: 1 }], { headers: { h: 1 }, source: 's', maxAttempts: 3 })) as [
      string,
    ];
    const [job] = await db.claim('a', { leaseMs: 60_000, worker: 'host:1' });
    expect(job).toMatchObject({
      id,
      kind: 'a',
      payloadText: '{"x": 1}',
      attempt: 1,
      maxAttempts: 3,
      headers: { h: 1 },
      source: 's',
    });
    const row = await db.job(id);
    expect(row).toMatchObject({ state: 'running', attempts: 1, lockedBy: 'host:1', finishedAt: null });
    const { rows } = await db.pool.query(
      `select lease_token::text as token, extract(epoch from locked_until - clock_timestamp()) as left from unbroker.jobs`,
    );
    expect(rows[0].token).toBe(job?.leaseToken);
    expect(Number(rows[0].left)).toBeGreaterThan(55);
    expect(Number(rows[0].left)).toBeLessThanOrEqual(60);
  });

  test('tokens rise from claim to claim, also of the same job', async () => {
    await db.put('a', [1, 2, 3]);
    const tokens: bigint[] = [];
    for (let i = 0; i < 4; i += 1) {
      const jobs = await db.claim('a');
      expect(jobs).toHaveLength(3);
      tokens.push(...jobs.map((job) => BigInt(job.leaseToken)));
      await db.store.release(db.pool, jobs);
    }
    expect(new Set(tokens).size).toBe(4);
    const rounds = [0, 3, 6, 9].map((start) => tokens.slice(start, start + 3));
    for (const [index, round] of rounds.entries()) {
      const later = rounds.slice(index + 1).flat();
      expect(later.every((token) => round.every((earlier) => earlier < token))).toBe(true);
    }
  });

  test('in a transaction that has waited the lease still has its whole length', async () => {
    const [id] = (await db.put('a', [1])) as [string];
    const session = await db.session();
    await session.query('begin');
    await session.query('select pg_sleep(0.5)');
    await db.claim('a', { leaseMs: 400, db: session });
    const { rows } = await session.query(
      `select extract(epoch from locked_until - now()) * 1000 as ms from unbroker.jobs where id = $1`,
      [id],
    );
    await session.query('commit');
    // now() is when the transaction began.
    expect(Number((rows[0] as { ms: string }).ms)).toBeGreaterThanOrEqual(900);
  });

  test('park is remembered on the row, per kind', async () => {
    await db.put('a', [1]);
    await db.put('b', [1]);
    const demands = [
      { kind: 'a', limit: 5, park: true },
      { kind: 'b', limit: 5, park: false },
    ];
    await db.store.claim(db.pool, demands, 10, 'w', 1_000);
    const { rows } = await db.pool.query(
      'select kind, on_lease_expired as on from unbroker.jobs order by kind',
    );
    expect(rows).toEqual([
      { kind: 'a', on: 'park' },
      { kind: 'b', on: null },
    ]);
  });

  test('dates, numbers and bytes come out exactly', async () => {
    await db.pool.query(
      `insert into unbroker.jobs (kind, payload, body, content_type, run_at) values
         ('a', '{"n": 9007199254740993, "x": 1.10}', null, null, '2020-01-02T03:04:05.678Z'),
         ('b', null, '\\x00ff80', 'application/octet-stream', now())`,
    );
    const [a, b] = await db.claim(['a', 'b']);
    expect(a?.payloadText).toBe('{"n": 9007199254740993, "x": 1.10}');
    expect(a?.runAtMs).toBe(Date.parse('2020-01-02T03:04:05.678Z'));
    expect(b).toMatchObject({ payloadText: null, contentType: 'application/octet-stream' });
    expect(b?.body?.toString('hex')).toBe('00ff80');
  });
});

describe('jobs that must run alone', () => {
  test('an ordinary claim passes them by; the solo claim takes exactly one, the longest due first', async () => {
    const ids = await db.put('a', [1, 2, 3]);
    await db.pool.query(
      `update unbroker.jobs set solo = true, run_at = now() - id * interval '1 second' where id = any ($1)`,
      [ids.slice(1)],
    );
    expect((await db.claim('a')).map(({ id }) => id)).toEqual(ids.slice(0, 1));
    const demand = [{ kind: 'a', limit: 1, park: true }];
    expect(await db.store.soloWaiting(db.pool, ['a'])).toBe(true);
    expect(await db.store.soloWaiting(db.pool, ['b'])).toBe(false);
    const solo = await db.store.claimSolo(db.pool, demand, 'w', 60_000);
    expect(solo).toMatchObject({ id: ids[2], attempt: 1 });
    const { rows } = await db.pool.query('select on_lease_expired as on from unbroker.jobs where id = $1', [
      ids[2],
    ]);
    expect(rows).toEqual([{ on: 'park' }]);
    expect((await db.store.claimSolo(db.pool, demand, 'w', 60_000))?.id).toBe(ids[1]);
    expect(await db.store.claimSolo(db.pool, demand, 'w', 60_000)).toBeNull();
    expect(await db.store.soloWaiting(db.pool, ['a'])).toBe(false);
  });

  test('of kinds that nobody here knows, or not yet due, none is taken', async () => {
    await db.put('a', [1, 2]);
    await db.pool.query(`update unbroker.jobs set solo = true, run_at = now() + interval '1 hour'`);
    expect(await db.store.claimSolo(db.pool, [{ kind: 'a', limit: 1, park: false }], 'w', 1_000)).toBeNull();
    await db.pool.query(`update unbroker.jobs set run_at = now(), kind = 'unknown'`);
    expect(await db.store.claimSolo(db.pool, [{ kind: 'a', limit: 1, park: false }], 'w', 1_000)).toBeNull();
  });
});

describe('never more than asked for', () => {
  /** Every way of joining that the planner may be left with; some re-evaluate a subquery for each outer row. */
  const switches = [
    'hashjoin',
    'mergejoin',
    'nestloop',
    'material',
    'sort',
    'indexscan',
    'seqscan',
    'memoize',
  ];
  const plans = switches
    .map((off) => [off])
    .concat([
      ['hashjoin', 'mergejoin', 'material'],
      ['hashjoin', 'mergejoin', 'material', 'sort'],
      ['hashjoin', 'mergejoin', 'material', 'sort', 'indexscan', 'indexonlyscan', 'bitmapscan'],
      ['nestloop', 'hashjoin'],
      ['nestloop', 'mergejoin', 'indexscan', 'bitmapscan'],
      switches,
    ]);

  test.each(plans)('one of fifty, with %s off', async (...off: string[]) => {
    await db.put('a', Array(50).fill(0));
    await db.put('a', Array(50).fill(0), { priority: 3 });
    const session = await db.session();
    const { rows } = await session.query(`select name from pg_settings where name like 'enable\\_%'`);
    const known = new Set((rows as { name: string }[]).map(({ name }) => name));
    for (const name of off) if (known.has(`enable_${name}`)) await session.query(`set enable_${name} = off`);
    for (const total of [1, 7]) {
      expect(await db.claim('a', { total, db: session })).toHaveLength(total);
      expect((await db.states())['running']).toBe(total === 1 ? 1 : 8);
    }
    await db.pool.query(`update unbroker.jobs set solo = true where state = 'ready'`);
    await db.store.claimSolo(session, [{ kind: 'a', limit: 1, park: false }], 'w', 1_000);
    expect((await db.states())['running']).toBe(9);
    await session.end();
  });
});
