/** What queues are for, which belong together, and what stands in the way of draining them. */
import { describe, expect, test } from 'vitest';
import { checkDrainConfig, compileRules, type DrainConfig } from '../../adapters/rabbitmq/drain-config.js';
import {
  type GroupPlan,
  groupObstacles,
  planDrain,
  type QueueInfo,
  type Topology,
} from '../../adapters/rabbitmq/topology.js';

const queue = (name: string, more: Partial<QueueInfo> = {}): QueueInfo => ({
  ...{ name, type: 'classic', exclusive: false, autoDelete: false, reachable: true, readable: true },
  ...{ singleActive: false, expiresMs: null },
  ...{
    ttlMs: null,
    deadLetterExchange: null,
    deadLetterRoutingKey: null,
    maxLength: null,
    maxLengthBytes: null,
  },
  ...{ overflow: null, deliveryLimit: null, ready: 0, unacked: 0, consumers: 0 },
  ...more,
});
const wait = (name: string, ttlMs: number, exchange: string, key: string | null): QueueInfo =>
  queue(name, { ttlMs, deadLetterExchange: exchange, deadLetterRoutingKey: key });

interface World {
  readonly queues: readonly QueueInfo[];
  readonly exchanges?: Readonly<Record<string, string>>;
  /** exchange, routing key, queue. */
  readonly bindings?: readonly (readonly [string, string, string])[];
  readonly config?: DrainConfig;
}

function plan({ queues, exchanges = {}, bindings = [], config = {} }: World) {
  const topology: Topology = {
    vhost: '/',
    queues,
    exchanges: Object.entries(exchanges).map(([name, type]) => ({ name, type, delayed: 0, alternate: null })),
    bindings: bindings.map(([exchange, routingKey, destination]) => ({
      ...{ exchange, routingKey, destination, destinationType: 'queue' as const },
    })),
  };
  return planDrain(topology, config, compileRules(config.rules));
}

const shape = (groups: readonly GroupPlan[]) =>
  groups.map(
    (group) => `${group.name}: ${group.queues.map(({ name, role }) => `${name} ${role}`).join(', ')}`,
  );

describe('groups', () => {
  test('work, wait and dead-letter queues of one ladder, wait first and main last', () => {
    const { groups } = plan({
      queues: [
        queue('work', { deadLetterExchange: 'dlx' }),
        wait('work.retry', 5_000, '', 'work'),
        queue('work.dlq'),
        queue('other'),
      ],
      exchanges: { dlx: 'topic' },
      bindings: [['dlx', '#', 'work.dlq']],
    });
    expect(shape(groups)).toEqual(['work: work.retry wait, work.dlq dead, work main', 'other: other main']);
    expect(groups[0]?.queues.map(({ feeders }) => feeders)).toEqual([[], ['work'], ['work.retry']]);
  });

  test("rungs that let go by each message's own key tie every work queue in, but no parking queue", () => {
    const { groups } = plan({
      queues: [queue('a'), queue('b'), queue('manual-review'), wait('retry.wait.1000', 1_000, '', null)],
    });
    expect(shape(groups)).toEqual([
      'a: retry.wait.1000 wait, a main, b main',
      'manual-review: manual-review dead',
    ]);
  });

  test('topic and direct bindings decide where a known key goes', () => {
    const world = {
      queues: [wait('w', 1_000, 'fire', 'due.now'), queue('due'), queue('never')],
      bindings: [
        ['fire', 'due.*', 'due'],
        ['fire', 'x.#', 'never'],
      ] as const,
    };
    expect(shape(plan({ ...world, exchanges: { fire: 'topic' } }).groups)).toContain('due: w wait, due main');
    const asDirect = plan({ ...world, exchanges: { fire: 'direct' } }).groups.flatMap(
      (group) => group.queues,
    );
    expect(asDirect.find(({ name }) => name === 'w')?.edges).toEqual({
      targets: [],
      dynamic: false,
      missing: 'binding',
    });
  });

  test('the config decides where it says something', () => {
    const config = checkDrainConfig(
      {
        groups: { both: { queues: ['a', 'b'] } },
        rules: [
          { match: { queue: 'b' }, role: 'dead' },
          { match: { queue: 'c' }, exclude: 'old' },
        ],
      },
      'drain',
    );
    const { groups, excluded } = plan({ queues: [queue('a'), queue('b'), queue('c'), queue('d')], config });
    expect(shape(groups)).toEqual(['both: b dead, a main', 'd: d main']);
    expect(excluded.map(({ name, excluded: why }) => [name, why])).toEqual([['c', 'old']]);
  });
});

