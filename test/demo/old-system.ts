/**
 * The first half of the demo: the old system at work, what its seam loses, and how it is stopped with messages in
 * every kind of queue.
 */
import { join } from 'node:path';
import { NotificationClient } from '../legacy/clients/notification-client.js';
import { RetryClient } from '../legacy/clients/retry-client.js';
import {
  type Service,
  type Sink,
  startOrders,
  startSmtpSink,
  startTrio,
  type Trio,
} from '../legacy/start.js';
import { until } from '../support/until.js';
import type { Expected } from './books.js';
import { Shop } from './shop.js';
import { say, type World } from './world.js';

export interface OldSystem {
  readonly sink: Sink;
  readonly trio: Trio;
  /** All that must arrive, kept by whoever asked for it. */
  readonly expected: Expected[];
  /** Orders that the old seam lost: committed, and no message. */
  lostOrders: number[];
}

const KILLS = 3;
/** The second rung holds its messages for long enough to be drained while they wait. */
const LADDER_MS = [1_000, 20_000];
const REMINDER_DELAY_MS = 15_000;
const REVIEW_DELAY_MS = 5_000;

export async function startOldSystem(world: World): Promise<OldSystem> {
  const sink = await startSmtpSink(join(world.folder, 'mail.journal'));
  const trio = await startTrio({
    amqpUrl: world.vhost.url,
    databaseUrl: world.database.url,
    smtpUrl: sink.url,
    ladderMs: LADDER_MS,
  });
  return { sink, trio, expected: [], lostOrders: [] };
}

const ordersOf = (world: World, old: OldSystem, killAfterCommit?: number): Promise<Service> =>
  startOrders({
    amqpUrl: world.vhost.url,
    databaseUrl: world.database.url,
    schedulingUrl: old.trio.scheduling.url,
    reminderDelayMs: REMINDER_DELAY_MS,
    reviewDelayMs: REVIEW_DELAY_MS,
    ...(killAfterCommit === undefined ? {} : { killAfterCommit }),
  });

/** Ordinary trade; then orders is killed a few times right after Postgres has answered a COMMIT. */
export async function tradeAndLose(world: World, old: OldSystem): Promise<void> {
  const orders = await ordersOf(world, old);
  const shop = new Shop(orders.url, old.expected);
  for (let n = 1; n <= 12; n += 1) await shop.place(`ann-${n}@example.org`, 'old: orders, then publish');
  await orders.stop();
  for (let n = 1; n <= KILLS; n += 1) {
    const doomed = await ordersOf(world, old, 2);
    const before = new Shop(doomed.url, old.expected);
    await before.place(`bob-${n}@example.org`, 'old: orders, then publish');
    if ((await before.place(`lost-${n}@example.org`, 'never')) !== null)
      throw new Error('orders was not killed');
    await doomed.process.exit;
  }
  const due = old.expected.length;
  await until(`${due} receipts are at the mail sink`, () => old.sink.deliveries().length >= due, {
    withinMs: 20_000,
  });
  // The demo's own count, from the orders table and the sink's journal.
  const { rows } = await world.pool.query<{ id: number }>('select id from orders order by id');
  const told = new Set(old.sink.deliveries().map((delivery) => delivery.subject));
  old.lostOrders = rows.map((row) => row.id).filter((id) => !told.has(`Receipt for order ${id}`));
  say(
    `${rows.length} orders committed, ${told.size} receipts arrived; orders was killed ${KILLS} times between commit and publish.`,
  );
}

/** Stops the old services one after the other while traffic goes on, so that every kind of queue holds something. */
export async function stopWithMessagesInFlight(world: World, old: OldSystem): Promise<void> {
  const { trio, sink, expected } = old;
  const orders = await ordersOf(world, old);
  const shop = new Shop(orders.url, expected);
  const notification = new NotificationClient(trio.notification.url);
  const retry = new RetryClient(trio.retry.url);
  const { rows } = await world.pool.query<{ id: number; email: string }>(
    'select id, email from orders order by id limit 3',
  );

  // Wait queue of the scheduler.
  for (const { id, email } of rows) {
    await shop.post(`/orders/${id}/remind`);
    expected.push({
      to: email,
      subject: `Order ${id} waits for your payment`,
      path: 'drained: scheduler wait queue',
    });
  }
  // A refused request of the retry service: waits on a rung.
  for (let n = 1; n <= 2; n += 1) {
    await retry.submit({
      payload: {
        to: `again-${n}@example.org`,
        template: 'order-paid',
        data: { orderId: 7_000 + n, total: '1.00' },
      },
      target: { exchange: 'notifications', routingKey: 'notification.order-paid.email' },
      policy: { type: 'fixed', delayMs: 20_000, maxAttempts: 5 },
    });
    expected.push({
      to: `again-${n}@example.org`,
      subject: `Payment for order ${7_000 + n} received`,
      path: 'drained: retry ladder',
    });
  }
  // Permanent failures end in the parking queue: nobody has written that template yet.
  for (let n = 1; n <= 2; n += 1) {
    await notification.send({
      to: `new-${n}@example.org`,
      template: 'welcome',
      data: { name: `Guest ${n}` },
    });
    expected.push({
      to: `new-${n}@example.org`,
      subject: `Welcome, Guest ${n}`,
      path: 'drained: parking queue, replayed',
    });
  }
  // The mail server refuses these for now: they climb to the second rung.
  await sink.control({ failMatch: 'later-', failCode: 451 });
  for (let n = 1; n <= 3; n += 1) await shop.place(`later-${n}@example.org`, 'drained: retry ladder');
  const climbed = async () =>
    (await world.depth('retry.wait.20000')) >= 5 && (await world.depth('manual-review')) >= 2;
  await until('messages wait on the second rung and in the parking queue', climbed, { withinMs: 20_000 });
  await trio.retry.stop();
  for (let n = 4; n <= 5; n += 1) await shop.place(`later-${n}@example.org`, 'drained: dead-letter queue');
  await until('dead letters wait', async () => (await world.depth('notification.dlq')) >= 2);
  await trio.notification.stop();
  for (let n = 1; n <= 10; n += 1) await shop.place(`carol-${n}@example.org`, 'drained: work queue');
  await trio.scheduling.stop();
  for (const { id, email } of rows) {
    await shop.post(`/orders/${id}/review`);
    expected.push({
      to: email,
      subject: `How do you like your order ${id}?`,
      path: 'drained: scheduler requests',
    });
  }
  await orders.stop();
  await sink.control({ failMatch: '' });
}
