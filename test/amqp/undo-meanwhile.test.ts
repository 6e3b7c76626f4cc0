/**
 * What others do while messages go back: workers that claim, operators that cancel or delete, queues that are deleted,
 * declared anew or let messages go. Each has its place in the books, and no message goes back whose job somebody has.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { connectBroker } from '../../adapters/rabbitmq/broker.js';
import { type UndoOptions, undoGroup } from '../../adapters/rabbitmq/undo.js';
import type { Queryable } from '../../src/jobs/job.js';
import { SILENT } from '../../src/log.js';
import { type DrainWorld, drainWorld } from './drain-world.js';

let world: DrainWorld;
beforeAll(async () => {
  world = await drainWorld();
});
afterAll(() => world.close());

const MESSAGES = 6;

async function filled(args?: Record<string, unknown>): Promise<string[]> {
  await world.channel.deleteQueue('work');
  await world.channel.assertQueue('work', {
    durable: true,
    ...(args === undefined ? {} : { arguments: args }),
  });
  await world.database.pool.query(
    'truncate unbroker.jobs, unbroker.drain_ledger, unbroker.drain_batches, unbroker.drain_moves, unbroker.drain_runs cascade',
  );
  for (let n = 0; n < MESSAGES; n += 1) await world.publish('', 'work', { n: n >> 1 });
  await world.drainQueue('work');
  return (await world.rows<{ id: string }>('select id::text from unbroker.jobs order by id')).map(
    ({ id }) => id,
  );
}

const undo = (options: Partial<UndoOptions> = {}) =>
  undoGroup({
    ...{ amqpUrl: world.vhost.url, pool: world.database.pool, schema: 'unbroker', group: 'work' },
    ...{ log: SILENT, maxBatch: 2, maxOnTheWay: 2, answerWithinMs: 10_000, ...options },
  });

/** The pool, with something done right before the nth statement that matches. */
function justBefore(pattern: RegExp, nth: number, act: () => Promise<unknown>): Queryable {
  const { pool } = world.database;
  let seen = 0;
  return {
    async query(text, values) {
      if (pattern.test(text) && ++seen === nth) await act();
      return pool.query(text, values as unknown[]);
    },
  };
}
const CLAIM = /going as/;
const SETTLE = /moved as/;

const ready = async () => (await world.channel.checkQueue('work')).messageCount;
const states = () => world.database.states();
const sql = (text: string, values: unknown[] = []) => world.database.pool.query(text, values);

describe('jobs', () => {
  test('claimed by a worker between the look and the lease: they stay, and say that they run', async () => {
    const ids = await filled();
    let claimed: string[] = [];
    const pool = justBefore(CLAIM, 2, async () => {
      claimed = (await world.database.claim('k', { total: 2 })).map(({ id }) => id);
    });
    const { books } = await undo({ pool });
    expect(claimed).toEqual(ids.slice(2, 4));
    expect(books).toMatchObject({ moved: MESSAGES - 2, remaining: MESSAGES - 2, balanced: true });
    expect(books.kept).toEqual([{ reason: 'running', count: 2, jobs: claimed }]);
    expect(await states()).toEqual({ cancelled: MESSAGES - 2, running: 2 });
  });

  test('locked by somebody: not waited for, left as they are, and gone at the next undo', async () => {
    const ids = await filled();
    const session = await world.database.session();
    await session.query('begin');
    await session.query('select from unbroker.jobs where id = any ($1) for update', [ids.slice(0, 2)]);
    const first = await undo();
    await session.query('rollback');
    await session.end();
    expect(first.books).toMatchObject({
      moved: MESSAGES - 2,
      balanced: true,
      kept: [{ reason: 'left', count: 2 }],
    });
    expect((await undo()).books).toMatchObject({
      initial: MESSAGES - 2,
      moved: 2,
      remaining: MESSAGES,
      kept: [],
    });
    expect(await ready()).toBe(MESSAGES);
  });

  test('cancelled, edited and pruned by an operator between the look and the lease', async () => {
    const [first, second, third] = await filled();
    const pool = justBefore(CLAIM, 1, async () => {
      await sql(`update unbroker.jobs set state = 'cancelled', finished_at = now() where id = $1`, [first]);
      await sql('delete from unbroker.jobs where id = $1', [second]);
      await sql('update unbroker.jobs set priority = 9 where id = $1', [third]);
    });
    const { books } = await undo({ pool });
    expect(books).toMatchObject({ moved: MESSAGES - 3, remaining: MESSAGES - 3, balanced: true });
    expect(Object.fromEntries(books.kept.map(({ reason, jobs }) => [reason, jobs]))).toEqual({
      finished: [first],
      pruned: [second],
      edited: [third],
    });
    expect(await undo()).toMatchObject({ runId: null, books: { moved: 0 } });
  });

  test.each([
    ['deleted', (id: string) => sql('delete from unbroker.jobs where id = $1', [id])],
    [
      'retried',
      (id: string) =>
        sql(
          `update unbroker.jobs set state = 'ready', lease_token = null, locked_until = null, locked_by = null, on_lease_expired = null where id = $1`,
          [id],
        ),
    ],
  ])('%s by hand while its message is on the way: the books say to look for doubles', async (_, act) => {
    const [first = ''] = await filled();
    const { books } = await undo({ pool: justBefore(SETTLE, 1, () => act(first)) });
    expect(books).toMatchObject({ moved: MESSAGES, remaining: MESSAGES, balanced: true });
    expect(books.remarks.join()).toContain('1 jobs were taken out of our hands');
  });
});

