/**
 * Each role can do its own and nothing else, with the grants that `unbroker roles` gives; the doctor finds who lacks one.
 * Roles are the cluster's: they have names of their own here and are dropped at the end.
 */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { examine } from '../../src/doctor/index.js';
import { enqueue, enqueueMany } from '../../src/enqueue.js';
import type { Queryable } from '../../src/jobs/job.js';
import { ROLES, type Role, roleSql } from '../../src/roles.js';
import { nextRuns, pauseSchedule, schedule } from '../../src/schedules.js';
import { startCli } from '../support/cli.js';
import { jobsDatabase, type Session } from '../support/jobs.js';
import { startWorker } from '../support/workers.js';

const db = await jobsDatabase();
const { store } = db;
const suffix = randomBytes(4).toString('hex');
const nameOf = (role: Role): string => `ub_${role}_${suffix}`;
const names = Object.fromEntries(ROLES.map((role) => [role, nameOf(role)]));
const sessions = new Map<Role, Session>();

const as = (role: Role): Session => sessions.get(role) as Session;
const roles = async (...args: string[]) => {
  const cli = startCli(['roles', ...args], { env: { DATABASE_URL: db.url } });
  return { code: (await cli.exit).code, stdout: cli.stdout, stderr: cli.stderr };
};

beforeAll(async () => {
  await db.pool.query('begin');
  for (const text of roleSql('unbroker', names, { create: true })) await db.pool.query(text);
  await db.pool.query('commit');
  for (const role of ROLES) {
    const session = await db.session();
    await session.query(`set role ${nameOf(role)}`);
    sessions.set(role, session);
  }
});
afterAll(async () => {
  for (const role of ROLES) {
    await db.pool.query(`drop owned by ${nameOf(role)}`).catch(() => undefined);
    await db.pool.query(`drop role if exists ${nameOf(role)}`).catch(() => undefined);
  }
  await db.close();
});

/** As the server says it, or ours with the server's as its cause. */
const isRefusal = (error: unknown): boolean => {
  const { code, cause } = error as { code?: string; cause?: { code?: string } };
  return code === '42501' || (code === 'permission-denied' && cause?.code === '42501');
};

/** True when it may, false when the server says that it may not; anything else is thrown. */
async function may(role: Role, act: (on: Queryable) => Promise<unknown>): Promise<boolean> {
  const session = as(role);
  await session.query('begin');
  try {
    await act(session);
    return true;
  } catch (error) {
    if (isRefusal(error)) return false;
    throw error;
  } finally {
    await session.query('rollback');
  }
}

const sql = (text: string) => (on: Queryable) => on.query(text);
const demand = [{ kind: 'a', limit: 5, park: false }];

/** What is tried, by whom it must work; everybody else must be refused. */
const ACTS: readonly (readonly [string, readonly Role[], (on: Queryable) => Promise<unknown>])[] = [
  ['enqueue', ['enqueuer', 'worker', 'admin'], (on) => enqueue(on, 'a', { n: 1 })],
  [
    'enqueue with every option, twice',
    ['enqueuer', 'worker', 'admin'],
    async (on) => {
      const options = {
        dedupeKey: 'k',
        headers: { a: 1 },
        source: 's',
        maxAttempts: 2,
        delayMs: 5,
        priority: 1,
      };
      const retryPolicy = { type: 'fixed', delayMs: 1 } as const;
      const first = await enqueue(on, 'a', null, { ...options, retryPolicy });
      expect(await enqueue(on, 'a', null, options)).toEqual({ id: first.id, inserted: false });
    },
  ],
  [
    'enqueue a list',
    ['enqueuer', 'worker', 'admin'],
    (on) => enqueueMany(on, [{ kind: 'a' }, { kind: 'a', dedupeKey: 'm' }, { kind: 'a', dedupeKey: 'm' }]),
  ],
  [
    'the SQL function',
    ['enqueuer', 'worker', 'admin'],
    sql(`select unbroker.enqueue('a', '1', dedupe_key => 'f')`),
  ],
  [
    'a bare insert',
    ['enqueuer', 'worker', 'admin'],
    sql(`insert into unbroker.jobs (kind, payload) values ('a', '1')`),
  ],
  [
    'forge a job that is done',
    ['worker', 'admin'],
    sql(`insert into unbroker.jobs (kind, state, finished_at) values ('a', 'done', now())`),
  ],
  ['read a payload', ['worker', 'reader', 'admin'], sql('select payload from unbroker.jobs')],
  [
    'list and count',
    ['worker', 'reader', 'admin'],
    async (on) => [await store.list(on), await store.stats(on)],
  ],
  [
    'make and change a schedule',
    ['worker', 'admin'],
    async (on) => {
      for (const everyMs of [60_000, 120_000]) await schedule(on, { name: 's', kind: 'a', everyMs });
      await pauseSchedule(on, 's');
    },
  ],
  ['look at schedules', ['worker', 'reader', 'admin'], (on) => nextRuns(on, 's')],
  [
    'claim and complete',
    ['worker', 'admin'],
    async (on) => {
      const [job] = await store.claim(on, demand, 1, 'w', 60_000);
      expect(job).toBeDefined();
      if (job !== undefined)
        expect(await store.complete(on, [{ ...job, resultText: null }])).toEqual([job.id]);
    },
  ],
  [
    'reap and prune',
    ['worker', 'admin'],
    async (on) => [
      await store.reap(on, 5),
      await on.query(`select unbroker.remove_finished('{1}', '{now}')`),
    ],
  ],
  ['cancel', ['worker', 'admin'], (on) => store.cancel(on, ['1'])],
  ['say that one sleeps', ['worker', 'admin'], sql(`insert into unbroker.sleepers values ('w', now())`)],
  ['read the ledger of a drain', ['reader', 'admin'], sql('select body from unbroker.drain_ledger')],
  ['write the ledger of a drain', ['admin'], sql('delete from unbroker.drain_ledger')],
  ['remember a request of the HTTP door', ['admin'], sql('delete from unbroker.requests')],
  ['empty the table', [], sql('truncate unbroker.jobs')],
  ['change the table', [], sql('alter table unbroker.jobs add column x int')],
  ['make something in the schema', [], sql('create table unbroker.mine (a int)')],
  ['take a migration back', ['admin'], sql('delete from unbroker.migrations')],
];

