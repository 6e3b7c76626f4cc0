/**
 * Migrations: safe to race, safe to be killed, patient with live traffic, refused when the database is newer; and the
 * printed DDL makes the same schema.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { Queryable } from '../../src/jobs/job.js';
import {
  checkSchema,
  type MigratePool,
  type Migration,
  migrate,
  migrationSql,
  readMigrations,
} from '../../src/migrate.js';
import { type JobsDatabase, jobsDatabase, openSession } from '../support/jobs.js';
import { startPostgres } from '../support/services.js';
import { until } from '../support/until.js';
import { startWorker } from '../support/workers.js';

let db: JobsDatabase;
/** For each test of a group: with nothing in it, or the newest schema as a copy, which is a tenth of the work. */
function databaseOf(what: 'nothing' | 'the newest'): void {
  beforeEach(async () => {
    db = await jobsDatabase({ migrated: what === 'the newest' });
  });
  afterEach(() => db.close());
}

const own = readMigrations();
const newest = own.at(-1)?.version ?? 0;
const extra = (text: string, transactional = true): Migration[] => [
  ...own,
  { version: 900, name: '900_extra', text, transactional },
];

/** Everything that a schema holds, in words. */
async function signature(schema: string, on: Queryable = db.pool): Promise<unknown> {
  const ask = async (text: string) => (await on.query(text, [schema])).rows;
  return {
    columns: await ask(
      `select table_name, column_name, data_type, is_nullable, column_default, is_identity
       from information_schema.columns where table_schema = $1 order by 1, 2`,
    ),
    constraints: await ask(
      `select conrelid::regclass::text as on, conname, convalidated, pg_get_constraintdef(oid) as def
       from pg_constraint where connamespace = $1::regnamespace order by 1, 2`,
    ),
    indexes: await ask(
      `select indexrelid::regclass::text as name, indisvalid, pg_get_indexdef(indexrelid) as def
       from pg_index where indrelid in (select oid from pg_class where relnamespace = $1::regnamespace) order by 1`,
    ),
    triggers: await ask(
      `select tgname, pg_get_triggerdef(tgs.oid) as def
       from pg_trigger tgs join pg_class on tgrelid = pg_class.oid where relnamespace = $1::regnamespace and not tgisinternal order by 1`,
    ),
    functions: await ask(
      `select proname, pg_get_functiondef(oid) as def from pg_proc where pronamespace = $1::regnamespace and prokind = 'f' order by 1, 2`,
    ),
    options: await ask(
      `select relname, relkind::text, relpersistence::text, reloptions from pg_class where relnamespace = $1::regnamespace order by 1`,
    ),
    versions: await ask(`select version, name from ${schema}.migrations where $1 <> '' order by 1`),
  };
}

describe('once', () => {
  databaseOf('nothing');
  test('from nothing to the newest, with no index left invalid; the second run changes nothing', async () => {
    const first = await migrate(db.pool);
    expect(first).toEqual({ schema: 'unbroker', from: 0, to: newest, applied: own.map(({ name }) => name) });
    const before = await signature('unbroker');
    expect(await migrate(db.pool)).toEqual({ schema: 'unbroker', from: newest, to: newest, applied: [] });
    expect(await signature('unbroker')).toEqual(before);
    await checkSchema(db.pool);
    const { rows } = await db.pool.query(`select count(*)::int as n from pg_index where not indisvalid`);
    expect(rows[0].n).toBe(0);
  });

  /** One schema goes through every version, a run for each; a few jump to the newest. UNBROKER_TEST_LONG=1: all jump. */
  test('from every version that ever was to the same schema', async () => {
    await migrate(db.pool, { schema: 'fresh' });
    const renamed = (schema: string) => async () =>
      JSON.parse(
        JSON.stringify(await signature(schema))
          .replaceAll(schema, 'fresh')
          .replaceAll('"fresh".', 'fresh.')
          .replaceAll('\\"fresh\\".', 'fresh.'),
      );
    const wanted = await renamed('fresh')();
    for (let known = 1; known <= own.length; known += 1) {
      const { applied } = await migrate(db.pool, { schema: 'stepwise', migrations: own.slice(0, known) });
      expect(applied).toEqual([own[known - 1]?.name]);
    }
    expect(await renamed('stepwise')()).toEqual(wanted);
    const all = Array.from({ length: own.length - 1 }, (_, index) => index + 1);
    const some = [1, Math.floor(own.length / 2), own.length - 1];
    for (const known of process.env['UNBROKER_TEST_LONG'] ? all : some) {
      const schema = `upgraded_${known}`;
      await migrate(db.pool, { schema, migrations: own.slice(0, known) });
      expect((await migrate(db.pool, { schema })).applied).toEqual(own.slice(known).map(({ name }) => name));
      expect(await renamed(schema)()).toEqual(wanted);
    }
  });

  test('what a team’s own tool runs, printed by --sql, makes the same schema', async (context) => {
    const psql = spawnSync('psql', ['--version']);
    if (psql.status !== 0) context.skip('psql is not installed');
    await migrate(db.pool, { schema: 'by_us' });
    execFileSync('psql', [db.url, '--no-psqlrc', '--quiet', '--set', 'ON_ERROR_STOP=1', '--file', '-'], {
      input: migrationSql('by_psql'),
      stdio: ['pipe', 'ignore', 'pipe'],
    });
    const words = async (schema: string) =>
      JSON.parse(
        JSON.stringify(await signature(schema))
          .replaceAll(schema, 'same')
          .replaceAll('\\"same\\".', 'same.'),
      );
    expect(await words('by_psql')).toEqual(await words('by_us'));
    expect(await migrate(db.pool, { schema: 'by_psql' })).toMatchObject({ from: newest, applied: [] });
    // A second time by mistake: it stops at the first line that is there already, or changes nothing.
    await checkSchema(db.pool, 'by_psql');
  });
});

