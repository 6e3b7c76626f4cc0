/** The way back on a real broker: bytes as they were, jobs that somebody touched left alone, a second run without effect. */
import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { connectBroker } from '../../adapters/rabbitmq/broker.js';
import { type RawDelivery, readProperties } from '../../adapters/rabbitmq/delivery.js';
import { type UndoOptions, undoGroup } from '../../adapters/rabbitmq/undo.js';
import type { WhenUndoAmbiguous } from '../../adapters/rabbitmq/undo-position.js';
import type { UndoStep } from '../../adapters/rabbitmq/undo-sender.js';
import { SILENT } from '../../src/log.js';
import { withSeed } from '../support/seeded.js';
import {
  array,
  fields,
  long,
  type Parts,
  propertyBytes,
  READ_BY_THE_BROKER,
  text,
} from '../unit/delivery-builder.js';
import { type DrainWorld, drainWorld, untilReady } from './drain-world.js';

let world: DrainWorld;
beforeAll(async () => {
  world = await drainWorld();
});
afterAll(() => world.close());

const CONFIG = { rules: [{ match: { queue: '*' }, kind: 'k' }] };

beforeEach(async () => {
  await world.channel.assertQueue('work', { durable: true });
  await world.channel.purgeQueue('work');
  await world.database.pool.query(
    'truncate unbroker.jobs, unbroker.drain_ledger, unbroker.drain_batches, unbroker.drain_moves, unbroker.drain_runs cascade',
  );
});

const undo = (options: Partial<UndoOptions> = {}) =>
  undoGroup({
    ...{
      amqpUrl: world.vhost.url,
      pool: world.database.pool,
      schema: 'unbroker',
      group: 'work',
      log: SILENT,
      // Less than a test may take: a server that hangs is told by its error.
      answerWithinMs: 12_000,
    },
    ...options,
  });

/** What lies in a queue, in order; it stays there. */
async function contents(queue = 'work', max = 1_000): Promise<RawDelivery[]> {
  const broker = await connectBroker(world.vhost.url);
  try {
    return await broker.look(queue, max);
  } finally {
    await broker.close();
  }
}

const bytesOf = (messages: readonly RawDelivery[]) =>
  messages.map(
    ({ propertyBytes: properties, body }) =>
      `${properties.toString('hex')} ${createHash('sha256').update(body).digest('hex')}`,
  );

const drain = () => world.drainQueue('work');

interface JobRow {
  readonly kind: string;
  readonly state: string;
}

const jobs = (where = 'true') =>
  world.rows<JobRow & Record<string, unknown>>(
    `select kind, md5(payload::text) as payload, md5(body) as body, state, attempts, max_attempts, priority, content_type,
            headers #- '{amqp,redelivered}' as headers,
            regexp_replace(source, '#[0-9]+$', '') as source, errors -> 0 ->> 'name' as error
     from unbroker.jobs where ${where} order by id`,
  );