test('two batches on their way are marked each by itself', async () => {
  await filled();
  const { pool } = world.database;
  let claims = 0;
  let onClaimed = (): void => {};
  const secondClaimed = new Promise<void>((resolve) => {
    onClaimed = resolve;
  });
  const inOrder: Queryable = {
    async query(text, values) {
      // The first is marked when the second is certainly there.
      if (SETTLE.test(text)) await secondClaimed;
      const answer = await pool.query(text, values as unknown[]);
      if (CLAIM.test(text) && ++claims === 2) onClaimed();
      return answer;
    },
  };
  const die = (step: string): void => {
    if (step === 'marked') throw new Error('planted');
  };
  await expect(undo({ pool: inOrder, maxOnTheWay: 4, onStep: die })).rejects.toThrow('planted');
  expect(await states()).toEqual({ cancelled: 2, running: 2, ready: MESSAGES - 4 });
  expect((await undo()).books).toMatchObject({
    initial: 0,
    moved: MESSAGES,
    remaining: MESSAGES,
    balanced: true,
  });
});

describe('queues', () => {
  test('deleted in the middle: what was there is gone and told, the rest keeps its jobs', async () => {
    await filled();
    const { books } = await undo({ pool: justBefore(CLAIM, 2, () => world.channel.deleteQueue('work')) });
    expect(books).toMatchObject({ initial: 0, moved: 2, remaining: 0, difference: -2, balanced: false });
    expect(books.refused).toEqual({ 'its-queue-is-gone': MESSAGES - 2 });
    expect(books.remarks.join()).toContain('2 fewer are in the queues than were there and went back');
    expect(await states()).toEqual({ cancelled: 2, ready: MESSAGES - 2 });
    await world.channel.assertQueue('work', { durable: true });
    expect((await undo()).books).toMatchObject({ moved: MESSAGES - 2, balanced: true });
  });

  test.each<[string, Record<string, unknown>, number, number]>([
    ['as a quorum queue', { 'x-queue-type': 'quorum' }, MESSAGES, 0],
    ['with priorities', { 'x-max-priority': 5 }, MESSAGES, 0],
    ['refusing beyond a length', { 'x-max-length': 4, 'x-overflow': 'reject-publish' }, 4, 0],
    ['dropping its oldest beyond a length', { 'x-max-length': 4, 'x-overflow': 'drop-head' }, MESSAGES, -2],
    [
      'letting messages go elsewhere at once',
      { 'x-message-ttl': 0, 'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': 'elsewhere' },
      MESSAGES,
      -MESSAGES,
    ],
  ])('declared anew %s', async (_, args, moved, difference) => {
    await world.channel.assertQueue('elsewhere', { durable: true });
    await world.channel.purgeQueue('elsewhere');
    await filled();
    await world.channel.deleteQueue('work');
    await world.channel.assertQueue('work', { durable: true, arguments: args });
    const { books } = await undo();
    expect(books).toMatchObject({ moved, difference, balanced: difference === 0 });
    expect(books.refused).toEqual(moved < MESSAGES ? { 'its-queue-takes-no-more': MESSAGES - moved } : {});
    if (difference < 0) expect(books.remarks.join()).toContain(`${-difference} fewer are in the queues`);
    const kept = moved < MESSAGES ? { ready: MESSAGES - moved } : {};
    expect(await states()).toEqual({ cancelled: moved, ...kept });
    if (difference === -MESSAGES)
      expect((await world.channel.checkQueue('elsewhere')).messageCount).toBe(MESSAGES);
  });

  test('exclusive to somebody by now: it ends before anything is published', async () => {
    await filled();
    await world.channel.deleteQueue('work');
    await world.channel.assertQueue('work', { durable: false, exclusive: true });
    await expect(undo()).rejects.toMatchObject({ code: 'queue-exclusive' });
    expect(await states()).toEqual({ ready: MESSAGES });
  });

  test('quorum, from the start: there and back, twins among them, cut in the middle', async () => {
    await filled({ 'x-queue-type': 'quorum' });
    let seen = 0;
    const die = (step: string): void => {
      if (step === 'confirmed' && ++seen === 2) throw new Error('planted');
    };
    await expect(undo({ maxOnTheWay: 4, onStep: die })).rejects.toThrow('planted');
    expect((await undo()).books).toMatchObject({
      initial: 0,
      moved: MESSAGES,
      remaining: MESSAGES,
      balanced: true,
    });
    const broker = await connectBroker(world.vhost.url);
    const found = await broker.look('work', MESSAGES + 1).finally(() => broker.close());
    expect(found.map(({ body }) => body.toString()).sort()).toEqual(
      Array.from({ length: MESSAGES }, (_, n) => JSON.stringify({ n: n >> 1 })).sort(),
    );
  });
});
