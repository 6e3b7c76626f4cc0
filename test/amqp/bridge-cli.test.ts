/** `unbroker bridge` as an operator runs it: what it prints, whom it names, how it ends. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import amqp from 'amqplib';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startCli } from '../support/cli.js';
import { until } from '../support/until.js';
import { type DrainWorld, drainWorld } from './drain-world.js';

let world: DrainWorld;
let folder: string;
beforeAll(async () => {
  world = await drainWorld();
  folder = mkdtempSync(join(tmpdir(), 'unbroker-bridge-cli-'));
  const config = { drain: { rules: [{ match: { queue: '*' }, kind: 'k' }] } };
  writeFileSync(join(folder, 'unbroker.config.json'), JSON.stringify(config));
  await world.channel.assertQueue('work', { durable: true });
});
afterAll(async () => {
  await world.close();
  rmSync(folder, { recursive: true, force: true });
});

const start = (args: readonly string[]) =>
  startCli(['bridge', ...args], {
    cwd: folder,
    env: {
      AMQP_URL: world.vhost.url,
      DATABASE_URL: world.database.url,
      RABBITMQ_MANAGEMENT_URL: world.vhost.managementUrl ?? undefined,
      UNBROKER_LOG_LEVEL: 'info',
    },
  });

const rows = async (): Promise<number> =>
  (await world.rows<{ n: number }>('select count(*)::int as n from unbroker.jobs'))[0]?.n ?? 0;

test('SIGTERM: a clean end with the findings, the publisher’s connection, and metrics meanwhile', {
  timeout: 180_000,
}, async () => {
  const shop = await amqp.connect(world.vhost.url, { clientProperties: { connection_name: 'the shop' } });
  shop.on('error', () => {});
  const channel = await shop.createConfirmChannel();
  channel.on('error', () => {});
  const bridge = start(['--json', '--metrics-port', '0']);
  const [, url = ''] = await bridge.waitFor(/"listening":"(http:[^"]+)"/, 60_000);
  await bridge.waitFor(/"queue":"work".*consuming/, 60_000);
  for (let n = 0; n < 5; n += 1)
    channel.sendToQueue('work', Buffer.from(`{"n":${n}}`), {
      persistent: true,
      appId: 'shop',
      messageId: `m${n}`,
    });
  await channel.waitForConfirms();
  await until('they are rows', async () => (await rows()) === 5, { withinMs: 60_000 });
  await bridge.waitFor(/"appId":"shop".*somebody publishes/, 60_000);
  const metrics = async () => (await fetch(url)).text();
  await until('metrics', async () => (await metrics()).includes('unbroker_bridge_messages 5'));
  expect(await metrics()).toContain('unbroker_bridge_connected 1');
  await bridge.waitFor(/"name":"the shop".*a connection publishes/, 60_000);
  bridge.signal('SIGTERM');
  const { code } = await bridge.waitForExit(90_000);
  await shop.close();
  expect(code).toBe(0);
  const answer = JSON.parse(bridge.stdout.trim().split('\n').at(-1) ?? 'null');
  expect(answer).toMatchObject({
    ...{ end: 'stopped', finished: true },
    groups: [
      {
        group: 'work',
        counts: { messages: 5, possibleDoubles: 0 },
        findings: [{ queue: 'work', exchange: '', routingKey: 'work', appId: 'shop', messages: 5 }],
        books: { arrived: 5, rows: 5, balanced: true },
      },
    ],
    connections: [expect.objectContaining({ name: 'the shop', published: 5 })],
  });
});

test('--idle-exit-ms: tables for a person, the progress line, exit 0', { timeout: 180_000 }, async () => {
  await world.publish('', 'work', { n: 9 }, { userId: new URL(world.vhost.url).username });
  const bridge = start(['--idle-exit-ms', '500', '--group', 'work', '--rate', '100']);
  const { code } = await bridge.waitForExit(90_000);
  expect([code, bridge.stdout]).toEqual([0, expect.stringMatching(/work\s+│ \d+\s+│ 1\s+│ 1 /)]);
  expect(bridge.stdout).toContain('work: 1 came late: somebody still publishes.');
  expect(bridge.stdout).toMatch(/│ work\s+│\s+│ work\s+│ guest/);
  expect(bridge.stderr).toContain('bridge: 1 late messages');
});

test('what cannot be meant is refused with exit 2 and one line', { timeout: 180_000 }, async () => {
  const bridge = start(['--idle-exit-ms', '1s']);
  const { code } = await bridge.waitForExit(90_000);
  expect([code, bridge.stderr.trim().split('\n').length]).toEqual([2, 1]);
  expect(bridge.stderr).toContain('--idle-exit-ms is not valid. It must be a whole number of milliseconds');
});