describe('there and back', () => {
  test('messages are byte-equal and in order, jobs end as given back, a second run changes nothing', async () => {
    for (let n = 0; n < 20; n += 1) {
      await world.publish('', 'work', { n }, { messageId: `m${n}`, headers: { n }, priority: n % 3 });
    }
    const before = await contents();
    await drain();
    expect((await world.channel.checkQueue('work')).messageCount).toBe(0);
    const result = await undo({ maxBatch: 7 });
    expect(result.books).toMatchObject({
      initial: 0,
      moved: 20,
      remaining: 20,
      difference: 0,
      balanced: true,
    });
    expect(bytesOf(await contents())).toEqual(bytesOf(before));
    expect(
      (await contents()).every(({ exchange, routingKey }) => exchange === '' && routingKey === 'work'),
    ).toBe(true);
    expect(
      await world.rows(
        `select state, errors -> -1 ->> 'name' as name, count(*)::int from unbroker.jobs group by 1, 2`,
      ),
    ).toEqual([{ state: 'cancelled', name: 'given-back', count: 20 }]);
    const again = await undo();
    expect(again).toMatchObject({ runId: null, books: { moved: 0, balanced: true } });
    expect((await world.channel.checkQueue('work')).messageCount).toBe(20);
    expect((await world.rows('select 1 from unbroker.drain_runs')).length).toBe(2);
  });

  test('drain, undo, drain gives the same rows, whatever a queue can hold', {
    timeout: 180_000,
  }, async () => {
    const name = fc.string({ maxLength: 8 }).filter((text) => !READ_BY_THE_BROKER.has(text));
    const header = fc.oneof(
      fc.uint8Array({ maxLength: 12 }).map((bytes) => ({ tag: 'S' as const, bytes: Buffer.from(bytes) })),
      fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).map((value) => ({ tag: 'l' as const, value })),
      fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).map((value) => ({ tag: 'L' as const, value })),
      fc.constant({ tag: 'D' as const, scale: 2, digits: -1 }),
      fc.constant(array(text('x'), fields({ a: long(1n) }))),
      fc.constant({ tag: 'V' as const }),
    );
    const message = fc.record({
      headers: fc.dictionary(name, header, { maxKeys: 4 }),
      body: fc.oneof(
        fc.json().map((json) => Buffer.from(json)),
        fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes)),
        fc.integer({ min: 4_000, max: 300_000 }).map((size) => Buffer.alloc(size, 0x61)),
      ),
      properties: fc.record(
        {
          deliveryMode: fc.constantFrom(1, 2),
          priority: fc.integer({ min: 0, max: 255 }),
          type: fc.string({ maxLength: 10 }),
          messageId: fc.string({ maxLength: 10 }),
          timestamp: fc.bigInt({ min: 0n, max: 2n ** 63n }),
        },
        { requiredKeys: [] },
      ),
    });
    await withSeed(async (seed) => {
      const sent: readonly Parts[] = fc.sample(message, { numRuns: 150, seed });
      for (const parts of sent) {
        await world.publishRaw('work', propertyBytes(parts), parts.body as Buffer);
      }
      const before = bytesOf(await contents());
      await drain();
      const first = await jobs();
      expect((await undo({ maxBatch: 40 })).books).toMatchObject({ moved: 150, balanced: true });
      expect(bytesOf(await contents())).toEqual(before);
      await drain();
      const second = (await jobs()).slice(150);
      expect(second).toEqual(first);
    });
  });

  test('a routing key and the exchange before it survive: rules by either give the same kind', async () => {
    const rules = [
      { match: { exchange: 'orders', routingKey: 'order.*' }, kind: 'order.{1}' },
      { match: { exchange: 'audit' }, kind: 'audited' },
    ];
    for (const exchange of ['orders', 'audit']) {
      await world.channel.assertExchange(exchange, 'topic', { durable: true });
      await world.channel.bindQueue('work', exchange, '#');
      // Would double what came through it if it were asked again.
      await world.channel.assertQueue(`other.${exchange}`, { durable: true });
      await world.channel.bindQueue(`other.${exchange}`, exchange, '#');
    }
    await world.publish('orders', 'order.created', { n: 1 });
    await world.publish('audit', 'x', { n: 2 });
    const config = { rules };
    await world.drain({ config, groups: ['work'] });
    const first = await jobs();
    expect(first.map(({ kind }) => kind)).toEqual(['order.created', 'audited']);
    await undo();
    expect((await contents()).map(({ routingKey }) => routingKey)).toEqual(['order.created', 'x']);
    expect((await world.channel.checkQueue('other.orders')).messageCount).toBe(1);
    await world.drain({ config, groups: ['work'] });
    expect((await jobs()).slice(2)).toEqual(first);
    for (const exchange of ['orders', 'audit']) {
      await world.channel.deleteExchange(exchange);
      await world.channel.deleteQueue(`other.${exchange}`);
    }
  });
});