test.each(ACTS)('%s', async (_name, allowed, act) => {
  await db.pool.query(`insert into unbroker.jobs (kind) values ('a')`);
  const able: Role[] = [];
  for (const role of ROLES) if (await may(role, act)) able.push(role);
  expect(able).toEqual(allowed);
});

test('who may not is told who may, and with which command', async () => {
  const enqueueing = enqueue(as('reader'), 'a');
  await expect(enqueueing).rejects.toMatchObject({
    code: 'permission-denied',
    message: 'The database role may not enqueue in schema unbroker',
    hint: expect.stringMatching(/an enqueuer, worker or admin with unbroker roles.*roles\.md/),
  });
  const scheduling = schedule(as('enqueuer'), { name: 's', kind: 'a', everyMs: 60_000 });
  await expect(scheduling).rejects.toMatchObject({
    code: 'permission-denied',
    hint: expect.stringContaining('a worker or admin'),
  });
});

test('what a caller’s own trigger may not is the server’s error', async () => {
  await db.pool.query(`
    create table audit (kind text);
    create function audited() returns trigger language plpgsql as $$ begin insert into audit values (new.kind); return new; end $$;
    create trigger audited before insert on unbroker.jobs for each row execute function audited()`);
  try {
    await expect(enqueue(as('enqueuer'), 'a')).rejects.toMatchObject({ code: '42501' });
  } finally {
    await db.pool.query('drop trigger audited on unbroker.jobs');
  }
});

test('nobody can hand on what was granted', async () => {
  // A grant that is not one's to give is only a warning.
  for (const role of ROLES) await may(role, sql('grant all on unbroker.jobs to public'));
  const open = `select has_table_privilege('public', 'unbroker.jobs', 'select') as open`;
  expect((await db.pool.query<{ open: boolean }>(open)).rows[0]?.open).toBe(false);
});

test('where nothing is granted to everybody a worker may call functions and procedures alike', async () => {
  const { rows } = await db.pool.query<{ name: string }>(`
select oid::regprocedure::text as name from pg_proc
where pronamespace = 'unbroker'::regnamespace and prokind in ('f', 'p')
  and not exists (select from aclexplode(proacl) as given
    where given.grantee = '${nameOf('worker')}'::regrole and given.privilege_type = 'EXECUTE')`);
  expect(rows).toEqual([]);
});

test('a worker process with no more than its role claims, retries, sweeps and prunes', async () => {
  await db.pool.query('truncate unbroker.jobs');
  const url = new URL(db.url);
  url.searchParams.set('options', `-c role=${nameOf('worker')}`);
  await enqueue(as('enqueuer'), 'a', { n: 1 }, { retryPolicy: { type: 'fixed', delayMs: 0 } });
  const worker = startWorker({
    ...{ url: url.href, upkeepMs: 20, retentionMs: 0 },
    handlers: {
      a: (job) => {
        if (job.attempt === 1) throw new Error('again');
      },
    },
  });
  try {
    await worker.untilEnded(2);
    expect(worker.settled().map(({ outcome }) => outcome.type)).toEqual(['retry', 'complete']);
    expect(worker.errors()).toEqual([]);
  } finally {
    await worker.close();
  }
});

test('the doctor names who lacks what, and the command that it gives mends it', async () => {
  const grants = async () =>
    (await examine(await db.session(), { schema: 'unbroker' })).find(({ check }) => check === 'grants');
  expect(await grants()).toMatchObject({ status: 'ok' });
  const worker = nameOf('worker');
  await db.pool.query(`revoke all on unbroker.lease_tokens, unbroker.sleepers from ${worker}`);
  await db.pool.query(`revoke insert (ordering_key) on unbroker.jobs from ${nameOf('enqueuer')}`);
  const found = await grants();
  expect(found?.status).toBe('bad');
  expect(found?.found).toContain(`${worker} lacks delete on sleepers`);
  expect(found?.found).toContain('usage on lease_tokens');
  expect(found?.found).toContain(`${nameOf('enqueuer')} lacks insert on jobs`);
  const both = ['--worker', worker, '--enqueuer', nameOf('enqueuer')];
  const applied = await roles(...both, '--apply', '--json');
  expect(applied.code).toBe(0);
  expect(JSON.parse(applied.stdout)).toMatchObject({ applied: true });
  expect(await grants()).toMatchObject({ status: 'ok' });
});

test('the SQL can be run as it is printed; what no grant can be made of is refused', async () => {
  const printed = roleSql('unbroker', { reader: nameOf('reader') });
  for (let twice = 0; twice < 2; twice += 1) await db.pool.query(printed.join(';'));
  expect(await may('reader', sql('select payload from unbroker.jobs'))).toBe(true);
  for (const name of ['x"; drop table y; --', 'public', 'pg_monitor', 'Upper', '', 'a'.repeat(64)])
    expect(() => roleSql('unbroker', { reader: name })).toThrow(/name of a role is not usable/);
  const refused = await roles('--reader', 'no_such_role', '--apply');
  expect(refused.code).toBe(2);
  expect(refused.stderr).toContain('[role-missing]');
});
