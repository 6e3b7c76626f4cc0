/** Acts on many jobs: what a filter takes, in chunks that can be interrupted and gone on with, written down; by command too. */
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import { type BulkFilter, createOperations } from '../../src/operations.js';
import { startCli } from '../support/cli.js';
import { jobsDatabase } from '../support/jobs.js';
import { until } from '../support/until.js';

const db = await jobsDatabase();
const operations = createOperations('unbroker');
afterAll(() => db.close());
beforeEach(async () => {
  await db.clear();
  await db.pool.query('truncate unbroker.operations');
});

/** Dead jobs with an error, `ageMs` ago. */
async function dead(
  count: number,
  { kind = 'a', error = 'Timeout', ageMs = 0, source = null as string | null } = {},
) {
  const { rows } = await db.pool.query<{ id: string }>(
    `insert into unbroker.jobs (kind, payload, state, attempts, finished_at, source, errors)
     select $1, '{"tags": ["vip"]}', 'dead', 20, now() - $3 * interval '1 millisecond', $4,
            jsonb_build_array(jsonb_build_object('name', $2::text, 'message', 'of ' || $2::text))
     from generate_series(1, $5::int) returning id::text`,
    [kind, error, ageMs, source, count],
  );
  return rows.map(({ id }) => id);
}

const count = async (state: string): Promise<number> => (await db.states())[state] ?? 0;
const retryAll = async (filter: BulkFilter) =>
  operations.run(db.pool, (await operations.begin(db.pool, 'retry', filter, 'me')).id);

describe('a filter takes what it says and nothing else', () => {
  test.for<[string, BulkFilter, number]>([
    ['a kind', { kind: 'mail' }, 2],
    ['kinds that start so', { kind: 'm*' }, 5],
    ['part of the error, whatever its case', { error: 'TIMEOUT' }, 4],
    ['part of the message', { error: 'of refu' }, 3],
    ['older than', { olderThanMs: 3_600_000 }, 3],
    ['newer than', { newerThanMs: 3_600_000 }, 5],
    ['the start of the source', { source: 'rabbitmq:' }, 1],
    ['a tag', { tag: 'vip' }, 8],
    ['a tag that none has', { tag: 'v' }, 0],
    ['two of these', { kind: 'm*', error: 'refused' }, 3],
    ['text with what LIKE would read', { kind: 'm%' }, 0],
    ['a state', { state: 'cancelled' }, 1],
  ])('%s', async ([, filter, expected]) => {
    await dead(2, { kind: 'mail' });
    await dead(3, { kind: 'money', error: 'Refused', ageMs: 7_200_000 });
    await dead(2);
    await dead(1, { source: 'rabbitmq:x', error: 'Other' });
    await db.pool.query(
      `insert into unbroker.jobs (kind, state, finished_at) values ('c', 'cancelled', now()), ('mail', 'done', now())`,
    );
    await db.put('mail', [1]);
    expect((await operations.preview(db.pool, 'retry', filter)).count).toBe(expected);
    const before = await count('ready');
    expect(await retryAll(filter)).toMatchObject({ changed: expected, finishedAt: expect.any(Date) });
    expect(await count('ready')).toBe(before + expected);
  });

  test('a running job and a schedule are left alone; what comes later, too', async () => {
    await db.put('a', Array(3).fill(1));
    await db.claim('a', { total: 1 });
    const { id } = await operations.begin(db.pool, 'cancel', { kind: 'a' }, 'me');
    await db.put('a', [1]);
    expect(await operations.run(db.pool, id)).toMatchObject({ changed: 2 });
    expect(await db.states()).toEqual({ cancelled: 2, running: 1, ready: 1 });
  });

  test('no filter and a state that it does not take are refused', async () => {
    await expect(operations.preview(db.pool, 'cancel', {})).rejects.toMatchObject({ code: 'filter-missing' });
    await expect(operations.begin(db.pool, 'discard', { state: 'dead' }, 'me')).rejects.toMatchObject({
      code: 'filter-invalid',
    });
  });
});

test('the look counts by kind and error with samples, and changes nothing', async () => {
  const ids = await dead(5);
  await dead(2, { kind: 'b', error: 'Other' });
  expect(await operations.preview(db.pool, 'retry', { tag: 'vip' })).toEqual({
    ...{ count: 7, more: false },
    groups: [
      { kind: 'a', error: 'Timeout', count: 5, samples: ids.slice(0, 3) },
      { kind: 'b', error: 'Other', count: 2, samples: expect.any(Array) },
    ],
  });
  expect(await db.states()).toEqual({ dead: 7 });
});

