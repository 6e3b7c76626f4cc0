/** The job exists if and only if the caller's transaction commits, exactly as it was given, whoever puts it in. */
import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { createEnqueue, type EnqueueOptions, enqueue, enqueueMany } from '../../src/enqueue.js';
import { enqueueStore, LOOK_EVERY_MS } from '../../src/jobs/enqueue-store.js';
import { LIMITS, type PreparedJob, type Queryable } from '../../src/jobs/job.js';
import { Prepared } from '../../src/jobs/prepared.js';
import { createStore } from '../../src/jobs/store.js';
import { migrate, readMigrations } from '../../src/migrate.js';
import { schedule } from '../../src/schedules.js';
import { startFaultProxy } from '../support/fault-proxy.js';
import { jobsDatabase } from '../support/jobs.js';

const db = await jobsDatabase();
await db.pool.query('create table orders (id int primary key)');
afterAll(() => db.close());
beforeEach(async () => {
  await db.clear();
  await db.pool.query('truncate orders');
});

const orders = async (): Promise<number> =>
  (await db.pool.query('select count(*)::int as n from orders')).rows[0].n;
const jobs = async (): Promise<number> =>
  (await db.pool.query('select count(*)::int as n from unbroker.jobs')).rows[0].n;
/** Of a statement that breaks a rule of the table. */
const refusal = async (statement: string): Promise<unknown> => {
  const error = await db.pool.query(statement).catch((caught: unknown) => caught);
  expect(error, statement).toMatchObject({ code: '23514', schema: 'unbroker', table: 'jobs' });
  return error;
};

describe('the caller’s transaction', () => {
  test.each(['commit', 'rollback'])('%s decides about both rows', async (end) => {
    const tx = await db.session();
    await tx.query('begin');
    await tx.query('insert into orders values (1)');
    await enqueue(tx, 'order.receipt', { orderId: 1 });
    await enqueueMany(tx, [{ kind: 'a' }, { kind: 'b' }]);
    await tx.query(end);
    expect([await orders(), await jobs()]).toEqual(end === 'commit' ? [1, 3] : [0, 0]);
  });

  test('a savepoint that is rolled back takes its job along, and only that', async () => {
    const tx = await db.session();
    await tx.query('begin');
    await enqueue(tx, 'kept');
    await tx.query('savepoint s');
    await enqueue(tx, 'dropped');
    await tx.query('rollback to s');
    await tx.query('commit');
    const { rows } = await db.pool.query('select kind from unbroker.jobs');
    expect(rows).toEqual([{ kind: 'kept' }]);
  });

  test.each([
    ['nothing', undefined],
    ['another library’s handle', Object.assign(() => {}, { raw: () => {} })],
    ['a kind, without a handle before it', 'mail.send'],
  ])('%s in the place of the connection is refused with the next step', async (_what, handle) => {
    const tx = handle as unknown as Queryable;
    await expect(enqueue(tx, 'k', 1)).rejects.toThrow(/must be a Client.*fromKnex\(trx\)/s);
    await expect(enqueueMany(tx, [{ kind: 'k' }])).rejects.toThrow(/must be a Client/);
  });

  test.each([
    ['TypeORM', 'fromTypeorm', ['query', 'createQueryBuilder']],
    ['TypeORM', 'fromTypeorm', ['query', 'startTransaction', 'clearSqlMemory']],
    ['pg-promise', 'fromPgPromise', ['query', 'oneOrNone', 'manyOrNone', 'result']],
    ['Sequelize', 'fromSequelize', ['query', 'getQueryInterface']],
  ])(
    'a handle of %s, whose query answers a list, is refused before it is sent anything',
    async (is, from, methods) => {
      const query = vi.fn(
        async (text: string, values?: unknown[]) => (await db.pool.query(text, values)).rows,
      );
      const handle = Object.fromEntries(methods.map((name) => [name, query])) as unknown as Queryable;
      const said = new RegExp(`a handle of ${is}.*transactions.md.*${from}`);
      await expect(enqueue(handle, 'k')).rejects.toThrow(said);
      await expect(enqueueMany(handle, [{ kind: 'k' }])).rejects.toThrow(said);
      await expect(schedule(handle, { name: 's', kind: 'k', everyMs: 60_000 })).rejects.toThrow(said);
      expect(query).not.toHaveBeenCalled();
    },
  );

  test('another whose query answers a list: said with the next step', async () => {
    const query = async (text: string, values?: unknown[]) => (await db.pool.query(text, values)).rows;
    const handle = { query } as unknown as Queryable;
    const error = {
      name: 'UnbrokerError',
      code: 'answer-unusable',
      hint: expect.stringContaining('{ rows }'),
    };
    await expect(enqueue(handle, 'k')).rejects.toMatchObject(error);
    await expect(enqueueMany(handle, [{ kind: 'k' }])).rejects.toMatchObject(error);
  });

  test('what is refused is refused before anything is sent: the transaction goes on', async () => {
    const tx = await db.session();
    await tx.query('begin');
    await tx.query('insert into orders values (1)');
    const wrong: readonly (() => Promise<unknown>)[] = [
      () => enqueue(tx, 'k', { n: 1n }),
      () => enqueue(tx, 'k', 'a\u0000b'),
      () => enqueue(tx, 'k', '\ud800'),
      () => enqueue(tx, 'k', new Date()),
      () => enqueue(tx, ''),
      () => enqueue(tx, 'k', 1, { runAt: new Date(-8.64e15) }),
      () => enqueue(tx, 'k', 1, { priority: 40_000 }),
      () => enqueue(tx, 'k', 1, { maxAttempts: 0 }),
      () => enqueue(tx, 'k', 1, { dedupeKey: '' }),
      () => enqueue(tx, 'k', 'x'.repeat(LIMITS.payloadBytes)),
      () => enqueueMany(tx, [{ kind: 'fine' }, { kind: 'k', payload: Number.NaN }]),
    ];
    for (const act of wrong) await expect(act()).rejects.toThrow(TypeError);
    await enqueue(tx, 'k', 'fine');
    await tx.query('commit');
    expect([await orders(), await jobs()]).toEqual([1, 1]);
  });

  test('its search_path and its settings do not matter', async () => {
    const tx = await db.session();
    await tx.query(`create schema trap; create table trap.jobs (id int); set search_path = trap, pg_catalog`);
    await tx.query(`set datestyle = 'SQL, DMY'; set timezone = 'Asia/Kathmandu'; set extra_float_digits = 0`);
    const runAt = new Date('2031-02-03T04:05:06.789Z');
    const { id } = await enqueue(tx, 'a', { x: 0.1 }, { runAt });
    expect(await db.job(id)).toMatchObject({ runAt, payloadText: '{"x": 0.1}' });
    await tx.end();
  });

  test('no session state is left behind: no prepared statement, lock, listener or setting', async () => {
    const tx = await db.session();
    await enqueue(tx, 'a', 1, { dedupeKey: 'k' });
    await enqueue(tx, 'a', 1, { dedupeKey: 'k' });
    await enqueueMany(tx, [{ kind: 'a', dedupeKey: 'k' }, { kind: 'a' }]);
    const { rows } = await tx.query(`
      select (select count(*)::int from pg_prepared_statements) as prepared,
             (select count(*)::int from pg_locks where pid = pg_backend_pid() and locktype = 'advisory') as advisory,
             (select count(*)::int from pg_listening_channels()) as channels,
             (select count(*)::int from pg_settings where source = 'session') as settings`);
    expect(rows).toEqual([{ prepared: 0, advisory: 0, channels: 0, settings: 0 }]);
  });
});

