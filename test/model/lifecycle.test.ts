/**
 * The life of jobs against a model: random sequences of every operation, by holders current and stale, on real Postgres;
 * after each the answer and every row are what the model says. Then the same operations from several sessions at once,
 * judged by the audit inside the database: tokens only rise, no stale write, final states stay.
 */
import fc from 'fast-check';
import { afterAll, expect, test } from 'vitest';
import type { Queryable } from '../../src/jobs/job.js';
import { auditReport, installAudit } from '../support/audit.js';
import { endLeases, jobsDatabase, type Session } from '../support/jobs.js';
import { Model, type ModelJob, type ModelLease } from './job-model.js';

/** UNBROKER_TEST_LONG=1: the two thousand runs of sixty operations; otherwise a sample of seconds. */
const LONG = Boolean(process.env['UNBROKER_TEST_LONG']);
const RUNS = LONG ? 2_000 : 80;
const OPERATIONS = LONG ? 60 : 40;

const db = await jobsDatabase();
const session = await db.session();
await installAudit(session);
afterAll(() => db.close());

const { store } = db;
const sorted = (ids: readonly string[]): string[] => [...ids].sort((a, b) => Number(BigInt(a) - BigInt(b)));

/** Every row in the model's words. */
async function rowsOf(on: Queryable): Promise<unknown[]> {
  const { rows } = await on.query(`
    select id::text, priority, state, attempts, max_attempts as "maxAttempts", solo, on_lease_expired is not null as park,
           coalesce(locked_until < clock_timestamp(), false) as expired, lease_token::text as token,
           coalesce(jsonb_array_length(errors), 0) as errors, (progress ->> 'n')::int as progress, (result ->> 'n')::int as result,
           -- Or nobody would find it when its lease has ended.
           state <> 'running' or exists (
             select from unbroker.claims c where c.token = j.lease_token and j.id = any (c.ids)) as noted
    from unbroker.jobs j order by j.id`);
  return rows;
}

function rowsOfModel(model: Model): unknown[] {
  return model.all
    .sort((a, b) => Number(BigInt(a.id) - BigInt(b.id)))
    .map(({ dueAt: _, ...job }) => ({ ...job, errors: Math.min(job.errors, 10), noted: true }));
}

type Command = fc.AsyncCommand<Model, Queryable>;

/** An operation: what it is called, and how it is run and compared. Rows are compared after every one. */
function command(name: string, run: (model: Model, real: Queryable) => Promise<void>): Command {
  return {
    check: () => true,
    async run(model, real) {
      await run(model, real);
      expect(await rowsOf(real)).toEqual(rowsOfModel(model));
    },
    toString: () => name,
  };
}

type Lease = { readonly id: string; readonly leaseToken: string };

/** A write by the holder of some lease, current or stale: it changes the row exactly when the lease is current. */
function write(
  name: string,
  pick: number,
  ask: (lease: Lease, real: Queryable) => Promise<readonly string[]>,
  apply: (model: Model, job: ModelJob) => void,
): Command {
  return command(`${name} ${pick}`, async (model, real) => {
    const lease = model.leases[pick % Math.max(1, model.leases.length)];
    if (lease === undefined) return;
    const held = model.holds(lease);
    const changed = await ask({ id: lease.id, leaseToken: lease.token }, real);
    expect(changed).toEqual(held === undefined ? [] : [lease.id]);
    if (held !== undefined) apply(model, held);
  });
}

function claimOf(limit: number, park: boolean): Command {
  return command(`claim ${limit}${park ? ' park' : ''}`, async (model, real) => {
    const wanted = model.claimable(limit);
    const got = await store.claim(real, [{ kind: 'a', limit, park }], limit, 'w', 3_600_000);
    expect(sorted(got.map(({ id }) => id))).toEqual(sorted(wanted.map(({ id }) => id)));
    const before = model.newestToken;
    for (const job of got) {
      expect(BigInt(job.leaseToken)).toBeGreaterThan(before);
      const known = model.jobs.get(job.id) as ModelJob;
      model.claim(known, job.leaseToken, park);
      expect(job.attempt).toBe(known.attempts);
    }
  });
}

const pick = fc.nat(1_000);
const pickId = (model: Model, n: number): ModelJob | undefined =>
  model.all[n % Math.max(1, model.all.length)];

const enqueue = fc
  .record({ priority: fc.integer({ min: -1, max: 1 }), maxAttempts: fc.integer({ min: 1, max: 3 }) })
  .map((options) =>
    command(`enqueue ${JSON.stringify(options)}`, async (model, real) => {
      const [id] = (
        await real.query(
          `insert into unbroker.jobs (kind, priority, max_attempts) values ('a', $1, $2) returning id::text`,
          [options.priority, options.maxAttempts],
        )
      ).rows as { id: string }[];
      model.put(id?.id ?? '', options.priority, options.maxAttempts);
    }),
  );

