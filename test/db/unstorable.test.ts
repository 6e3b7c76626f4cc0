/**
 * What Postgres cannot store never strands a job: results and messages of handlers with NUL, half a surrogate pair,
 * cycles, too much of anything, characters that the database's encoding lacks; a row that a trigger refuses. The
 * neighbours of such a job are written as if it were not there.
 */
import pg from 'pg';
import { afterAll, afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Discard, RetryAfter, Snooze } from '../../src/index.js';
import { LIMITS } from '../../src/jobs/job.js';
import { migrate } from '../../src/migrate.js';
import { type JobsDatabase, jobsDatabase } from '../support/jobs.js';
import { until } from '../support/until.js';
import { startWorker, type TestWorker, type TestWorkerOptions } from '../support/workers.js';

const db = await jobsDatabase();
afterAll(() => db.close());
beforeEach(() => db.clear());

const workers: TestWorker[] = [];
function work(options: Omit<TestWorkerOptions, 'url'> & { url?: string }): TestWorker {
  const worker = startWorker({ url: db.url, concurrency: 50, ...options });
  workers.push(worker);
  return worker;
}
afterEach(async () => {
  await Promise.all(workers.splice(0).map((worker) => worker.close()));
});

/** Twenty jobs end together; the odd one is `odd`. All must end, the others as ever. */
async function amongNeighbours(odd: () => unknown, on: JobsDatabase = db): Promise<string> {
  const [id] = (await on.put('a', ['odd'], { maxAttempts: 1 })) as [string];
  await on.put('a', Array(19).fill('plain'));
  let open = (): void => {};
  const together = new Promise<void>((resolve) => {
    open = resolve;
  });
  const worker = work({
    url: on.url,
    handlers: {
      a: async ({ payload }) => {
        await together;
        return payload === 'odd' ? odd() : 'fine';
      },
    },
  });
  await until('all run', () => worker.running === 20);
  open();
  await worker.untilEnded(20);
  expect(worker.lost()).toEqual([]);
  const { rows } = await on.pool.query(
    `select count(*)::int as fine from unbroker.jobs where state = 'done' and result = '"fine"'`,
  );
  expect(rows[0].fine).toBe(19);
  return id;
}

const cyclic: Record<string, unknown> = {};
cyclic['self'] = cyclic;
let nested: unknown = 0;
for (let i = 0; i < 8_000; i += 1) nested = [nested];
let deeper: unknown = 0;
for (let i = 0; i < 200_000; i += 1) deeper = [deeper];

describe('results', () => {
  test.each([
    ['NUL', 'a\u0000b'],
    ['NUL behind backslashes', '\\\\\u0000'],
    ['half a pair', { list: ['\udc00'] }],
    ['a cycle', cyclic],
    ['a BigInt', 10n],
    ['too much', 'x'.repeat(1_000_000)],
    ['deep nesting', nested],
    ['nesting beyond the stack', deeper],
    ['a number like none', { n: 1e308, m: -0, t: 5e-324 }],
    ['keys of the prototype', JSON.parse('{"__proto__": 1, "constructor": {"prototype": 2}}')],
  ])('%s', async (_name, result) => {
    const id = await amongNeighbours(() => result);
    expect(await db.job(id)).toMatchObject({ state: 'done', attempts: 1 });
  });
});

describe('what is thrown', () => {
  test.each([
    ['NUL in a message', new Error('a\u0000b')],
    ['half a pair in a message', new Error('a\ud800')],
    ['NUL in a name', Object.assign(new Error('m'), { name: 'E\u0000' })],
    ['a message of megabytes', new Error('m'.repeat(5_000_000))],
    ['a message cut inside a pair', new Error(`${'m'.repeat(LIMITS.errorMessageLength - 1)}😀`)],
    ['NUL in a reason', new Discard('m', 'r\u0000')],
    ['a message that is none', Object.assign(new Error('x'), { message: { a: 1 } })],
    ['nothing', undefined],
  ])('%s', async (_name, error) => {
    const id = await amongNeighbours(() => {
      throw error;
    });
    expect(await db.job(id)).toMatchObject({ state: 'dead', attempts: 1, errors: [{ attempt: 1 }] });
  });

  test.each([
    // As a copy of the package before made it.
    ['Snooze(NaN)', () => Object.assign(new Snooze(0), { delayMs: Number.NaN })],
    ['Snooze(1e300)', () => new Snooze(1e300)],
    ['RetryAfter(-Infinity)', () => new RetryAfter(Number.NEGATIVE_INFINITY, 'm')],
  ])('%s waits for a time that the database knows', async (_name, make) => {
    const [id] = (await db.put('a', [1])) as [string];
    const worker = work({
      handlers: {
        a: () => {
          throw make();
        },
      },
    });
    await until('it was settled', () => worker.settled().length >= 1);
    expect(worker.errors()).toEqual([]);
    expect((await db.job(id)).state).not.toBe('dead');
  });
});

