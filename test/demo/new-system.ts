/**
 * The second half of the demo: the table, the rewritten orders application, the shims, the drain and the workers, all
 * through the real command line.
 */
import { execFile } from 'node:child_process';
import { cpSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { NotificationClient } from '../legacy/clients/notification-client.js';
import { RetryClient } from '../legacy/clients/retry-client.js';
import { SchedulingClient } from '../legacy/clients/scheduling-client.js';
import { startOrders } from '../legacy/start.js';
import type { StartedProcess } from '../support/processes.js';
import { until } from '../support/until.js';
import type { OldSystem } from './old-system.js';
import { Shop } from './shop.js';
import { ROOT, say, type World } from './world.js';

const runProgram = promisify(execFile);
const LEASE_MS = 4_000;
const KILLS = 2;

/** The old templates, and the one that was missing. */
export function writeTemplates(world: World): void {
  const old = join(ROOT, 'test', 'legacy', 'notification', 'templates');
  cpSync(old, join(world.folder, 'templates'), { recursive: true });
  mkdirSync(join(world.folder, 'templates', 'welcome'));
  world.write('templates/welcome/en.email.subject', 'Welcome, {{name}}');
  world.write('templates/welcome/en.email.text', 'Dear {{name}}, good to have you.\n');
}

const OLD_PLACE = {
  lookIn: 'notification.notifications',
  key: 'data.orderId',
  matches: { template: 'order-receipt', status: 'sent' },
};
const NEW_PLACE = {
  kind: 'notify.email',
  key: 'payload.data.orderId',
  matches: { 'payload.template': 'order-receipt' },
};

/** What a team would write: where receipts are looked for, what dead letters become, where mail goes. */
export function writeConfig(world: World, old: OldSystem, hasJobs: boolean): void {
  const config = {
    worker: { concurrency: 8, leaseMs: LEASE_MS },
    seam: {
      rules: [
        {
          name: 'order receipts',
          source: 'orders',
          key: 'id',
          since: 'created_at',
          expects: hasJobs ? [OLD_PLACE, NEW_PLACE] : OLD_PLACE,
        },
      ],
    },
    drain: { rules: [{ match: { queue: 'notification.dlq' }, deadLetters: 'retry' }] },
    notify: { templates: './templates', email: { url: old.sink.url, from: 'Shop <shop@example.org>' } },
  };
  world.write('unbroker.config.ts', `export default ${JSON.stringify(config, null, 2)};\n`);
}

export interface Rewritten {
  readonly folder: string;
  readonly diff: string;
}

/** The codemod over a copy of the caller's repository, as an engineer there would run it. */
export async function rewriteOrders(world: World): Promise<Rewritten> {
  const folder = join(world.folder, 'orders');
  cpSync(join(ROOT, 'test', 'legacy', 'orders'), folder, { recursive: true });
  linkModules(folder);
  writeFileSync(
    join(folder, 'unbroker.codemod.json'),
    JSON.stringify({ kinds: { 'notification.*.email': 'notify.email' } }),
  );
  writeFileSync(join(folder, '.gitignore'), 'node_modules\n');
  const author = ['-c', 'user.name=demo', '-c', 'user.email=demo@example.org'];
  for (const args of [
    ['init', '-q'],
    ['add', '.'],
    [...author, 'commit', '-qm', 'The orders application'],
  ]) {
    await runProgram('git', args, { cwd: folder });
  }
  say('$ cd orders');
  const scan = await world.cli(['codemod', 'scan'], { cwd: folder });
  // A line a call site and the sum; the whole report says what was lost before and what happens now.
  say(
    scan.stdout
      .split('\n')
      .filter((line) => /^\S+:\d+ |call sites/.test(line))
      .join('\n'),
  );
  const applied = await world.cli(['codemod', 'apply', '--write'], { cwd: folder });
  if (applied.status !== 0) throw new Error(`codemod apply failed:\n${applied.stdout}${applied.stderr}`);
  const { stdout: diff } = await runProgram('git', ['diff', '--', 'src'], { cwd: folder });
  return { folder, diff };
}

/** The packages that the caller has installed, and ours. */
function linkModules(folder: string): void {
  const modules = join(folder, 'node_modules');
  mkdirSync(join(modules, '@types'), { recursive: true });
  for (const name of ['pg', 'amqplib', 'tsx', 'typescript', '@types/node', '@types/pg']) {
    symlinkSync(join(ROOT, 'node_modules', name), join(modules, name));
  }
  symlinkSync(ROOT, join(modules, 'unbroker'));
}

/** The rewritten application at work, killed at the same place as the old one. Answers the orders that a kill left. */
export async function tradeAgain(world: World, old: OldSystem, folder: string): Promise<void> {
  const start = (killAfterCommit?: number) =>
    startOrders({
      amqpUrl: world.vhost.url,
      databaseUrl: world.database.url,
      folder,
      ...(killAfterCommit === undefined ? {} : { killAfterCommit }),
    });
  const orders = await start();
  const shop = new Shop(orders.url, old.expected);
  for (let n = 1; n <= 10; n += 1)
    await shop.place(`dora-${n}@example.org`, 'new: enqueue in the transaction');
  await orders.stop();
  for (let n = 1; n <= KILLS; n += 1) {
    const doomed = await start(2);
    const before = new Shop(doomed.url, old.expected);
    await before.place(`emil-${n}@example.org`, 'new: enqueue in the transaction');
    if ((await before.place(`saved-${n}@example.org`, 'never')) !== null)
      throw new Error('orders was not killed');
    await doomed.process.exit;
  }
  // Nobody got an answer for these, but the orders exist: their receipts must arrive all the same.
  const { rows } = await world.pool.query<{ id: number; email: string }>(
    "select id, email from orders where email like 'saved-%'",
  );
  if (rows.length !== KILLS) throw new Error(`${rows.length} orders survived the kills, expected ${KILLS}`);
  for (const { id, email } of rows) {
    old.expected.push({
      to: email,
      subject: `Receipt for order ${id}`,
      path: 'new: killed after the commit',
    });
  }
}

export interface Shims {
  readonly process: StartedProcess;
  readonly url: string;
}

export async function startShims(world: World): Promise<Shims> {
  say('$ unbroker serve --port 0');
  const process = world.startCli(['serve', '--port', '0']);
  const [, url = ''] = await process.waitFor(/(http:\/\/127\.0\.0\.1:\d+)/);
  return { process, url };
}

/** The old HTTP clients, unchanged but for their address. */
export async function useShims(old: OldSystem, shims: Shims): Promise<void> {
  const notification = new NotificationClient(shims.url);
  const scheduling = new SchedulingClient(shims.url);
  const path = 'shims: old HTTP clients';
  for (let n = 1; n <= 5; n += 1) {
    const to = `fay-${n}@example.org`;
    const { id } = await notification.send({
      to,
      template: 'order-paid',
      data: { orderId: 8_000 + n, total: '5.00' },
    });
    const { status } = await notification.get(id);
    if (status === 'failed') throw new Error('a notification through the shim failed');
    old.expected.push({ to, subject: `Payment for order ${8_000 + n} received`, path });
  }
  for (let n = 1; n <= 3; n += 1) {
    const to = `gil-${n}@example.org`;
    const { id } = await scheduling.create({
      delayMs: 3_000,
      target: { exchange: 'notifications', routingKey: 'notification.order-reminder.email' },
      payload: { to, template: 'order-reminder', data: { orderId: 8_100 + n, total: '5.00' } },
    });
    if (n === 3) await scheduling.cancel(id);
    else old.expected.push({ to, subject: `Order ${8_100 + n} waits for your payment`, path });
  }
}

/** Dead letters came over with the drain; the old client replays them now that their template exists. */
export async function replayDeadLetters(shims: Shims): Promise<number> {
  const retry = new RetryClient(shims.url);
  const { items } = await retry.deadLetters(50);
  for (const { id } of items) await retry.replay(id);
  return items.length;
}

export interface WorkResult {
  /** Jobs that the killed worker left between "sending" and "sent". */
  readonly parked: number;
  /** Of those, jobs whose mail had not arrived: sent again by the operator. */
  readonly retried: number;
}

/** Works the table, kills a worker with -9 while it sends, and finishes. */
export async function workJobs(world: World, old: OldSystem): Promise<WorkResult> {
  const before = old.sink.deliveries().length;
  await old.sink.control({ delayMs: 40 });
  say('$ unbroker work');
  const doomed = world.startCli(['work']);
  await until('a worker has sent something', () => old.sink.deliveries().length > before + 5, {
    withinMs: 20_000,
  });
  await doomed.kill('SIGKILL');
  say(
    `Killed that worker with -9 while it was sending; its leases end within ${LEASE_MS / 1_000} s. Another one starts.`,
  );
  await old.sink.control({ delayMs: 0 });
  const worker = world.startCli(['work']);
  try {
    await until('nothing is left but what was parked', () => settled(world), {
      withinMs: 45_000,
      everyMs: 100,
    });
    const result = await resolveParked(world, old);
    await until('the retried jobs are done', () => settled(world), { withinMs: 20_000 });
    return result;
  } finally {
    worker.signal('SIGTERM');
    await worker.waitForExit(20_000);
  }
}

/** Throws what is left, so that a demo that gives up says it. */
async function settled(world: World): Promise<boolean> {
  const { rows } = await world.pool.query<{ job: string }>(
    `select concat_ws(' ', id, kind, state, errors -> -1 ->> 'message') as job
     from unbroker.jobs where state in ('ready', 'running') order by id limit 5`,
  );
  if (rows.length > 0) throw new Error(`left: ${rows.map(({ job }) => job).join(', ')}`);
  return true;
}

/**
 * A job whose worker died between the provider's call and its note is never blindly sent again: it is parked for a
 * person, who looks at the provider's books (here, the sink) and retries what did not arrive.
 */
async function resolveParked(world: World, old: OldSystem): Promise<WorkResult> {
  const { jobs } = (await world.cli(['jobs', 'list', '--state', 'dead', '--json'], { quiet: true })).json<{
    jobs: { id: string; errors: { name: string }[]; payloadText: string }[];
  }>();
  const parked = jobs.filter((job) => job.errors.at(-1)?.name === 'ambiguous-delivery');
  const ids = new Set(old.sink.deliveries().map((delivery) => delivery.headers['x-notification-id']));
  const undelivered = parked.filter((job) => !ids.has(job.id));
  if (undelivered.length > 0) await world.cli(['jobs', 'retry', ...undelivered.map((job) => job.id)]);
  return { parked: parked.length, retried: undelivered.length };
}
