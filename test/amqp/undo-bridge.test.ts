/** What a bridge took, proved and given back like a drain's: with ids and without, cut short in the middle, and once more. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import type { DrainStep } from '../../adapters/rabbitmq/batch-writer.js';
import { type BridgeOptions, bridge } from '../../adapters/rabbitmq/bridge.js';
import { connectBroker } from '../../adapters/rabbitmq/broker.js';
import { compileRules } from '../../adapters/rabbitmq/drain-config.js';
import { type UndoOptions, undoGroup } from '../../adapters/rabbitmq/undo.js';
import { type GroupProof, verifyDrains } from '../../adapters/rabbitmq/verify.js';
import { SILENT } from '../../src/log.js';
import { type DrainWorld, drainWorld } from './drain-world.js';

let world: DrainWorld;
beforeAll(async () => {
  world = await drainWorld();
});
afterAll(() => world.close());

const RULES = compileRules([{ match: { queue: '*' }, kind: 'k' }]);

beforeEach(async () => {
  await world.channel.assertQueue('work', { durable: true });
  await world.channel.purgeQueue('work');
  await world.database.pool.query(
    `truncate unbroker.jobs, unbroker.drain_ledger, unbroker.drain_batches, unbroker.drain_moves, unbroker.drain_keys,
              unbroker.drain_publishers, unbroker.drain_runs cascade`,
  );
});

const facts = { name: 'work', role: 'main' as const, ttlMs: null, feeders: [] };

const take = (options: Partial<BridgeOptions> = {}) =>
  bridge({
    ...{ amqpUrl: world.vhost.url, pool: world.database.pool, store: world.database.store, log: SILENT },
    groups: [{ name: 'work', queues: [{ ...facts, singleActive: false, autoDelete: false, stream: false }] }],
    ...{ rules: RULES, idleExitMs: 100, maxBatch: 20, ...options },
  });

const undo = (options: Partial<UndoOptions> = {}) =>
  undoGroup({
    ...{ amqpUrl: world.vhost.url, pool: world.database.pool, schema: 'unbroker', group: 'work' },
    ...{ log: SILENT, answerWithinMs: 10_000, ...options },
  });

async function onBroker<T>(
  act: (broker: Awaited<ReturnType<typeof connectBroker>>) => Promise<T>,
): Promise<T> {
  const broker = await connectBroker(world.vhost.url);
  try {
    return await act(broker);
  } finally {
    await broker.close();
  }
}

const verify = (): Promise<GroupProof> =>
  onBroker(async (broker) => {
    const [proof] = await verifyDrains({
      ...{ pool: world.database.pool, schema: 'unbroker', broker, rules: RULES, groups: ['work'] },
      factsOf: (name) => ({ ...facts, name }),
      mayLook: () => true,
    });
    return proof as GroupProof;
  });

const contents = (): Promise<string[]> =>
  onBroker(async (broker) =>
    (await broker.look('work', 1_000)).map(
      ({ propertyBytes, body }) => `${propertyBytes.toString('hex')} ${body}`,
    ),
  );

const dieAt =
  (step: string, nth: number, seen = { times: 0 }) =>
  (now: string) => {
    if (now === step && ++seen.times === nth) throw new TypeError(`planted at ${step}`);
  };

/** Each twice, as two messages. */
async function fill(messages: number, ids: boolean): Promise<void> {
  for (let n = 0; n < messages; n += 1)
    await world.publish('', 'work', { n: n >> 1 }, ids ? { messageId: randomUUID() } : {});
}