describe('a database in LATIN1', () => {
  test('a message that it cannot spell is left out, the outcome is not', async () => {
    const admin = new pg.Client({ connectionString: db.url });
    await admin.connect();
    const name = `${db.name}_latin1`;
    await admin.query(
      `create database ${name} encoding 'LATIN1' lc_collate 'C' lc_ctype 'C' template template0`,
    );
    try {
      const url = new URL(db.url);
      url.pathname = `/${name}`;
      const pool = new pg.Pool({ connectionString: url.href, max: 4 });
      // end() resolves before the server has seen the goodbyes: dropping the database may cut one off.
      pool.on('error', () => undefined);
      await migrate(pool, {});
      const latin: JobsDatabase = { ...db, url: url.href, pool, put: put(pool) };
      const row = async (id: string) =>
        (await pool.query('select state, errors, result from unbroker.jobs where id = $1', [id])).rows[0];
      const message = await amongNeighbours(() => {
        throw new Error('price in €😀');
      }, latin);
      expect(await row(message)).toMatchObject({
        state: 'dead',
        errors: [{ name: 'Error', message: 'unstorable message' }],
      });
      // The first worker would take jobs of the second.
      await Promise.all(workers.splice(0).map((worker) => worker.close()));
      await pool.query('truncate unbroker.jobs');
      const result = await amongNeighbours(() => '😀', latin);
      expect(await row(result)).toMatchObject({ state: 'done', result: null });
      await Promise.all(workers.splice(0).map((worker) => worker.close()));
      await pool.end();
    } finally {
      await admin.query(`drop database ${name} with (force)`);
      await admin.end();
    }
  });

  const put =
    (pool: pg.Pool): JobsDatabase['put'] =>
    async (kind, payloads, options = {}) => {
      const { rows } = await pool.query<{ id: string }>(
        `insert into unbroker.jobs (kind, payload, max_attempts) select $1, p::jsonb, $3 from unnest($2::text[]) p returning id::text`,
        [kind, payloads.map((payload) => JSON.stringify(payload)), options.maxAttempts ?? 20],
      );
      return rows.map(({ id }) => id);
    };
});

describe('a row that the server refuses', () => {
  test('a trigger that forbids one job’s end holds up no neighbour and not this worker', async () => {
    await db.pool.query(`
      create or replace function forbid() returns trigger language plpgsql as $$
      begin
        if new.state <> 'running' and new.payload = '"odd"' then raise exception 'not this one'; end if;
        return new;
      end $$;
      create trigger forbid before update on unbroker.jobs for each row execute function forbid();`);
    try {
      const [id] = (await db.put('a', ['odd'])) as [string];
      await db.put('a', Array(19).fill('plain'));
      const worker = work({ handlers: { a: async () => 'fine' }, leaseMs: 1_000 });
      await worker.untilEnded(20);
      expect(await db.states()).toEqual({ done: 19, running: 1 });
      // Given up, not tried for ever: its lease runs out.
      expect(worker.lost().map((job) => job.id)).toEqual([id]);
      await until('its lease has ended', async () => {
        const { rows } = await db.pool.query(
          `select locked_until < clock_timestamp() as over from unbroker.jobs where id = $1`,
          [id],
        );
        return rows[0].over;
      });
    } finally {
      await db.pool.query('drop trigger forbid on unbroker.jobs');
    }
  });
});