describe('what stays', () => {
  test('finished, running, edited and pruned jobs are listed, never moved', async () => {
    for (let n = 0; n < 8; n += 1) await world.publish('', 'work', { n });
    await drain();
    const ids = (await world.rows<{ id: string }>('select id::text from unbroker.jobs order by id')).map(
      ({ id }) => id,
    );
    const [done, running, released, edited, discarded, pruned, ...free] = ids as [string, ...string[]];
    const { pool } = world.database;
    const claimed = await world.database.claim('k', { total: 3 });
    expect(claimed.map(({ id }) => id)).toEqual([done, running, released]);
    const lease = 'lease_token = null, locked_until = null, locked_by = null';
    await pool.query(`update unbroker.jobs set state = 'done', finished_at = now(), ${lease} where id = $1`, [
      done,
    ]);
    // Given back by a worker that stopped: it may have begun.
    await pool.query(
      `update unbroker.jobs set state = 'ready', attempts = attempts - 1, ${lease} where id = $1`,
      [released],
    );
    await pool.query('update unbroker.jobs set priority = 5 where id = $1', [edited]);
    await pool.query(`update unbroker.jobs set state = 'cancelled', finished_at = now() where id = $1`, [
      discarded,
    ]);
    await pool.query('delete from unbroker.jobs where id = $1', [pruned]);
    const { books } = await undo();
    expect(books).toMatchObject({ moved: free.length, balanced: true });
    expect(Object.fromEntries(books.kept.map(({ reason, jobs: listed }) => [reason, listed]))).toEqual({
      finished: [done, discarded],
      running: [running],
      edited: [released, edited],
      pruned: [pruned],
    });
    expect((await world.channel.checkQueue('work')).messageCount).toBe(free.length);
  });

  test('a dead letter, an unmapped and an excluded message go back; one that was retried does not', async () => {
    await world.publish('', 'work', 'not json');
    await world.publish('', 'work', { ask: 1 }, { replyTo: 'amq.rabbitmq.reply-to.x' });
    await world.publish('', 'work', 'nor this');
    await drain();
    const [, retried] = await world.rows<{ id: string }>(
      `select id::text from unbroker.jobs where state = 'dead' order by id`,
    );
    await world.database.store.operatorRetry(world.database.pool, [retried?.id ?? ''], 1);
    const { books } = await undo();
    expect(books).toMatchObject({ moved: 2, balanced: true });
    expect((await contents()).map(({ body }) => body.toString())).toEqual(['not json', '{"ask":1}']);
  });

  test('dead letters that an upgrade marks are untouched all the same; one that somebody wrote is not', async () => {
    for (const n of [1, 2, 3]) await world.publish('', 'work', `not json ${n}`);
    await drain();
    const client = await world.database.session();
    // As the version before left them: without the mark, and written by nobody since.
    await client.query('begin');
    await client.query('set local session_replication_role = replica');
    await client.query('update unbroker.jobs set dead = null');
    await client.query('update unbroker.drain_ledger set written_by = pg_current_xact_id()::xid');
    await client.query('commit');
    await world.database.pool.query(
      'update unbroker.jobs set max_attempts = 7 where id = (select min(id) from unbroker.jobs)',
    );
    await world.database.pool.query('select unbroker.mark_dead()');
    expect(await world.database.store.countDead(world.database.pool, 10)).toBe(3);
    expect((await undo()).books).toMatchObject({ moved: 2, balanced: true });
    expect((await contents()).map(({ body }) => body.toString())).toEqual(['not json 2', 'not json 3']);
  });

  test('by kind; and what is left goes another time', async () => {
    const config = {
      rules: [
        { match: { queue: '*', type: 'a' }, kind: 'a' },
        { match: { queue: '*' }, kind: 'b' },
      ],
    };
    await world.publish('', 'work', 1, { type: 'a' });
    await world.publish('', 'work', 2);
    await world.drain({ config });
    expect((await undo({ kinds: ['a'] })).books).toMatchObject({ moved: 1, balanced: true });
    expect((await undo()).books).toMatchObject({ initial: 1, moved: 1, remaining: 2, balanced: true });
  });

  test('a dry run counts and reads, and writes nothing', async () => {
    await world.publish('', 'work', 1, { CC: ['nowhere'] });
    await drain();
    const before = await world.rows('select * from unbroker.drain_runs, unbroker.jobs');
    expect(await undo({ dryRun: true })).toMatchObject({
      dryRun: true,
      books: { moved: 1, stripped: { cc: 1 } },
    });
    expect(await world.rows('select * from unbroker.drain_runs, unbroker.jobs')).toEqual(before);
    expect((await world.channel.checkQueue('work')).messageCount).toBe(0);
  });

  test('a queue that is gone keeps its jobs as they were', async () => {
    await world.channel.assertQueue('fleeting', { durable: true });
    await world.publish('', 'fleeting', 1);
    await world.drainQueue('fleeting');
    const before = await jobs();
    await world.channel.deleteQueue('fleeting');
    const { books } = await undo({ group: 'fleeting' });
    expect(books).toMatchObject({ moved: 0, balanced: true, refused: { 'its-queue-is-gone': 1 } });
    expect(await jobs()).toEqual(before);
  });

  test('a queue that takes no more: refused ones are what they were, and go when there is room', async () => {
    const limited = { durable: true, arguments: { 'x-max-length': 3, 'x-overflow': 'reject-publish' } };
    await world.channel.assertQueue('narrow', limited);
    for (let n = 0; n < 3; n += 1) await world.publish('', 'narrow', { n });
    await world.drainQueue('narrow');
    await world.publish('', 'narrow', 'in the way');
    await world.publish('', 'narrow', 'in the way');
    const first = await undo({ group: 'narrow' });
    expect(first.books).toMatchObject({ initial: 2, balanced: true });
    expect(first.books.moved + (first.books.refused['its-queue-takes-no-more'] ?? 0)).toBe(3);
    expect(await jobs(`state = 'ready'`)).toHaveLength(3 - first.books.moved);
    await world.channel.purgeQueue('narrow');
    expect((await undo({ group: 'narrow' })).books.moved).toBe(3 - first.books.moved);
    await world.channel.deleteQueue('narrow');
  });
});

