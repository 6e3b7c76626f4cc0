/** The trio's queues, filled as its services fill them, become rows; counts before and after agree. */
import type { GetMessage } from 'amqplib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { declareTopology } from '../legacy/topology.js';
import { type DrainWorld, drainWorld, untilReady } from './drain-world.js';

let world: DrainWorld;
beforeAll(async () => {
  world = await drainWorld();
  await declareTopology(world.vhost.url);
});
afterAll(() => world.close());

const notification = (n: number) => ({ to: `n${n}@example.org`, template: 'order-receipt', data: { n } });

interface Row {
  readonly kind: string;
  readonly state: string;
  readonly attempts: number;
  readonly payload: { readonly to?: string } | null;
  readonly source: string;
  readonly dueInMs: number;
  readonly error: string | null;
}

test('the survey knows every queue, its role and its place', async () => {
  const seen = await world.look();
  expect(seen.management).not.toBeNull();
  expect(
    seen.groups.map(({ name, queues }) => [name, queues.map((queue) => `${queue.role} ${queue.name}`)]),
  ).toEqual([
    ['manual-review', ['dead manual-review']],
    [
      'notification.work',
      [
        'wait retry.wait.1000',
        'wait retry.wait.10000',
        'wait retry.wait.60000',
        'dead notification.dlq',
        'dead schedule.dlq',
        'main notification.work',
        'main retry.scheduled',
        'main schedule.due',
        'main schedule.requests',
      ],
    ],
  ]);
  expect(seen.groups.flatMap(({ queues }) => queues.flatMap(({ obstacles }) => obstacles))).toEqual([]);
});

