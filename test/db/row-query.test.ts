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

  test('what a tracer reads and wraps is there: text, values, callback', async () => {
    await withClient(async (client) => {
      const seen: unknown[] = [];
      const tracing = Object.create(client, {
        query: {
          value: (query: RowQuery) => {
            const own = query.callback;
            query.callback = (error, row) => {
              seen.push([query.text, query.values, error]);
              own(error, row);
            };
            return client.query(query as unknown as pg.QueryConfig);
          },
        },
      }) as pg.Client;
      expect(await new Prepared(tracing).row('select $1::text', ['a'])).toEqual(['a']);
      await expect(new Prepared(tracing).row('select 1 / $1::text::int', ['0'])).rejects.toMatchObject({
        code: '22012',
      });
      expect(seen).toEqual([
        ['select $1::text', ['a'], null],
        ['select 1 / $1::text::int', ['0'], expect.objectContaining({ code: '22012' })],
      ]);
    });
  });
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
