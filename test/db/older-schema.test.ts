/**
 * This package on a schema that is not migrated yet: every way in either works or says which migration is missing, and in what order
 * an upgrade goes.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { UnbrokerError } from '../../src/errors.js';
import { createEnqueue, enqueue, enqueueMany } from '../../src/index.js';
import { BROUGHT_BY } from '../../src/jobs/behind.js';
import type { Queryable } from '../../src/jobs/job.js';
import { codeOf } from '../../src/jobs/sqlstate.js';
import { createStore } from '../../src/jobs/store.js';
import { SILENT } from '../../src/log.js';
import { checkSchema, migrate, readMigrations } from '../../src/migrate.js';
import { type JobsDatabase, jobsDatabase, type Session } from '../support/jobs.js';
import { until } from '../support/until.js';
import { startWorker } from '../support/workers.js';

const own = readMigrations();
const newest = own.at(-1)?.version;
const older = expect.objectContaining({
  code: 'schema-older',
  exitStatus: 2,
  hint: expect.stringMatching(/^Run: unbroker migrate, then unbroker roles.*programs/),
});

type WayIn = (tx: Queryable) => Promise<unknown>;
const prepared = createEnqueue('unbroker', { prepared: true });
const WAYS_IN: Readonly<Record<string, WayIn>> = {
  'a plain job': (tx) => enqueue(tx, 'a', 1),
  'a later one': (tx) => enqueue(tx, 'a', 1, { delayMs: 1_000 }),
  'one with a key': (tx) => enqueue(tx, 'a', 1, { dedupeKey: 'k' }),
  'a list': (tx) => enqueueMany(tx, [{ kind: 'a' }, { kind: 'b' }]),
  'a list of one kind': (tx) => enqueueMany(tx, [{ kind: 'a' }, { kind: 'a' }]),
  'a list with keys': (tx) => enqueueMany(tx, [{ kind: 'a', dedupeKey: 'l' }, { kind: 'b' }]),
  'a prepared one': (tx) => prepared.enqueue(tx, 'a', 1, { delayMs: 1_000 }),
};

describe.each([
  ['five releases behind', 21, ['one with a key', 'a list', 'a list of one kind', 'a list with keys'], true],
  ['before claims had a table', 30, [], true],
  ['one migration behind', own.length - 1, [], false],
])('%s', (_how, version, refused, workersWait) => {
  let db: JobsDatabase;
  let tx: Session;
  beforeAll(async () => {
    db = await jobsDatabase({ migrated: false });
    await migrate(db.pool, { migrations: own.filter((one) => one.version <= version) });
    tx = await db.session();
  });
  afterAll(() => db.close());

  test('what every command asks first names what is missing', async () => {
    const names = own.slice(version).map(({ name }) => name);
    const message = expect.stringContaining(
      `at version ${version}, this package needs ${newest} (${names[0]}`,
    );
    await expect(checkSchema(db.pool)).rejects.toEqual(older);
    await expect(checkSchema(db.pool)).rejects.toMatchObject({ message });
  });

  test('an enqueue goes in, or names the migration; the driver’s error is its cause', async () => {
    const said: string[] = [];
    for (const [name, put] of Object.entries(WAYS_IN)) {
      await tx.query('begin');
      const error: unknown = await put(tx).then(
        () => null,
        (thrown: unknown) => thrown,
      );
      await tx.query('rollback');
      if (error === null) continue;
      said.push(name);
      expect(error).toEqual(older);
      expect((error as UnbrokerError).message).toMatch(
        /older than this package: it has no \w+ \(migration 02\d_/,
      );
      expect((error as UnbrokerError).cause).toMatchObject({ code: '42883' });
    }
    expect(said).toEqual(refused);
  });

  test('a worker of the library works, or claims nothing and its log says the same, and works once it is migrated', async () => {
    const said: string[] = [];
    const [id = ''] = (
      await db.pool.query<{ id: string }>(
        `insert into unbroker.jobs (kind, payload) values ('a', '1') returning id::text`,
      )
    ).rows.map((row) => row.id);
    const worker = startWorker({
      url: db.url,
      handlers: {
        a: {
          handle: ({ attempt }) => {
            if (attempt === 1) throw new Error('once');
          },
          retryPolicy: { type: 'fixed', delayMs: 0 },
        },
      },
      log: { ...SILENT, error: (_, text) => said.push(text) },
    });
    try {
      if (workersWait) {
        await until('it has said so', () => said.length > 0);
        expect(said[0]).toMatch(/has no claim_many \(migration 035_\w+\).*Run: unbroker migrate, then/);
        await until('it has asked again', () => worker.errors().length > 2);
        expect(worker.claimed()).toEqual([]);
        await migrate(db.pool, { migrations: own });
      }
      await worker.untilEnded(2);
      expect(worker.lost()).toEqual([]);
      expect(await db.job(id)).toMatchObject({ state: 'done', attempts: 2, errors: [{ message: 'once' }] });
    } finally {
      await worker.close();
    }
  });
});

test('many jobs are claimed, and those that leave nothing removed, the older way where the newest function is not there', async () => {
  const db = await jobsDatabase({ migrated: false });
  const worker = startWorker({ url: db.url, concurrency: 1_000, keepDone: false, handlers: { a: () => {} } });
  try {
    await migrate(db.pool, { migrations: own.filter((one) => one.version <= 37) });
    await db.put('a', Array(600).fill(1));
    await worker.untilEnded(600);
    expect(worker.lost()).toEqual([]);
    expect(await db.states()).toEqual({});
    expect(worker.claimed()).toHaveLength(600);
  } finally {
    await worker.close();
    await db.close();
  }
});

/** How each statement with this word in it went: `ok`, or its SQLSTATE. */
function watched(db: Queryable, word: string): { readonly db: Queryable; readonly went: string[] } {
  const went: string[] = [];
  const query: Queryable['query'] = async (text, values) => {
    try {
      const answer = await db.query(text, values);
      if (text.includes(word)) went.push('ok');
      return answer;
    } catch (error) {
      if (text.includes(word)) went.push(codeOf(error));
      throw error;
    }
  };
  return { db: { query }, went };
}

