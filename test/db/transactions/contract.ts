/**
 * What every client and ORM must show through its adapter, on a real Postgres: the business row, written by the
 * library's own means, and the job live and die together; what is enqueued arrives exactly as written. The library's
 * test says how it begins a transaction; it says nothing about jobs.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createEnqueue, enqueue, enqueueMany, type NewJob, type Queryable } from '../../../src/enqueue.js';
import { createTesting } from '../../../src/testing.js';
import { type FreshDatabase, freshMigratedDatabase } from '../../support/services.js';

/** A transaction of the library that is open. */
export interface Scope {
  /** The adapter's answer for this transaction. */
  readonly db: Queryable;
  /** Into `orders (id, note)`, with the library's model or builder. */
  insertOrder(note: string): Promise<unknown>;
  /** A savepoint or nested transaction: rejects and rolls back to where it began when `work` rejects. */
  nested(work: (inner: Scope) => Promise<void>): Promise<unknown>;
}

export interface Library {
  /** The adapter's answer for the library's own handle, outside of any transaction; null when it refuses one. */
  readonly alone: Queryable | null;
  /** Commits when `work` resolves, rolls back and rejects when it rejects. */
  transaction(work: (scope: Scope) => Promise<void>): Promise<unknown>;
  close(): Promise<unknown>;
}

/** Everything that some client takes for a placeholder, an escape or an array. */
const TRAPS =
  String.raw`? ?? ?| ?& \? \\? :name ::text :id: $1 $2 $$ $name #{x} @p1 %s 'it''s' "q" {a,b} [1] -- /* \n ` +
  '\n\t✓ 😀';

const PAYLOAD = {
  text: TRAPS,
  [TRAPS]: 'as a key',
  big: '9007199254740993',
  numbers: [Number.MAX_SAFE_INTEGER, 0.1, 5e-324, 1.5e300, -7],
  nested: { list: [null, true, [], {}], empty: '' },
};
const HEADERS = { traceparent: '00-abc', question: '?', list: [1, '2', null] };
const RETRY_POLICY = { type: 'ladder', delaysMs: [1_000, 2_000] } as const;
const RUN_AT = new Date('2031-07-01T23:30:00.123Z');

class Rollback extends Error {}

interface Row {
  kind: string;
  payload: unknown;
  priority: number;
  runAt: Date;
  delayMs: number;
  maxAttempts: number;
  headers: unknown;
  source: string | null;
  retryPolicy: unknown;
  dedupeKey: string | null;
}