describe('what is stripped', () => {
  test('what would double it or close the channel; the rest of the bytes stays', async () => {
    await world.channel.assertQueue('copy', { durable: true });
    const user = new URL(world.vhost.url).username || 'guest';
    const keep = text('kept');
    // Each by itself, between headers that stay. Invalid expirations and foreign users never come in by AMQP: unit tests.
    const sent: Record<string, Parts> = {
      cc: { headers: { a: keep, CC: array(text('copy')), b: keep } },
      delay: { headers: { a: keep, 'x-delay': long(5_000n) } },
      user: { properties: { userId: user, type: 't' } },
      expiration: { properties: { expiration: '600000' } },
    };
    for (const parts of Object.values(sent))
      await world.publishRaw('work', propertyBytes(parts), Buffer.from('{}'));
    expect((await world.channel.checkQueue('copy')).messageCount).toBe(1);
    await drain();
    const { books } = await undo();
    expect(books).toMatchObject({ moved: 4, stripped: { cc: 1, 'x-delay': 1 }, balanced: true });
    expect((await world.channel.checkQueue('copy')).messageCount).toBe(1);
    expect((await contents()).map(({ propertyBytes: bytes }) => bytes.toString('hex'))).toEqual(
      [
        propertyBytes({ headers: { a: keep, b: keep } }),
        propertyBytes({ headers: { a: keep } }),
        propertyBytes(sent['user'] ?? {}),
        propertyBytes(sent['expiration'] ?? {}),
      ].map((bytes) => bytes.toString('hex')),
    );
    await world.channel.deleteQueue('copy');
  });

  test('a header table of 100 KB and a body of three frames', async () => {
    const headers = { 'x-exception-stacktrace': text('t'.repeat(100_000)) };
    await world.publishRaw('work', propertyBytes({ headers }), Buffer.alloc(300_000, 0x62));
    const before = bytesOf(await contents());
    await drain();
    expect((await undo()).books).toMatchObject({ moved: 1, balanced: true });
    expect(bytesOf(await contents())).toEqual(before);
  });
});

