/** Freezing on a real broker: no message goes, each step is taken back, also after a crash in the middle. */
import amqp from 'amqplib';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Admin, managementAdmin } from '../../adapters/rabbitmq/admin.js';
import { type Broker, connectBroker } from '../../adapters/rabbitmq/broker.js';
import { type FreezeOptions, freezeGroups, stepsByHand, thaw } from '../../adapters/rabbitmq/freeze.js';
import { callManagement } from '../support/management.js';
import { until } from '../support/until.js';
import { type DrainWorld, drainWorld } from './drain-world.js';

let world: DrainWorld;
let broker: Broker;
let admin: Admin;
let managementUrl: string;
beforeAll(async () => {
  world = await drainWorld();
  broker = await connectBroker(world.vhost.url);
  managementUrl = world.vhost.managementUrl ?? '';
  admin = (await managementAdmin(managementUrl)) as Admin;
});
afterAll(async () => {
  await broker.close();
  await world.close();
});

beforeEach(async () => {
  await thawAll();
  for (const { name } of (await world.look()).groups.flatMap(({ queues }) => queues))
    await world.channel.deleteQueue(name);
});

const common = () => ({ pool: world.database.pool, schema: 'unbroker', broker, admin });
const thawAll = () => thaw(common());

async function freeze(options: Partial<FreezeOptions> = {}) {
  const { groups } = await world.look();
  return freezeGroups({ ...common(), groups, revoke: [], close: false, ...options });
}

const ready = async (queue: string) => (await world.channel.checkQueue(queue)).messageCount;
const policies = async () =>
  (await admin.policies(world.vhost.vhost)).map(({ name, definition }) => [
    name.replace(/-[0-9a-f]{12}$/, ''),
    definition,
  ]);

async function fill(queue: string, options: amqp.Options.AssertQueue = {}): Promise<void> {
  await world.channel.assertQueue(queue, { durable: true, ...options });
  for (let n = 0; n < 10; n += 1) await world.publish('', queue, { n });
}

/** What the outside sees of a queue. */
async function takes(queue: string): Promise<boolean> {
  return world.publish('', queue, 'probe').then(
    () => true,
    () => false,
  );
}

describe('by policy', () => {
  test('queues keep all they hold, refuse, and take again; what a policy would harm gets none', {
    timeout: 180_000,
  }, async () => {
    const { vhost } = world.vhost;
    await fill('classic');
    await fill('quorum', { arguments: { 'x-queue-type': 'quorum' } });
    await fill('main');
    await fill('main.wait', {
      arguments: {
        'x-message-ttl': 600_000,
        'x-dead-letter-exchange': '',
        'x-dead-letter-routing-key': 'main',
      },
    });
    await fill('limited');
    await fill('stubborn', { arguments: { 'x-overflow': 'drop-head' } });
    const definition = { expires: 3_600_000, 'max-length': 50 };
    const theirs = { pattern: '^limited$', definition, priority: 7, 'apply-to': 'queues' };
    await callManagement(managementUrl, 'PUT', `/policies/${vhost}/theirs`, theirs);
    await until('theirs holds', async () => (await admin.queue(vhost, 'limited')).policy === 'theirs');
    const frozen = ['classic', 'limited', 'main.wait', 'quorum'];

    const result = await freeze();
    expect(result.done.map(({ step, target }) => `${step} ${target}`).sort()).toEqual(
      frozen.map((queue) => `policy ${queue}`),
    );
    expect(Object.fromEntries(result.open.map(({ queue, reason }) => [queue, reason]))).toEqual({
      // A classic queue that refuses would refuse dead letters, too, and they would be gone.
      main: expect.stringContaining('dead letters come in from main.wait'),
      stubborn: expect.stringContaining('x-overflow drop-head'),
    });
    for (const queue of frozen) {
      expect([queue, await ready(queue), await takes(queue), await ready(queue)]).toEqual([
        queue,
        10,
        false,
        10,
      ]);
    }
    expect([await ready('main'), await ready('stubborn')]).toEqual([10, 10]);
    // All that theirs says still holds, except the limit.
    expect((await admin.queue(vhost, 'limited')).definition).toEqual({
      ...{ expires: 3_600_000, overflow: 'reject-publish', 'max-length': 0 },
    });

    expect(await thaw({ ...common(), groups: ['classic'] })).toEqual([
      { step: 'policy', target: 'classic', note: null },
    ]);
    expect((await thawAll()).map(({ target, note }) => [target, note]).sort()).toEqual(
      frozen.slice(1).map((queue) => [queue, null]),
    );
    expect(await policies()).toEqual([['theirs', definition]]);
    for (const queue of frozen) {
      expect(await ready(queue)).toBe(10);
      // Also through the channel that was refused: a quorum queue has to tell it.
      await until(`${queue} takes`, () => takes(queue));
    }
    expect(await thawAll()).toEqual([]);
    await admin.deletePolicy(vhost, 'theirs');
  });

  test.each(['intended', 'changed'] as const)(
    'a crash when a step is %s: thaw takes it back',
    async (when) => {
      await fill('crash');
      const onStep: FreezeOptions['onStep'] = (_, __, at) => {
        if (at === when) throw new Error('planted');
      };
      await expect(freeze({ onStep })).rejects.toThrow('planted');
      expect(await ready('crash')).toBe(10);
      expect(await thawAll()).toMatchObject([
        { target: 'crash', note: when === 'intended' ? 'its policy was gone' : null },
      ]);
      expect(await policies()).toEqual([]);
      await until('it takes', () => takes('crash'));
    },
  );
});

