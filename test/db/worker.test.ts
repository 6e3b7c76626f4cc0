/** What a worker does with a job: runs it outside any transaction, and writes what its handler's end means. */
import pg from 'pg';
import { afterAll, afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { Discard, LeaseLost, RetryAfter, Snooze } from '../../src/index.js';
import type { HandlerContext, HandlerJob } from '../../src/jobs/handler.js';
import type { Job } from '../../src/jobs/job.js';
import { createWorker } from '../../src/jobs/worker.js';
import { SILENT } from '../../src/log.js';
import { jobsDatabase } from '../support/jobs.js';
import { pooled } from '../support/pgbouncer.js';
import { until } from '../support/until.js';
import { startWorker, type TestWorker, type TestWorkerOptions } from '../support/workers.js';

/** As old applications want them, of their database or of their role. None may matter here. */
const db = await jobsDatabase({
  settings: [
    'standard_conforming_strings = off',
    'bytea_output = escape',
    `intervalstyle = 'sql_standard'`,
    `timezone = 'Asia/Kathmandu'`,
    `datestyle = 'German, DMY'`,
    'extra_float_digits = 0',
    `search_path = ''`,
    'transform_null_equals = on',
    'array_nulls = off',
    'plpgsql.variable_conflict = use_column',
    `idle_in_transaction_session_timeout = '20s'`,
  ],
});
afterAll(() => db.close());
beforeEach(() => db.clear());

const workers: TestWorker[] = [];
function work(options: Omit<TestWorkerOptions, 'url'>): TestWorker {
  const worker = startWorker({ url: db.url, ...options });
  workers.push(worker);
  return worker;
}
afterEach(async () => {
  await Promise.all(workers.splice(0).map((worker) => worker.close()));
});

const untilState = (id: string, state: string): Promise<Job> =>
  until(`job ${id} is ${state}`, async () => {
    const job = await db.job(id);
    return job.state === state ? job : null;
  });

describe('a handler gets', () => {
  test('the job with its payload parsed, its exact text beside, and its headers', async () => {
    await db.pool.query(
      `insert into unbroker.jobs (kind, payload, headers, source) values ('a', '{"n": 9007199254740993}', '{"h": 1}', 's')`,
    );
    const seen: HandlerJob[] = [];
    const worker = work({ handlers: { a: (job) => void seen.push(job) } });
    await worker.untilEnded(1);
    expect(seen[0]).toMatchObject({
      kind: 'a',
      attempt: 1,
      headers: { h: 1 },
      source: 's',
      payloadText: '{"n": 9007199254740993}',
    });
    expect(seen[0]?.payload).toEqual({ n: 9007199254740992 });
  });

  test('the bytes when jsonb could not hold it', async () => {
    await db.pool.query(
      `insert into unbroker.jobs (kind, payload, body, content_type) values ('a', null, decode('ff00', 'hex'), 'x/y')`,
    );
    const seen: HandlerJob[] = [];
    const worker = work({ handlers: { a: (job) => void seen.push(job) } });
    await worker.untilEnded(1);
    expect(seen[0]).toMatchObject({ payload: null, payloadText: null, contentType: 'x/y' });
    expect(seen[0]?.body?.toString('hex')).toBe('ff00');
  });

  test('every field of a job as it was claimed, and a copy: what it does to it changes nothing that is settled', async () => {
    await db.put('a', [1], {
      ...{ priority: 3, dedupeKey: 'd', orderingKey: 'o', headers: { h: 1 }, source: 's', maxAttempts: 7 },
      retryPolicy: { type: 'fixed', delayMs: 1 },
    });
    const seen: HandlerJob[] = [];
    const claimed: unknown[] = [];
    const worker = work({
      handlers: {
        a: (job) => {
          seen.push({ ...job });
          Object.assign(job, { id: '0', leaseToken: '0', orderingKey: null });
        },
      },
      onEvent: (event) => event.type === 'claimed' && claimed.push(...event.jobs),
    });
    await worker.untilEnded(1);
    expect(seen).toEqual(claimed.map((job) => ({ ...(job as object), payload: 1 })));
    expect(seen[0]).toMatchObject({ priority: 3, dedupeKey: 'd', orderingKey: 'o', maxAttempts: 7 });
    expect((await untilState(seen[0]?.id ?? '', 'done')).attempts).toBe(1);
  });
});

describe('outcomes', () => {
  test('a value is the result, nothing is null', async () => {
    const [one, two] = (await db.put('a', [{ v: 1 }, null])) as [string, string];
    work({ handlers: { a: async (job) => job.payload } });
    expect(await untilState(one, 'done')).toMatchObject({ result: { v: 1 }, attempts: 1, errors: [] });
    expect((await untilState(two, 'done')).result).toBeNull();
  });

  test('an error waits as its policy says; the last attempt is dead; each is noted', async () => {
    const [id] = (await db.put('a', [1], { maxAttempts: 3, retryPolicy: { type: 'fixed', delayMs: 0 } })) as [
      string,
    ];
    const worker = work({
      handlers: {
        a: (job) => {
          throw new RangeError(`no ${job.attempt}`);
        },
      },
    });
    const job = await untilState(id, 'dead');
    expect(job.attempts).toBe(3);
    expect(job.errors.map(({ attempt, name, message }) => [attempt, name, message])).toEqual([
      [1, 'RangeError', 'no 1'],
      [2, 'RangeError', 'no 2'],
      [3, 'RangeError', 'no 3'],
    ]);
    expect(worker.settled().map(({ outcome }) => outcome.type)).toEqual(['retry', 'retry', 'discard']);
  });

  test('delays come from the kind, from the job before it, from RetryAfter before both', async () => {
    const own = { type: 'fixed', delayMs: 200_000 } as const;
    const [kind] = (await db.put('a', ['kind'])) as [string];
    const [job] = (await db.put('a', ['job'], { retryPolicy: own })) as [string];
    const [after] = (await db.put('a', ['after'], { retryPolicy: own })) as [string];
    const worker = work({
      handlers: {
        a: {
          retryPolicy: { type: 'fixed', delayMs: 100_000 },
          handle: ({ payload }) => {
            throw payload === 'after' ? new RetryAfter(300_000, 'busy') : new Error('no');
          },
        },
      },
    });
    await worker.untilEnded(3);
    const { rows } = await db.pool.query(
      `select id::text, extract(epoch from run_at - clock_timestamp()) as left from unbroker.jobs where state = 'ready'`,
    );
    const left = new Map(rows.map((row) => [row.id, Number(row.left)]));
    for (const [id, seconds] of [
      [kind, 100],
      [job, 200],
      [after, 300],
    ] as const) {
      expect(left.get(id)).toBeLessThanOrEqual(seconds);
      expect(left.get(id)).toBeGreaterThan(seconds - 20);
    }
  });

  test('Snooze runs again later and spends no attempt, however often', async () => {
    const [id] = (await db.put('a', [1], { maxAttempts: 1 })) as [string];
    let starts = 0;
    const warned: string[] = [];
    work({
      log: { ...SILENT, warn: (_, text) => warned.push(text) },
      handlers: {
        a: () => {
          starts += 1;
          if (starts <= 5) throw new Snooze(0);
          return 'slept';
        },
      },
    });
    expect(await untilState(id, 'done')).toMatchObject({ attempts: 1, errors: [], result: 'slept' });
    expect(starts).toBe(6);
    // It asked for a later start: nothing went wrong.
    expect(warned).not.toContain('a handler threw');
  });

  test('Discard is dead at the first attempt, with its reason', async () => {
    const [id] = (await db.put('a', [1])) as [string];
    work({
      handlers: {
        a: () => {
          throw new Discard('unknown address', 'address-refused');
        },
      },
    });
    expect(await untilState(id, 'dead')).toMatchObject({
      attempts: 1,
      errors: [{ name: 'address-refused', message: 'unknown address' }],
    });
  });

  test('a LeaseLost that is not about this job is a failure like any other, not a job that runs for ever', async () => {
    const [id] = (await db.put('a', [1], { maxAttempts: 1 })) as [string];
    work({
      handlers: {
        a: () => {
          throw new LeaseLost();
        },
      },
    });
    expect(await untilState(id, 'dead')).toMatchObject({ errors: [{ name: 'LeaseLost' }] });
  });

  test('a logger that throws and an error that cannot be read keep no job from its end', async () => {
    const revoked = Proxy.revocable({}, {});
    revoked.revoke();
    const [id] = (await db.put('a', [1], { maxAttempts: 1 })) as [string];
    const [again] = (await db.put('a', [1], { maxAttempts: 2 })) as [string];
    const fail = (): never => {
      throw new Error('the log is full');
    };
    const worker = work({
      log: { debug: fail, info: fail, warn: fail, error: fail },
      handlers: {
        a: {
          retryPolicy: { type: 'fixed', delayMs: 600_000 },
          handle: () => {
            throw revoked.proxy;
          },
        },
      },
    });
    expect((await untilState(id, 'dead')).errors).toHaveLength(1);
    await worker.untilEnded(2);
    expect(await db.job(again)).toMatchObject({ state: 'ready', errors: [{ name: 'Error' }] });
    expect(worker.running).toBe(0);
  });
});

describe('payloads and kinds', () => {
  const schema = {
    '~standard': {
      version: 1 as const,
      vendor: 'test',
      validate: async (value: unknown) =>
        typeof value === 'object' && value !== null && 'to' in value
          ? { value }
          : { issues: [{ message: 'secret detail', path: ['address', { key: 'to' }] }, { message: 'x' }] },
    },
  };

  test('a payload that fails its schema is dead at once: the places named, the values not', async () => {
    const [bad, good] = (await db.put('a', [{ secret: 'hunter2' }, { to: 'x' }])) as [string, string];
    let ran = 0;
    work({
      handlers: {
        a: {
          schema,
          handle: () => {
            ran += 1;
          },
        },
      },
    });
    const job = await untilState(bad, 'dead');
    expect(job).toMatchObject({ attempts: 1, errors: [{ name: 'payload-invalid' }] });
    expect(job.errors[0]?.message).toContain('address.to, (root)');
    expect(job.errors[0]?.message).not.toMatch(/hunter2|secret/);
    await untilState(good, 'done');
    expect(ran).toBe(1);
  });

  test('a schema that itself fails spends an attempt and is tried again', async () => {
    const [id] = (await db.put('a', [{}], { retryPolicy: { type: 'fixed', delayMs: 60_000 } })) as [string];
    const broken = { '~standard': { ...schema['~standard'], validate: () => JSON.parse('{') } };
    const worker = work({ handlers: { a: { schema: broken, handle: () => 1 } } });
    await worker.untilEnded(1);
    expect(await db.job(id)).toMatchObject({
      state: 'ready',
      attempts: 1,
      errors: [{ name: 'SyntaxError' }],
    });
  });

  test('kinds that nobody here knows are left as they are, also by upkeep', async () => {
    const [unknown] = (await db.put('nobody', [1])) as [string];
    const [known] = (await db.put('a', [1])) as [string];
    const before = await db.job(unknown);
    work({ handlers: { a: () => 1 }, upkeepMs: 10 });
    await untilState(known, 'done');
    await until('upkeep went on', async () => (await db.claim('other')).length === 0);
    expect(await db.job(unknown)).toEqual(before);
  });
});

describe('limits', () => {
  test('never more at once than the concurrency, of all and of each kind', async () => {
    let open = (): void => {};
    const gate = new Promise<void>((resolve) => {
      open = resolve;
    });
    const now = { a: 0, b: 0 };
    const most = { a: 0, b: 0, all: 0 };
    const handle = async ({ kind }: HandlerJob): Promise<void> => {
      const name = kind as 'a' | 'b';
      now[name] += 1;
      most[name] = Math.max(most[name], now[name]);
      most.all = Math.max(most.all, now.a + now.b);
      await gate;
      await new Promise((resolve) => setTimeout(resolve, 5));
      now[name] -= 1;
    };
    const worker = work({ concurrency: 7, handlers: { a: { concurrency: 2, handle }, b: handle } });
    await db.put('a', Array(40).fill(0));
    await until('its kind has all that it may', () => now.a >= 2);
    await db.put('b', Array(40).fill(0));
    await until('every slot is taken', () => now.a + now.b >= 7);
    open();
    await worker.untilEnded(80);
    expect(most.a).toBe(2);
    expect(most.b).toBeGreaterThanOrEqual(5);
    expect(most.all).toBe(7);
  });

  test('no row is leased that does not run: what is running in the table is running here', async () => {
    await db.put('a', Array(50).fill(0));
    let release = (): void => {};
    const gate = new Promise<void>((resolve) => {
      release = resolve;
    });
    const worker = work({ concurrency: 4, handlers: { a: () => gate } });
    await until('four run', () => worker.running === 4);
    expect(await db.states()).toEqual({ ready: 46, running: 4 });
    release();
    await worker.untilEnded(50);
  });

  test('a kind with a long backlog does not starve another', async () => {
    await db.put('flood', Array(3_000).fill(0));
    const worker = work({ concurrency: 10, handlers: { flood: () => 1, rare: () => 1 } });
    await worker.untilEnded(100);
    const [id] = (await db.put('rare', [1])) as [string];
    const before = worker.settled().length;
    await untilState(id, 'done');
    const at = worker.settled().findIndex(({ job }) => job.kind === 'rare');
    expect(at - before).toBeLessThan(1_000);
  });

  test.each([
    [{ concurrency: 0 }, 'concurrency'],
    [{ concurrency: Number.NaN }, 'concurrency'],
    [{ concurrency: 10_001 }, 'concurrency'],
    [{ leaseMs: 99 }, 'leaseMs'],
    [{ leaseMs: 1e9 }, 'leaseMs'],
    [{ pollMs: 4 }, 'pollMs'],
    [{ upkeepMs: -1 }, 'upkeepMs'],
    [{ handlers: {} }, 'handlers is empty'],
    [{ handlers: { a: { handle: () => 1, concurrency: 0 } } }, 'handlers.a.concurrency'],
    [{ schema: 'public' }, 'schema'],
  ])('%j is refused with exit 2', (wrong, what) => {
    const create = () => createWorker({ db: db.pool, handlers: { a: () => 1 }, ...wrong });
    expect(create).toThrow(
      expect.objectContaining({ exitStatus: 2, message: expect.stringContaining(what) }),
    );
  });
});

describe('while a handler runs', () => {
  test('no transaction is open, and the claim is visible to all', async () => {
    const [id] = (await db.put('a', [1])) as [string];
    let open: unknown;
    const worker = work({
      applicationName: 'no-open-transaction',
      handlers: {
        a: async () => {
          await until('the worker is quiet', async () => {
            const { rows } = await db.pool.query(
              `select state, xact_start, backend_xmin from pg_stat_activity
               where application_name = 'no-open-transaction' and state <> 'idle'`,
            );
            open = rows;
            return rows.length === 0;
          });
          expect((await db.job(id)).state).toBe('running');
        },
      },
    });
    await worker.untilEnded(1);
    expect(open).toEqual([]);
    expect((await db.job(id)).state).toBe('done');
  });

  test('a checkpoint is stored under the lease and found again by the next start', async () => {
    const [id] = (await db.put('a', [1], { retryPolicy: { type: 'fixed', delayMs: 0 } })) as [string];
    const seen: unknown[] = [];
    work({
      handlers: {
        a: async (job, { checkpoint }: HandlerContext) => {
          seen.push(job.progress);
          if (job.attempt === 2) return;
          await checkpoint({ page: 7 });
          throw new Error('after the checkpoint');
        },
      },
    });
    expect((await untilState(id, 'done')).progress).toEqual({ page: 7 });
    expect(seen).toEqual([null, { page: 7 }]);
  });

  test('a checkpoint that meets another transaction, under a role’s own isolation, is written after it', async () => {
    const [id] = (await db.put('a', [1])) as [string];
    const other = await db.session();
    const pool = new pg.Pool({
      connectionString: pooled(db.url),
      application_name: 'repeatable-read',
      options: '-c default_transaction_isolation=repeatable\\ read',
    });
    pool.on('error', () => {});
    const worker = work({
      db: pool,
      handlers: {
        a: async (_job, { checkpoint }: HandlerContext) => {
          await other.query('begin');
          await other.query('update unbroker.jobs set headers = $1', ['{}']);
          const saved = checkpoint({ page: 7 });
          await until('the checkpoint waits', async () => {
            const { rows } = await db.pool.query(
              `select from pg_stat_activity
               where application_name = 'repeatable-read' and cardinality(pg_blocking_pids(pid)) > 0`,
            );
            return rows.length > 0;
          });
          await other.query('commit');
          await saved;
        },
      },
    });
    await worker.untilEnded(1);
    expect(await db.job(id)).toMatchObject({ state: 'done', attempts: 1, progress: { page: 7 }, errors: [] });
    await worker.stop({ deadlineMs: 0 });
    await pool.end();
  });

  test.each([
    ['NUL', 'a\u0000'],
    ['a lone surrogate', { x: '\ud800' }],
    ['nothing', undefined],
    ['a BigInt', 1n],
    ['too much', '€'.repeat(6_000)],
  ])('a checkpoint of %s is a TypeError to the handler, and the job goes on', async (_name, progress) => {
    const [id] = (await db.put('a', [1])) as [string];
    let thrown: unknown;
    work({
      handlers: {
        a: async (_job, context: HandlerContext) => {
          await context.checkpoint(progress as never).catch((error: unknown) => {
            thrown = error;
          });
        },
      },
    });
    expect((await untilState(id, 'done')).progress).toBeNull();
    expect(thrown).toBeInstanceOf(TypeError);
  });
});

describe.each([2, -2])('a worker whose clock is off by %i hours', (hours) => {
  beforeEach(() => {
    const now = Date.now.bind(Date);
    vi.spyOn(Date, 'now').mockImplementation(() => now() + hours * 3_600_000);
  });
  afterEach(() => vi.restoreAllMocks());

  test('does as the database’s clock says: what is due, tried again, put off, kept by its lease, expired', async () => {
    const inHours = async (h: number): Promise<string> => {
      const hence = `date_part('epoch', clock_timestamp() + $1 * interval '1 hour') * 1000`;
      const { rows } = await db.pool.query<{ ms: number }>(`select ${hence} as ms`, [h]);
      return new Date(rows[0]?.ms ?? 0).toISOString();
    };
    const origin = async (h: number) => ({
      headers: { origin: { dialect: 'celery', expiresAt: await inHours(h) } },
    });
    await db.put('a', ['due', 'again', 'pause'], { retryPolicy: { type: 'fixed', delayMs: 0 } });
    const [later] = await db.put('a', ['later'], { delayMs: 3_600_000 });
    const [inTime] = await db.put('a', ['in time'], await origin(1));
    const [tooLate] = await db.put('a', ['too late'], await origin(-1));
    const worker = work({
      upkeepMs: 50,
      handlers: {
        a: async (job, { snooze, signal }: HandlerContext) => {
          if (job.payload === 'again' && job.attempt === 1) throw new Error('once');
          if (job.payload === 'pause' && job.progress === null) {
            await db.pool.query(`update unbroker.jobs set progress = '1' where id = $1`, [job.id]);
            snooze(1);
          }
          const { rows } = await db.pool.query(
            `select locked_until - clock_timestamp() between '0' and '30 seconds' as held from unbroker.jobs where id = $1`,
            [job.id],
          );
          expect(rows).toEqual([{ held: true }]);
          expect(signal.aborted).toBe(false);
        },
      },
    });
    await until('all but one have ended', async () => {
      const { ready = 0, running = 0 } = await db.states();
      return ready === 1 && running === 0;
    });
    expect(worker.lost()).toEqual([]);
    expect(await db.states()).toEqual({ done: 4, dead: 1, ready: 1 });
    expect((await db.job(later as string)).state).toBe('ready');
    expect((await db.job(inTime as string)).state).toBe('done');
    expect((await db.job(tooLate as string)).errors).toMatchObject([{ name: 'expired' }]);
  });
});

describe('waiting', () => {
  test('wake() finds a job at once, whatever the poll', async () => {
    const worker = work({ pollMs: 60_000, handlers: { a: () => 1 } });
    await until('it is idle', () => worker.events.some(({ type }) => type === 'idle'));
    await new Promise((resolve) => setTimeout(resolve, 200));
    await db.put('a', [1]);
    worker.wake();
    await worker.untilEnded(1, 30_000);
  });

  test('claims that another transaction is in the way of are asked again at once, and it stays ready', async () => {
    let conflicts = 0;
    const seen: unknown[] = [];
    const said: string[] = [];
    const worker = work({
      pollMs: 60_000,
      onEvent: ({ type }) => type === 'database-error' && seen.push(worker.ready),
      db: {
        query: (text, values) => {
          const conflict = conflicts > 0 && /claim/.test(text);
          if (!conflict) return db.pool.query(text, values);
          conflicts -= 1;
          return Promise.reject(Object.assign(new Error('could not serialize access'), { code: '40001' }));
        },
      },
      handlers: { a: () => 1 },
      log: { ...SILENT, warn: (_, text) => said.push(text), error: (_, text) => said.push(text) },
    });
    await until('it is idle', () => worker.events.some(({ type }) => type === 'idle'));
    conflicts = 30;
    await db.put('a', [1, 2, 3]);
    worker.wake();
    await worker.untilEnded(3, 30_000);
    expect(seen).toEqual(Array(30).fill(true));
    expect(said).toEqual(['another transaction was in the way; trying again']);
  });

  test('a database that refuses: the log says once what that means and what to do', async () => {
    const meanings: readonly (readonly [string, RegExp])[] = [
      ['53300', /no connection left; trying again\. End idle clients, raise max_connections/],
      ['53100', /disk of the database is full; trying again\. Free space/],
      ['53200', /out of memory/],
      ['57014', /cut a statement short.*statement_timeout/],
      ['25006', /takes no writes.*DATABASE_URL/],
      ['42883', /schema is older .* Run: unbroker migrate/],
      ['42501', /Run: unbroker roles/],
      ['3F000', /no jobs table; trying again\. Run: unbroker migrate, or give the worker the schema/],
      ['ECONNREFUSED', /did not answer; trying again\. Look whether its server runs/],
      ['XX001', /refused a statement.*XX001/],
      ['ECONNRESET', /^the database did not answer; trying again$/],
    ];
    const refused = meanings.map(([code, line]) => {
      const said: string[] = [];
      let refusals = 0;
      const worker = work({
        pollMs: 5,
        db: {
          query: (text, values) => {
            if (!/claim/.test(text) || refusals === 3) return db.pool.query(text, values);
            refusals += 1;
            return Promise.reject(Object.assign(new Error('private'), { code }));
          },
        },
        handlers: { a: () => 1 },
        log: { ...SILENT, warn: (_, text) => said.push(text), error: (_, text) => said.push(text) },
      });
      return { line, said, recovered: () => refusals === 3 && worker.ready };
    });
    await until('all work again', () => refused.every(({ recovered }) => recovered()));
    for (const { line, said } of refused) expect(said).toEqual([expect.stringMatching(line)]);
    expect(JSON.stringify(refused)).not.toContain('private');
  });

  test('a schema that nobody migrated: said, with the next step', async () => {
    const said: string[] = [];
    const say = (_: unknown, text: string) => said.push(text);
    work({ schema: 'nobodys', handlers: { a: () => 1 }, log: { ...SILENT, warn: say, error: say } });
    await until('it is said', () => said.length > 0);
    expect(said[0]).toMatch(/^the schema has no jobs table; trying again\. Run: unbroker migrate/);
  });

  test('start() twice is one worker; ready says whether the database answers', async () => {
    const worker = work({ handlers: { a: () => 1 } });
    worker.start();
    await until('it is ready', () => worker.ready);
    await db.put('a', [1, 2, 3]);
    await worker.untilEnded(3);
    expect(worker.claimed()).toHaveLength(3);
  });
});

test('a kind with a few slots of its own gets each that frees up, beside one that would take them all', async () => {
  const open: (() => void)[] = [];
  let ended = 0;
  await db.put('slow', Array(40).fill(0));
  const worker = work({
    concurrency: 4,
    handlers: {
      slow: () => new Promise<void>((resolve) => open.push(resolve)),
      few: {
        concurrency: 1,
        handle: () => {
          ended += 1;
        },
      },
      other: () => undefined,
    },
  });
  await until('every slot is taken', () => worker.running === 4);
  for (let turn = 1; turn <= 6; turn += 1) {
    await db.put('few', [turn]);
    open.shift()?.();
    await until(`the slot of turn ${turn} went to it`, () => ended === turn, { withinMs: 5_000, everyMs: 5 });
    await until('every slot is taken', () => worker.running === 4);
  }
});