describe('at the same time', () => {
  databaseOf('nothing');
  test.each([3, 8])('%i runners: one works, the others wait, all end well', async (count) => {
    const results = await Promise.all(Array.from({ length: count }, () => migrate(db.pool)));
    const applied = results.flatMap((result) => result.applied);
    expect(applied.sort()).toEqual(own.map(({ name }) => name).sort());
    expect(results.every(({ to }) => to === newest)).toBe(true);
    const { rows } = await db.pool.query('select count(*)::int as n from unbroker.migration_lease');
    expect(rows[0].n).toBe(0);
  });

  test('a runner that has the turn keeps the others waiting, and they say so when it takes too long', async () => {
    await migrate(db.pool, { migrations: own.slice(0, 2) });
    await db.pool.query(
      `insert into unbroker.migration_lease values (true, 'somebody', now() + interval '1 hour')`,
    );
    await expect(migrate(db.pool, { maxWaitMs: 300 })).rejects.toMatchObject({
      code: 'migrate-busy',
      exitStatus: 1,
    });
  });

  test('a runner that was killed keeps nobody out: its turn ends by itself', async () => {
    await migrate(db.pool, { migrations: own.slice(0, 2) });
    await db.pool.query(
      `insert into unbroker.migration_lease values (true, 'killed', now() + interval '300 ms')`,
    );
    expect((await migrate(db.pool)).applied).toEqual(own.slice(2).map(({ name }) => name));
  });
});