describe('delays', () => {
  const group = 'later';
  beforeEach(async () => {
    await world.channel.assertQueue(group, { durable: true });
    await world.channel.assertQueue('later.wait', {
      durable: true,
      arguments: {
        'x-message-ttl': 600_000,
        'x-dead-letter-exchange': '',
        'x-dead-letter-routing-key': group,
      },
    });
    for (const queue of [group, 'later.wait']) await world.channel.purgeQueue(queue);
  });
  const waitQueues = new Set(['later.wait']);
  const drainLater = () => world.drain({ config: CONFIG, groups: [group] });

  test('go back with what is left of them', async () => {
    await world.publish('', 'later.wait', { n: 1 });
    await world.publish('', 'later.wait', { n: 2 });
    await drainLater();
    // Time is set: 400 s of 600 have passed for the first, all for the second.
    await world.database.pool.query(
      `with due as (
         update unbroker.jobs set run_at = now() + case when payload = '{"n":1}' then 200 else -1 end * interval '1 second'
         returning id
       )
       update unbroker.drain_ledger l set written_by = pg_current_xact_id()::xid from due where due.id = l.job`,
    );
    const { books } = await undo({ group, waitQueues });
    expect(books).toMatchObject({ moved: 2, stripped: { 'delay-set': 2 }, balanced: true });
    const waiting = await contents('later.wait');
    const read = waiting.map(({ propertyBytes: bytes }) => readProperties(bytes).properties.expiration);
    expect(read).toHaveLength(1);
    expect(Number(read[0])).toBeGreaterThan(100_000);
    expect(Number(read[0])).toBeLessThanOrEqual(200_000);
    // With nothing left of its delay it does not wait behind the other.
    await untilReady(world.channel, group, 1);
  });

  test('or stay', async () => {
    await world.publish('', 'later.wait', { n: 1 });
    await world.publish('', group, { n: 2 });
    await drainLater();
    const { books } = await undo({ group, waitQueues, delayed: 'keep' });
    expect(books).toMatchObject({ moved: 1, balanced: true, kept: [{ reason: 'left', count: 1 }] });
    expect(await jobs(`state = 'ready'`)).toHaveLength(1);
  });

  test('a rung that lets go by the own routing key still finds its way', async () => {
    await world.channel.assertExchange('rung', 'fanout', { durable: true });
    await world.channel.assertQueue('later.rung', {
      durable: true,
      arguments: { 'x-message-ttl': 600_000, 'x-dead-letter-exchange': '' },
    });
    await world.channel.bindQueue('later.rung', 'rung', '');
    await world.publish('rung', group, { n: 1 });
    const [result] = await world.drain({
      config: { ...CONFIG, groups: { [group]: { queues: [group, 'later.rung'] } } },
      groups: [group],
    });
    expect(result?.books.rows).toBe(1);
    await world.database.pool.query(
      `with due as (update unbroker.jobs set run_at = now() returning id)
       update unbroker.drain_ledger l set written_by = pg_current_xact_id()::xid from due where due.id = l.job`,
    );
    expect((await undo({ group, waitQueues: new Set(['later.rung']) })).books).toMatchObject({
      moved: 1,
      balanced: true,
    });
    await untilReady(world.channel, group, 1);
    await world.channel.deleteQueue('later.rung');
    await world.channel.deleteExchange('rung');
  });
});

describe('in the way', () => {
  test('consumers', async () => {
    await world.publish('', 'work', 1);
    await drain();
    const { consumerTag } = await world.channel.consume('work', () => {});
    await expect(undo({ maxConsumerWaitMs: 200 })).rejects.toMatchObject({ code: 'drain-not-frozen' });
    await world.channel.cancel(consumerTag);
    expect((await undo()).books.moved).toBe(1);
  });

  test('an interrupted undo keeps drains away; an unproved drain keeps an undo away', async () => {
    await world.publish('', 'work', 1);
    await drain();
    const { pool } = world.database;
    await pool.query(`insert into unbroker.drain_runs (broker, vhost, group_name, queues, mode, holder, holder_host, holder_pid, lease_expires_at)
      select broker, vhost, group_name, queues, 'undo', 'x', 'elsewhere', 1, now() from unbroker.drain_runs limit 1`);
    await expect(drain()).rejects.toMatchObject({ code: 'undo-unfinished' });
    expect((await undo()).books.moved).toBe(1);
    await drain();
    await pool.query(
      `update unbroker.drain_runs set finished_at = null, lease_expires_at = now()
       where id = (select max(id) from unbroker.drain_runs where mode = 'drain')`,
    );
    await pool.query(`update unbroker.drain_batches set state = 'committed'`);
    await expect(undo()).rejects.toMatchObject({ code: 'drain-unfinished' });
    // Stopped in order, all of its acks proved: the undo ends it.
    await pool.query(`update unbroker.drain_batches set state = 'acked'`);
    expect((await undo()).books).toMatchObject({ moved: 1, balanced: true });
  });

  test('a group that nobody drained', async () => {
    await expect(undo({ group: 'wrok' })).rejects.toMatchObject({
      code: 'undo-group-missing',
      exitStatus: 2,
    });
  });
});

