/** Topologies on a real broker: what the survey says of each, and what a drain of it does. */
import amqp, { type ConfirmChannel } from 'amqplib';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject, test, vi } from 'vitest';
import type { DrainStep } from '../../adapters/rabbitmq/batch-writer.js';
import { ctlDelayed, type RunCtl } from '../../adapters/rabbitmq/ctl.js';
import { compileRules } from '../../adapters/rabbitmq/drain-config.js';
import { type Survey, type SurveyOptions, survey } from '../../adapters/rabbitmq/survey.js';
import type { QueuePlan } from '../../adapters/rabbitmq/topology.js';
import { callManagement } from '../support/management.js';
import { freshVhost } from '../support/services.js';
import { askRabbitCtl } from '../support/shared-services.js';
import { until } from '../support/until.js';
import { type DrainWorld, drainWorld, untilReady } from './drain-world.js';

// A rabbitmqctl is a second by itself, and several on a busy machine; the management API lags by five.
vi.setConfig({ testTimeout: 400_000 });

let world: DrainWorld;
let channel: ConfirmChannel;
beforeAll(async () => {
  world = await drainWorld();
  channel = world.channel;
});
afterAll(() => world.close());

const CONFIG = { rules: [{ match: { queue: '*' }, kind: 'k' }] };
const drain = (options: Parameters<DrainWorld['drain']>[0] = {}) =>
  world.drain({ config: CONFIG, maxBatch: 20, ...options });
const ctl: RunCtl = (args) => askRabbitCtl(inject('servicesSocket') as string, args);

const declared = new Set<string>();
async function declare(name: string, more: amqp.Options.AssertQueue = {}): Promise<string> {
  await channel.assertQueue(name, { durable: true, ...more });
  declared.add(name);
  return name;
}
const fill = (queue: string, messages: number, options: (n: number) => amqp.Options.Publish = () => ({})) =>
  Promise.all(Array.from({ length: messages }, (_, n) => world.publish('', queue, { n }, options(n))));
const ns = async (queue: string): Promise<number[]> =>
  (
    await world.rows<{ n: number }>(
      `select (payload ->> 'n')::int as n from unbroker.jobs where source like '%/${queue}#%' order by id`,
    )
  ).map(({ n }) => n);
const upTo = (count: number): number[] => Array.from({ length: count }, (_, n) => n);

beforeEach(async () => {
  await world.database.pool.query(
    `truncate unbroker.jobs, unbroker.drain_ledger, unbroker.drain_batches, unbroker.drain_offsets,
              unbroker.drain_runs cascade`,
  );
});
afterEach(async () => {
  for (const queue of declared) await channel.deleteQueue(queue);
  declared.clear();
});

async function look(options: Partial<SurveyOptions> = {}): Promise<Survey> {
  return survey({
    amqpUrl: world.vhost.url,
    managementUrl: world.vhost.managementUrl ?? 'http://127.0.0.1:1',
    config: CONFIG,
    rules: compileRules(CONFIG.rules),
    ...options,
  });
}
const planOf = (seen: Survey, name: string): QueuePlan | undefined =>
  seen.groups.flatMap(({ queues }) => queues).find((queue) => queue.name === name);

function dieAt(step: DrainStep, nth: number): (now: DrainStep) => void {
  let seen = 0;
  return (now) => {
    if (now === step && ++seen === nth) throw new TypeError(`died at ${step}`);
  };
}

