/** The starter's RabbitMQ: persistent messages survive every way of going down, and nothing is left of it afterwards. */
import { existsSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import amqp, { type ChannelModel, type ConfirmChannel } from 'amqplib';
import { afterEach, expect, test, vi } from 'vitest';
import { startScript } from '../support/processes.js';
import { callManagement, freshVhost, startRabbit } from '../support/services.js';
import { until } from '../support/until.js';

// Many starts of whole brokers, possibly beside others' on a busy machine.
vi.setConfig({ testTimeout: 400_000 });

const cleanups: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  vi.unstubAllEnvs();
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function connect(url: string): Promise<{ connection: ChannelModel; channel: ConfirmChannel }> {
  const connection = await amqp.connect(url, { timeout: 10_000 });
  connection.on('error', () => {});
  cleanups.push(() => connection.close().catch(() => {}));
  const channel = await connection.createConfirmChannel();
  channel.on('error', () => {});
  return { connection, channel };
}

async function countMessages(url: string, queue: string): Promise<number> {
  const { channel } = await connect(url);
  return (await channel.checkQueue(queue)).messageCount;
}

test('a private node keeps persistent messages through kill and stop, and goes on after a pause', async () => {
  const server = await startRabbit({ controllable: true });
  cleanups.push(() => server.close());
  const { url, managementUrl } = server;
  const { channel } = await connect(url);
  await channel.assertQueue('orders', { durable: true });
  await server.persistDeclarations();
  channel.sendToQueue('orders', Buffer.from('one'), { persistent: true });
  await channel.waitForConfirms();

  await server.pause();
  channel.sendToQueue('orders', Buffer.from('two'), { persistent: true });
  const confirmed = channel.waitForConfirms().then(() => 'confirmed');
  expect(await Promise.race([confirmed, sleep(300, 'silent')])).toBe('silent');
  await server.resume();
  expect(await confirmed).toBe('confirmed');

  await server.kill();
  await expect(connect(url)).rejects.toThrow(/ECONNREFUSED/);
  await server.start();
  expect(await countMessages(url, 'orders')).toBe(2);

  await server.stop();
  await expect(connect(url)).rejects.toThrow(/ECONNREFUSED/);
  await server.start();
  expect(await countMessages(url, 'orders')).toBe(2);
  expect(await server.ctl(['list_queues', 'name', 'messages'])).toMatch(/orders\s+2/);
  const overview = await callManagement(managementUrl ?? '', 'GET', '/overview');
  expect(overview).toMatchObject({ rabbitmq_version: server.version });
});

test('nodes of two owners run side by side, and that of a killed owner is gone with it', async () => {
  const mine = await freshVhost();
  cleanups.push(mine.close);
  const owner = startScript(fileURLToPath(new URL('../support/owner-of-a-server.ts', import.meta.url)), [
    'rabbitmq',
  ]);
  cleanups.push(() => owner.kill());
  const started = await owner.waitFor(/started (\S+) (\S+)/, 180_000);
  const [, url = '', folder = ''] = started;
  await connect(url);
  expect(existsSync(folder)).toBe(true);

  await owner.kill('SIGKILL');

  await until('its folder is gone', () => !existsSync(folder), { withinMs: 60_000 });
  await expect(connect(url)).rejects.toThrow(/ECONNREFUSED/);
  await connect(mine.url);
});

test('a broker that was given is used as it is and never stopped', async () => {
  const mine = await freshVhost();
  cleanups.push(mine.close);
  const broker = new URL(mine.url);
  broker.pathname = '';
  vi.stubEnv('UNBROKER_TEST_AMQP_URL', broker.href);
  vi.stubEnv('UNBROKER_TEST_AMQP_MANAGEMENT_URL', mine.managementUrl ?? '');

  const given = await startRabbit();
  expect(given).toMatchObject({ way: 'url', controllable: false, managementUrl: mine.managementUrl });
  await expect(given.kill()).rejects.toThrow(/not ours to stop/);
  const vhost = await freshVhost(given);
  expect(vhost.isolated).toBe(true);
  await connect(vhost.url);
  await vhost.close();
  await given.close();
  await connect(mine.url);

  const shared = await freshVhost({ ...given, managementUrl: null });
  expect(shared).toMatchObject({ isolated: false, vhost: '/' });
});

test('fresh virtual hosts do not see each other and are deleted with what they hold', async () => {
  const [first, second] = await Promise.all([freshVhost(), freshVhost()]);
  cleanups.push(first.close, second.close);
  const { channel } = await connect(first.url);
  await channel.assertQueue('orders');
  await expect((await connect(second.url)).channel.checkQueue('orders')).rejects.toThrow(/NOT_FOUND/);

  await first.close();
  await expect(connect(first.url)).rejects.toThrow();
});