const orderOf = (total: number) => ({
  demands: [{ kind: 'a', limit: total, park: false }],
  ...{ total, worker: 'w1', leaseMs: 30_000, floors: [], oldest: false },
});

test('a claim of many asks once for the function that is not there yet, and finds it a minute after', async () => {
  const db = await jobsDatabase({ migrated: false });
  try {
    await migrate(db.pool, { migrations: own.filter((one) => one.version <= 41) });
    await db.put('a', Array(5_000).fill(1));
    const all = watched(db.pool, '');
    const worker = startWorker({ url: db.url, db: all.db, concurrency: 1_000, handlers: { a: () => {} } });
    await worker.untilEnded(5_000);
    await worker.close();
    // Each that failed is an ERROR in the server's log: it was one for each claim.
    expect(all.went.filter((how) => how !== 'ok')).toEqual(['42883']);

    await db.put('a', Array(6).fill(1));
    let nowMs = 1_000;
    const store = createStore('unbroker', () => nowMs);
    const lines = watched(db.pool, 'claim_lines');
    const claim = async () => (await store.claimMany(lines.db, orderOf(1))).count;
    expect([await claim(), await claim()]).toEqual([1, 1]);
    expect(lines.went).toEqual(['42883']);
    await migrate(db.pool, { migrations: own });
    nowMs += 59_999;
    expect([await claim(), lines.went]).toEqual([1, ['42883']]);
    nowMs += 1;
    expect([await claim(), await claim(), lines.went]).toEqual([1, 1, ['42883', 'ok', 'ok']]);
  } finally {
    await db.close();
  }
});