describe('with its statement prepared', () => {
  // Between two questions for the time so much has passed that the next job looks for a sleeper again.
  let at = performance.now();
  let stepMs = LOOK_EVERY_MS;
  beforeEach(() => {
    stepMs = LOOK_EVERY_MS;
    vi.spyOn(performance, 'now').mockImplementation(() => (at += stepMs));
  });
  afterEach(() => void vi.restoreAllMocks());

  const prepared = (tx: Queryable) =>
    tx.query(
      `select count(*)::int as names from pg_prepared_statements where starts_with(name, 'unbroker_')`,
    );
  const connect = async (url: string): Promise<pg.Client> => {
    const client = new pg.Client({ connectionString: url });
    client.on('error', () => {});
    await client.connect();
    return client;
  };

  test('by itself, from the second job on, where the server sees what the client of pg sees', async () => {
    const client = await connect(db.url);
    await client.query('begin');
    await enqueue(client, 'a', 1);
    expect((await prepared(client)).rows).toEqual([{ names: 0 }]);
    for (const options of [{}, { priority: 3 }, { maxAttempts: 2 }, { dedupeKey: 'k' }, { dedupeKey: 'l' }])
      await enqueue(client, 'a', 1, options);
    // The connection's first, with a priority, with a number of attempts, with a key.
    expect((await prepared(client)).rows).toEqual([{ names: 4 }]);
    await client.query('commit');
    expect(await jobs()).toBe(6);
    await client.end();
  });

  test('not through a proxy, which connects from a port of its own', async () => {
    const proxy = await startFaultProxy(db.url);
    const client = await connect(proxy.url);
    try {
      for (let n = 0; n < 4; n += 1) await enqueue(client, 'a', n);
      expect((await prepared(client)).rows).toEqual([{ names: 0 }]);
    } finally {
      await client.end();
      await proxy.close();
    }
  });

  test('nor for who says so, and code that discards what is prepared meets one error', async () => {
    const client = await connect(db.url);
    const never = createEnqueue(undefined, { prepared: false });
    for (let n = 0; n < 3; n += 1) await never.enqueue(client, 'a', n);
    expect((await prepared(client)).rows).toEqual([{ names: 0 }]);

    for (let n = 0; n < 3; n += 1) await enqueue(client, 'a', n);
    await client.query('discard all');
    await expect(enqueue(client, 'a', 'lost')).rejects.toMatchObject({ code: '26000' });
    for (let n = 0; n < 3; n += 1) await enqueue(client, 'a', n);
    expect((await prepared(client)).rows).toEqual([{ names: 0 }]);
    expect(await jobs()).toBe(9);
    await client.end();
  });

  test('a connection keeps it, once for each form of a job; the rest is as without', async () => {
    const client = createEnqueue(undefined, { prepared: true });
    const tx = await db.session();
    await tx.query('begin');
    const first = await client.enqueue(tx, 'a', { n: 1 }, { dedupeKey: 'k' });
    expect(await client.enqueue(tx, 'a', { n: 2 }, { dedupeKey: 'k' })).toEqual({
      ...first,
      inserted: false,
    });
    for (let n = 0; n < 3; n += 1) await client.enqueue(tx, 'a', { n });
    await client.enqueue(tx, 'a', 'later', { delayMs: 60_000 });
    for (let n = 0; n < 2; n += 1) {
      const many = await client.enqueueMany(tx, [{ kind: 'a' }, { kind: 'a', dedupeKey: 'k' }]);
      expect(many).toEqual([
        { id: expect.any(String), inserted: true },
        { ...first, inserted: false },
      ]);
      await client.enqueueMany(tx, [{ kind: 'a' }]);
    }
    // With a key, the connection's first, the plain one, the one with a time; lists with keys and without. Not the looks for
    // who has a key: they would be planned while the table is empty.
    expect((await prepared(tx)).rows).toEqual([{ names: 6 }]);
    expect(await jobs()).toBe(0);
    await tx.query('commit');
    expect(await jobs()).toBe(9);
    await tx.end();
  });

  test('a connection that was told just now that nobody sleeps does not look again, for so long', async () => {
    const client = createEnqueue(undefined, { prepared: true });
    const [tx, other] = [await db.session(), await db.session()];
    const looks: boolean[] = [];
    const seen: Queryable = {
      query: (...args) => {
        looks.push(JSON.stringify(args).includes('sleepers'));
        return tx.query(...args);
      },
    };
    stepMs = 0;
    for (let ms = 0; ms < LOOK_EVERY_MS; ms += 1) {
      await client.enqueue(seen, 'a');
      at += 1;
    }
    expect(looks).toEqual([true, ...Array(LOOK_EVERY_MS - 1).fill(false)]);
    await client.enqueue(seen, 'a');
    expect(looks.at(-1)).toBe(true);
    // With options: what is due goes by what was told and tells, what is not does neither.
    for (const options of [{ delayMs: 60_000 }, { maxAttempts: 2 }, { dedupeKey: 'k' }])
      await client.enqueue(seen, 'a', null, options);
    expect(looks.slice(-3)).toEqual([false, false, false]);
    at += LOOK_EVERY_MS;
    for (const options of [{ runAt: new Date(0) }, { maxAttempts: 2 }, { dedupeKey: 'l' }])
      await client.enqueue(seen, 'a', null, options);
    expect(looks.slice(-3)).toEqual([false, true, false]);
    // What another connection knows, or a job that is not due, is no answer.
    await db.pool.query(
      `insert into unbroker.sleepers values ('w', clock_timestamp() + interval '1 minute')`,
    );
    at += LOOK_EVERY_MS;
    await client.enqueue(other, 'a', null, { delayMs: 60_000 });
    for (let n = 0; n < 3; n += 1) await client.enqueue(seen, 'a');
    expect(looks.slice(-3)).toEqual([true, true, true]);
    expect(await jobs()).toBe(LOOK_EVERY_MS + 11);
    await db.pool.query('delete from unbroker.sleepers');
  });

  test('a row says that it is checked where it was; the rules’ trigger asks of every other', async () => {
    const client = createEnqueue(undefined, { prepared: true });
    const tx = await db.session();
    for (const options of [
      {},
      {},
      { priority: 1 },
      { delayMs: 1_000 },
      { dedupeKey: 'k' },
      { orderingKey: 'o' },
    ])
      await client.enqueue(tx, 'one', 1, options);
    const never = createEnqueue(undefined, { prepared: false });
    await never.enqueue(tx, 'one', 1);
    await client.enqueueMany(tx, [{ kind: 'alike' }, { kind: 'alike' }]);
    const odd = { kind: 'many', orderingKey: 'o' };
    await client.enqueueMany(tx, [{ kind: 'many', maxAttempts: 1_000 }, odd, { kind: 'many', priority: 1 }]);
    const { rows } = await db.pool.query(
      'select kind, array_agg(checked order by id) as checked from unbroker.jobs group by kind order by kind',
    );
    expect(rows).toEqual([
      { kind: 'alike', checked: [true, true] },
      { kind: 'many', checked: [true, false, true] },
      // The connection's first asks; an ordering key is left to the trigger.
      { kind: 'one', checked: [null, true, true, true, true, false, true] },
    ]);
  });

  test('of a job with options a row is checked exactly where the rules hold; what breaks one is refused by its name', async () => {
    const job: PreparedJob = { kind: 'a', payloadText: '1', delayMs: 1 };
    const fits: Partial<PreparedJob>[] = [
      {},
      { kind: 'ä'.repeat(200), maxAttempts: 1 },
      { maxAttempts: 1_000, source: '', headers: {}, retryPolicy: { type: 'fixed', delayMs: 1 } },
      { delayMs: undefined, runAt: new Date(0) },
      { dedupeKey: 'k' },
      { dedupeKey: 'ö'.repeat(500), maxAttempts: 1_000 },
    ];
    const isAsked: Partial<PreparedJob>[] = [{ orderingKey: 'o' }, { orderingKey: 'o', dedupeKey: 'o' }];
    const refused: [Partial<PreparedJob>, string][] = [
      [{ kind: '' }, 'jobs_kind'],
      [{ kind: 'k'.repeat(201) }, 'jobs_kind'],
      [{ maxAttempts: 0 }, 'jobs_attempts'],
      [{ maxAttempts: 1_001 }, 'jobs_attempts'],
      [{ payloadText: null as unknown as string }, 'jobs_input'],
      [{ orderingKey: '' }, 'jobs_ordering_key'],
      [{ orderingKey: 'o'.repeat(501) }, 'jobs_ordering_key'],
      [{ dedupeKey: '' }, 'jobs_dedupe_key'],
      [{ dedupeKey: 'd'.repeat(501) }, 'jobs_dedupe_key'],
      [{ kind: '', dedupeKey: 'k' }, 'jobs_kind'],
      [{ maxAttempts: 0, dedupeKey: 'n' }, 'jobs_attempts'],
      [{ orderingKey: '', dedupeKey: 'n' }, 'jobs_ordering_key'],
    ];
    const store = enqueueStore('unbroker');
    const tx = await db.session();
    let prepared: Prepared | undefined = new Prepared(tx);
    const put = (more: Partial<PreparedJob>) => store.enqueue(tx, { ...job, ...more }, prepared);
    const checked = async () =>
      (await db.pool.query('select checked from unbroker.jobs order by id')).rows.map((row) => row.checked);
    // As the connection's first, then as those that are told; then by a client that may not prepare.
    for (const first of [true, false]) {
      for (const [more, constraint] of refused)
        await expect(put(more), JSON.stringify(more)).rejects.toMatchObject({ code: '23514', constraint });
      if (first) await put({});
    }
    for (const by of [prepared, undefined]) {
      prepared = by;
      await db.clear();
      for (const more of fits) expect(await put(more)).toMatchObject({ inserted: true });
      expect(await checked()).toEqual(fits.map(() => true));
      await db.clear();
      for (const more of isAsked) expect(await put(more)).toMatchObject({ inserted: true });
      expect(await checked()).toEqual(isAsked.map(() => false));
    }
    for (const [more, constraint] of refused)
      await expect(put(more), JSON.stringify(more)).rejects.toMatchObject({ code: '23514', constraint });
    await tx.end();
  });

  test.each([
    ['with a time', { delayMs: 60_000 }],
    ['with a time that is past', { runAt: new Date(0) }],
  ])('nobody is woken for a job %s; who sleeps is for one that is due, once it is in', async (_, later) => {
    const client = createEnqueue(undefined, { prepared: true });
    const [tx, listener] = [await db.session(), await db.session()];
    stepMs = 0;
    let heard = 0;
    listener.client.on('notification', () => {
      heard += 1;
    });
    const hears = async (options: EnqueueOptions): Promise<number> => {
      heard = 0;
      await client.enqueue(tx, 'a', 1, options);
      // What was sent before this answer is here with it.
      await listener.query('select 1');
      return heard;
    };
    await listener.query(`listen "${db.store.channel}"`);
    await db.pool.query(
      `insert into unbroker.sleepers values ('w', clock_timestamp() + interval '1 minute')`,
    );
    const waking = [{ maxAttempts: 2 }, { orderingKey: 'o' }, { source: 's' }];
    // The first of each kind of statement, and again.
    for (const key of ['k', 'l']) {
      expect(await hears(later)).toBe(0);
      expect(await hears({ ...later, dedupeKey: `later ${key}` })).toBe(0);
      for (const options of waking) expect(await hears(options)).toBe(1);
      expect(await hears({ dedupeKey: key })).toBe(1);
      expect(await hears({ dedupeKey: key })).toBe(0);
    }
    await db.pool.query('delete from unbroker.sleepers');
    for (const options of waking) expect(await hears(options)).toBe(0);
    for (const session of [tx, listener]) await session.end();
  });

  test('on a schema before rows could say it every form goes in, and says it once it is migrated', async () => {
    const old = await jobsDatabase({ migrated: false });
    const own = readMigrations();
    try {
      await migrate(old.pool, { migrations: own.filter(({ version }) => version <= 39) });
      const client = createEnqueue(undefined, { prepared: true });
      const tx = await old.session();
      const put = async (key: string) => {
        for (const options of [{ delayMs: 1 }, { dedupeKey: key }, { orderingKey: 'o' }, {}])
          expect(await client.enqueue(tx, key, 1, options)).toMatchObject({ inserted: true });
        expect(await client.enqueue(tx, key, 1, { dedupeKey: key })).toMatchObject({ inserted: false });
      };
      await put('before');
      await put('again');
      await migrate(old.pool, { migrations: own });
      await put('migrated');
      const { rows } = await old.pool.query('select checked from unbroker.jobs order by id');
      expect(rows.map(({ checked }) => checked)).toEqual([...Array(9).fill(null), true, false, true]);
    } finally {
      await old.close();
    }
  });

  describe('by a role with the grants of before, which say nothing of `checked`', () => {
    const role = `${db.name}_before`;
    beforeAll(async () => {
      await db.pool.query(`
        create role ${role};
        grant usage on schema unbroker to ${role};
        grant insert (id, kind, payload, run_at, priority, max_attempts, dedupe_key, ordering_key, headers, source, retry_policy),
          select (id, kind, dedupe_key) on unbroker.jobs to ${role};
        grant usage on sequence unbroker.jobs_id_seq to ${role};
        grant select on unbroker.sleepers to ${role}`);
    });
    afterAll(() => db.pool.query(`drop owned by ${role}; drop role ${role}`));

    test('every way goes on; what breaks a rule is refused', async () => {
      const tx = await db.session();
      await tx.query(`set role ${role}`);
      for (const prepared of [true, false]) {
        const client = createEnqueue(undefined, { prepared });
        for (const options of [{}, {}, { priority: 1 }, { delayMs: 1 }, { dedupeKey: `of ${prepared}` }])
          await client.enqueue(tx, 'a', 1, options);
        await client.enqueueMany(tx, [{ kind: 'a' }, { kind: 'a' }]);
        await client.enqueueMany(tx, [{ kind: 'a' }, { kind: 'b' }]);
        await client.enqueueMany(tx, [{ kind: 'a' }, { kind: 'b', dedupeKey: `in ${prepared}` }]);
      }
      expect(await jobs()).toBe(22);
      await expect(tx.query(`insert into unbroker.jobs (kind, payload) values ('', '1')`)).rejects.toThrow(
        /jobs_kind/,
      );
      // Nobody else can do anything with what all were granted.
      await tx.query('reset role');
      await db.pool.query(`revoke insert (kind) on unbroker.jobs from ${role}`);
      await tx.query(`set role ${role}`);
      await expect(tx.query('insert into unbroker.jobs (checked) values (true)')).rejects.toThrow(/"kind"/);
      await tx.query('reset role');
      await db.pool.query(`grant insert (kind) on unbroker.jobs to ${role}`);
    });

    const forms: [string, EnqueueOptions][] = [
      ['plain', {}],
      ['with a time', { delayMs: 1 }],
    ];

    test.each(forms)('a session that goes from role to role loses none: %s', async (_, options) => {
      const client = createEnqueue(undefined, { prepared: true });
      const tx = await db.session();
      for (const as of ['none', 'none', role, 'none', role]) {
        await tx.query(`begin; set local role ${as}`);
        await client.enqueue(tx, 'a', as, options);
        await tx.query('commit');
      }
      const { rows } = await db.pool.query('select checked from unbroker.jobs order by id');
      expect(rows.map(({ checked }) => checked)).toEqual([null, true, true, true, true]);
    });

    test.each(forms)(
      'where it was taken from everybody, a session loses one transaction to that, not each: %s',
      async (_, options) => {
        const client = createEnqueue(undefined, { prepared: true });
        const tx = await db.session();
        await db.pool.query('revoke insert (checked) on unbroker.jobs from public');
        const outcomes: string[] = [];
        for (const as of [role, role, 'none', 'none', role, role, 'none', 'none', role]) {
          await tx.query(`begin; set local role ${as}`);
          const outcome = await client.enqueue(tx, 'a', as, options).then(
            () => 'put in',
            ({ code }) => code,
          );
          await tx.query(outcome === 'put in' ? 'commit' : 'rollback');
          outcomes.push(outcome);
        }
        await db.pool.query('grant insert (checked) on unbroker.jobs to public');
        const ok = 'put in';
        expect(outcomes).toEqual([ok, ok, ok, ok, 'permission-denied', ok, ok, ok, ok]);
        expect(await jobs()).toBe(8);
      },
    );
  });

  test.each([
    ['an empty ordering key', 'ordering_key', `''`],
    ['an ordering key that is too long', 'ordering_key', `repeat('k', 1000)`],
    ['an empty dedupe key', 'dedupe_key', `''`],
    ['no attempts', 'max_attempts', '0'],
    ['too many attempts', 'max_attempts', '2000'],
    ['no input', 'payload', 'null'],
  ])('who vouches for nonsense harms nobody else: %s', async (_what, column, value) => {
    const good = await db.put('a', [1, 2]);
    const columns = column === 'payload' ? `kind, payload, checked` : `kind, payload, ${column}, checked`;
    const values = column === 'payload' ? `'a', null, true` : `'a', '0', ${value}, true`;
    await db.pool.query(`insert into unbroker.jobs (${columns}) values (${values})`);
    const reaped = async (): Promise<Record<string, number>> => {
      await db.expire();
      await db.store.reap(db.pool, 10);
      return db.states();
    };
    // Together in each statement: claimed, reaped, ended.
    expect(await db.claim('a')).toHaveLength(3);
    expect(await reaped()).toEqual(value === '0' ? { ready: 2, dead: 1 } : { ready: 3 });
    await db.pool.query(`
      update unbroker.jobs set state = 'dead', finished_at = now(), lease_token = null, locked_until = null, locked_by = null`);
    expect(await db.states()).toEqual({ dead: 3 });
    const { rows } = await db.pool.query('select id from unbroker.jobs where dead');
    expect(rows).toHaveLength(3);
    // The same, said anew of a job that had none of it.
    await expect(
      db.pool.query(`update unbroker.jobs set kind = 'b', ${column} = ${value} where id = $1`, [good[0]]),
    ).rejects.toMatchObject({ code: '23514' });
  });

  test('what a trigger of somebody else’s kept out is no job', async () => {
    const tx = await db.session();
    await tx.query(`
      begin;
      create function public.keep_out() returns trigger language plpgsql as $$ begin return null; end $$;
      create trigger keep_out before insert on unbroker.jobs for each row execute function public.keep_out()`);
    for (const prepared of [true, false])
      for (const options of [{}, { maxAttempts: 2 }])
        await expect(
          createEnqueue(undefined, { prepared }).enqueue(tx, 'a', 1, options),
        ).rejects.toMatchObject({ code: 'not-inserted' });
    await tx.query('rollback');
  });

  test('two schemas on one connection keep theirs apart', async () => {
    await migrate(db.pool, { schema: 'team_two' });
    const tx = await db.session();
    for (const schema of ['unbroker', 'team_two'])
      await createEnqueue(schema, { prepared: true }).enqueue(tx, 'a', schema);
    expect((await prepared(tx)).rows).toEqual([{ names: 2 }]);
    await tx.end();
  });
});