describe('a stream', () => {
  const declareStream = () => declare('log', { arguments: { 'x-queue-type': 'stream' } });

  test('four messages are four rows at offsets 0 to 3; the stream keeps them, and a second run adds none', async () => {
    await declareStream();
    await fill('log', 4);
    const [first] = await drain();
    expect(first?.books).toMatchObject({ initial: 4, rows: 4, remaining: 0, balanced: true });
    expect(await ns('log')).toEqual([0, 1, 2, 3]);
    const [again] = await drain();
    expect(again?.books).toMatchObject({ initial: 0, rows: 0, balanced: true });
    await fill('log', 2);
    expect((await drain())[0]?.books).toMatchObject({ initial: 2, rows: 2, balanced: true });
    expect(await ns('log')).toEqual([0, 1, 2, 3, 0, 1]);
    const kept: number[] = [];
    const other = await amqp.connect(world.vhost.url);
    other.on('error', () => {});
    const reading = await other.createChannel();
    reading.on('error', () => {});
    await reading.prefetch(100);
    const from = { arguments: { 'x-stream-offset': 'first' } };
    await reading.consume('log', (message) => void kept.push(message?.fields.deliveryTag ?? 0), from);
    await until('it still holds all', async () => kept.length === 6);
    await other.close();
  });

  test.each<DrainStep>(['recorded', 'committed', 'acked'])(
    'cut short at "%s" it goes on where it was',
    async (step) => {
      await declareStream();
      await fill('log', 100);
      for (const nth of [2, 1]) await expect(drain({ onStep: dieAt(step, nth) })).rejects.toThrow('died at');
      const [{ books } = {}] = await drain();
      expect(books).toMatchObject({ initial: 100, rows: 100, difference: 0, balanced: true });
      expect(await ns('log')).toEqual(upTo(100));
    },
  );
});

describe('order and limits', () => {
  test('priority: the row keeps it, and the order in which the broker gives', async () => {
    await declare('urgent', { maxPriority: 9 });
    await fill('urgent', 6, (n) => ({ priority: n % 3 }));
    await drain();
    expect(await ns('urgent')).toEqual([2, 5, 1, 4, 0, 3]);
    const rows = await world.rows<{ priority: number }>('select priority from unbroker.jobs order by id');
    expect(rows.map(({ priority }) => priority)).toEqual([2, 2, 1, 1, 0, 0]);
  });

  test('max-length and lazy: drained whole; the survey warns of the limit and looks without taking', async () => {
    await declare('short', { maxLength: 5, arguments: { 'x-queue-mode': 'lazy' } });
    await fill('short', 5);
    const seen = await look();
    expect(planOf(seen, 'short')).toMatchObject({
      obstacles: [],
      warnings: [expect.stringContaining('length')],
    });
    await look();
    expect((await drain())[0]?.books).toMatchObject({ initial: 5, rows: 5, balanced: true });
  });

  test('max-length below what its wait queues will let go is refused', async () => {
    await declare('tight', { maxLength: 3 });
    await declare('tight.wait', {
      messageTtl: 600_000,
      deadLetterExchange: '',
      deadLetterRoutingKey: 'tight',
    });
    await fill('tight.wait', 5);
    const { preflight } = await import('../../adapters/rabbitmq/survey.js');
    const group = (await look()).groups.find(({ name }) => name === 'tight');
    expect(group && preflight(group).join()).toContain('max-length 3 is below the group');
  });
});

