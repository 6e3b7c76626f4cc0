/** Each finding of the doctor that can be provoked on a real server is provoked, and gone when its cause is. */
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import { examine, type Finding } from '../../src/doctor/index.js';
import { startCli } from '../support/cli.js';
import { endLeases, jobsDatabase } from '../support/jobs.js';
import { until } from '../support/until.js';

const db = await jobsDatabase();
const patient = await db.session();
afterAll(() => db.close());
beforeEach(() => db.clear());

const look = (options: { queries?: boolean; maxLagMs?: number } = {}): Promise<Finding[]> =>
  examine(patient, { schema: db.schema, ...options });

/** One finding by its name. */
async function finding(check: string, options = {}): Promise<Finding> {
  const found = (await look(options)).find((each) => each.check === check);
  if (found === undefined) throw new Error(`there is no finding ${check}`);
  return found;
}

const due = (kind: string, ago: string) =>
  db.pool.query(`insert into unbroker.jobs (kind, run_at) values ($1, now() - $2::interval)`, [kind, ago]);

test('a fresh schema on a server as it should be has nothing bad', async () => {
  const findings = await look();
  expect(findings.filter(({ status }) => status === 'bad')).toEqual([]);
  expect(findings.map(({ check }) => check)).toEqual([
    'server',
    'rights',
    'clock',
    'schema',
    'grants',
    'jobs',
    'lag',
    'unworked-kinds',
    'expired-leases',
    'unnamed-leases',
    'solo-jobs',
    'schedules',
    'dead-rows',
    'table-options',
    'indexes',
    'sequences',
    'horizon',
    'prepared-transactions',
    'replication-slots',
    'xid-age',
    'notify-queue',
    'connections',
    'setting-fsync',
    'setting-full-page-writes',
    'setting-synchronous-commit',
    'setting-autovacuum',
    'setting-statement-timeout',
    'setting-isolation',
    'setting-float-digits',
    'setting-timezone',
  ]);
  // What is written in rules.ts as shipped is what the migrations give.
  expect(findings.find(({ check }) => check === 'table-options')?.status).toBe('ok');
});