describe('what is stored', () => {
  test('nothing but a kind: due now, every default as documented', async () => {
    const { id, inserted } = await enqueue(db.pool, 'a');
    expect(inserted).toBe(true);
    expect(await db.job(id)).toMatchObject({
      ...{
        kind: 'a',
        payloadText: 'null',
        state: 'ready',
        priority: 0,
        attempts: 0,
        maxAttempts: 20,
        dedupeKey: null,
      },
      ...{ headers: null, source: null, result: null, errors: [], finishedAt: null, lockedUntil: null },
    });
    expect(await db.claim('a')).toHaveLength(1);
  });

  test('every option, alone and among many', async () => {
    const options: EnqueueOptions = {
      priority: -7,
      runAt: new Date('2031-01-01T00:00:00.123Z'),
      maxAttempts: 3,
      dedupeKey: 'ключ',
      headers: { traceparent: '00-1', list: [1, { a: null }] },
      source: 'http:v2',
      retryPolicy: { type: 'ladder', delaysMs: [1, 2] },
    };
    const payload = { text: 'é😀"\\', list: [1, [2]], nothing: null };
    const one = await enqueue(db.pool, 'a', payload, options);
    const [two] = await enqueueMany(db.pool, [{ kind: 'b', payload, ...options }]);
    for (const id of [one.id, two?.id ?? '']) {
      const row = await db.job(id);
      const { retryPolicy: _, ...shown } = options;
      expect(row).toMatchObject(shown);
      expect(JSON.parse(row.payloadText ?? '')).toEqual(payload);
    }
    const { rows } = await db.pool.query('select distinct retry_policy from unbroker.jobs');
    expect(rows).toEqual([{ retry_policy: options.retryPolicy }]);
  });

  test.each([
    ['alike', {}],
    ['alike, with priority and headers', { priority: 7, headers: { traceparent: '00-1' } }],
    ['with a key each', { dedupe: true }],
    ['with an ordering key', { orderingKey: 'o' }],
  ])(
    'many, %s: each id is that of its payload, also where another caller draws ids between',
    async (_, shape) => {
      const { dedupe, ...options } = shape as EnqueueOptions & { dedupe?: boolean };
      const payloads = [
        { n: 9007199254740991, list: [1, [2]] },
        'é😀"\\',
        null,
        [],
        'draws',
        0.1,
        {},
        '[',
        false,
      ];
      await db.pool.query(`
create function unbroker.draw() returns trigger language plpgsql as $$ begin
  perform nextval('unbroker.jobs_id_seq') where new.payload = '"draws"';
  return new;
end $$;
create trigger draws before insert on unbroker.jobs for each row execute function unbroker.draw()`);
      try {
        for (const list of [payloads, payloads.filter((payload) => payload !== 'draws'), [1]]) {
          const answers = await enqueueMany(
            db.pool,
            list.map((payload, n) => ({
              kind: 'a',
              payload,
              ...options,
              ...(dedupe ? { dedupeKey: `${list.length} ${n}` } : {}),
            })),
          );
          expect(answers.map(({ inserted }) => inserted)).toEqual(list.map(() => true));
          for (const [n, { id }] of answers.entries()) {
            const job = await db.job(id);
            expect(JSON.parse(job.payloadText ?? '')).toEqual(list[n]);
            expect(job).toMatchObject({ kind: 'a', priority: 0, headers: null, ...options });
          }
        }
      } finally {
        await db.pool.query('drop trigger draws on unbroker.jobs; drop function unbroker.draw');
      }
    },
  );

  test('a time of long ago is stored to the second, though the zone of this process was off by seconds then', async () => {
    const before = process.env['TZ'];
    process.env['TZ'] = 'Pacific/Auckland';
    try {
      const runAt = new Date('0001-01-01T00:00:00Z');
      const one = await enqueue(db.pool, 'a', null, { runAt });
      const [many] = await enqueueMany(db.pool, [{ kind: 'a', runAt }]);
      for (const id of [one.id, many?.id ?? '']) expect((await db.job(id)).runAt).toEqual(runAt);
    } finally {
      if (before === undefined) delete process.env['TZ'];
      else process.env['TZ'] = before;
    }
  });

  test('a delay counts by the database’s clock', async () => {
    const { id } = await enqueue(db.pool, 'a', null, { delayMs: 90_000 });
    const [many] = await enqueueMany(db.pool, [{ kind: 'a', delayMs: 90_000 }]);
    const { rows } = await db.pool.query(
      `select extract(epoch from run_at - created_at) * 1000 as ms from unbroker.jobs where id = any ($1)`,
      [[id, many?.id]],
    );
    expect(rows.map((row) => Number(row.ms))).toEqual([90_000, 90_000]);
  });

  test('at the limits: the longest names, the deepest and the largest payload', async () => {
    const kind = '€'.repeat(LIMITS.kindLength);
    const dedupeKey = '€'.repeat(LIMITS.dedupeKeyLength);
    const { id } = await enqueue(db.pool, kind, 'x'.repeat(LIMITS.payloadBytes - 2), { dedupeKey });
    expect(await enqueue(db.pool, kind, 1, { dedupeKey })).toEqual({ id, inserted: false });
    const [job] = await db.claim(kind);
    expect(job?.payloadText).toHaveLength(LIMITS.payloadBytes);
  });

  test('many large payloads are split by size, not only by number', async () => {
    const payload = 'x'.repeat(600_000);
    const sizes: number[] = [];
    const counting = {
      query: (text: string, values?: unknown[]) => {
        sizes.push(String(values?.[1]).length);
        return db.pool.query(text, values);
      },
    };
    const answers = await enqueueMany(counting, Array(60).fill({ kind: 'a', payload }));
    expect(answers).toHaveLength(60);
    // And the commas between them.
    expect(Math.max(...sizes)).toBeLessThanOrEqual(LIMITS.enqueueBatchLength + LIMITS.enqueueBatch + 1);
    expect(sizes.length).toBeLessThan(8);
    expect(await jobs()).toBe(60);
  });

  test('a bare insert and the SQL function make the same job', async () => {
    await db.pool.query(`insert into unbroker.jobs (kind, payload) values ('a', '{"n": 9007199254740993}')`);
    await db.pool.query(`insert into unbroker.jobs (kind) values ('a')`);
    await db.pool.query(
      `select unbroker.enqueue('a', '[1]', priority => 3, max_attempts => 2, source => 'psql')`,
    );
    const claimed = await db.claim('a');
    expect(
      claimed.map(({ payloadText, priority, maxAttempts, source }) => [
        payloadText,
        priority,
        maxAttempts,
        source,
      ]),
    ).toEqual([
      ['[1]', 3, 2, 'psql'],
      ['{"n": 9007199254740993}', 0, 20, null],
      ['null', 0, 20, null],
    ]);
  });

  test('what the table refuses of a new row, and the rule that it names', async () => {
    const refused = {
      [`(kind) values ('')`]: 'jobs_kind',
      [`(kind) values (repeat('k', 201))`]: 'jobs_kind',
      [`(kind, payload) values ('a', null)`]: 'jobs_input',
      [`(kind, state) values ('a', 'waiting')`]: 'jobs_state',
      [`(kind, on_lease_expired) values ('a', 'park')`]: 'jobs_state',
      [`(kind, max_attempts) values ('a', 0)`]: 'jobs_attempts',
      [`(kind, max_attempts) values ('a', -1)`]: 'jobs_attempts',
      [`(kind, attempts, max_attempts) values ('a', 1, 0)`]: 'jobs_attempts',
      [`(kind, max_attempts) values ('a', 1001)`]: 'jobs_attempts',
      [`(kind, attempts) values ('a', -1)`]: 'jobs_attempts',
      [`(kind, dedupe_key) values ('a', '')`]: 'jobs_dedupe_key',
      [`(kind, dedupe_key) values ('a', repeat('d', 501))`]: 'jobs_dedupe_key',
      [`(kind, ordering_key) values ('a', '')`]: 'jobs_ordering_key',
      [`(kind, ordering_key) values ('a', repeat('o', 501))`]: 'jobs_ordering_key',
      [`(kind, errors) values ('a', '{}')`]: 'jobs_errors',
      [`(kind, misfire) values ('a', 'once')`]: 'jobs_schedule',
      // A good row beside it does not help.
      [`(kind) values ('a'), ('')`]: 'jobs_kind',
    };
    for (const [row, constraint] of Object.entries(refused))
      expect(await refusal(`insert into unbroker.jobs ${row}`), row).toMatchObject({ constraint });
    expect(await jobs()).toBe(0);
  });

  test('what the table refuses of a change, one column at a time', async () => {
    const refused = {
      [`kind = ''`]: 'jobs_kind',
      'payload = null': 'jobs_input',
      'max_attempts = 0': 'jobs_attempts',
      'attempts = -1': 'jobs_attempts',
      [`dedupe_key = ''`]: 'jobs_dedupe_key',
      [`ordering_key = ''`]: 'jobs_ordering_key',
      [`errors = '{}'`]: 'jobs_errors',
      [`misfire = 'once'`]: 'jobs_schedule',
      [`state = 'waiting'`]: 'jobs_state',
      [`state = 'running'`]: 'jobs_state',
      [`state = 'done'`]: 'jobs_state',
      [`state = 'dead'`]: 'jobs_state',
      'finished_at = now()': 'jobs_state',
      'lease_token = 1': 'jobs_state',
      'locked_until = now()': 'jobs_state',
      [`locked_by = 'w'`]: 'jobs_state',
      [`on_lease_expired = 'park'`]: 'jobs_state',
    };
    await enqueue(db.pool, 'a');
    for (const [change, constraint] of Object.entries(refused))
      expect(await refusal(`update unbroker.jobs set ${change}`), change).toMatchObject({ constraint });

    await db.pool.query(
      `insert into unbroker.jobs (kind, body, cron, time_zone, misfire, slots_until, dedupe_key)
       values ('b', '', '* * * * *', 'UTC', 'once', now(), 'schedule:s')`,
    );
    for (const change of [
      'cron = null',
      `cron = repeat('*', 501)`,
      `time_zone = repeat('z', 65)`,
      `misfire = 'twice'`,
      'slots_until = null',
      `dedupe_key = 's'`,
      `state = 'running', lease_token = 1, locked_until = now(), locked_by = 'w'`,
    ])
      expect(await refusal(`update unbroker.jobs set ${change} where kind = 'b'`), change).toMatchObject({
        constraint: 'jobs_schedule',
      });
    expect(await refusal(`update unbroker.jobs set body = null, payload = null`)).toMatchObject({
      constraint: 'jobs_input',
    });
  });

  test('the table takes what is just within its bounds', async () => {
    await db.pool.query(
      `insert into unbroker.jobs (kind, payload, body, attempts, max_attempts, dedupe_key, ordering_key, errors) values
       (repeat('k', 200), 'null', null, 0, 1, null, null, null),
       ('a', null, '', 0, 20, 'k', null, null),
       ('a', 'null', '', 2147483647, 1000, repeat('d', 500), repeat('o', 500), '[]'),
       (repeat('ä', 200), 'null', null, 201, 201, repeat('ö', 201), 'o', '[1]')`,
    );
    expect(await jobs()).toBe(4);
  });

  test('of all combinations of state, lease and end the table takes those that mean something, new or changed', async () => {
    // An attempt each, in a subtransaction, so that one refusal leaves the others.
    await db.pool.query(`
create table public.taken (state text, nulls text);
do $$
declare
  combination record;
  job bigint;
begin
  for combination in
    select s.state, token, until, holder, ended, changed
    from unnest('{f,t}'::boolean[]) as changed, unnest('{ready,running,done,dead,cancelled}'::text[]) as s (state),
         unnest(array[null, 1]) as token, unnest(array[null, now()]) as until,
         unnest(array[null, 'w']) as holder, unnest(array[null, now()]) as ended
  loop
    begin
      if combination.changed then
        insert into unbroker.jobs (kind) values ('a') returning id into job;
        update unbroker.jobs
        set state = combination.state, lease_token = combination.token, locked_until = combination.until,
            locked_by = combination.holder, finished_at = combination.ended
        where id = job;
      else
        insert into unbroker.jobs (kind, state, lease_token, locked_until, locked_by, finished_at)
        values ('a', combination.state, combination.token, combination.until, combination.holder, combination.ended);
      end if;
      insert into public.taken values (combination.state, format('%s %s %s %s', combination.token is null,
        combination.until is null, combination.holder is null, combination.ended is null));
    exception when check_violation then
      null;
    end;
  end loop;
end
$$`);
    const { rows } = await db.pool.query(
      'select state, nulls, count(*)::int as doors from public.taken group by 1, 2 order by 1',
    );
    expect(rows.map(({ state, nulls, doors }) => `${state} ${nulls} ${doors}`)).toEqual([
      'cancelled t t t f 2',
      'dead t t t f 2',
      'done t t t f 2',
      'ready t t t t 2',
      'running f f f t 2',
    ]);
  });
});

describe('another schema', () => {
  test('its jobs are its own', async () => {
    await migrate(db.pool, { schema: 'team_two' });
    const { id } = await createEnqueue('team_two').enqueue(db.pool, 'a', 7);
    expect(await jobs()).toBe(0);
    expect(await createStore('team_two').show(db.pool, id)).toMatchObject({ kind: 'a', payloadText: '7' });
  });

  test.each(['public', 'pg_temp', 'Jobs', 'a.b', 'x"; drop schema unbroker cascade; --', 'a'.repeat(64), ''])(
    '%j is refused',
    (schema) => {
      expect(() => createEnqueue(schema)).toThrow(
        expect.objectContaining({ code: 'schema-invalid', exitStatus: 2 }),
      );
    },
  );

  test.each(['user', 'table', 'select', '_', 'a'.repeat(63)])(
    '%j is a name like any other',
    async (schema) => {
      await migrate(db.pool, { schema });
      const { id } = await createEnqueue(schema).enqueue(db.pool, 'a');
      expect(await createStore(schema).show(db.pool, id)).toMatchObject({ kind: 'a' });
    },
  );
});
