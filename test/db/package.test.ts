/**
 * The packed tarball in an empty project, as a caller gets it: it installs, types, bundles, runs as ESM and as CommonJS
 * against a real Postgres, and its enqueue client loads no third-party module.
 */
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { build } from 'esbuild';
import ts from 'typescript';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { migrate, readMigrations } from '../../src/migrate.js';
import { type FreshDatabase, freshDatabase } from '../support/services.js';

const run = promisify(execFile);
const ROOT = join(import.meta.dirname, '..', '..');
const TSC = join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc');

const ESM = `
import pg from 'pg';
import { createEnqueue, enqueue, enqueueMany, PayloadInvalid } from 'unbroker/enqueue';
import { fromPgPromise } from 'unbroker/transactions';
import * as library from 'unbroker';
const { createWorker, migrate } = library;
// The client is one file with copies of what it uses; its errors must be the library's own all the same.
let refused;
try { createEnqueue('Not A Schema'); } catch (error) { refused = error; }
const same = library.PayloadInvalid === PayloadInvalid && refused instanceof library.UnbrokerError;
const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
await migrate(pool);
const { id } = await enqueue(pool, 'greet', { name: 'esm' });
const wrapped = fromPgPromise({ result: (query) => pool.query(query) });
await enqueueMany(wrapped, [{ kind: 'greet', payload: { name: 'many' } }]);
const seen = [];
await new Promise((done) => {
  const worker = createWorker({
    db: pool,
    handlers: { greet: (job) => { seen.push(job.payload.name); } },
    onEvent: (event) => event.type === 'idle' && seen.length === 2 && worker.stop().then(done),
  });
  worker.start();
});
console.log(JSON.stringify({ id, seen: seen.sort(), same }));
await pool.end();
`;

const CJS = `
const before = process.hrtime.bigint();
const { enqueue, defineKind } = require('unbroker/enqueue');
const importMs = Number(process.hrtime.bigint() - before) / 1e6;
const files = Object.keys(require.cache).length - 1;
const { fromPgPromise, ...others } = require('unbroker/transactions');
const { createTesting } = require('unbroker/testing');
if (typeof createTesting().runAll !== 'function') throw new Error('testing');
const foreign = Object.keys(require.cache).filter((path) => path.includes('node_modules') && !path.includes('node_modules/unbroker/'));
const { Client } = require('pg');
const client = new Client({ connectionString: process.env.DATABASE_URL });
client.connect()
  .then(() => enqueue(fromPgPromise({ result: (query) => client.query(query) }), 'greet', { name: 'cjs' }))
  .then(async (answer) => {
    const validate = (value) => (value?.name ? { value } : { issues: [{ message: 'no', path: ['name'] }] });
    const greet = defineKind('greet', { '~standard': { version: 1, vendor: 'test', validate } });
    const refused = await enqueue(client, greet, {}).catch((error) => error.message);
    if (refused !== 'the payload does not fit the schema of greet at: name') throw new Error(refused);
    return answer;
  })
  .then(({ inserted }) => console.log(JSON.stringify({ inserted, foreign, importMs, files, others: Object.keys(others) })))
  .then(() => client.end());
`;

/** Without await at the top, which CommonJS does not have. */
const BUNDLED = `
import pg from 'pg';
import { createWorker, enqueue, migrate, UnbrokerError } from 'unbroker';
import { createEnqueue, enqueue as client } from 'unbroker/enqueue';
const main = async () => {
  const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
  await enqueue(pool, 'bundled', { name: 'library' });
  await client(pool, 'bundled', { name: 'client' });
  const seen = [];
  await new Promise((done) => {
    const worker = createWorker({
      db: pool,
      handlers: { bundled: (job) => { seen.push(job.payload.name); } },
      onEvent: (event) => event.type === 'idle' && seen.length === 2 && worker.stop().then(done),
    });
    worker.start();
  });
  let refused;
  try { createEnqueue('Not A Schema'); } catch (error) { refused = error; }
  const migrating = await migrate(pool, { schema: 'bundled' }).catch((error) => error);
  await pool.end();
  console.log(JSON.stringify({ seen: seen.sort(), same: refused instanceof UnbrokerError, migrating: migrating.code }));
};
main();
`;