describe('dead letters', () => {
  test('a ladder of three rungs and a cycle are one group, each message one row though they move meanwhile', async () => {
    const toWork = { deadLetterExchange: '', deadLetterRoutingKey: 'work' };
    await declare('work', { deadLetterExchange: '', deadLetterRoutingKey: 'work.wait.200' });
    for (const ttl of [200, 400, 800]) await declare(`work.wait.${ttl}`, { messageTtl: ttl, ...toWork });
    const names = ['work', 'work.wait.200', 'work.wait.400', 'work.wait.800'];
    await Promise.all(names.map((name) => fill(name, 40)));
    const results = await drain({ rate: 400 });
    expect(results).toHaveLength(1);
    expect(results[0]?.books).toMatchObject({ initial: 160, rows: 160, remaining: 0, balanced: true });
    const rows = await world.rows<{ n: number; count: number }>(
      `select (payload ->> 'n')::int as n, count(*)::int as count from unbroker.jobs group by 1 order by 1`,
    );
    expect(rows).toEqual(upTo(40).map((n) => ({ n, count: 4 })));
  });

  test('200 ms behind 5 min in one wait queue: both once, though taking the first lets the second move on', async () => {
    await declare('slow');
    await declare('slow.wait', { deadLetterExchange: '', deadLetterRoutingKey: 'slow' });
    await world.publish('', 'slow.wait', { n: 0 }, { expiration: '300000' });
    await world.publish('', 'slow.wait', { n: 1 }, { expiration: '200' });
    const rules = [...CONFIG.rules, { match: { queue: 'slow.wait' }, role: 'wait' as const }];
    const [{ books } = {}] = await drain({ config: { rules }, maxBatch: 1, rate: 2 });
    expect(books).toMatchObject({ initial: 2, rows: 2, balanced: true });
    const rows = await world.rows<{ n: number; inS: number }>(
      `select (payload ->> 'n')::int as n, extract(epoch from run_at - now())::float8 as "inS" from unbroker.jobs order by 1`,
    );
    expect(rows.map(({ n }) => n)).toEqual([0, 1]);
    expect(rows[0]?.inS).toBeGreaterThan(10);
    expect(rows[1]?.inS).toBeLessThan(1);
  });

  test('a dead-letter exchange that is not there: a pre-flight error with the number that would vanish', async () => {
    await declare('lonely.wait', { messageTtl: 600_000, deadLetterExchange: 'never-declared' });
    await fill('lonely.wait', 3);
    expect(planOf(await look(), 'lonely.wait')?.obstacles).toEqual([
      'its dead-letter target is missing (exchange): 3 messages would vanish when due',
    ]);
  });

  test('dead-lettered at least once to a target that takes nothing: nobody can read them, and they are not zero', async () => {
    await channel.assertExchange('takes-nothing', 'direct');
    const atLeastOnce = { 'x-queue-type': 'quorum', 'x-dead-letter-strategy': 'at-least-once' };
    await declare('stuck.wait', {
      ...{ messageTtl: 50, deadLetterExchange: 'takes-nothing', deadLetterRoutingKey: 'x' },
      arguments: { ...atLeastOnce, 'x-overflow': 'reject-publish' },
    });
    await fill('stuck.wait', 3);
    await untilReady(channel, 'stuck.wait', 0);
    const seen = await until(
      'the statistics have them',
      async () => {
        const plan = planOf(await look(), 'stuck.wait');
        return plan?.obstacles.some((obstacle) => obstacle.startsWith('3 dead letters wait')) ? plan : null;
      },
      { withinMs: 60_000, everyMs: 250 },
    );
    expect(seen.info.ready).toBe(0);
  });
});

test('an alternate exchange: what could not be routed is drained with the route that it was meant for', async () => {
  await channel.assertExchange('unroutable', 'fanout');
  await channel.assertExchange('orders', 'topic', { alternateExchange: 'unroutable' });
  await declare('orphans');
  await channel.bindQueue('orphans', 'unroutable', '');
  await world.publish('orders', 'order.lost', { n: 1 });
  expect(planOf(await look(), 'orphans')?.warnings).toEqual([
    expect.stringContaining('what exchange orders could not route'),
  ]);
  const config = { rules: [{ match: { exchange: 'orders', routingKey: 'order.*' }, kind: 'order.{1}' }] };
  await drain({ config });
  expect(await world.rows('select kind from unbroker.jobs')).toEqual([{ kind: 'order.lost' }]);
});