test.each([true, false])('with ids: %s; there and back, cut in the middle, and there again', async (ids) => {
  await fill(40, ids);
  const before = await contents();
  const [taken] = (await take()).groups;
  expect(taken?.totals).toMatchObject({ rows: 40 });
  const there = await verify();
  expect(there).toMatchObject({ findings: [], balanced: true, possibleDoubles: 0, inQueues: 0 });
  expect(there.written).toEqual(there.reckoned);
  expect(there.inputs).toEqual(there.jobs);
  expect(there.jobs.messages).toBe(40);

  const options = { maxBatch: 8, maxOnTheWay: 16 };
  await expect(undo({ ...options, onStep: dieAt('confirmed', 2) })).rejects.toThrow('planted');
  expect((await verify()).findings.join()).toMatch(
    /the undo is not finished.*messages are on their way back/,
  );
  expect((await undo(options)).books).toMatchObject({ initial: 0, moved: 40, remaining: 40, balanced: true });
  expect(await contents()).toEqual(before);
  const back = await verify();
  expect(back).toMatchObject({ findings: [], balanced: true, givenBack: 40, inQueues: 40 });
  expect(back.seen).toEqual(back.sent);
  expect(back.seen?.messages).toBe(40);

  expect(await undo()).toMatchObject({ runId: null, books: { moved: 0, balanced: true } });
  expect(await contents()).toEqual(before);
  // What went back is new to the next bridge, not taken for what it had.
  const [again] = (await take()).groups;
  expect(again?.counts).toMatchObject({ messages: 40, repeats: 0, again: 0 });
  expect(again?.totals).toMatchObject({ rows: 40 });
  expect(await verify()).toMatchObject({ findings: [], balanced: true, givenBack: 40, inQueues: 0 });
});

test('an id that came twice: the second has no job, and both go back', async () => {
  for (let n = 0; n < 3; n += 1) await world.publish('', 'work', { n }, { messageId: `m${n >> 1}` });
  await world.publish('', 'work', { n: 0 }, { messageId: 'm0' });
  // Flagged redelivered by the look: no reason to take two that are in hand for one that came back.
  const before = await contents();
  const [taken] = (await take()).groups;
  expect(taken?.counts).toMatchObject({ messages: 4, repeats: 1, otherContents: 1 });
  const proof = await verify();
  expect(proof).toMatchObject({ findings: [], balanced: true, excluded: 1 });
  expect(proof.remarks.join()).toMatch(/1 came again with id and contents/);
  expect((await undo()).books).toMatchObject({ moved: 4, balanced: true });
  expect(await contents()).toEqual(before);
});

test('without ids after an interruption: what could be doubled is told by verify and by undo', async () => {
  await fill(40, false);
  const dying: (step: DrainStep) => void = dieAt('committed', 2);
  await expect(take({ onStep: dying })).rejects.toThrow('planted');
  // What it had written and not acked may be there again: it ends in order first.
  await expect(undo()).rejects.toMatchObject({ code: 'bridge-unfinished' });
  expect((await verify()).findings.join()).toMatch(/the bridge is not finished/);
  const [taken] = (await take()).groups;
  const doubles = taken?.counts.possibleDoubles ?? 0;
  expect(doubles).toBeGreaterThan(0);
  const proof = await verify();
  expect(proof).toMatchObject({ findings: [], balanced: true, possibleDoubles: doubles });
  expect(proof.remarks.join()).toContain(`${doubles} rows could be doubles`);
  const rows = proof.jobs.messages;
  const { books } = await undo();
  expect(books).toMatchObject({ moved: rows, remaining: rows, balanced: true });
  expect(books.remarks.join()).toContain(`${doubles} of those that went back could be doubles`);
  expect(await verify()).toMatchObject({ findings: [], balanced: true, inQueues: rows });
});

test('verify finds a key that is gone, and findings that tell another number', async () => {
  await fill(6, true);
  await take();
  const { pool } = world.database;
  await pool.query(
    'delete from unbroker.drain_keys where ctid = (select min(ctid) from unbroker.drain_keys)',
  );
  expect((await verify()).findings).toEqual([
    expect.stringMatching(/^Run \d+: 1 of its messages have no key: a bridge would take them for new/),
  ]);
  await pool.query('update unbroker.drain_publishers set messages = messages + 1');
  expect((await verify()).findings[0]).toMatch(/7 came late by its findings, 6 were taken by its batches/);
});