/** The face of amqplib, which opens its own pool and looks whether the schema is its own. */
const BUNDLED_AMQPLIB = `
import amqp from 'unbroker/amqplib';
const main = async () => {
  const refused = async (options) => (await amqp.connect(options).catch((error) => error)).code;
  const missing = await refused({ schema: 'not_there' });
  if (missing !== 'schema-missing') return console.log(JSON.stringify({ missing }));
  const connection = await amqp.connect('amqp://not-looked-at');
  const channel = await connection.createConfirmChannel();
  const { queue } = await channel.assertQueue(process.argv[2]);
  channel.sendToQueue(queue, Buffer.from('{"n":1}'), { messageId: 'm1' });
  await channel.waitForConfirms();
  const message = await channel.get(queue);
  channel.ack(message);
  await connection.close();
  console.log(JSON.stringify({ got: message.content.toString(), id: message.properties.messageId, older: await refused({ schema: 'older' }) }));
};
main();
`;

const TYPES = `
import { defineKind, enqueue } from 'unbroker/enqueue';
import { fromPostgresJs } from 'unbroker/transactions';
import { createWorker, defineConfig, type HandlerJob } from 'unbroker';
import pg from 'pg';
const pool = new pg.Pool();
const client = await pool.connect();
const answer: { id: string; inserted: boolean } = await enqueue(client, 'a', { b: 1 }, { dedupeKey: 'c', delayMs: 5 });
createWorker({ db: pool, handlers: { a: async (job: HandlerJob, { signal }) => signal.aborted || job.payload } }).start();
createWorker({ db: pool, handlers: { a: (job: HandlerJob<{ n: number }>) => job.payload.n }, listen: undefined });
// @ts-expect-error what says nothing of its payload gets unknown
createWorker({ db: pool, handlers: { a: (job) => job.payload.n } });
await enqueue(client, 'a', {}, { dedupeKey: undefined, retryPolicy: undefined });
export default defineConfig({ worker: { concurrency: 5 } });
await enqueue(fromPostgresJs({ unsafe: async () => Object.assign([], { count: 0 }) }), 'a');
const greet = defineKind('greet', { '~standard': {
  version: 1, vendor: 'test', validate: (value: unknown) => ({ value: value as { name: string } }),
  types: undefined as { input: { name: string }; output: { name: string } } | undefined,
} });
await enqueue(client, greet, { name: 'x' });
// @ts-expect-error not what the schema takes
await enqueue(client, greet, { nam: 'x' });
createWorker({ db: pool, handlers: { ...greet.handle((job) => job.payload.name.length) } });
// @ts-expect-error not a handle
fromPostgresJs(pool);
// @ts-expect-error an option that does not exist
await enqueue(pool, 'a', {}, { runat: new Date() });
export { answer };
`;

const TYPES_CJS = `
import unbroker = require('unbroker/enqueue');
import transactions = require('unbroker/transactions');
import { Pool } from 'pg';
export const from: (sql: transactions.PostgresJsHandle) => unbroker.Queryable = transactions.fromPostgresJs;
export const answer: Promise<unbroker.Enqueued> = unbroker.enqueue(new Pool(), 'a');
`;