describe('drained', () => {
  let rows: Row[];

  beforeAll(async () => {
    const { channel, publish } = world;
    const receipt = 'notification.order-receipt.email';
    for (let n = 0; n < 40; n += 1)
      await publish('notifications', receipt, notification(n), { messageId: `m${n}`, appId: 'orders' });
    // Real rejections: these die as the notification service makes them die.
    for (let n = 0; n < 3; n += 1)
      channel.nack((await channel.get('notification.work')) as GetMessage, false, false);
    await untilReady(channel, 'notification.dlq', 3);
    const original = {
      'x-original-queue': 'notification.work',
      'x-original-exchange': 'notifications',
      'x-original-routing-key': 'notification.order-receipt.sms',
    };
    const due = new Date(Date.now() + 50_000).toISOString();
    await publish('retry.wait.60000', 'notification.work', notification(100), {
      headers: { ...original, 'x-retry-count': 2, 'x-retry-due': due },
    });
    await channel.assertQueue('schedule.wait.300000', {
      durable: true,
      arguments: {
        'x-message-ttl': 300_000,
        'x-expires': 360_000,
        'x-dead-letter-exchange': 'schedule.fire',
        'x-dead-letter-routing-key': 'schedule.due',
      },
    });
    const schedule = {
      id: 's1',
      key: 'k',
      runAt: new Date(Date.now() + 200_000).toISOString(),
      attempt: 1,
      data: notification(200),
    };
    await publish(
      '',
      'schedule.wait.300000',
      { ...schedule, target: { exchange: 'notifications', routingKey: 'notification.r.push' } },
      { type: 'schedule' },
    );
    await publish(
      '',
      'schedule.due',
      { ...schedule, id: 's2', runAt: '2020-01-01T00:00:00.000Z', target: null },
      { type: 'schedule' },
    );
    await publish('', 'retry.scheduled', {
      id: 'r1',
      payload: 1,
      target: { url: 'https://example.org' },
      attempt: 2,
      policy: null,
    });
    await publish('', 'manual-review', notification(300), {
      headers: { ...original, 'x-retry-count': 3, 'x-error': 'gave up' },
    });
    await publish('', 'notification.work', 'broken {', { headers: original });

    const results = await world.drain();
    expect(
      results.map(({ group, books }) => [group, books.initial, books.rows, books.remaining, books.balanced]),
    ).toEqual([
      ['manual-review', 1, 1, 0, true],
      ['notification.work', 45, 45, 0, true],
    ]);
    rows = await world.rows<Row>(
      `select kind, state, attempts, payload, source, errors -> 0 ->> 'name' as error,
              extract(epoch from run_at - now())::float8 * 1000 as "dueInMs"
       from unbroker.jobs order by id`,
    );
  });

  const from = (queue: string) => rows.filter(({ source }) => source.includes(`/${queue}#`));

  test('main: ready now, in the order of the queue', () => {
    const main = from('notification.work').filter(({ state }) => state === 'ready');
    expect(main.map(({ payload }) => payload?.to)).toEqual(
      Array.from({ length: 37 }, (_, n) => `n${n + 3}@example.org`),
    );
    expect(new Set(main.map(({ kind, attempts }) => `${kind} ${attempts}`))).toEqual(
      new Set(['notify.email 0']),
    );
    expect(Math.max(...main.map(({ dueInMs }) => dueInMs))).toBeLessThanOrEqual(0);
  });

  test('on a rung: ready when it would have been let go, attempts kept', () => {
    const [retried] = from('retry.wait.60000');
    expect(retried).toMatchObject({ kind: 'notify.sms', state: 'ready', attempts: 2 });
    expect(retried?.dueInMs).toBeGreaterThan(0);
    expect(retried?.dueInMs).toBeLessThan(50_000);
  });

  test('schedules: due when they said, for whom they said', () => {
    const [scheduled] = from('schedule.wait.300000');
    expect(scheduled).toMatchObject({
      kind: 'notify.push',
      state: 'ready',
      payload: { to: 'n200@example.org' },
    });
    expect(scheduled?.dueInMs).toBeGreaterThan(60_000);
    expect(from('schedule.due')[0]).toMatchObject({ kind: 'scheduling.event', state: 'ready' });
    expect(from('retry.scheduled')[0]).toMatchObject({ kind: 'relay.http', attempts: 2 });
  });

  test('dead letters: dead with reason, attempts and error', () => {
    expect(
      from('notification.dlq').map(
        ({ kind, state, attempts, error }) => `${kind} ${state} ${attempts} ${error}`,
      ),
    ).toEqual(Array.from({ length: 3 }, () => 'notify.email dead 1 dead-letter-rejected'));
    expect(from('manual-review')[0]).toMatchObject({
      kind: 'notify.sms',
      state: 'dead',
      attempts: 4,
      error: 'rejected',
    });
    const broken = from('notification.work').filter(({ state }) => state === 'dead');
    expect(broken).toMatchObject([{ kind: 'notify.sms', payload: null, error: 'body-not-json' }]);
  });

  test('the broker is empty, and each message has its bytes in the ledger', async () => {
    const { groups } = await world.look();
    expect(
      groups
        .flatMap(({ queues }) => queues.map(({ info }) => info.ready))
        .reduce((a, b) => (a ?? 0) + (b ?? 0)),
    ).toBe(0);
    const [counts] = await world.rows<{ ledger: number; jobs: number; wrong: number }>(
      `select (select count(*)::int from unbroker.drain_ledger) as ledger,
              (select count(*)::int from unbroker.jobs) as jobs,
              (select count(*)::int from unbroker.drain_ledger l join unbroker.jobs j on j.id = l.job
               where j.payload is not null and convert_from(l.body, 'UTF8')::jsonb <> j.payload
                 and j.source not like '%schedule.wait%' and j.source not like '%retry.scheduled%') as wrong`,
    );
    expect(counts).toEqual({ ledger: 46, jobs: 46, wrong: 0 });
  });

  test('a second run changes nothing', async () => {
    const results = await world.drain();
    expect(results.every(({ books }) => books.initial === 0 && books.rows === 0 && books.balanced)).toBe(
      true,
    );
    expect((await world.rows('select 1 from unbroker.jobs')).length).toBe(46);
  });
});