describe('what waits and runs', () => {
  test('a kind that waits and that nobody works on', async () => {
    await due('orphan', '20 minutes');
    expect(await finding('unworked-kinds')).toMatchObject({ status: 'bad', found: 'orphan (1 due)' });
    expect(await finding('lag')).toMatchObject({ status: 'bad', found: 'orphan: due for 20m' });
    expect((await finding('unworked-kinds', { maxLagMs: 3_600_000 })).status).toBe('warn');
    expect((await finding('lag', { maxLagMs: 86_400_000 })).status).toBe('ok');
  });

  test('a kind that is late but worked on is late, not orphaned', async () => {
    await due('busy', '20 minutes');
    await due('busy', '21 minutes');
    const [job] = await db.claim('busy', { total: 1 });
    expect((await finding('unworked-kinds')).status).toBe('ok');
    await db.store.complete(db.pool, [{ ...(job as { id: string; leaseToken: string }), resultText: null }]);
    expect((await finding('unworked-kinds')).status).toBe('ok');
    expect((await finding('lag')).status).toBe('bad');
    await db.pool.query(
      `update unbroker.jobs set finished_at = now() - interval '11 minutes' where state = 'done'`,
    );
    expect((await finding('unworked-kinds')).status).toBe('bad');
  });

  test('a kind of bytes that no worker knows, imported dead just now and retried by an operator', async () => {
    const { rows } = await db.pool.query<{ id: string }>(`
      insert into unbroker.jobs (kind, body, state, finished_at, dead, attempts)
      select 'legacy', 'x', 'dead', now(), true, 3 from generate_series(1, 4)
      returning id::text`);
    const [first = '', second = '', third = ''] = rows.map(({ id }) => id);
    expect(await db.store.operatorRetry(db.pool, [first, second, third], 1)).toEqual([first, second, third]);
    const orphaned = async (): Promise<string> => {
      await db.pool.query(
        `update unbroker.jobs set run_at = now() - interval '2 minutes' where state = 'ready'`,
      );
      const { status, found } = await finding('unworked-kinds');
      return `${status}: ${found}`;
    };
    expect(await orphaned()).toBe('warn: legacy (3 due)');
    // What an operator ends is not worked on either.
    await db.store.operatorDiscard(db.pool, [second]);
    await db.store.cancel(db.pool, [third]);
    expect(await orphaned()).toBe('warn: legacy (1 due)');
    // One that a worker gave up is.
    await db.put('legacy', [1]);
    const failed = (await db.claim('legacy')).map((job) => ({ ...job, name: 'Error', message: 'no' }));
    expect(await db.store.discard(db.pool, failed.slice(-1))).toHaveLength(1);
    await db.store.release(db.pool, failed);
    expect(await orphaned()).toBe('ok: none');
  });

  test('future jobs and schedules are not late', async () => {
    await due('later', '-1 hour');
    await db.pool.query(
      `insert into unbroker.jobs (kind, run_at, cron) values ('scheduled', now() - interval '1 hour', '* * * * *')`,
    );
    expect(await finding('lag')).toMatchObject({ status: 'ok', found: 'nothing is due' });
    expect((await finding('unworked-kinds')).status).toBe('ok');
  });

  test('leases that ended and were not taken back', async () => {
    await db.put('slow', [1, 2]);
    await db.claim('slow');
    expect(await finding('expired-leases')).toMatchObject({ status: 'ok', found: 'none' });
    await endLeases(db.pool, { ago: '2 minutes' });
    expect(await finding('expired-leases')).toMatchObject({
      status: 'bad',
      found: 'slow (2), the oldest for 2m',
    });
    await db.store.reap(db.pool, 100);
    expect((await finding('expired-leases')).status).toBe('ok');
  });

  test('a job that runs and is nowhere noted: no sweep finds it, until what it says is done', async () => {
    const ids = await db.put('restored', [1, 2, 3]);
    const [keyed] = await db.put('restored', [4], { orderingKey: 'k' });
    await db.pool.query('update unbroker.jobs set solo = true where id = $1', [ids[0]]);
    await db.claim('restored', { total: 1 });
    await db.store.claimSolo(db.pool, [{ kind: 'restored', limit: 1, park: false }], 'w', 30_000);
    await db.claim('restored');
    expect(await db.states()).toEqual({ running: 4 });
    expect(await finding('unnamed-leases')).toMatchObject({ status: 'ok', found: 'none' });
    // As where the jobs alone were restored.
    await db.pool.query(
      `truncate unbroker.claims; select setval('unbroker.lease_tokens', min(lease_token), false) from unbroker.jobs`,
    );
    await db.expire();
    expect(await db.store.reap(db.pool, 100)).toEqual([]);
    const found = await finding('unnamed-leases');
    expect(found).toMatchObject({
      status: 'bad',
      found: `4 running jobs that no sweep will find, the first is ${[...ids, keyed].sort((a, b) => Number(a) - Number(b))[0]}`,
    });
    const act = /select .*\.note_running\(\)/.exec(found.next ?? '')?.[0] ?? '';
    await db.pool.query(act);
    expect((await finding('unnamed-leases')).status).toBe('ok');
    // Others go on with tokens of their own.
    await db.put('other', [1, 2]);
    for (const kind of ['other', 'other']) expect(await db.claim(kind, { total: 1 })).toHaveLength(1);
    await db.pool.query(`delete from unbroker.jobs where kind = 'other'`);
    expect(await db.store.reap(db.pool, 100)).toHaveLength(4);
  });

  test('a job that waits to be run alone, a schedule that nobody fires', async () => {
    await db.pool.query(
      `insert into unbroker.jobs (kind, solo, run_at) values ('poison', true, now() - interval '1 hour')`,
    );
    await db.pool.query(
      `insert into unbroker.jobs (kind, run_at, cron, misfire, time_zone, slots_until, dedupe_key)
       values ('report', now() - interval '1 hour', '* * * * *', 'once', 'UTC', now(), 'schedule:nightly')`,
    );
    expect((await finding('solo-jobs')).status).toBe('bad');
    expect(await finding('schedules')).toMatchObject({
      status: 'bad',
      found: 'nightly should have fired 60m ago',
    });
  });
});

