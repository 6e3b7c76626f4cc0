/** A prepared statement that is not asked to describe its answer, beside what pg does with its own queries. */
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createEnqueue } from '../../src/enqueue.js';
import { Prepared } from '../../src/jobs/prepared.js';
import { type RowQuery, takesRowQueries } from '../../src/jobs/row-query.js';
import { type JobsDatabase, jobsDatabase } from '../support/jobs.js';

let db: JobsDatabase;
beforeAll(async () => {
  db = await jobsDatabase();
});
afterAll(() => db.close());

async function withClient(
  act: (client: pg.Client) => Promise<void>,
  config: pg.ClientConfig & { readonly pipeline?: boolean } = {},
): Promise<void> {
  const client = new pg.Client({ connectionString: db.url, ...config });
  client.on('error', () => {});
  await client.connect();
  try {
    await act(client);
  } finally {
    await client.end().catch(() => {});
  }
}

const ECHO = `select $1::text, null::text, $2::text, '🙂'`;

describe('a row', () => {
  test('is the first row’s texts, the first time and again; none is null', async () => {
    await withClient(async (client) => {
      expect(takesRowQueries(client)).toBe(true);
      const prepared = new Prepared(client);
      for (const text of ['', 'a', 'é😀"\\', 'x'.repeat(1_000_000)])
        expect(await prepared.row(ECHO, [text, null])).toEqual([text, null, null, '🙂']);
      const rows = `select n::text from generate_series(1, 3) n where n > $1::text::int`;
      expect(await prepared.row(rows, ['1'])).toEqual(['2']);
      expect(await prepared.row(rows, ['3'])).toBeNull();
      const { rows: kept } = await client.query('select count(*)::int as n from pg_prepared_statements');
      expect(kept).toEqual([{ n: 2 }]);
    });
  });

  test('of a client that takes only its own queries, or that is wrapped: the same', async () => {
    await withClient(
      async (client) => {
        expect(takesRowQueries(client)).toBe(false);
        expect(await new Prepared(client).row(ECHO, ['a', null])).toEqual(['a', null, null, '🙂']);
      },
      { pipeline: true },
    );
    await withClient(async (client) => {
      const wrapped = { query: client.query.bind(client) } as pg.Client;
      expect(takesRowQueries(wrapped)).toBe(false);
      // Read as its user reads numbers.
      const types = new pg.TypeOverrides();
      types.setTypeParser(20, Number);
      const numbers = { query: (config: pg.QueryConfig) => client.query({ ...config, types }) };
      const row = await new Prepared(numbers as unknown as pg.Client).row(
        'select 7::bigint, true, null::int',
        [],
      );
      expect(row).toEqual(['7', 'true', null]);
    });
  });

  test('goes out in its turn among other queries, and answers in it', async () => {
    // pg warns whoever asks before the last is answered.
    const { noDeprecation } = process;
    process.noDeprecation = true;
    await withClient(async (client) => {
      const told: string[] = [];
      const tell = (name: string) => (): void => void told.push(name);
      const prepared = new Prepared(client);
      await Promise.all([
        client.query('begin').then(tell('begin')),
        prepared.row(`select set_config('a.b', $1::text, true)`, ['1']).then(tell('first')),
        client.query(`select set_config('a.b', '2', true)`).then(tell('between')),
        prepared.row(`select set_config('a.b', $1::text, true)`, ['3']).then(tell('second')),
        client.query('commit').then(tell('commit')),
      ]);
      expect(told).toEqual(['begin', 'first', 'between', 'second', 'commit']);
    });
    process.noDeprecation = noDeprecation ?? false;
  });
});

/** Of tracers, which put theirs in the place of every client's way to ask: `own` is pg's. */
type Ask = (this: pg.Client, ...args: unknown[]) => unknown;

async function traced(
  between: (own: Ask, seen: unknown[]) => Ask,
  act: (client: pg.Client, seen: unknown[]) => Promise<void>,
): Promise<void> {
  const own = pg.Client.prototype.query;
  const seen: unknown[] = [];
  await withClient(async (client) => {
    pg.Client.prototype.query = between(own as unknown as Ask, seen) as unknown as typeof own;
    try {
      await act(client, seen);
    } finally {
      pg.Client.prototype.query = own;
    }
  });
}

const DIVISION = expect.objectContaining({ code: '22012' });
const divide = (client: pg.Client, by: string) =>
  new Prepared(client).row('select (1 / $1::text::int)::text', [by]);

describe('a tracer', () => {
  test('that stands between a client and its user is asked as pg’s users ask, in each way of standing there', async () => {
    const ways: ((own: Ask, seen: unknown[]) => Ask)[] = [
      (own, seen) =>
        function (...args) {
          const asked = own.apply(this, args) as Promise<{ readonly rows: unknown }>;
          asked.then(
            ({ rows }) => seen.push(rows),
            (error) => seen.push(error),
          );
          return asked;
        },
      (own, seen) =>
        function (...args) {
          return new Promise((resolve, reject) => {
            own.call(this, ...args, (error: unknown, result: { readonly rows: unknown }) => {
              seen.push(error ?? result.rows);
              if (error) reject(error);
              else resolve(result);
            });
          });
        },
      (own, seen) =>
        async function query(this: pg.Client, config) {
          try {
            const result = (await own.call(this, { ...(config as object) })) as { readonly rows: unknown };
            seen.push(result.rows);
            return result;
          } catch (error) {
            seen.push(error);
            throw error;
          }
        },
    ];
    for (const between of ways)
      await traced(between, async (client, seen) => {
        expect(takesRowQueries(client)).toBe(false);
        expect(await divide(client, '1')).toEqual(['1']);
        await expect(divide(client, '0')).rejects.toEqual(DIVISION);
        expect(seen).toEqual([[['1']], DIVISION]);
      });
  });

  test('that puts its callback around the query’s, under the name and with the arguments of pg’s own', async () => {
    const between = (own: Ask, seen: unknown[]): Ask =>
      function query(this: pg.Client, config, _values, _callback) {
        const { callback, text, values } = config as RowQuery;
        (config as RowQuery).callback = (error) => {
          seen.push([text, values, error]);
          callback(error);
        };
        return own.call(this, config);
      };
    await traced(between, async (client, seen) => {
      expect(takesRowQueries(client)).toBe(true);
      expect(await divide(client, '1')).toEqual(['1']);
      await expect(divide(client, '0')).rejects.toEqual(DIVISION);
      const text = 'select (1 / $1::text::int)::text';
      expect(seen).toEqual([
        [text, ['1'], null],
        [text, ['0'], DIVISION],
      ]);
    });
  });
});