describe('beside live traffic', () => {
  databaseOf('the newest');
  const alter = extra('alter table {schema}.jobs add column extra int');

  test('a migration that takes longer than a turn keeps it', async () => {
    const blocker = await db.session();
    await blocker.query('begin');
    await blocker.query('select from unbroker.jobs');
    const running = migrate(db.pool, { migrations: alter, leaseMs: 1_500 });
    await until(
      'it has its turn',
      async () => (await db.pool.query('select from unbroker.migration_lease')).rowCount === 1,
    );
    const expiresAt = async (): Promise<Date> =>
      (await db.pool.query('select expires_at from unbroker.migration_lease')).rows[0].expires_at;
    const first = await expiresAt();
    await until('it is renewed twice', async () => (await expiresAt()).getTime() - first.getTime() > 700);
    await blocker.query('rollback');
    await running;
  });

  test('a reader that holds the table delays the migration, not everybody behind it', async () => {
    const reader = await db.session();
    await reader.query('begin');
    await reader.query('select count(*) from unbroker.jobs');
    const migrating = migrate(db.pool, { migrations: alter });
    await until('the migration waits for the lock', async () => {
      const { rows } = await db.pool.query(
        `select count(*)::int as n from pg_locks where not granted and mode = 'AccessExclusiveLock'`,
      );
      return rows[0].n > 0;
    });
    let slowestMs = 0;
    for (let i = 0; i < 12; i += 1) {
      const startedAt = performance.now();
      await db.put('a', [i]);
      await db.claim('a');
      slowestMs = Math.max(slowestMs, performance.now() - startedAt);
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    // Half a second behind the migration's lock, as long as the reader reads without it.
    expect(slowestMs).toBeLessThan(10_000);
    await reader.query('commit');
    expect((await migrating).applied).toEqual(['900_extra']);
  }, 180_000);

  test('workers go on while it runs: no deadlock, no job lost', async () => {
    await db.put('a', Array(2_000).fill(0));
    const worker = startWorker({
      url: db.url,
      concurrency: 50,
      handlers: { a: () => new Promise((resolve) => setTimeout(resolve, 5)) },
    });
    await until('it works', () => worker.settled().length > 50);
    await migrate(db.pool, {
      migrations: [
        ...alter,
        {
          version: 901,
          name: '901_index',
          text: 'create index concurrently on {schema}.jobs (extra);',
          transactional: false,
        },
        {
          version: 902,
          name: '902_drop',
          text: 'alter table {schema}.jobs drop column extra',
          transactional: true,
        },
      ],
    });
    await worker.untilEnded(2_000, 60_000);
    expect(await db.states()).toEqual({ done: 2_000 });
    expect(worker.errors().filter((error) => (error as { code?: string }).code === '40P01')).toEqual([]);
    await worker.close();
  }, 180_000);

  test('one that never gets its lock gives up with the next step', async () => {
    const never: MigratePool = {
      query: (text, values) => db.pool.query(text, values),
      connect: async () => {
        const client = await db.pool.connect();
        return {
          query: async (text: string, values?: unknown[]) => {
            if (text.startsWith('alter')) throw Object.assign(new Error('lock timeout'), { code: '55P03' });
            return client.query(text.replace(`'2s'`, `'1ms'`), values);
          },
          release: (destroy) => client.release(destroy),
        };
      },
    };
    await expect(migrate(never, { migrations: alter, maxLockTries: 2 })).rejects.toMatchObject({
      code: 'migrate-locked',
      exitStatus: 1,
      hint: expect.stringContaining('pg_stat_activity'),
    });
  }, 180_000);
});

describe('by a role that is not the owner', () => {
  databaseOf('nothing');
  const suffix = randomBytes(4).toString('hex');
  const [owner, member, granted] = ['owner', 'member', 'granted'].map((name) => `ub_${name}_${suffix}`);
  const steps = [
    'create table {schema}.jobs ()',
    'create table {schema}.more ()',
    'create table {schema}.last ()',
  ];
  const upTo = (version: number): Migration[] =>
    steps
      .slice(0, version)
      .map((text, at) => ({ version: at + 1, name: `00${at + 1}_step`, text, transactional: true }));
  const run = async (role: string | undefined, version: number) => {
    const url = new URL(db.url);
    if (role !== undefined) url.username = role;
    const pool = new pg.Pool({ connectionString: url.href, max: 3 });
    pool.on('error', () => {});
    return migrate(pool, { migrations: upTo(version) }).finally(() => pool.end());
  };
  const owners = async (): Promise<unknown> => {
    const { rows } = await db.pool.query(
      `select relname, relowner::regrole::text as owner from pg_class
       where relnamespace = 'unbroker'::regnamespace and relkind = 'r' and relname not like 'migration%' order by oid`,
    );
    return rows.map((row) => [row.relname, row.owner]);
  };
  beforeEach(async () => {
    for (const role of [owner, member, granted]) await db.pool.query(`create role ${role} login`);
    await db.pool.query(`grant ${owner} to ${member}; grant create on database ${db.name} to ${owner}`);
    await run(owner, 1);
  });
  afterEach(async () => {
    await db.pool.query(
      `drop schema unbroker cascade; drop owned by ${owner}, ${member}, ${granted}; drop role ${owner}, ${member}, ${granted}`,
    );
  });

  test('what a superuser or a member adds is the owner’s all the same', async () => {
    await run(undefined, 2);
    await run(member, 3);
    expect(await owners()).toEqual([
      ['jobs', owner],
      ['more', owner],
      ['last', owner],
    ]);
  });

  test('with rights to everything and without being one: refused before anything is done, with the name', async () => {
    await db.pool.query(
      `grant all on schema unbroker to ${granted}; grant all on all tables in schema unbroker to ${granted}`,
    );
    await expect(run(granted, 2)).rejects.toMatchObject({
      ...{ code: 'not-the-owner', exitStatus: 2, hint: `Run unbroker migrate as ${owner}.` },
    });
    expect(await owners()).toEqual([['jobs', owner]]);
  });

  test('where several own a part, it runs under its own name', async () => {
    await db.pool.query(`create table unbroker.another (); alter table unbroker.another owner to ${member}`);
    await run(undefined, 2);
    const { rows } = await db.pool.query('select current_user as me');
    expect(await owners()).toEqual([
      ['jobs', owner],
      ['another', member],
      ['more', rows[0].me],
    ]);
  });
});

describe('beside an autovacuum', () => {
  test('of a large table: it gives way within a few tries, to a role that may not see what it does, too', async () => {
    const server = await startPostgres({
      ...{ controllable: true, durable: false },
      // Longer than a try waits, or the first one would be enough.
      settings: { autovacuum_naptime: '1s', deadlock_timeout: '600ms' },
    });
    const pool = new pg.Pool({ connectionString: server.url, max: 1 });
    pool.on('error', () => {});
    const url = new URL(server.url);
    url.username = 'plain';
    const plain = new pg.Pool({ connectionString: url.href, max: 3 });
    plain.on('error', () => {});
    try {
      // At a page each tenth of a second it takes minutes. What a session wrote is counted when it ends.
      const writer = await openSession(server.url, pool);
      await writer.query(
        `create role plain login; grant create on database postgres to plain; create schema mine authorization plain;
         create table mine.t with (autovacuum_vacuum_insert_threshold = 1, autovacuum_vacuum_insert_scale_factor = 0,
           autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1)
         as select repeat('x', 1900) as text from generate_series(1, 2000);
         alter table mine.t owner to plain`,
      );
      await writer.end();
      await until('an autovacuum is at it', async () => {
        const { rows } = await pool.query('select relid::regclass::text as at from pg_stat_progress_vacuum');
        return rows.some(({ at }) => at === 'mine.t');
      });
      // The shortest pause between two tries.
      vi.spyOn(Math, 'random').mockReturnValue(0);
      const text = 'alter table {schema}.t add column extra int';
      const { applied } = await migrate(plain, {
        ...{ schema: 'mine', maxLockTries: 8 },
        migrations: [{ version: 1, name: '001_extra', text, transactional: true }],
      });
      expect(applied).toEqual(['001_extra']);
    } finally {
      vi.restoreAllMocks();
      await Promise.all([plain.end(), pool.end()]);
      await server.close();
    }
  }, 180_000);
});

describe('interrupted', () => {
  databaseOf('the newest');
  test('its connection is ended within a transaction: nothing of it is there, the next run completes', async () => {
    const pool = new pg.Pool({ connectionString: db.url, max: 3, application_name: 'migrating' });
    pool.on('error', () => {});
    const slow = extra(
      'create table {schema}.half (id int); select pg_sleep(30); create table {schema}.other (id int);',
    );
    const running = migrate(pool, { migrations: slow });
    running.catch(() => undefined);
    await until('it sleeps', async () => {
      const { rowCount } = await db.pool.query(
        `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'migrating' and wait_event = 'PgSleep'`,
      );
      return (rowCount ?? 0) > 0;
    });
    await expect(running).rejects.toThrow();
    expect((await db.pool.query(`select to_regclass('unbroker.half') as t`)).rows[0].t).toBeNull();
    expect(
      (await migrate(db.pool, { migrations: extra('create table {schema}.half (id int)') })).applied,
    ).toEqual(['900_extra']);
    await pool.end();
  });

  test('between two of its steps: the process lives and hears of it', async () => {
    const pool = new pg.Pool({ connectionString: db.url, max: 3, application_name: 'migrating' });
    pool.on('error', () => {});
    const ended: MigratePool = {
      query: (text, values) => pool.query(text, values),
      connect: async () => {
        const client = await pool.connect();
        const broken = new Promise((resolve) => client.once('end', resolve));
        const query = async (text: string, values?: unknown[]) => {
          if (text.includes('first step')) {
            await db.pool.query(
              `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'migrating' and state = 'idle'`,
            );
            await broken;
          }
          return client.query(text, values);
        };
        return {
          query,
          release: (destroy) => client.release(destroy),
          on: (event, listener) => client.on(event, listener),
          off: (event, listener) => client.off(event, listener),
        };
      },
    };
    await expect(migrate(ended, { migrations: extra(`select 'first step'`, false) })).rejects.toThrow();
    expect((await migrate(db.pool, { migrations: extra('select 1') })).applied).toEqual(['900_extra']);
    await pool.end();
  });

  test('while an index is built: the invalid one is replaced by the next run', async () => {
    const until3 = own.filter(({ version }) => version <= 3);
    const schema = 'half_built';
    await migrate(db.pool, { schema, migrations: until3 });
    // A concurrent build waits for every older transaction that could still see the table without it.
    const old = await db.session();
    await old.query('begin isolation level repeatable read');
    await old.query('select from half_built.jobs');
    const pool = new pg.Pool({ connectionString: db.url, max: 3, application_name: 'building' });
    pool.on('error', () => {});
    const running = migrate(pool, { schema });
    running.catch(() => undefined);
    await until('it waits for the old transaction', async () => {
      const { rowCount } = await db.pool.query(
        `select pg_terminate_backend(pid) from pg_stat_activity
         where application_name = 'building' and query like 'create index concurrently%' and wait_event_type = 'Lock'`,
      );
      return (rowCount ?? 0) > 0;
    });
    await expect(running).rejects.toThrow();
    await old.query('commit');
    const invalid = async () =>
      (await db.pool.query(`select count(*)::int as n from pg_index where not indisvalid`)).rows[0].n;
    expect(await invalid()).toBe(1);
    await migrate(db.pool, { schema });
    expect(await invalid()).toBe(0);
    await pool.end();
  }, 180_000);
});

describe('refused', () => {
  databaseOf('the newest');
  test('a database that a newer unbroker has migrated: exit 2 and the command that helps', async () => {
    await db.pool.query(`insert into unbroker.migrations values (999, '999_from_the_future')`);
    const newer = {
      code: 'schema-newer',
      exitStatus: 2,
      message: expect.stringContaining('999'),
      hint: expect.stringContaining('npm install unbroker@latest'),
    };
    await expect(migrate(db.pool)).rejects.toMatchObject(newer);
    await expect(checkSchema(db.pool)).rejects.toMatchObject(newer);
  });

  test('a schema that is missing or older: the command that helps', async () => {
    const schema = 'another';
    await expect(checkSchema(db.pool, schema)).rejects.toMatchObject({
      code: 'schema-missing',
      exitStatus: 2,
      hint: expect.stringMatching(/^Run: unbroker migrate\. .*--schema/),
    });
    await migrate(db.pool, { schema, migrations: own.slice(0, 1) });
    await expect(checkSchema(db.pool, schema)).rejects.toMatchObject({
      code: 'schema-older',
      exitStatus: 2,
      message: expect.stringMatching(/ is at version 1, .*\(002_functions to \d{3}_\w+\)$/),
      hint: expect.stringMatching(/^Run: unbroker migrate, then unbroker roles/),
    });
  });
});

describe('refused without a look at the schema', () => {
  test.each([
    ['PostgreSQL 12.22', 120_022],
    ['CockroachDB CCL v25.1', 130_000],
  ])('%s', async (text, number) => {
    const query = async () => ({ rows: [{ number, text }], rowCount: 1 });
    const fake: MigratePool = { query, connect: () => Promise.reject(new Error('not reached')) };
    await expect(migrate(fake)).rejects.toMatchObject({ code: 'server-unsupported', exitStatus: 2 });
  });

  test.each(['public', 'Jobs', 'a b', `x"; drop schema public cascade; --`])(
    'the schema name %j, before anything is asked',
    async (schema) => {
      const never: MigratePool = {
        query: () => Promise.reject(new Error('asked')),
        connect: () => Promise.reject(new Error('asked')),
      };
      await expect(migrate(never, { schema })).rejects.toMatchObject({
        code: 'schema-invalid',
        exitStatus: 2,
      });
      expect(() => migrationSql(schema)).toThrow(expect.objectContaining({ code: 'schema-invalid' }));
    },
  );
});

describe('behind a pooler in transaction mode', () => {
  databaseOf('nothing');
  test('each statement may come from another connection, with the state of the last discarded', async () => {
    const connections = await Promise.all(Array.from({ length: 3 }, () => db.session()));
    let turn = 0;
    const next = async () => {
      const session = connections[turn++ % connections.length];
      if (session === undefined) throw new Error('no session');
      const { rows } = await session.query(
        `select (select count(*)::int from pg_prepared_statements) + (select count(*)::int from pg_listening_channels())
              + (select count(*)::int from pg_locks where pid = pg_backend_pid() and locktype = 'advisory')
              + (select count(*)::int from pg_settings where source = 'session') as state`,
      );
      expect(rows).toEqual([{ state: 0 }]);
      return session;
    };
    const pooled: MigratePool = {
      query: async (text, values) => (await next()).query(text, values),
      connect: async () => {
        // A transaction stays on its connection; outside one the next statement may find itself on another.
        let current = await next();
        let open = false;
        return {
          query: async (text, values) => {
            if (!open) current = await next();
            if (text === 'begin') open = true;
            if (text === 'commit' || text === 'rollback') open = false;
            return current.query(text, values);
          },
          release: () => {},
        };
      },
    };
    expect((await migrate(pooled)).to).toBe(newest);
    const worker = startWorker({
      url: db.url,
      db: { query: pooled.query },
      upkeepMs: 30,
      handlers: { a: () => 1 },
    });
    await db.put('a', Array(30).fill(0));
    await worker.untilEnded(30);
    await worker.close();
    expect(await db.states()).toEqual({ done: 30 });
  });
});