export function describeLibrary(
  name: string,
  open: (url: string, database: FreshDatabase) => Promise<Library>,
): void {
  describe(`${name}: a job inside the caller's transaction`, () => {
    let database: FreshDatabase;
    let library: Library;

    beforeAll(async () => {
      database = await freshMigratedDatabase();
      await database.pool.query(
        'create table orders (id bigint generated always as identity primary key, note text not null)',
      );
      // Sessions that are not in UTC: a date that loses its zone on the way shows.
      await database.pool.query(`alter database ${database.name} set timezone to 'Asia/Kolkata'`);
      library = await open(database.url, database);
    });

    afterAll(async () => {
      await library?.close();
      await database.close();
    });

    beforeEach(async () => {
      await database.pool.query('truncate orders, unbroker.jobs');
    });

    const orders = async (): Promise<string[]> => {
      const { rows } = await database.pool.query<{ note: string }>('select note from orders order by note');
      return rows.map((row) => row.note);
    };

    const jobs = async (): Promise<Row[]> => {
      const { rows } = await database.pool.query<Row>(`
        select kind, payload, priority, run_at as "runAt", max_attempts as "maxAttempts", headers, source,
               extract(epoch from run_at - created_at)::float8 * 1000 as "delayMs",
               retry_policy as "retryPolicy", dedupe_key as "dedupeKey"
        from unbroker.jobs order by id`);
      return rows;
    };

    const kinds = async (): Promise<string[]> => (await jobs()).map((job) => job.kind);

    it('commits both', async () => {
      let id: unknown;
      await library.transaction(async (scope) => {
        await scope.insertOrder('kept');
        ({ id } = await enqueue(scope.db, 'kept'));
        expect(await kinds(), 'nobody else sees the job before the commit').toEqual([]);
      });
      expect(await orders()).toEqual(['kept']);
      expect(await kinds()).toEqual(['kept']);
      expect(id).toMatch(/^[0-9]+$/);
    });

    it('rolls both back', async () => {
      const attempt = library.transaction(async (scope) => {
        await enqueue(scope.db, 'gone');
        await enqueueMany(scope.db, [{ kind: 'gone' }, { kind: 'gone' }]);
        await scope.insertOrder('gone');
        throw new Rollback('on purpose');
      });
      await expect(attempt).rejects.toThrow('on purpose');
      expect(await orders()).toEqual([]);
      expect(await kinds()).toEqual([]);
    });

    it('rolls both back with a nested transaction, and keeps what was before and after', async () => {
      await library.transaction(async (scope) => {
        await scope.insertOrder('before');
        await enqueue(scope.db, 'before');
        const inner = scope.nested(async (nested) => {
          await nested.insertOrder('inner');
          await enqueue(nested.db, 'inner');
          throw new Rollback('on purpose');
        });
        await expect(inner).rejects.toThrow('on purpose');
        await scope.nested(async (nested) => {
          await nested.insertOrder('after');
          await enqueue(nested.db, 'after');
        });
      });
      expect(await orders()).toEqual(['after', 'before']);
      expect(await kinds()).toEqual(['before', 'after']);
    });

    it('makes a transaction of its own outside of one', async () => {
      if (library.alone === null) return;
      expect(await enqueue(library.alone, 'alone', PAYLOAD)).toMatchObject({ inserted: true });
      expect(await jobs()).toMatchObject([{ kind: 'alone', payload: PAYLOAD }]);
    });

    it('answers rows and their number as pg does', async () => {
      await library.transaction(async ({ db }) => {
        await enqueueMany(db, [{ kind: 'a' }, { kind: 'b' }, { kind: 'b' }]);
        const select = 'select kind as "aKind" from unbroker.jobs order by id';
        const rows = [{ aKind: 'a' }, { aKind: 'b' }, { aKind: 'b' }];
        expect(await db.query(select)).toEqual({ rows, rowCount: 3 });
        const update = 'update unbroker.jobs set kind = $2 where kind = $1 returning kind';
        expect(await db.query(update, ['b', 'c'])).toEqual({
          rows: [{ kind: 'c' }, { kind: 'c' }],
          rowCount: 2,
        });
        expect(await db.query(update, ['b', 'c'])).toEqual({ rows: [], rowCount: 0 });
        // An operator that some clients take for a placeholder.
        const operator = `select '{"a":1}'::jsonb ? $1 as there, '?' as mark`;
        expect((await db.query(operator, ['a'])).rows).toEqual([{ there: true, mark: '?' }]);
      });
    });

    it('answers the first id for a dedupe key that is taken', async () => {
      await library.transaction(async ({ db }) => {
        const first = await enqueue(db, 'once', {}, { dedupeKey: TRAPS });
        expect(first.inserted).toBe(true);
        expect(await enqueue(db, 'once', {}, { dedupeKey: TRAPS })).toEqual({
          id: first.id,
          inserted: false,
        });
      });
      await library.transaction(async ({ db }) => {
        expect(await enqueue(db, 'once', {}, { dedupeKey: TRAPS })).toMatchObject({ inserted: false });
      });
      expect(await kinds()).toEqual(['once']);
    });

    it('keeps an id past 2^53 exact', async () => {
      await database.pool.query('alter table unbroker.jobs alter id restart with 9007199254740993');
      await library.transaction(async ({ db }) => {
        const first = await enqueue(db, 'a', null, { dedupeKey: 'k' });
        expect(first).toEqual({ id: '9007199254740993', inserted: true });
        expect(await enqueue(db, 'a', null, { dedupeKey: 'k' })).toEqual({ ...first, inserted: false });
        expect(await enqueueMany(db, [{ kind: 'b' }, { kind: 'c' }])).toMatchObject([
          { id: expect.stringMatching(/^900719925474099[4-9]$/) },
          { id: expect.stringMatching(/^900719925474099[4-9]$/) },
        ]);
      });
    });

    it('writes every option as given', async () => {
      const options = {
        priority: -5,
        maxAttempts: 3,
        headers: HEADERS,
        source: TRAPS,
        retryPolicy: RETRY_POLICY,
      };
      await library.transaction(async ({ db }) => {
        await enqueue(db, TRAPS, PAYLOAD, { ...options, runAt: RUN_AT });
        await enqueue(db, 'delayed', [], { ...options, delayMs: 1_500.5, dedupeKey: 'd' });
        await enqueue(db, 'text', 'a text, not JSON in a text');
        await enqueue(db, 'nothing');
      });
      const [full, delayed, text, nothing] = await jobs();
      expect(full).toMatchObject({ ...options, kind: TRAPS, payload: PAYLOAD, runAt: RUN_AT });
      expect(delayed).toMatchObject({ ...options, payload: [], delayMs: 1_500.5, dedupeKey: 'd' });
      expect(text).toMatchObject({ payload: 'a text, not JSON in a text', headers: null });
      expect(nothing).toMatchObject({ payload: null, priority: 0, maxAttempts: 20, delayMs: 0 });
      expect(nothing).toMatchObject({ headers: null, source: null, retryPolicy: null, dedupeKey: null });
    });

    it('writes many, with gaps in every column, in the order given', async () => {
      const many: NewJob[] = [
        { kind: 'bare' },
        { kind: TRAPS, payload: PAYLOAD, priority: 9, runAt: RUN_AT, headers: HEADERS, source: TRAPS },
        { kind: 'delayed', delayMs: 0.5, maxAttempts: 3, retryPolicy: RETRY_POLICY, source: '' },
        { kind: 'NULL', payload: 'NULL', source: 'null', dedupeKey: 'NULL' },
        { kind: ' edges ', payload: '', dedupeKey: TRAPS },
        { kind: ' edges ', payload: 'never', dedupeKey: TRAPS },
      ];
      await library.transaction(async ({ db }) => {
        const answers = await enqueueMany(db, many);
        expect(answers.map((answer) => answer.inserted)).toEqual([true, true, true, true, true, false]);
        expect(answers[5]?.id).toBe(answers[4]?.id);
        const inOrder = answers.slice(0, 5).map((answer) => BigInt(answer.id));
        expect(inOrder).toEqual([...inOrder].sort((a, b) => (a < b ? -1 : 1)));
      });
      const rows = await jobs();
      expect(rows).toHaveLength(5);
      expect(rows[0]).toMatchObject({ kind: 'bare', payload: null, priority: 0, headers: null, delayMs: 0 });
      expect(rows[0]).toMatchObject({ source: null, retryPolicy: null, dedupeKey: null, maxAttempts: 20 });
      expect(rows[1]).toMatchObject({ ...many[1] });
      const { delayMs, ...delayed } = { ...many[2] };
      expect(rows[2]).toMatchObject({ ...delayed, delayMs });
      expect(rows[3]).toMatchObject({ ...many[3] });
      expect(rows[4]).toMatchObject({ ...many[4] });
    });

    it('writes more than one statement holds', async () => {
      await library.transaction(async ({ db }) => {
        const answers = await enqueueMany(
          db,
          Array.from({ length: 1_001 }, (_, n) => ({ kind: 'bulk', payload: { n } })),
        );
        expect(new Set(answers.map((answer) => answer.id)).size).toBe(1_001);
      });
      const numbers = (await jobs()).map((job) => (job.payload as { n: number }).n);
      expect(numbers).toEqual(Array.from({ length: 1_001 }, (_, n) => n));
    });

    it('stays usable after a payload is refused', async () => {
      await library.transaction(async (scope) => {
        await scope.insertOrder('kept');
        await expect(enqueue(scope.db, 'refused', { at: 1n })).rejects.toThrow(TypeError);
        await enqueue(scope.db, 'kept');
      });
      expect(await orders()).toEqual(['kept']);
      expect(await kinds()).toEqual(['kept']);
    });

    it('runs jobs inside of it for a test, past a handler whose statement fails', async () => {
      const attempt = library.transaction(async ({ db }) => {
        await enqueue(db, 'clumsy', null, { retryPolicy: { type: 'fixed', delayMs: 60_000 } });
        // Some rename keys of what they read, and parse texts that look like JSON.
        const payload = { ...PAYLOAD, snake_case: '[1]' };
        const headers = { my_header: '{"a_b":1}' };
        await enqueue(db, 'kept', payload, { headers });
        const seen: unknown[] = [];
        const clumsy = async () => {
          await db.query('select 1 / 0');
        };
        const testing = createTesting({
          handlers: { clumsy, kept: ({ payload, headers }) => seen.push(payload, headers) },
        });
        expect(await testing.enqueued(db)).toMatchObject([{ kind: 'clumsy' }, { payload, headers }]);
        const types = async (now?: Date) =>
          (await testing.runAll(db, { now })).map(({ kind, attempt, outcome }) => [
            kind,
            attempt,
            outcome.type,
          ]);
        expect(await types()).toEqual([
          ['clumsy', 1, 'retry'],
          ['kept', 1, 'complete'],
        ]);
        expect(await types(new Date(Date.now() + 90_000))).toEqual([['clumsy', 2, 'retry']]);
        expect(seen).toEqual([payload, headers]);
        throw new Rollback('on purpose');
      });
      await expect(attempt).rejects.toThrow('on purpose');
      expect(await kinds()).toEqual([]);
    });

    it('is aborted by an error in SQL, as usual', async () => {
      const attempt = library.transaction(async (scope) => {
        await scope.insertOrder('gone');
        await enqueue(scope.db, 'gone');
        const failed = createEnqueue('not_there').enqueue(scope.db, 'gone', { card: 'in the payload' });
        const error = await failed.catch((reason: Error) => reason);
        expect(error).toMatchObject({ message: expect.stringContaining('not_there') });
        expect(error).not.toMatchObject({ message: expect.stringContaining('in the payload') });
        await expect(enqueue(scope.db, 'gone')).rejects.toThrow(/transaction is aborted/);
      });
      // Some say so at the commit, some let Postgres turn it into a rollback; nobody keeps anything.
      await attempt.catch((error: Error) => expect(error.name).not.toBe('AssertionError'));
      expect(await orders()).toEqual([]);
      expect(await kinds()).toEqual([]);
    });
  });
}