describe('an end asks once for a function that is not there, and once again after a minute', () => {
  let db: JobsDatabase;
  beforeAll(async () => {
    db = await jobsDatabase();
  });
  afterAll(() => db.close());

  test.each([
    ['finish_of', 'complete', 2, null],
    ['finish_batch', 'complete', 2, '1'],
    ['finish_one', 'complete', 1, null],
    ['remove_of', 'completeAndRemove', 2, null],
    ['remove_soon', 'completeAndRemove', 2, '1'],
  ] as const)('%s', async (name, write, count, resultText) => {
    let nowMs = 1_000;
    const store = createStore('unbroker', () => nowMs);
    const { db: watching, went } = watched(db.pool, `.${name}(`);
    const end = async (): Promise<void> => {
      await db.put('a', Array(2 * count).fill(1));
      const first = await db.claim('a', { total: count });
      const second = await db.claim('a', { total: count });
      // Without a token that all of them share the functions for whole claims are not asked.
      const jobs = name === 'remove_soon' ? [...first, ...second] : first;
      const ended = jobs.map((job) => ({ ...job, resultText }));
      expect(await store[write](watching, ended)).toHaveLength(ended.length);
      await db.clear();
    };
    await db.pool.query(`alter function unbroker.${name} rename to ${name}_away`);
    await end();
    await end();
    nowMs += 59_999;
    await end();
    expect(went).toEqual(['42883']);
    nowMs += 1;
    await end();
    expect(went).toEqual(['42883', '42883']);
    await db.pool.query(`alter function unbroker.${name}_away rename to ${name}`);
    nowMs += 59_999;
    await end();
    expect(went).toHaveLength(2);
    nowMs += 1;
    await end();
    await end();
    expect(went.slice(2)).toEqual(['ok', 'ok']);
  });

  test('what a trigger of the caller misses is not taken for it', async () => {
    const store = createStore('unbroker', () => 1_000);
    const { db: watching, went } = watched(db.pool, '.finish_of(');
    await db.pool.query(`
      create function unbroker.theirs() returns trigger language plpgsql as $$ begin perform nobody(); return new; end $$;
      create trigger theirs before update of state on unbroker.jobs
        for each row when (new.state = 'done') execute function unbroker.theirs()`);
    await db.put('a', [1, 2]);
    const ended = (await db.claim('a')).map((job) => ({ ...job, resultText: null }));
    await expect(store.complete(watching, ended)).rejects.toMatchObject({ code: '42883' });
    await db.pool.query('drop trigger theirs on unbroker.jobs');
    expect(await store.complete(watching, ended)).toHaveLength(2);
    expect(went).toEqual(['42883', 'ok']);
  });
});

test('a schema that is not there; a function that is missed and is not ours', async () => {
  const asked = (code: string, message: string): Queryable => ({
    query: () => Promise.reject(Object.assign(new Error(message), { code })),
  });
  const refusal = (tx: Queryable): Promise<unknown> =>
    enqueue(tx, 'a').then(
      () => null,
      (thrown) => thrown,
    );
  // As a server says it in another language.
  expect(await refusal(asked('3F000', 'Schema "unbroker" existiert nicht'))).toMatchObject({
    code: 'schema-missing',
  });
  expect(await refusal(asked('42P01', 'Relation "unbroker.jobs" existiert nicht'))).toMatchObject({
    code: 'schema-missing',
  });
  for (const message of [
    'Funktion public.late() existiert nicht',
    'Funktion finish() existiert nicht',
    'Relation "orders" existiert nicht',
  ])
    expect(await refusal(asked('42883', message))).not.toBeInstanceOf(UnbrokerError);
});

test('what the statements call is brought by the migration that is named', () => {
  const folder = fileURLToPath(new URL('../../src/jobs/', import.meta.url));
  const called = readdirSync(folder)
    .filter((file) => file.endsWith('statements.ts'))
    .flatMap((file) => [...readFileSync(`${folder}${file}`, 'utf8').matchAll(/\$\{s\}\.([a-z_]+)[ (]/g)])
    .map((match) => match[1] as string);
  expect(called).toContain('finish_and_claim');
  expect([...new Set(called)].filter((name) => name !== 'jobs' && !(name in BROUGHT_BY))).toEqual([]);
  for (const [name, migration] of Object.entries(BROUGHT_BY)) {
    const text = own.find((one) => one.name === migration)?.text ?? '';
    expect(text, `${name} in ${migration}`).toMatch(
      new RegExp(`create (unlogged )?(function|procedure|table)( if not exists)? \\{schema\\}\\.${name}\\b`),
    );
  }
});
