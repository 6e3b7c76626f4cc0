/** `unbroker drain plan, verify, undo, freeze, thaw` as an operator runs them: what they print and how they end. */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startCli } from '../support/cli.js';
import { callManagement } from '../support/management.js';
import { until } from '../support/until.js';
import { type DrainWorld, drainWorld } from './drain-world.js';

let world: DrainWorld;
let folder: string;
beforeAll(async () => {
  world = await drainWorld();
  folder = mkdtempSync(join(tmpdir(), 'unbroker-drain-back-'));
  const config = {
    drain: { groups: { work: { queues: ['work'] } }, rules: [{ match: { queue: '*' }, kind: 'k' }] },
  };
  writeFileSync(join(folder, 'unbroker.config.json'), JSON.stringify(config));
  await world.channel.assertQueue('work', { durable: true });
});
afterAll(async () => {
  await world.close();
  rmSync(folder, { recursive: true, force: true });
});

function start(args: readonly string[], env: Readonly<Record<string, string>> = {}) {
  return startCli(['drain', ...args], {
    cwd: folder,
    env: {
      ...{ AMQP_URL: world.vhost.url, DATABASE_URL: world.database.url, UNBROKER_LOG_LEVEL: 'error' },
      RABBITMQ_MANAGEMENT_URL: world.vhost.managementUrl ?? undefined,
      ...env,
    },
  });
}

async function run(args: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const started = start(args, env);
  const { code } = await started.waitForExit(90_000);
  return { code, stdout: started.stdout, stderr: started.stderr };
}

const ready = async () => (await world.channel.checkQueue('work')).messageCount;

test('plan, run, verify, undo: there and back, with the books in a file', { timeout: 300_000 }, async () => {
  for (let n = 0; n < 300; n += 1) await world.publish('', 'work', { secret: n });

  const plan = await run(['plan', '--sample', '2']);
  expect(plan).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/work\s+│ main │ 300\s+│ 2\s+│ 0\s+│ k 2/),
  });
  expect(plan.stdout).not.toContain('secret');
  await world.drain({ config: { rules: [{ match: { queue: '*' }, kind: 'k' }] } });

  const books = join(folder, 'books.json');
  const verified = await run(['verify', '--out', books]);
  expect(verified).toMatchObject({ code: 0, stdout: expect.stringMatching(/ledger as written.*│ yes/) });
  expect(JSON.parse(readFileSync(books, 'utf8'))).toMatchObject({
    balanced: true,
    groups: [{ group: 'work', findings: [] }],
  });
  await world.database.pool.query(`update unbroker.drain_ledger set body = 'x' where position = 7`);
  const damaged = await run(['verify', '--json', '--out', books]);
  expect(damaged.code).toBe(3);
  expect(JSON.parse(damaged.stdout.trim().split('\n').at(-1) ?? '')).toEqual(
    JSON.parse(readFileSync(books, 'utf8')),
  );
  expect(readdirSync(folder).sort()).toEqual(['books.json', 'unbroker.config.json']);

  const rehearsed = await run(['undo', '--dry-run']);
  expect(rehearsed).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('a dry run; nothing was published'),
  });
  // Those that would go do not stay.
  expect(rehearsed.stdout).not.toContain('not given back');
  expect(rehearsed.stdout).toMatch(/dry run +│ 0 +│ 300 +│ 300 +│ 0 /);
  expect(await ready()).toBe(0);

  const stopped = start(['undo', '--rate', '40']);
  await until('some are back', async () => (await ready()) > 20, { withinMs: 60_000 });
  stopped.signal('SIGINT');
  expect(await stopped.waitForExit(90_000)).toMatchObject({ code: 130 });
  expect(stopped.stdout).toContain('run the same command again');
  const undone = await run(['undo', '--json']);
  expect(undone.code).toBe(0);
  expect(JSON.parse(undone.stdout.trim().split('\n').at(-1) ?? '')).toMatchObject({ balanced: true });
  expect(await ready()).toBe(300);
  expect(await run(['undo'])).toMatchObject({ code: 0, stdout: expect.stringContaining('nothing to do') });
});

test('a queue that is still frozen takes nothing back: undo names it, and goes on when it takes again', {
  timeout: 240_000,
}, async () => {
  await world.channel.purgeQueue('work');
  await world.publish('', 'work', { n: 1 });
  await world.drain({ config: { rules: [{ match: { queue: '*' }, kind: 'k' }] } });
  const { vhost, managementUrl } = world.vhost;
  const policy = (method: 'PUT' | 'DELETE', body?: object) =>
    callManagement(managementUrl ?? '', method, `/policies/${vhost}/closed`, body);
  // The broker's list of queues may be seconds old; undo goes by the same one.
  const limit = async () =>
    (await world.look()).groups.flatMap(({ queues }) => queues).find(({ name }) => name === 'work')?.info
      .maxLength;
  const definition = { overflow: 'reject-publish', 'max-length': 0 };
  await policy('PUT', { pattern: '^work$', definition, 'apply-to': 'queues' });
  await until('the queue is closed', async () => (await limit()) === 0);

  const refused = await run(['undo']);
  expect(refused.stdout).toContain('1 messages stay: its queue takes no more');
  expect(refused.stdout).toContain('work is frozen and takes nothing back: unbroker drain thaw --group work');
  await policy('DELETE');
  await until('it takes again', () =>
    world.publish('', 'work', 'probe').then(
      () => true,
      () => false,
    ),
  );
  const undone = await run(['undo']);
  expect(undone.stdout).not.toContain('frozen');
  expect(await ready()).toBe(2);
});

test('what cannot be meant is refused with exit 2 and one line', { timeout: 120_000 }, async () => {
  const cases: [string[], RegExp][] = [
    [['undo', '--group', 'wrok'], /--group is not valid/],
    [['undo', '--group', '\u001b[31m'], /--group is not valid/],
    [['undo', '--delayed', 'later'], /--delayed is not valid/],
    [['undo', '--via', 'x'], /--via is not valid/],
    [['undo', '--rate', '0'], /--rate is not valid/],
    [['undo', '--when-ambiguous', 'keep'], /--when-ambiguous is not valid/],
    [['undo', '--kind', ''], /--kind is not valid/],
    [['plan', '--sample', '101'], /--sample is not valid/],
    [['verify', '--out', 'nowhere/books.json'], /--out cannot be written/],
    [['freeze', '--revoke', ''], /--revoke is not valid/],
    [['undo', '--group', 'amqp://user:secret@host'], /holds a URL with a password/],
  ];
  const answers = await Promise.all(cases.map(([args]) => run(args)));
  for (const [index, { code, stderr }] of answers.entries()) {
    const [args, line] = cases[index] as [string[], RegExp];
    expect([args, code]).toEqual([args, 2]);
    expect(stderr).toMatch(line);
    expect(stderr).not.toContain('\u001b');
    expect(stderr.trim().split('\n')).toHaveLength(1);
  }
});

test('without API and shell, freeze prints the steps by hand; nothing frozen, thaw says so', {
  timeout: 180_000,
}, async () => {
  const blind = { RABBITMQ_MANAGEMENT_URL: 'http://127.0.0.1:1' };
  const byHand = await run(['freeze'], blind);
  expect(byHand.code).toBe(1);
  expect(byHand.stderr).toMatch(/set_policy .*"overflow":"reject-publish"}'\n/);
  expect(byHand.stderr).toContain('[freeze-unreachable]');
  expect(await run(['thaw'], blind)).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('Nothing is frozen'),
  });
});
