/** `verify` finds what it must and nothing else; `plan` shows rows as they would be and harms nothing. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { connectBroker } from '../../adapters/rabbitmq/broker.js';
import { compileRules } from '../../adapters/rabbitmq/drain-config.js';
import { planSamples } from '../../adapters/rabbitmq/plan.js';
import { undoGroup } from '../../adapters/rabbitmq/undo.js';
import { type GroupProof, verifyDrains } from '../../adapters/rabbitmq/verify.js';
import { SILENT } from '../../src/log.js';
import { callManagement } from '../support/management.js';
import { until } from '../support/until.js';
import { type DrainWorld, drainWorld } from './drain-world.js';

let world: DrainWorld;
beforeAll(async () => {
  world = await drainWorld();
});
afterAll(() => world.close());

const CONFIG = { rules: [{ match: { queue: '*' }, kind: 'k' }] };
const RULES = compileRules(CONFIG.rules);

async function withBroker<T>(
  act: (broker: Awaited<ReturnType<typeof connectBroker>>) => Promise<T>,
): Promise<T> {
  const broker = await connectBroker(world.vhost.url);
  try {
    return await act(broker);
  } finally {
    await broker.close();
  }
}

describe('verify', () => {
  beforeEach(async () => {
    await world.channel.assertQueue('work', { durable: true });
    await world.channel.purgeQueue('work');
    await world.database.pool.query(
      'truncate unbroker.jobs, unbroker.drain_ledger, unbroker.drain_batches, unbroker.drain_moves, unbroker.drain_runs cascade',
    );
  });

  const verify = (): Promise<GroupProof> =>
    withBroker(async (broker) => {
      const [proof] = await verifyDrains({
        ...{ pool: world.database.pool, schema: 'unbroker', broker, rules: RULES, groups: ['work'] },
        factsOf: (name) => ({ name, role: 'main', ttlMs: null, feeders: [] }),
        mayLook: () => true,
      });
      return proof as GroupProof;
    });
  const drain = () => world.drainQueue('work');
  const undo = () =>
    undoGroup({
      ...{
        amqpUrl: world.vhost.url,
        pool: world.database.pool,
        schema: 'unbroker',
        group: 'work',
        log: SILENT,
        answerWithinMs: 12_000,
      },
    });
  const sql = (text: string) => world.database.pool.query(text);

  async function drained(): Promise<void> {
    for (let n = 0; n < 5; n += 1) await world.publish('', 'work', { n, exact: 10.1 });
    await world.publish('', 'work', 'not json');
    await world.publish('', 'work', '{"nul":"\\u0000"}');
    await world.publish('', 'work', { rpc: 1 }, { replyTo: 'amq.rabbitmq.reply-to.x' });
    await drain();
  }

  test('balances after a run, with jobs worked and pruned, after an undo, and after the next run', async () => {
    await drained();
    const first = await verify();
    expect(first).toMatchObject({
      findings: [],
      balanced: true,
      excluded: 1,
      pruned: 0,
      givenBack: 0,
      inQueues: 0,
    });
    expect(first.written).toEqual(first.reckoned);
    expect(first.written.messages).toBe(8);
    expect(first.inputs).toEqual(first.jobs);
    expect(first.jobs.messages).toBe(7);
    await sql(
      `update unbroker.jobs set state = 'done', finished_at = now() where id = (select min(id) from unbroker.jobs)`,
    );
    await sql(
      `delete from unbroker.jobs where id = (select max(id) from unbroker.jobs where state = 'ready')`,
    );
    expect(await verify()).toMatchObject({
      balanced: true,
      pruned: 1,
      states: { done: 1, ready: 3, dead: 2 },
    });
    await undo();
    const back = await verify();
    expect(back).toMatchObject({
      findings: [],
      balanced: true,
      givenBack: 6,
      inQueues: 6,
      expectedInQueues: 6,
    });
    expect(back.seen).toEqual(back.sent);
    expect(back.seen?.messages).toBe(6);
    await drain();
    expect(await verify()).toMatchObject({
      findings: [],
      balanced: true,
      givenBack: 6,
      inQueues: 0,
      sent: null,
    });
  });

  test.each<[string, () => Promise<unknown>, RegExp]>([
    [
      'a byte of the ledger',
      () => sql(`update unbroker.drain_ledger set body = 'x' where position = 2`),
      /ledger are not what they were written as: \d+\/2/,
    ],
    [
      'a row of the ledger',
      () => sql('delete from unbroker.drain_ledger where position = 2'),
      /8 messages were taken by its batches, 7 are in the ledger/,
    ],
    [
      'the payload of a job',
      () => sql(`update unbroker.jobs set payload = '1' where id = (select min(id) from unbroker.jobs)`),
      /another input .*: \d+/,
    ],
    [
      'the body of a job',
      () => sql(`update unbroker.jobs set body = 'x' where body is not null`),
      /another input .*: \d+, \d+/,
    ],
    [
      'a job too many',
      () =>
        sql(
          `insert into unbroker.jobs (kind, payload, source) select kind, payload, source from unbroker.jobs where id = (select min(id) from unbroker.jobs)`,
        ),
      /1 jobs say that they come from these runs/,
    ],
    [
      'the books',
      () => sql(`update unbroker.drain_runs set initial = initial + 1`),
      /reckoned again its books are off by -1, not by 0/,
    ],
    [
      'an unfinished run',
      () => sql('update unbroker.drain_runs set finished_at = null'),
      /the drain is not finished/,
    ],
    ['a late publisher', () => world.publish('', 'work', 'late'), /1 more lie in the queues/],
  ])('finds %s', async (_, plant, finding) => {
    await drained();
    await plant();
    const proof = await verify();
    expect(proof.balanced).toBe(false);
    expect(proof.findings.join('\n')).toMatch(finding);
    // A damaged message also says something else of its job.
    expect(proof.findings.length).toBeLessThanOrEqual(2);
  });

  test('finds that what lies in a queue is something else, though as much', async () => {
    await world.publish('', 'work', 1);
    await drain();
    await undo();
    await world.channel.purgeQueue('work');
    await world.publish('', 'work', 2);
    expect((await verify()).findings).toEqual([
      'What lies in the queues is not what was given back, though as much.',
    ]);
  });
});

describe('plan', () => {
  const sample = async (queue: string, showPayload = false) => {
    const seen = await world.look(CONFIG);
    const groups = seen.groups.filter((group) => group.queues.some(({ name }) => name === queue));
    const samples = await withBroker((broker) =>
      planSamples({ broker, rules: RULES, groups, sample: 3, showPayload }),
    );
    return samples.flatMap(({ queues }) => queues).find((each) => each.queue === queue);
  };
  const raw = async (queue: string) =>
    withBroker(async (broker) => (await broker.look(queue, 10)).map(({ body }) => body.toString()));

  test('rows as they would be; the queue stays as it was, in order', async () => {
    await world.channel.assertQueue('shown', { durable: true });
    for (const body of ['{"n":1}', 'not json', '{"n":3}', '{"n":4}'])
      await world.publish('', 'shown', body, { priority: 2 });
    const seen = await sample('shown');
    expect(seen).toMatchObject({ refused: null, ready: 4, looked: 3, redelivered: 0, kinds: { k: 3 } });
    expect(seen?.rows[1]).toMatchObject({ kind: 'k', state: 'dead', note: 'body-not-json', bodyBytes: 8 });
    expect(JSON.stringify(seen)).not.toContain('"n\\":1');
    expect((await sample('shown', true))?.rows[0]?.payload).toBe('{"n":1}');
    expect((await sample('shown'))?.redelivered).toBe(3);
    expect(await raw('shown')).toEqual(['{"n":1}', 'not json', '{"n":3}', '{"n":4}']);
    expect(await world.rows('select 1 from unbroker.drain_runs where group_name = $$shown$$')).toEqual([]);
  });

  test('refuses where looking destroys, and says how to look otherwise', async () => {
    await world.channel.assertQueue('narrow', { durable: true, arguments: { 'x-max-length': 5 } });
    await world.channel.assertQueue('short', { durable: true, autoDelete: true });
    const quorum = { 'x-queue-type': 'quorum' };
    await world.channel.assertQueue('strict', {
      durable: true,
      arguments: { ...quorum, 'x-delivery-limit': 3 },
    });
    await world.channel.assertQueue('wide', {
      durable: true,
      arguments: { ...quorum, 'x-delivery-limit': 12 },
    });
    for (const queue of ['narrow', 'short', 'strict', 'wide']) await world.publish('', queue, { queue });
    expect((await sample('narrow'))?.refused).toMatch(/^length-limited/);
    expect((await sample('short'))?.refused).toMatch(/^auto-delete/);
    for (let look = 0; look < 4; look += 1) {
      expect(await sample('strict')).toMatchObject({
        refused: expect.stringMatching(/^delivery limit 3/),
        otherWay: `rabbitmq-queues peek --vhost '${world.vhost.vhost}' 'strict' 1`,
      });
    }
    // Near its limit it stops by itself, long before a message is dropped.
    let looks = 0;
    await until('it refuses', async () => {
      looks += 1;
      return (await sample('wide'))?.refused?.startsWith('its head was delivered');
    });
    expect(looks).toBeLessThan(6);
    for (const queue of ['narrow', 'short', 'strict', 'wide']) {
      expect((await world.channel.checkQueue(queue)).messageCount).toBe(1);
    }
  });

  test('a length-limited queue that refuses what is too much may be looked at', async () => {
    const { managementUrl, vhost } = world.vhost;
    if (managementUrl === null) return;
    await world.channel.assertQueue('frozen', { durable: true, arguments: { 'x-max-length': 5 } });
    await world.publish('', 'frozen', 1);
    const policy = {
      pattern: '^frozen$',
      definition: { overflow: 'reject-publish' },
      priority: 9,
      'apply-to': 'queues',
    };
    await callManagement(managementUrl, 'PUT', `/policies/${vhost}/p`, policy);
    await until('it may', async () => (await sample('frozen'))?.refused === null);
  });
});