describe('publishers', () => {
  const USER = 'unbroker-test-publisher';
  const url = (): string => {
    const own = new URL(world.vhost.url);
    own.username = USER;
    own.password = 'x';
    return own.href;
  };
  beforeAll(async () => {
    await callManagement(managementUrl, 'PUT', `/users/${USER}`, { password: 'x', tags: '' });
    const everything = { configure: '.*', write: '.*', read: '.*' };
    await callManagement(managementUrl, 'PUT', `/permissions/${world.vhost.vhost}/${USER}`, everything);
  });
  afterAll(() => callManagement(managementUrl, 'DELETE', `/users/${USER}`));

  test('one without confirms is named; its right and its connection are taken, and the right given back', {
    timeout: 180_000,
  }, async () => {
    await fill('work');
    const connection = await amqp.connect(url());
    const closed = new Promise<void>((resolve) => connection.on('close', () => resolve()));
    connection.on('error', () => {});
    const channel = await connection.createChannel();
    channel.on('error', () => {});
    const publishing = setInterval(() => {
      try {
        channel.sendToQueue('work', Buffer.from('{}'), { persistent: true });
      } catch {
        clearInterval(publishing);
      }
    }, 50);
    const vhost = world.vhost.vhost;
    // The statistics name a publisher seconds after its first message.
    await until('it is seen', async () => (await admin.publishers(vhost)).some(({ user }) => user === USER), {
      withinMs: 60_000,
    });
    await expect(freeze()).rejects.toMatchObject({
      code: 'freeze-unconfirmed',
      message: expect.stringContaining(`(${USER})`),
    });
    expect(await policies()).toEqual([]);
    await expect(freeze({ revoke: [broker.user] })).rejects.toMatchObject({
      code: 'freeze-user',
      exitStatus: 2,
    });
    const publishers = await admin.publishers(vhost);
    const theirs: Admin = {
      ...admin,
      publishers: async () => publishers.filter(({ user }) => user === USER),
    };
    const { done } = await freeze({ admin: theirs, groups: [], revoke: [USER], close: true });
    expect(done.map(({ step }) => step)).toEqual(['permission', 'connection']);
    await closed;
    clearInterval(publishing);
    const held = await ready('work');
    expect((await admin.permissions(vhost)).get(USER)).toEqual({ configure: '.*', write: '^$', read: '.*' });
    // A group's queues take again what an undo gives back; whoever was revoked is still out.
    expect(await thaw({ ...common(), groups: ['work'] })).toEqual([]);
    expect((await admin.permissions(vhost)).get(USER)?.write).toBe('^$');
    await thawAll();
    expect((await admin.permissions(vhost)).get(USER)).toEqual({ configure: '.*', write: '.*', read: '.*' });
    expect(await ready('work')).toBe(held);
  });
});

test('by hand: the steps to type, with every name quoted', async () => {
  await fill("it's.[odd]");
  const lines = stepsByHand(world.vhost.vhost, (await world.look()).groups);
  expect(lines.join('\n')).toContain(`'^it'\\''s'`.slice(0, 3));
  expect(lines.filter((line) => line.includes('max-length'))).toHaveLength(1);
  expect(lines.findIndex((line) => line.startsWith('Wait'))).toBe(2);
});