const claimSolo = fc.boolean().map((park) =>
  command(`claimSolo${park ? ' park' : ''}`, async (model, real) => {
    const wanted = model.claimableSolo();
    const got = await store.claimSolo(real, [{ kind: 'a', limit: 1, park }], 'w', 3_600_000);
    expect(got?.id).toBe(wanted?.id);
    if (got && wanted) model.claim(wanted, got.leaseToken, park);
  }),
);

const expire = pick.map((n) =>
  command(`expire ${n}`, async (model, real) => {
    const job = pickId(model, n);
    if (job?.state !== 'running') return;
    await endLeases(real, { ids: [job.id] });
    job.expired = true;
  }),
);

const reap = fc.integer({ min: 1, max: 4 }).map((limit) =>
  command(`reap ${limit}`, async (model, real) => {
    const wanted = model.reapable();
    const got = await store.reap(real, limit);
    // Which of them is its own affair: claims that ended first go first.
    expect(got).toHaveLength(Math.min(limit, wanted.length));
    for (const { id } of got) model.reap(wanted.find((job) => job.id === id) as ModelJob);
    for (const { id, state } of got) expect(model.jobs.get(id)?.state).toBe(state);
  }),
);

const operator = (
  name: string,
  ask: (ids: string[], real: Queryable, n: number) => Promise<string[]>,
  from: readonly string[],
  apply: (model: Model, job: ModelJob, n: number) => void,
) =>
  fc.tuple(pick, fc.integer({ min: 1, max: 2 })).map(([which, n]) =>
    command(`${name} ${which} ${n}`, async (model, real) => {
      const job = pickId(model, which);
      if (job === undefined) return;
      const may = from.includes(job.state);
      expect(await ask([job.id], real, n)).toEqual(may ? [job.id] : []);
      if (may) apply(model, job, n);
    }),
  );

const failure = { name: 'E', message: 'm' };
const commands = [
  enqueue,
  fc.tuple(fc.integer({ min: 1, max: 4 }), fc.boolean()).map(([limit, park]) => claimOf(limit, park)),
  claimSolo,
  expire,
  reap,
  fc.tuple(pick, fc.option(fc.nat(9))).map(([n, result]) =>
    write(
      'complete',
      n,
      (lease, real) =>
        store.complete(real, [
          { ...lease, resultText: result === null ? null : JSON.stringify({ n: result }) },
        ]),
      (model, job) => model.complete(job, result),
    ),
  ),
  pick.map((n) =>
    write(
      'retry',
      n,
      (lease, real) => store.retry(real, [{ ...lease, delayMs: 0, ...failure }]),
      (model, job) => model.retry(job),
    ),
  ),
  pick.map((n) =>
    write(
      'snooze',
      n,
      (lease, real) => store.snooze(real, [{ ...lease, delayMs: 0 }]),
      (model, job) => model.snooze(job),
    ),
  ),
  pick.map((n) =>
    write(
      'discard',
      n,
      (lease, real) => store.discard(real, [{ ...lease, ...failure }]),
      (model, job) => model.discard(job),
    ),
  ),
  pick.map((n) =>
    write(
      'release',
      n,
      (lease, real) => store.release(real, [lease]),
      (model, job) => model.release(job),
    ),
  ),
  pick.map((n) =>
    write(
      'extend',
      n,
      (lease, real) => store.extend(real, [lease], 3_600_000),
      (_model, job) => {
        job.expired = false;
      },
    ),
  ),
  fc.tuple(pick, fc.nat(9)).map(([n, progress]) =>
    write(
      'checkpoint',
      n,
      async (lease: Lease, real) =>
        (await store.checkpoint(real, lease, JSON.stringify({ n: progress }))) ? [lease.id] : [],
      (_model, job) => {
        job.progress = progress;
      },
    ),
  ),
  operator(
    'operatorRetry',
    (ids, real, n) => store.operatorRetry(real, ids, n),
    ['dead', 'cancelled'],
    (model, job, n) => model.operatorRetry(job, n),
  ),
  operator(
    'operatorDiscard',
    (ids, real) => store.operatorDiscard(real, ids),
    ['ready'],
    (model, job) => model.finish(job, 'dead', true),
  ),
  operator(
    'cancel',
    (ids, real) => store.cancel(real, ids),
    ['ready'],
    (model, job) => model.finish(job, 'cancelled', false),
  ),
  operator(
    'dismiss',
    (ids, real) => store.dismiss(real, ids),
    ['dead'],
    (model, job) => model.finish(job, 'cancelled', false),
  ),
];