describe('queues that come and go', () => {
  test('auto-delete: to zero, also after a drain that died in the middle of it', async () => {
    await declare('fleeting', { autoDelete: true });
    await fill('fleeting', 100);
    expect(planOf(await look(), 'fleeting')).toMatchObject({
      obstacles: [],
      warnings: [expect.stringContaining('auto-delete')],
    });
    await expect(drain({ onStep: dieAt('committed', 2) })).rejects.toThrow('died');
    expect((await channel.checkQueue('fleeting')).messageCount).toBeGreaterThan(0);
    expect((await drain())[0]?.books).toMatchObject({ initial: 100, rows: 100, balanced: true });
    expect((await ns('fleeting')).toSorted((a, b) => a - b)).toEqual(upTo(100));
    expect((await channel.checkQueue('fleeting')).messageCount).toBe(0);
  });

  test('x-expires: a drain slower than the expiry keeps the queue', async () => {
    await declare('expiring', { expires: 1_000 });
    await fill('expiring', 60);
    expect(planOf(await look(), 'expiring')?.warnings.join()).toContain('after 1000 ms without use');
    const [{ books } = {}] = await drain({ rate: 30 });
    expect(books).toMatchObject({ initial: 60, rows: 60, balanced: true });
  });

  test('exclusive: blocked, with its count, and not taken for drained', async () => {
    const other = await amqp.connect(world.vhost.url);
    other.on('error', () => {});
    const theirs = await other.createChannel();
    await theirs.assertQueue('private', { exclusive: true });
    await world.publish('', 'private', { n: 1 });
    const counted = async () => planOf(await look(), 'private')?.info.ready === 1;
    await until('the API counts it', counted, { withinMs: 60_000 });
    expect(planOf(await look(), 'private')?.obstacles).toEqual([
      'exclusive: only its own connection can read it; stop the owner',
    ]);
    // Without the API the refusal itself tells.
    const config = { ...CONFIG, groups: { theirs: { queues: ['private'] } } };
    const blind = await look({ managementUrl: 'http://127.0.0.1:1', config });
    expect(planOf(blind, 'private')?.info.exclusive).toBe(true);
    await other.close();
  });

  test('temporary reply, event and control queues are left alone, by rule, with their counts', async () => {
    const { queue: generated } = await channel.assertQueue('', { durable: false });
    declared.add(generated);
    const names = [generated, 'celeryev.1f2e', 'worker.celery.pidbox', 'mail.response.queue'];
    for (const name of names.slice(1)) await declare(name);
    for (const name of names) await fill(name, 2);
    const { excluded, groups } = await look();
    expect(groups).toEqual([]);
    expect(excluded.map(({ name, info, excluded: why }) => [name, info.ready, why])).toEqual(
      [
        [generated, 2, 'temporary queue with a name made by the broker'],
        ['celeryev.1f2e', 2, 'Celery events or control'],
        ['mail.response.queue', 2, 'replies'],
        ['worker.celery.pidbox', 2, 'Celery events or control'],
      ].sort(([a], [b]) => (String(a) < String(b) ? -1 : 1)),
    );
  });
});

test('other virtual hosts are named', async () => {
  const other = await freshVhost();
  const connection = await amqp.connect(other.url);
  connection.on('error', () => {});
  const there = await connection.createConfirmChannel();
  await there.assertQueue('elsewhere');
  there.sendToQueue('elsewhere', Buffer.from('{}'), { persistent: true });
  await there.waitForConfirms();
  expect((await look()).unseen.join('\n')).toContain(`${other.vhost} (`);
  await connection.close();
  await other.close();
});