describe('the packed tarball', () => {
  let folder: string;
  let database: FreshDatabase;

  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'unbroker-pack-'));
    database = await freshDatabase();
    // --ignore-scripts: dist is there, the test command has built it.
    const { stdout } = await run(
      'npm',
      ['pack', '--json', '--ignore-scripts', '--pack-destination', folder],
      { cwd: ROOT },
    );
    const [packed] = JSON.parse(stdout) as { filename: string }[];
    const project = join(folder, 'project');
    mkdirSync(project);
    writeFileSync(join(project, 'package.json'), '{ "name": "caller", "private": true, "type": "module" }');
    const install = [
      'install',
      '--no-audit',
      '--no-fund',
      '--prefer-offline',
      `../${packed?.filename}`,
      '@types/pg',
      '@types/node@20',
    ];
    await run('npm', install, { cwd: project });
  }, 180_000);

  afterAll(async () => {
    await database.close();
    rmSync(folder, { recursive: true, force: true });
  });

  const node = async (name: string, text?: string, ...words: string[]): Promise<unknown> => {
    const project = join(folder, 'project');
    if (text !== undefined) writeFileSync(join(project, name), text);
    const { stdout } = await run(process.execPath, [name, ...words], {
      cwd: project,
      env: { ...process.env, DATABASE_URL: database.url },
    });
    return JSON.parse(stdout);
  };

  it('migrates, enqueues and works as ESM, then enqueues as CommonJS without third-party modules', async () => {
    expect(await node('run.mjs', ESM)).toEqual({ id: '1', seen: ['esm', 'many'], same: true });
    const answer = (await node('run.cjs', CJS)) as { importMs: number; files: number; others: string[] };
    expect(answer).toMatchObject({ inserted: true, foreign: [] });
    expect(answer.others).toHaveLength(8);
    // What makes an import slow is files: it itself, errors, kind and payload-schema. The bar is 5 ms on a quiet machine
    // (npm run bench -- footprint); a busy one takes a hundred times as long.
    expect(answer.files).toBe(4);
    expect(answer.importMs).toBeLessThan(3_000);
  });

  /** The packages in it. */
  const bundle = async (
    contents: string,
    outfile: string,
    format: 'esm' | 'cjs',
    external: readonly string[],
  ): Promise<(string | undefined)[]> => {
    const project = join(folder, 'project');
    const { metafile } = await build({
      stdin: { contents, resolveDir: project },
      ...{ bundle: true, platform: 'node', format, external: [...external], metafile: true },
      ...{ absWorkingDir: project, outfile, logLevel: 'error' },
    });
    return Object.keys(metafile.inputs).map((path) => path.split('node_modules/')[1]?.split('/')[0]);
  };

  // pg asks for Node's modules by require, which an ESM bundle of esbuild has not: it stays outside, as docs/do/questions.md
  // says. As CommonJS it is in the bundle.
  it.each([
    ['esm', 'mjs', ['pg']],
    ['cjs', 'cjs', []],
  ] as const)(
    'works in a bundle as %s, without what only the command line needs',
    async (format, suffix, external) => {
      await migrate(database.pool);
      const project = join(folder, 'project');
      // The folder that `../migrations` is from the bundle.
      mkdirSync(join(project, 'migrations'), { recursive: true });
      writeFileSync(join(project, 'migrations', '001_jobs.sql'), 'create table jobs_of_the_caller ();');
      const name = `bundle/main.${suffix}`;
      const inside = await bundle(BUNDLED, name, format, external);
      expect(inside).toContain('unbroker');
      expect(inside.filter((of) => ['pino', 'fastify', 'amqplib', 'ts-morph'].includes(`${of}`))).toEqual([]);
      expect(await node(name)).toEqual({
        seen: ['client', 'library'],
        same: true,
        migrating: 'migrations-missing',
      });
    },
  );

  it.each([
    ['esm', 'mjs', ['pg']],
    ['cjs', 'cjs', []],
  ] as const)(
    'publishes and gets through the face of amqplib in a bundle as %s',
    async (format, suffix, external) => {
      await migrate(database.pool);
      await migrate(database.pool, { schema: 'older', migrations: readMigrations().slice(0, 1) });
      const name = `bundle/amqplib.${suffix}`;
      const inside = await bundle(BUNDLED_AMQPLIB, name, format, external);
      expect(inside).toContain('unbroker');
      expect(inside.includes('pg')).toBe(format === 'cjs');
      expect(inside.filter((of) => ['pino', 'fastify', 'amqplib', 'ts-morph'].includes(`${of}`))).toEqual([]);
      const queue = `bundled_${format}`;
      expect(await node(name, undefined, queue)).toEqual({
        ...{ got: '{"n":1}', id: 'm1', older: 'schema-older' },
      });
      const { rows } = await database.pool.query('select state from unbroker.jobs where kind = $1', [
        `amqp.${queue}`,
      ]);
      expect(rows).toEqual([{ state: 'done' }]);
    },
  );

  it('in an ESM bundle with pg in it, the face of amqplib takes a pool, and says so where it has none', async () => {
    const name = 'bundle/pg-inside.mjs';
    await bundle(
      `import { connect } from 'unbroker/amqplib';
       const pool = { query: async () => { throw Object.assign(new Error('asked'), { code: 'asked' }); } };
       const code = async (options) => (await connect(options).catch((error) => error)).code;
       console.log(JSON.stringify([await code({ pool }), await code()]));`,
      name,
      'esm',
      [],
    );
    expect(await node(name)).toEqual(['asked', 'driver-unreadable']);
  });

  it('types as ESM and as CommonJS', async () => {
    const project = join(folder, 'project');
    writeFileSync(join(project, 'types.mts'), TYPES);
    writeFileSync(join(project, 'types.cts'), TYPES_CJS);
    const options = [
      '--noEmit',
      '--strict',
      '--exactOptionalPropertyTypes',
      '--module',
      'nodenext',
      '--target',
      'es2022',
      '--skipLibCheck',
      '--types',
      'node',
    ];
    const { stdout } = await run(process.execPath, [TSC, ...options, 'types.mts', 'types.cts'], {
      cwd: project,
    }).catch((error: { stdout: string }) => error);
    expect(stdout).toBe('');
  });

  it('is found by TypeScript that knows no exports (moduleResolution node), as old services have it', () => {
    const options = { moduleResolution: ts.ModuleResolutionKind.Node10 };
    const declarations = ['', '/enqueue', '/transactions', '/testing', '/amqplib'].map((entry) => {
      const from = join(folder, 'project', 'old.ts');
      const { resolvedModule } = ts.resolveModuleName(`unbroker${entry}`, from, options, ts.sys);
      return resolvedModule?.resolvedFileName.split('/unbroker/dist/')[1];
    });
    expect(declarations).toEqual([
      'src/index.d.ts',
      'cjs/src/enqueue.d.ts',
      'cjs/adapters/transactions/index.d.ts',
      'cjs/src/testing.d.ts',
      'adapters/amqplib/index.d.ts',
    ]);
  });

  it('asks for no newer Node than it says, also where the overrides of this repository do not hold', () => {
    const json = (name: string) => JSON.parse(readFileSync(join(ROOT, name), 'utf8'));
    const { overrides } = json('package.json') as { overrides: Record<string, string> };
    const packages = json('package-lock.json').packages as Record<
      string,
      { dev?: boolean; engines?: { node?: string } }
    >;
    const brought = Object.entries(packages).filter(([path, { dev }]) => path !== '' && dev !== true);
    const named = brought.map(([path]) => path.slice(path.lastIndexOf('node_modules/') + 13));
    // An override is ours alone: what a caller installs with the same range may be something else.
    expect(Object.keys(overrides).filter((name) => named.includes(name))).toEqual([]);
    // A strict npm and Yarn 1 refuse to install `>=22` on 20.
    const newer = brought.filter(([, { engines }]) =>
      /^\s*(>=|\^|~)?\s*2[1-9]\b[^|]*$/.test(engines?.node ?? ''),
    );
    expect(newer.map(([path]) => path)).toEqual([]);
    expect(brought.length).toBeGreaterThan(50);
  });

  it('runs the command line', async () => {
    const bin = join(folder, 'project', 'node_modules', '.bin', 'unbroker');
    const { stdout } = await run(bin, ['migrate', '--json'], {
      cwd: join(folder, 'project'),
      env: { ...process.env, DATABASE_URL: database.url },
    });
    expect(JSON.parse(stdout.trim().split('\n').at(-1) ?? '')).toMatchObject({
      schema: 'unbroker',
      applied: [],
    });
  });
});