test(
  `${RUNS} random lives, up to ${OPERATIONS} operations each, are what the model says`,
  async () => {
    await fc.assert(
      fc.asyncProperty(fc.commands(commands, { maxCommands: OPERATIONS, size: 'max' }), async (run) => {
        await session.query('truncate unbroker.jobs');
        await fc.asyncModelRun(() => ({ model: new Model(), real: session }), run);
      }),
      { numRuns: RUNS, endOnFailure: false },
    );
    expect(await auditReport(session)).toMatchObject({ stale: 0, problems: [] });
  },
  LONG ? 3_600_000 : 120_000,
);

/** What one of several actors does, without a model: only that nothing illegal comes of it. */
const step = fc.record({ what: fc.nat(11), which: fc.nat(50), limit: fc.integer({ min: 1, max: 4 }) });

test(
  'several sessions at once, with leases that end at any moment: nothing illegal happens, and all can be finished',
  async () => {
    const sessions = await Promise.all(Array.from({ length: 4 }, () => db.session()));
    let total = 0;
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.array(step, { minLength: 10, maxLength: 25 }), { minLength: 4, maxLength: 4 }),
        async (actors) => {
          await session.query('truncate unbroker.jobs');
          await session.query(
            `insert into unbroker.jobs (kind, max_attempts) select 'a', 3 from generate_series(1, 12)`,
          );
          const leases: (ModelLease & Lease)[] = [];
          await Promise.all(
            actors.map(async (steps, index) => {
              const real = sessions[index] as Session;
              for (const { what, which, limit } of steps) await act(real, what, which, limit, leases);
            }),
          );
          total += leases.length;
          // Whatever state it is in, an operator and one honest worker bring it to its end.
          await endLeases(session);
          await store.reap(session, 100);
          const { rows } = await session.query(
            `select id::text from unbroker.jobs where state in ('dead', 'cancelled')`,
          );
          await store.operatorRetry(
            session,
            (rows as { id: string }[]).map(({ id }) => id),
            1,
          );
          const rest = await store.claim(session, [{ kind: 'a', limit: 20, park: false }], 20, 'w', 60_000);
          for (
            let solo = await store.claimSolo(session, [{ kind: 'a', limit: 1, park: false }], 'w', 60_000);
            solo !== null;
          ) {
            rest.push(solo);
            solo = await store.claimSolo(session, [{ kind: 'a', limit: 1, park: false }], 'w', 60_000);
          }
          await store.complete(
            session,
            rest.map((job) => ({ ...job, resultText: null })),
          );
          expect(await db.states()).toEqual({ done: 12 });
        },
      ),
      { numRuns: LONG ? 1_000 : 40 },
    );
    expect(total).toBeGreaterThan(LONG ? 10_000 : 400);
    expect(await auditReport(session)).toMatchObject({ stale: 0, problems: [] });
  },
  LONG ? 3_600_000 : 120_000,
);

async function act(
  real: Session,
  what: number,
  which: number,
  limit: number,
  leases: (ModelLease & Lease)[],
): Promise<void> {
  const lease = leases[which % Math.max(1, leases.length)];
  const job = lease?.id ?? '0';
  switch (what) {
    case 0:
    case 1:
    case 2: {
      const got = await store.claim(
        real,
        [{ kind: 'a', limit, park: false }],
        limit,
        `w${real.pid}`,
        3_600_000,
      );
      leases.push(...got.map(({ id, leaseToken }) => ({ id, leaseToken, token: leaseToken })));
      return;
    }
    case 3: {
      const got = await store.claimSolo(
        real,
        [{ kind: 'a', limit: 1, park: false }],
        `w${real.pid}`,
        3_600_000,
      );
      if (got) leases.push({ id: got.id, leaseToken: got.leaseToken, token: got.leaseToken });
      return;
    }
    case 4:
      await endLeases(real, { ids: [job] });
      return;
    case 5:
      await store.reap(real, limit);
      return;
    case 6:
      await store.operatorRetry(real, [job], 1);
      return;
    case 7:
      await store.cancel(real, [job]);
      return;
  }
  if (lease === undefined) return;
  // The token goes along, so that the audit sees under which lease it was meant.
  if (what === 8)
    await store.complete(real, [{ ...lease, resultText: JSON.stringify({ token: lease.token }) }]);
  if (what === 9)
    await store.retry(real, [{ ...lease, delayMs: 0, name: 'E', message: `token ${lease.token}` }]);
  if (what === 10) await store.release(real, [lease]);
  if (what === 11) await store.extend(real, [lease], 3_600_000);
}