describe('interrupted', () => {
  const stopAt = (step: UndoStep) => (at: UndoStep) => {
    if (at === step) throw new Error(`planted at ${step}`);
  };
  const states = async () =>
    Object.fromEntries(
      (
        await world.rows<{ state: string; n: number }>(
          'select state, count(*)::int as n from unbroker.jobs group by 1',
        )
      ).map(({ state, n }) => [state, n]),
    );
  const fill = async (messages: number) => {
    for (let n = 0; n < messages; n += 1) await world.publish('', 'work', { n });
    const before = bytesOf(await contents());
    await drain();
    return before;
  };

  test.each<[UndoStep, boolean, number]>([
    ['claimed', false, 4],
    ['claimed', true, 4],
    ['confirmed', false, 4],
    ['confirmed', true, 4],
    // Two batches on their way at once.
    ['confirmed', false, 6],
  ])(
    'at %s (reaped meanwhile: %s, on the way: %i): a count settles it',
    async (step, reaped, maxOnTheWay) => {
      const before = await fill(6);
      await expect(undo({ maxBatch: 4, maxOnTheWay, onStep: stopAt(step) })).rejects.toThrow('planted');
      // Whatever happens, no worker gets a job that may be in its queue again.
      const rest = 6 - maxOnTheWay;
      const ready = rest > 0 ? { ready: rest } : {};
      expect(await states()).toEqual({ ...ready, running: maxOnTheWay });
      if (reaped) {
        await world.database.expire();
        await world.database.store.reap(world.database.pool, 100);
        expect(await states()).toEqual({ ...ready, dead: maxOnTheWay });
      }
      expect((await undo()).books).toMatchObject({ initial: 0, moved: 6, remaining: 6, balanced: true });
      expect(bytesOf(await contents())).toEqual(before);
      expect(await states()).toEqual({ cancelled: 6 });
    },
  );

  test('half of a batch arrived: the first half, since a channel keeps the order', async () => {
    const before = await fill(6);
    await expect(undo({ onStep: stopAt('claimed') })).rejects.toThrow('planted');
    const ledger = await world.rows<{ properties: Buffer; body: Buffer }>(
      'select properties, body from unbroker.drain_ledger order by batch, position limit 3',
    );
    for (const { properties, body } of ledger) await world.publishRaw('work', properties, body);
    expect((await undo()).books).toMatchObject({ initial: 0, moved: 6, remaining: 6, balanced: true });
    expect(bytesOf(await contents())).toEqual(before);
  });

  test.each<[WhenUndoAmbiguous, number]>([
    ['resend', 4 + 5 + 4],
    ['assume', 4 + 5],
  ])('counts that cannot be: AMBIGUOUS, nothing changed; %s goes on', async (whenAmbiguous, inQueue) => {
    await fill(4);
    await expect(undo({ onStep: stopAt('confirmed') })).rejects.toThrow('planted');
    for (let n = 0; n < 5; n += 1) await world.publish('', 'work', 'somebody else');
    const before = await world.rows('select * from unbroker.drain_moves order by number');
    await expect(undo()).rejects.toMatchObject({
      ...{ code: 'undo-ambiguous', exitStatus: 3 },
      message: expect.stringMatching(/0 were there, 0 are marked .* 9 are there now, so 9 of the 4 unmarked/),
    });
    expect(await world.rows('select * from unbroker.drain_moves order by number')).toEqual(before);
    expect((await undo({ whenAmbiguous })).books).toMatchObject({
      moved: 4,
      remaining: inQueue,
      balanced: true,
    });
    expect(await states()).toEqual({ cancelled: 4 });
  });

  test('a message that the broker ends the connection for stays, the others go', {
    timeout: 180_000,
  }, async () => {
    await fill(5);
    const nan = propertyBytes({ headers: { n: { tag: 'd', value: Number.NaN } } });
    await world.database.pool.query('update unbroker.drain_ledger set properties = $1 where position = 3', [
      nan,
    ]);
    // Other batches are on their way beside its own.
    const { books } = await undo({ maxBatch: 2 });
    expect(books).toMatchObject({ moved: 4, balanced: true, refused: { 'the-broker-refuses-it-541': 1 } });
    expect((await contents()).map(({ body }) => body.toString())).toEqual([
      '{"n":0}',
      '{"n":1}',
      '{"n":3}',
      '{"n":4}',
    ]);
    expect(await states()).toEqual({ cancelled: 4, ready: 1 });
  });

  test('Ctrl-C stops at the end of a batch and leaves nothing open', async () => {
    await fill(6);
    const stop = new AbortController();
    const first = await undo({
      maxBatch: 2,
      signal: stop.signal,
      onStep: (step) => step === 'published' && stop.abort(),
    });
    expect(first).toMatchObject({ interrupted: true, books: { moved: 2, balanced: true } });
    expect(await world.rows('select 1 from unbroker.drain_runs where finished_at is null')).toEqual([]);
    expect((await undo()).books).toMatchObject({ initial: 2, moved: 4, balanced: true });
  });
});