describe('the horizon', () => {
  test('names the session that holds it, and its query only when asked', async () => {
    const holder = await db.session();
    await holder.query(`set application_name = 'report-builder'`);
    await holder.query('begin isolation level repeatable read');
    await holder.query(`select 'secret-in-a-query'`);
    const quiet = await finding('horizon');
    expect(quiet.found).toMatch(
      new RegExp(`^held by pid ${holder.pid} \\(report-builder, idle in transaction\\), open for \\d+s$`),
    );
    expect(quiet.status).toBe('ok');
    expect(JSON.stringify(quiet)).not.toContain('secret-in-a-query');
    expect(JSON.stringify(await finding('horizon', { queries: true }))).toContain('secret-in-a-query');
    await holder.query('commit');
    expect((await finding('horizon')).found).not.toContain('report-builder');
  });

  test('a prepared transaction', async () => {
    const { rows } = await db.pool.query(`select current_setting('max_prepared_transactions')::int as max`);
    // Off by default, as most servers have it: then there can be none.
    if (rows[0].max === 0) {
      expect((await finding('prepared-transactions')).found).toBe('none');
      return;
    }
    const session = await db.session();
    await session.query('begin');
    await session.query('create table held (a int)');
    await session.query(`prepare transaction 'doctor-${session.pid}'`);
    expect((await finding('prepared-transactions')).found).toMatch(/^1, the oldest \(doctor-/);
    await session.query(`rollback prepared 'doctor-${session.pid}'`);
  });
});

describe('the table', () => {
  test('options that are not as shipped', async () => {
    await db.pool.query(
      'alter table unbroker.jobs set (fillfactor = 100); alter table unbroker.jobs reset (autovacuum_vacuum_threshold)',
    );
    expect(await finding('table-options')).toMatchObject({
      status: 'warn',
      found: 'fillfactor 100 instead of 30, autovacuum_vacuum_threshold unset instead of 5000',
    });
    await db.pool.query('alter table unbroker.jobs set (autovacuum_enabled = false)');
    expect((await finding('table-options')).status).toBe('bad');
    await db.pool.query(
      'alter table unbroker.jobs reset (autovacuum_enabled); alter table unbroker.jobs set (fillfactor = 30, autovacuum_vacuum_threshold = 5000)',
    );
    expect((await finding('table-options')).status).toBe('ok');
  });

  test('dead rows beside a snapshot that keeps them', async () => {
    const holder = await db.session();
    await db.pool.query(
      `insert into unbroker.jobs (kind, run_at) select 'd', now() + interval '1 day' from generate_series(1, 60000)`,
    );
    await holder.query('begin isolation level repeatable read');
    await holder.query('select 1');
    // A session that ends reports what it did at once; one that goes on may keep it for ten seconds.
    const writer = await db.session();
    await writer.query('update unbroker.jobs set progress = null');
    await writer.end();
    const found = await until('the statistics know of it', async () => {
      const now = await finding('dead-rows');
      return now.status === 'ok' ? null : now;
    });
    expect(found.status).toBe('warn');
    expect(found.next).toContain('horizon');
    await holder.query('commit');
  });

  test('a sequence that was set far ahead, an invalid index', async () => {
    const { rows } = await db.pool.query(`select last_value from unbroker.lease_tokens`);
    await db.pool.query(`select setval('unbroker.lease_tokens', 8000000000000000000)`);
    expect(await finding('sequences')).toMatchObject({
      status: 'bad',
      found: 'lease_tokens is the furthest, 87% used',
    });
    await db.pool.query(`select setval('unbroker.lease_tokens', $1)`, [rows[0].last_value]);
    await db.put('twice', [1, 2]);
    await expect(
      db.pool.query('create unique index concurrently broken on unbroker.jobs (kind)'),
    ).rejects.toThrow();
    expect(await finding('indexes')).toMatchObject({ status: 'bad', found: 'invalid: unbroker.broken' });
    await db.pool.query('drop index unbroker.broken');
    expect((await finding('indexes')).status).toBe('ok');
  });
});

test('settings of the role or the database', async () => {
  const database = `alter database ${db.name}`;
  await db.pool.query(`${database} set synchronous_commit = off`);
  await db.pool.query(`${database} set statement_timeout = 50`);
  await db.pool.query(`${database} set default_transaction_isolation = 'serializable'`);
  await db.pool.query(`${database} set extra_float_digits = -3`);
  await db.pool.query(`${database} set default_transaction_read_only = on`);
  const session = await db.session();
  const findings = new Map(
    (await examine(session, { schema: db.schema })).map((each) => [each.check, each.status]),
  );
  await session.query('begin read write');
  for (const name of ['synchronous_commit', 'statement_timeout', 'default_transaction_read_only'])
    await session.query(`${database} reset ${name}`);
  for (const name of ['default_transaction_isolation', 'extra_float_digits'])
    await session.query(`${database} reset ${name}`);
  await session.query('commit');
  expect(findings.get('setting-synchronous-commit')).toBe('bad');
  expect(findings.get('setting-statement-timeout')).toBe('warn');
  expect(findings.get('setting-isolation')).toBe('warn');
  expect(findings.get('setting-float-digits')).toBe('bad');
  expect(findings.get('server')).toBe('bad');
});

test('a role without rights gets findings, not an error', async () => {
  const role = `${db.name}_reader`;
  const session = await db.session();
  await db.pool.query(`create role ${role}`);
  await session.query(`set role ${role}`);
  const findings = new Map((await examine(session, { schema: db.schema })).map((each) => [each.check, each]));
  await session.query('reset role');
  await db.pool.query(`drop role ${role}`);
  expect(findings.get('rights')?.status).toBe('warn');
  expect(findings.get('jobs')?.found).toBe('could not be looked at (42501)');
  expect(findings.get('xid-age')?.status).toBe('ok');
});

describe('the command', () => {
  const run = async (...args: string[]) => {
    const child = startCli(['doctor', ...args], { env: { DATABASE_URL: db.url } });
    child.endInput();
    const { code } = await child.waitForExit(90_000);
    return { code, stdout: child.stdout, stderr: child.stderr };
  };

  test('ends with 1 when something is bad, and says what to do', async () => {
    await due('orphan', '20 minutes');
    const { code, stdout } = await run();
    expect(stdout).toMatch(/unworked-kinds.*bad.*orphan \(1 due\)/);
    expect(stdout).toContain('→ Start a worker that has a handler for them');
    expect(code).toBe(1);
  });

  test('ends with 0 otherwise; without a table it says to migrate', async () => {
    const well = await run('--json');
    expect(well.stderr).toBe('');
    expect(JSON.parse(well.stdout).status).not.toBe('bad');
    expect(well.code).toBe(0);
    const none = await run('--json', '--schema', 'elsewhere');
    const { findings } = JSON.parse(none.stdout) as { findings: Finding[] };
    expect(findings.find(({ check }) => check === 'schema')).toMatchObject({
      status: 'bad',
      next: expect.stringMatching(/^Run: unbroker migrate\. .*--schema/),
    });
    // Said once: what looks into the tables is left out.
    expect(findings.filter(({ next }) => next?.startsWith('Run: unbroker migrate'))).toHaveLength(1);
    expect(findings.map(({ check }) => check)).toContain('xid-age');
    expect(none.code).toBe(1);
  });
});