describe('with less to look with', () => {
  test('rabbitmqctl alone: the same as the management API; both know that a queue without a leader is not empty', async () => {
    await declare('headless', { arguments: { 'x-queue-type': 'quorum' } });
    await fill('headless', 5);
    const stopLeader = `{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"${world.vhost.vhost}">>, queue, <<"headless">>)), ra:stop_server(quorum_queues, amqqueue:get_pid(Q)).`;
    await ctl(['eval', stopLeader]);
    // What a passive declare says of it.
    expect((await channel.checkQueue('headless')).messageCount).toBe(0);
    await declare('jobs', {
      deadLetterExchange: 'dlx',
      maxLength: 1_000,
      arguments: { 'x-queue-mode': 'lazy' },
    });
    await declare('jobs.wait', { messageTtl: 600_000, deadLetterExchange: '', deadLetterRoutingKey: 'jobs' });
    await declare('jobs.dlq', { arguments: { 'x-queue-type': 'quorum' } });
    await channel.assertExchange('dlx', 'topic');
    await channel.bindQueue('jobs.dlq', 'dlx', '#');
    await fill('jobs', 3);
    const vhost = encodeURIComponent(world.vhost.vhost);
    await callManagement(world.vhost.managementUrl ?? '', 'PUT', `/policies/${vhost}/limit`, {
      pattern: '^jobs\\.wait$',
      definition: { 'max-length': 77 },
      'apply-to': 'queues',
    });
    const shape = ({ groups }: Survey) =>
      groups.map((group) => [
        group.name,
        group.queues.map(({ name, role, info, edges, obstacles, warnings }) => ({
          ...{ name, role, edges, obstacles, warnings },
          info: { ...info, unacked: null },
        })),
      ]);
    let byApi = await look();
    const catchesUp = async () => {
      byApi = await look();
      const limited = planOf(byApi, 'jobs.wait')?.info.maxLength === 77;
      return limited && planOf(byApi, 'headless')?.info.reachable === false;
    };
    await until('the API sees the policy and that the leader is gone', catchesUp, { withinMs: 60_000 });
    const byShell = await look({ managementUrl: 'http://127.0.0.1:1', ctl });
    expect(shape(byShell)).toEqual(shape(byApi));
    expect(planOf(byShell, 'jobs.wait')?.info).toMatchObject({ maxLength: 77, ttlMs: 600_000 });
    for (const seen of [byApi, byShell]) {
      expect(planOf(seen, 'headless')).toMatchObject({
        info: { ready: null, consumers: null },
        obstacles: ['its node or leader is down: what it holds is unknown'],
      });
    }
    expect(byShell.unseen.join()).toContain('rabbitmqctl was asked');
    await ctl(['eval', stopLeader.replace('stop_server', 'restart_server')]);
    await callManagement(world.vhost.managementUrl ?? '', 'DELETE', `/policies/${vhost}/limit`);
  });

  test('a user without tags, or without read, is told which permission is missing', async () => {
    await declare('closed');
    const user = `${world.vhost.vhost}_narrow`;
    const management = world.vhost.managementUrl ?? '';
    const vhost = encodeURIComponent(world.vhost.vhost);
    await callManagement(management, 'PUT', `/users/${user}`, { password: 'p', tags: '' });
    const grant = { configure: '', write: '', read: '^open' };
    await callManagement(management, 'PUT', `/permissions/${vhost}/${user}`, grant);
    const narrow = (url: string): string => {
      const own = new URL(url);
      own.username = user;
      own.password = 'p';
      return own.href;
    };
    const asUser = { amqpUrl: narrow(world.vhost.url), managementUrl: narrow(management) };
    const named = { ...CONFIG, groups: { closed: { queues: ['closed'] } } };
    const untagged = await look({ ...asUser, config: named });
    expect(untagged.unseen[0]).toContain('grant it the monitoring tag');
    // RabbitMQ 3.10 lets anybody declare passively; that the user may not read shows with the first message.
    await fill('closed', 1);
    const refused = drain({ config: named, groups: ['closed'], amqpUrl: asUser.amqpUrl });
    await expect(refused).rejects.toMatchObject({
      code: 'queue-in-use',
      hint: expect.stringContaining('read'),
    });
    await callManagement(management, 'PUT', `/users/${user}`, { password: 'p', tags: 'management' });
    expect((await look(asUser)).unseen.join()).toContain('lacks the monitoring tag');
    await callManagement(management, 'DELETE', `/users/${user}`);
  });

  test('a shell that belongs to another broker is refused; one that fails is said', async () => {
    const elsewhere: RunCtl = async () => '<<"another@cluster">>';
    await expect(look({ ctl: elsewhere })).rejects.toMatchObject({ code: 'rabbitmqctl-elsewhere' });
    const { ctlCommand } = await import('../../adapters/rabbitmq/ctl.js');
    const missing = ctlCommand('no-such-program-here rabbitmqctl');
    await expect(look({ ctl: missing })).rejects.toMatchObject({ code: 'rabbitmqctl-failed' });
  });

  test('a node without the delayed-message plugin answers that it has no table', async () => {
    expect(await ctlDelayed(ctl)).toEqual([
      { node: expect.stringContaining('@'), entries: null, more: false },
    ]);
  });
});

test('a message that is there twice on its way through a fanout is two rows', async () => {
  await channel.assertExchange('all', 'fanout');
  for (const queue of ['left', 'right']) {
    await declare(queue);
    await channel.bindQueue(queue, 'all', '');
  }
  await world.publish('all', '', { n: 1 }, { messageId: 'same' });
  await drain();
  await untilReady(channel, 'left', 0);
  expect([await ns('left'), await ns('right')]).toEqual([[1], [1]]);
});