describe('in chunks', () => {
  test('interrupted between two, it goes on where it stood; each job once', async () => {
    await dead(1_200);
    const { id } = await operations.begin(db.pool, 'retry', { kind: 'a' }, 'me', { attempts: 3 });
    const interrupt = new AbortController();
    const first = await operations.run(db.pool, id, {
      signal: interrupt.signal,
      onChunk: () => interrupt.abort(),
    });
    expect(first).toMatchObject({ changed: 500, finishedAt: null });
    expect(await db.states()).toEqual({ ready: 500, dead: 700 });
    // What was retried and died again meanwhile is not taken a second time.
    await db.pool.query(`update unbroker.jobs set state = 'dead', finished_at = now() where state = 'ready'`);
    const end = await operations.run(db.pool, id);
    expect(end).toMatchObject({ changed: 1_200, options: { attempts: 3 }, by: 'me as postgres' });
    expect(await db.states()).toEqual({ ready: 700, dead: 500 });
    const { rows } = await db.pool.query('select distinct max_attempts from unbroker.jobs where state = $1', [
      'ready',
    ]);
    expect(rows).toEqual([{ max_attempts: 23 }]);
  });

  test('two that run the same one: the late one waits, changes nothing and says so', async () => {
    await dead(10);
    const { id } = await operations.begin(db.pool, 'retry', { kind: 'a' }, 'me');
    const first = await db.session();
    await first.query('begin');
    await first.query('update unbroker.operations set position = 5 where id = $1', [id]);
    const late = operations.run(db.pool, id).catch((error: unknown) => error);
    await until('it waits', async () => {
      const waiting = `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
      return ((await db.pool.query(waiting)).rowCount ?? 0) > 0;
    });
    await first.query('commit');
    expect(await late).toMatchObject({ code: 'operation-busy' });
    expect(await db.states()).toEqual({ dead: 10 });
  });

  test('few that match among many: no statement walks more than its window', async () => {
    await db.pool.query(
      `insert into unbroker.jobs (kind, state, finished_at) select 'done', 'done', now() from generate_series(1, 45000)`,
    );
    await dead(1);
    const chunks: string[] = [];
    const { id } = await operations.begin(db.pool, 'retry', { kind: 'a' }, 'me');
    await operations.run(db.pool, id, { onChunk: ({ position }) => void chunks.push(position) });
    expect(chunks).toHaveLength(3);
    expect(await db.states()).toMatchObject({ ready: 1 });
  });
});

describe('by command', () => {
  const jobs = async (...args: string[]) => {
    const env = { DATABASE_URL: db.url, UNBROKER_LOG_LEVEL: 'silent' };
    const cli = startCli(['jobs', ...args, '--json'], { env });
    const { code } = await cli.exit;
    return { code, stderr: cli.stderr, answer: JSON.parse(cli.stdout.trim().split('\n').at(-1) || 'null') };
  };

  test('a look first, a yes for many, and all of it in the audit', async () => {
    const [one = ''] = await dead(150);
    const unconfirmed = await jobs('retry', '--kind', 'a', '--error', 'timeout');
    expect(unconfirmed).toMatchObject({ code: 2, answer: { error: { code: 'operation-unconfirmed' } } });
    expect(unconfirmed.stderr).toContain(
      'retry would change 150 jobs. Look at them with --dry-run, then add --yes.',
    );
    expect(await db.states()).toEqual({ dead: 150 });
    const done = await jobs('retry', '--kind', 'a', '--yes', '--attempts', '2');
    expect(done).toMatchObject({ code: 0, answer: { changed: 150, act: 'retry' } });
    expect((await jobs('cancel', one)).answer).toEqual({ cancelled: [one], unchanged: [] });
    const { answer } = await jobs('audit');
    expect(answer.operations).toMatchObject([
      {
        act: 'cancel',
        filter: { ids: [one] },
        changed: 1,
        by: expect.stringMatching(/^\w+@.* as postgres$/),
      },
      { act: 'retry', filter: { kind: 'a' }, options: { attempts: 2 }, changed: 150 },
    ]);
  }, 120_000);
});