test('a client that has a way to ask of its own is asked as pg’s users ask', async () => {
  const asked: unknown[] = [];
  class Logging extends pg.Client {
    override query = ((config: pg.QueryConfig) => {
      asked.push(config.text);
      return super.query(config);
    }) as unknown as pg.Client['query'];
  }
  class Overriding extends pg.Client {}
  const query = pg.Client.prototype.query as unknown as Ask;
  Object.defineProperty(Overriding.prototype, 'query', {
    value(this: pg.Client, config: pg.QueryConfig) {
      asked.push(config.text);
      return query.call(this, config);
    },
  });
  for (const Client of [Logging, Overriding]) {
    const client = new Client({ connectionString: db.url });
    await client.connect();
    expect(takesRowQueries(client)).toBe(false);
    expect(await divide(client, '1')).toEqual(['1']);
    await client.end();
  }
  expect(asked).toHaveLength(2);
  await withClient(async (client) => {
    const bound = new Proxy(client, {
      get: (target, key) => {
        const value = Reflect.get(target, key);
        return typeof value === 'function' ? value.bind(target) : value;
      },
    });
    expect(takesRowQueries(bound)).toBe(false);
    expect(takesRowQueries(new Proxy(client, {}))).toBe(true);
    for (const each of [bound, new Proxy(client, {})]) expect(await divide(each, '1')).toEqual(['1']);
  });
  class Plain extends pg.Client {}
  expect(takesRowQueries(new Plain())).toBe(true);
  // As pg's before 8.2, which wrote its messages over each other.
  const older = new pg.Client() as unknown as { readonly connection: { writer?: object } };
  older.connection.writer = {};
  expect(takesRowQueries(older)).toBe(false);
});

describe('a failure', () => {
  test('is the server’s, in a statement that it cannot read, too; the connection goes on', async () => {
    await withClient(async (client) => {
      const prepared = new Prepared(client);
      for (let n = 0; n < 2; n += 1)
        await expect(prepared.row('select nonsense from nowhere', [])).rejects.toMatchObject({
          code: '42P01',
        });
      await expect(prepared.row('select 1 / $1::text::int', ['0'])).rejects.toMatchObject({ code: '22012' });
      expect(await prepared.row('select 1 / $1::text::int', ['1'])).toEqual(['1']);

      await client.query('begin');
      await expect(prepared.row('select 1 / $1::text::int', ['0'])).rejects.toMatchObject({ code: '22012' });
      await expect(prepared.row('select 2 / $1::text::int', ['1'])).rejects.toMatchObject({ code: '25P02' });
      await client.query('rollback');
      expect(await prepared.row('select 2 / $1::text::int', ['1'])).toEqual(['2']);
    });
  });

  test('for a name that somebody discarded is one for each statement', async () => {
    await withClient(async (client) => {
      const prepared = new Prepared(client);
      const ways = [() => prepared.row('select 1::text', []), () => prepared.query('select 2', [])];
      for (const ask of ways) await ask();
      await client.query('discard all');
      for (const ask of ways) await expect(ask()).rejects.toMatchObject({ code: '26000' });
      for (const ask of ways) await ask();
    });
  });

  test('names the caller: its stack leads to who enqueued', async () => {
    await withClient(async (client) => {
      const { enqueue } = createEnqueue(undefined, { prepared: true });
      await client.query('begin');
      await client.query('select 1 / 0').catch(() => {});
      const orderPlaced = async (): Promise<unknown> => {
        await enqueue(client, 'a', 1);
        return null;
      };
      const error = await orderPlaced().catch((thrown: unknown) => thrown);
      expect(error).toMatchObject({ code: '25P02', stack: expect.stringContaining('orderPlaced') });
    });
  });

  test('a connection that was lost, ended or is slower than query_timeout rejects; nothing waits on', async () => {
    await withClient(async (client) => {
      const [{ pid }] = (await client.query('select pg_backend_pid() as pid')).rows;
      const asked = new Prepared(client).row('select pg_sleep(60)::text', []);
      await db.pool.query('select pg_terminate_backend($1)', [pid]);
      await expect(asked).rejects.toThrow();
      await expect(new Prepared(client).row('select 1', [])).rejects.toThrow();
    });
    await withClient(async (client) => {
      await client.end();
      await expect(new Prepared(client).row('select 1', [])).rejects.toThrow(/not queryable/);
    });
    await withClient(
      async (client) => {
        const slow = new Prepared(client).row('select pg_sleep($1::text::float)::text', ['0.2']);
        await expect(slow).rejects.toThrow('Query read timeout');
      },
      { query_timeout: 50 },
    );
  });
});