test.each([
  ['orders_error', 'dead'],
  ['orders_skipped', 'dead'],
  ['orders.dlq', 'dead'],
  ['EasyNetQ_Default_Error_Queue', 'dead'],
  ['wolverine-dead-letter-queue', 'dead'],
  ['celery', 'main'],
  ['orders.retry', 'main'],
  ['terror', 'main'],
])('without any argument %s is %s by its name', (name, role) => {
  expect(plan({ queues: [queue(name)] }).groups[0]?.queues[0]?.role).toBe(role);
});

test('temporary, event and plugin queues are left alone and listed', () => {
  const names = [
    'amq.gen-Xa',
    'celeryev.1',
    'w1.celery.pidbox',
    'mqtt-subscription-x',
    'federation: x',
    'a.response.queue',
  ];
  const { groups, excluded } = plan({ queues: names.map((name) => queue(name)) });
  expect(groups).toEqual([]);
  expect(excluded).toHaveLength(names.length);
});

describe('obstacles', () => {
  const obstacles = (info: QueueInfo, world: Omit<World, 'queues'> = {}) =>
    plan({ queues: [info], ...world }).groups[0]?.queues[0]?.obstacles.join('; ') ?? '';

  test.each<[string, QueueInfo, string]>([
    [
      'missing exchange',
      wait('w', 1_000, 'gone', 'x'),
      'its dead-letter target is missing (exchange): 0 messages would vanish',
    ],
    ['missing queue', wait('w', 1_000, '', 'gone'), 'missing (queue)'],
    ['exclusive', queue('q', { exclusive: true }), 'exclusive'],
    ['unreachable', queue('q', { reachable: false, ready: null }), 'what it holds is unknown'],
    ['not readable', queue('q', { readable: false }), 'grant read'],
    ['of an unknown type', queue('q', { type: 'x-mine' }), 'not supported'],
    ['TTL without a way on', queue('q', { ttlMs: 1_000 }), 'messages vanish'],
    ['low delivery limit', queue('q', { type: 'quorum', deliveryLimit: 3 }), 'delivery limit 3'],
  ])('%s', (_name, info, said) => expect(obstacles(info)).toContain(said));

  test('an exchange that nothing is bound to', () => {
    expect(obstacles(wait('w', 1_000, 'fire', 'x'), { exchanges: { fire: 'direct' } })).toContain(
      'missing (binding)',
    );
  });

  test('none: unlimited quorum queues, work queues with a missing dead-letter target (a warning)', () => {
    expect(obstacles(queue('q', { type: 'quorum', deliveryLimit: -1 }))).toBe('');
    const [group] = plan({ queues: [queue('q', { deadLetterExchange: 'gone' })] }).groups;
    expect(group?.queues[0]?.obstacles).toEqual([]);
    expect(group?.queues[0]?.warnings.join()).toContain('missing');
  });

  test('a length limit below what the group holds, where the oldest would be pushed out', () => {
    const group = (overflow: string | null) =>
      plan({
        queues: [wait('w', 1_000, '', 'm'), queue('m', { maxLength: 5, overflow })].map((q) => ({
          ...q,
          ready: 4,
        })),
      }).groups[0] as GroupPlan;
    expect(groupObstacles(group(null)).join()).toContain('max-length 5');
    expect(groupObstacles(group('reject-publish'))).toEqual([]);
  });
});

describe('config', () => {
  const check = (value: unknown) => () => checkDrainConfig(value, 'drain');

  test.each([
    [{ group: {} }, /did you mean groups/],
    [{ groups: { a: { queues: [] } } }, /at least one queue/],
    [{ groups: { a: { queues: ['q'] }, b: { queues: ['q'] } } }, /in two groups/],
    [{ rules: [{ kind: 'k' }] }, /Add it/],
    [{ rules: [{ match: {} }] }, /at least one of/],
    [{ rules: [{ match: { queue: 'a\nb' } }] }, /without control characters|string of 1/],
    [{ rules: [{ match: { queue: '*' }, role: 'mian' }] }, /did you mean main/],
    [{ rules: [{ match: { queue: '*' }, maxAttempts: 0 }] }, /1 to 1000/],
  ])('%j is refused', (value, hint) => {
    expect(check(value)).toThrow();
    try {
      check(value)();
    } catch (error) {
      expect((error as { hint: string }).hint).toMatch(hint);
    }
  });

  test('of each setting the first rule that matches and gives it', () => {
    const rules = compileRules([
      { match: { queue: 'q', routingKey: '*.high' }, maxAttempts: 3 },
      { match: { queue: '*' }, kind: 'k', maxAttempts: 9 },
    ]);
    expect(rules.for({ queue: 'q', exchange: '', routingKey: 'a.high' })).toEqual({
      kind: 'k',
      maxAttempts: 3,
    });
    expect(rules.for({ queue: 'q', exchange: '', routingKey: 'a.low' })).toEqual({
      kind: 'k',
      maxAttempts: 9,
    });
    expect(rules.for({ queue: 'q' })).toEqual({ kind: 'k', maxAttempts: 9 });
  });
});
