/** The starter's Postgres: committed data survives every way of going down, and nothing is left of it afterwards. */
import { existsSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { startScript } from '../support/processes.js';
import { freshDatabase, type PostgresServer, startPostgres } from '../support/services.js';
import { until } from '../support/until.js';

// Many starts of whole servers, possibly beside others' on a busy machine.
vi.setConfig({ testTimeout: 400_000 });

const cleanups: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  vi.unstubAllEnvs();
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 5_000 });
  client.on('error', () => {});
  await client.connect();
  cleanups.push(() => client.end().catch(() => {}));
  return client;
}

async function rows(server: PostgresServer): Promise<number> {
  const client = await connect(server.url);
  return (await client.query('select from t')).rowCount ?? 0;
}

/** One server of each kind, from its first start to its end: initdb is most of what a server costs. */
describe.each(['local', 'embedded'] as const)('Postgres, %s', (way) => {
  let server: PostgresServer;
  beforeAll(async () => {
    server = await startPostgres({ way, controllable: true });
  });
  afterAll(() => server.close());

  test('keeps what was committed through kill, immediate and fast stop, on the same port', async () => {
    const { url } = server;
    const before = await connect(url);
    await before.query('create table t (id int)');

    await before.query('insert into t values (1)');
    await server.kill();
    await expect(before.query('select 1')).rejects.toThrow();
    await expect(connect(url)).rejects.toThrow(/ECONNREFUSED/);
    await server.start();
    expect(await rows(server)).toBe(1);

    await server.stop('immediate');
    await server.start();
    await server.stop();
    await server.start();
    expect(await rows(server)).toBe(1);
    expect(server.url).toBe(url);
  });

  test('answers nothing while paused and goes on where it was when resumed', async () => {
    const client = await connect(server.url);
    await server.pause();
    let answered = false;
    const asked = client.query('select 1').then(() => {
      answered = true;
    });
    const late = new pg.Client({ connectionString: server.url, connectionTimeoutMillis: 300 });
    await expect(late.connect()).rejects.toThrow(/timeout/);
    expect(answered).toBe(false);
    await server.resume();
    await asked;
  });

  test('a paused server can be closed', async () => {
    await server.pause();
    await server.close();
    await expect(connect(server.url)).rejects.toThrow(/ECONNREFUSED/);
  });
});

test('servers of two owners run side by side, and those of a killed owner are gone with it', async () => {
  const mine = await startPostgres({ controllable: true, durable: false });
  cleanups.push(() => mine.close());
  expect((await (await connect(mine.url)).query('show fsync')).rows[0].fsync).toBe('off');
  const owner = startScript(fileURLToPath(new URL('../support/owner-of-a-server.ts', import.meta.url)), [
    'postgres',
  ]);
  cleanups.push(() => owner.kill());
  const url = (await owner.waitFor(/started (\S+)/, 180_000))[1] ?? '';
  expect(new URL(url).port).not.toBe(new URL(mine.url).port);
  const theirs = await connect(url);
  const folder = dirname((await theirs.query('show data_directory')).rows[0].data_directory);
  expect(existsSync(folder)).toBe(true);

  await owner.kill('SIGKILL');

  await until('its folder is gone', () => !existsSync(folder), { withinMs: 60_000 });
  await expect(connect(url)).rejects.toThrow(/ECONNREFUSED/);
  await connect(mine.url);
});

test('a server that was given is used as it is and never stopped; an own one is durable and takes settings', async () => {
  const mine = await startPostgres({ controllable: true });
  cleanups.push(() => mine.close());
  vi.stubEnv('UNBROKER_TEST_DATABASE_URL', mine.url);

  const given = await startPostgres();
  expect(given).toMatchObject({ way: 'url', url: mine.url, version: mine.version, controllable: false });
  await expect(given.kill()).rejects.toThrow(/not ours to stop/);
  await given.close();
  await connect(given.url);

  const own = await startPostgres({ controllable: true, settings: { wal_level: 'logical' } });
  cleanups.push(() => own.close());
  expect(own.url).not.toBe(mine.url);
  const shown = await (await connect(own.url)).query(
    "select name, setting from pg_settings where name in ('fsync', 'synchronous_commit', 'wal_level') order by 1",
  );
  expect(shown.rows.map(({ setting }) => setting)).toEqual(['on', 'on', 'logical']);
});

test('fresh databases do not see each other and are dropped even while somebody is connected', async () => {
  const [first, second] = await Promise.all([freshDatabase(), freshDatabase()]);
  cleanups.push(first.close, second.close);
  await first.pool.query('create table t (id int)');
  expect((await second.pool.query("select to_regclass('t') as t")).rows[0].t).toBeNull();

  const forgotten = await first.pool.connect();
  forgotten.on('error', () => {});
  await first.close();
  const names = await second.pool.query('select from pg_database where datname = $1', [first.name]);
  expect(names.rowCount).toBe(0);
});
