/** The way back on a real broker: bytes as they were, jobs that somebody touched left alone, a second run without effect. */
import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { connectBroker } from '../../adapters/rabbitmq/broker.js';
import type { RawDelivery } from '../../adapters/rabbitmq/delivery.js';
import { type UndoOptions, undoGroup } from '../../adapters/rabbitmq/undo.js';
import { SILENT } from '../../src/log.js';
import { array, fields, long, type Parts, propertyBytes, text } from '../unit/delivery-builder.js';
import { type DrainWorld, drainWorld } from './drain-world.js';

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

const drain = () => world.drain({ config: CONFIG });

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

  test('drain, undo, drain gives the same rows, whatever a queue can hold', { timeout: 60_000 }, async () => {
    const header = fc.oneof(
      fc.uint8Array({ maxLength: 12 }).map((bytes) => ({ tag: 'S' as const, bytes: Buffer.from(bytes) })),
      fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).map((value) => ({ tag: 'l' as const, value })),
      fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).map((value) => ({ tag: 'L' as const, value })),
      fc.constant({ tag: 'D' as const, scale: 2, digits: -1 }),
      fc.constant(array(text('x'), fields({ a: long(1n) }))),
      fc.constant({ tag: 'V' as const }),
    );
    const message = fc.record({
      headers: fc.dictionary(fc.string({ maxLength: 8 }), header, { maxKeys: 4 }),
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
    const seed = Date.now() & 0x7fff_ffff;
    console.info(`seed ${seed}`);
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
