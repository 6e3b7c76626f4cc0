/**
 * Servers that stay connected and say nothing in the middle of an undo: it ends in bounded time with the next step, nothing is
 * lost, and the same command completes it.
 */
import pg from 'pg';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { connectBroker } from '../../adapters/rabbitmq/broker.js';
import { type UndoOptions, undoGroup } from '../../adapters/rabbitmq/undo.js';
import type { UndoStep } from '../../adapters/rabbitmq/undo-sender.js';
import { SILENT } from '../../src/log.js';
import { type FaultProxy, startFaultProxy } from '../support/fault-proxy.js';
import { type DrainWorld, drainWorld } from './drain-world.js';

let world: DrainWorld;
let proxy: FaultProxy;
beforeAll(async () => {
  world = await drainWorld();
  proxy = await startFaultProxy(world.vhost.url);
});
afterAll(async () => {
  await proxy.close();
  await world.close();
});

const MESSAGES = 30;
const bodies = Array.from({ length: MESSAGES }, (_, n) => JSON.stringify({ n: n >> 1 }));

afterEach(() => proxy.heal());

/** Publishes and drains it all: what an undo finds. */
async function filled(): Promise<void> {
  await world.channel.assertQueue('work', { durable: true });
  await world.channel.purgeQueue('work');
  await world.database.pool.query(
    'truncate unbroker.jobs, unbroker.drain_ledger, unbroker.drain_batches, unbroker.drain_moves, unbroker.drain_runs cascade',
  );
  await Promise.all(bodies.map((body) => world.publish('', 'work', body)));
  await world.drainQueue('work');
}

const undo = (options: Partial<UndoOptions> = {}) =>
  undoGroup({
    ...{ amqpUrl: world.vhost.url, pool: world.database.pool, schema: 'unbroker', group: 'work' },
    ...{ log: SILENT, maxBatch: 5, maxOnTheWay: 10, answerWithinMs: 10_000, ...options },
  });

/** What an answer may take here; a busy machine needs some of it for each step that is not the silent one. */
const WITHIN_MS = 2_500;
/** Confirm, close, lease: each waits at most once. */
const ENDS_WITHIN_MS = 16 * WITHIN_MS;

const onceAt = (step: UndoStep, nth: number, act: () => void) => {
  let seen = 0;
  return (now: UndoStep): void => {
    if (now === step && ++seen === nth) act();
  };
};

/** Its error, and that it came in time. */
async function failure(undoing: Promise<unknown>): Promise<{ code: string; hint: string }> {
  const startedAt = performance.now();
  const error = await undoing.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(performance.now() - startedAt).toBeLessThan(ENDS_WITHIN_MS);
  return error as { code: string; hint: string };
}

async function completes(): Promise<void> {
  // The broker learns that its peer is gone; otherwise two missed heartbeats tell it.
  proxy.cut();
  // No worker may get what may be in its queue.
  const states = await world.rows<{ state: string }>('select distinct state from unbroker.jobs');
  expect(['ready', 'running', 'cancelled']).toEqual(expect.arrayContaining(states.map(({ state }) => state)));
  const { books } = await undo();
  expect(books).toMatchObject({ initial: 0, moved: MESSAGES, remaining: MESSAGES, balanced: true });
  const broker = await connectBroker(world.vhost.url);
  try {
    const found = await broker.look('work', MESSAGES + 1);
    expect(found.map(({ body }) => body.toString()).sort()).toEqual([...bodies].sort());
  } finally {
    await broker.close();
  }
}

test.each([
  ['the broker hears and does not answer', 'server'],
  ['the broker does not hear', 'client'],
] as const)('%s: no confirm comes', { timeout: 180_000 }, async (_, side) => {
  await filled();
  const silent = onceAt('claimed', 3, () => proxy.silence(side));
  const ended = failure(undo({ amqpUrl: proxy.url, answerWithinMs: WITHIN_MS, onStep: silent }));
  expect(await ended).toMatchObject({
    code: 'undo-unconfirmed',
    hint: expect.stringContaining('run the same command again'),
  });
  await completes();
});

test('a dropped confirm: the message is there, is counted, and is marked once', async () => {
  await filled();
  const dropped = proxy.dropConfirm();
  const { books } = await undo({ amqpUrl: proxy.url });
  await dropped;
  expect(books).toMatchObject({ moved: MESSAGES, remaining: MESSAGES, balanced: true });
});

test('the broker is gone behind an open port: it gives up after its attempts', {
  timeout: 180_000,
}, async () => {
  await filled();
  const vanish = onceAt('marked', 2, () => {
    proxy.cut();
    proxy.blackHole();
  });
  const attempts = { answerWithinMs: WITHIN_MS, maxFruitlessAttempts: 2 };
  const ended = failure(undo({ amqpUrl: proxy.url, ...attempts, onStep: vanish }));
  expect(await ended).toMatchObject({
    code: 'amqp-unreachable',
    hint: expect.stringContaining('run again'),
  });
  await completes();
});

test('the database carries out a mark and does not answer', { timeout: 180_000 }, async () => {
  await filled();
  const slow = await startFaultProxy(world.database.url);
  const pool = new pg.Pool({ connectionString: slow.url, max: 4 });
  pool.on('error', () => {});
  pool.on('connect', (client) => client.on('error', () => {}));
  try {
    const silent = onceAt('confirmed', 2, () => slow.silence('server'));
    const ended = failure(undo({ pool, answerWithinMs: WITHIN_MS, leaseMs: 3_000, onStep: silent }));
    expect(await ended).toMatchObject({
      code: 'undo-interrupted',
      hint: expect.stringContaining('run the same command again'),
    });
  } finally {
    await slow.close();
    await pool.end();
  }
  await completes();
});

test('a close that is not answered ends all the same', async () => {
  const broker = await connectBroker(proxy.url, { answerWithinMs: 300 });
  proxy.silence('server');
  await expect(broker.count('work')).rejects.toMatchObject({ code: 'amqp-silent' });
  await expect(broker.publisher()).rejects.toMatchObject({ code: 'amqp-silent' });
  await broker.close();
});
