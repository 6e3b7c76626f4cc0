/** `unbroker drain` as an operator runs it: what it prints, how it ends, how it survives kill -9 and Ctrl-C. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { startCli } from '../support/cli.js';
import { until } from '../support/until.js';
import { type DrainWorld, drainWorld } from './drain-world.js';

let world: DrainWorld;
let folder: string;
beforeAll(async () => {
  world = await drainWorld();
  folder = mkdtempSync(join(tmpdir(), 'unbroker-drain-cli-'));
});
afterAll(async () => {
  await world.close();
  rmSync(folder, { recursive: true, force: true });
});

beforeEach(async () => {
  configure({ drain: { rules: [{ match: { queue: '*' }, kind: 'k' }] } });
  await world.channel.assertQueue('work', { durable: true });
  await world.channel.purgeQueue('work');
  await world.database.pool.query(
    'truncate unbroker.jobs, unbroker.drain_ledger, unbroker.drain_batches, unbroker.drain_runs cascade',
  );
});

function configure(config: object): void {
  writeFileSync(join(folder, 'unbroker.config.json'), JSON.stringify(config));
}

function start(args: readonly string[], env: Readonly<Record<string, string>> = {}) {
  return startCli(['drain', ...args], {
    cwd: folder,
    env: {
      AMQP_URL: world.vhost.url,
      DATABASE_URL: world.database.url,
      RABBITMQ_MANAGEMENT_URL: world.vhost.managementUrl ?? undefined,
      UNBROKER_LOG_LEVEL: 'error',
      ...env,
    },
  });
}

async function run(args: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const started = start(args, env);
  const { code } = await started.waitForExit(90_000);
  return { code, stdout: started.stdout, stderr: started.stderr };
}

/** What --json printed last. */
const answer = (stdout: string) => JSON.parse(stdout.trim().split('\n').at(-1) ?? 'null');

const fill = (messages: number, queue = 'work') =>
  Promise.all(Array.from({ length: messages }, (_, n) => world.publish('', queue, { n })));

async function distinct(): Promise<number> {
  const [row] = await world.rows<{ rows: number; bodies: number }>(
    'select count(*)::int as rows, count(distinct payload)::int as bodies from unbroker.jobs',
  );
  expect(row?.rows).toBe(row?.bodies);
  return row?.rows ?? 0;
}

describe('survey', () => {
  test('a table for a person, one JSON object for a program', async () => {
    await fill(3);
    // With what a URL that was copied from a call of the API ends with.
    const { managementUrl } = world.vhost;
    const { code, stdout } = await run(
      ['survey'],
      managementUrl === null ? {} : { RABBITMQ_MANAGEMENT_URL: `${managementUrl}/api/` },
    );
    expect(code).toBe(0);
    expect(stdout).toMatch(/work\s+│ classic │ main │ 3/);
    const json = answer((await run(['survey', '--json'])).stdout);
    expect(json.groups).toMatchObject([
      { name: 'work', ready: 3, queues: [{ name: 'work', importable: true, whyNot: null }] },
    ]);
    expect(json.draft).toEqual({ groups: { work: { queues: ['work'] } } });
  });

  test('without the management API it needs names, and says what it does not see', async () => {
    const blind = { RABBITMQ_MANAGEMENT_URL: 'http://127.0.0.1:1' };
    const [unseen, odd] = await Promise.all([
      run(['survey'], blind),
      run(['survey'], { RABBITMQ_MANAGEMENT_URL: 'canary:15672' }),
    ]);
    expect(unseen).toMatchObject({ code: 2, stderr: expect.stringContaining('[survey-blind]') });
    expect(unseen.stderr).toContain('no management API answers at 127.0.0.1:1: set');
    expect(odd).toMatchObject({ code: 2, stderr: expect.stringContaining('[management-url-invalid]') });
    expect(odd.stderr).not.toContain('canary');
    configure({ drain: { groups: { jobs: { queues: ['work'] } } } });
    const { code, stdout } = await run(['survey'], blind);
    expect(code).toBe(0);
    expect(stdout).toContain('No management API');
    configure({ drain: { groups: { jobs: { queues: ['wrok'] } } } });
    expect(await run(['survey'], blind)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('[queue-missing]'),
    });
  });
});

describe('run', () => {
  test('books that balance: exit 0', async () => {
    await fill(25);
    const { code, stdout, stderr } = await run(['run']);
    expect(code).toBe(0);
    expect(stdout).toMatch(/work\s+│ \d+\s+│ 25\s+│ 0\s+│ 25\s+│ 0\s+│ 0\s+│ 0\s+│ 0\s+│ 0\s+│ yes/);
    expect(stderr).toContain('25/25 100%');
    expect(await distinct()).toBe(25);
  });

  test('kill -9 in the middle, Ctrl-C in the middle, and to the end', async () => {
    await fill(600);
    const written = async () =>
      (await world.rows<{ n: number }>('select count(*)::int as n from unbroker.jobs'))[0]?.n ?? 0;
    // So slow that either is in its middle still when a slow machine gets to it.
    const killed = start(['run', '--rate', '120']);
    await until('a part is written', async () => (await written()) >= 100, { withinMs: 60_000 });
    expect(await killed.kill()).toMatchObject({ signal: 'SIGKILL' });

    const before = await written();
    const stopped = start(['run', '--rate', '120']);
    await until('more is written', async () => (await written()) > before, { withinMs: 60_000 });
    stopped.signal('SIGINT');
    expect(await stopped.waitForExit()).toMatchObject({ code: 130 });
    expect(stopped.stdout).toContain('run the same command again');

    const { code, stdout } = await run(['run', '--json']);
    expect(code).toBe(0);
    expect(answer(stdout)).toMatchObject({
      balanced: true,
      groups: [{ books: { initial: 600, rows: 600, difference: 0 } }],
    });
    expect(await distinct()).toBe(600);
  });

  test('a missing dead-letter target stops it before the first message', async () => {
    await world.channel.assertQueue('work.wait', {
      durable: true,
      arguments: { 'x-message-ttl': 600_000, 'x-dead-letter-exchange': 'gone' },
    });
    await fill(5, 'work.wait');
    const { code, stderr } = await run(['run']);
    await world.channel.deleteQueue('work.wait');
    expect(code).toBe(1);
    expect(stderr.trim().split('\n')).toHaveLength(1);
    expect(stderr).toContain(
      'work.wait: its dead-letter target is missing (exchange): 5 messages would vanish when due',
    );
    expect(await distinct()).toBe(0);
  });

  test('one group by name, or by one of its queues', async () => {
    await world.channel.assertQueue('other', { durable: true });
    await Promise.all([fill(2), fill(3, 'other')]);
    const { stdout } = await run(['run', '--group', 'other', '--json']);
    await world.channel.deleteQueue('other');
    expect(answer(stdout).groups).toMatchObject([{ group: 'other', books: { rows: 3 } }]);
    expect((await world.channel.checkQueue('work')).messageCount).toBe(2);
  });

  test('books that do not balance: exit 3, with the difference', async () => {
    await fill(300);
    const slow = start(['run', '--rate', '40', '--json']);
    await until(
      'it has begun',
      async () => (await world.rows('select 1 from unbroker.drain_batches')).length > 0,
      { withinMs: 60_000 },
    );
    // What a purge by somebody else does.
    await world.channel.purgeQueue('work');
    const { code } = await slow.waitForExit(90_000);
    expect(code).toBe(3);
    const [{ books }] = answer(slow.stdout).groups;
    expect(books.difference).toBeLessThan(0);
    expect(books.remarks.join()).toContain('fewer than were there');
  });
});

test('what cannot be meant is refused with exit 2 and one line, and no secret is repeated', {
  timeout: 180_000,
}, async () => {
  const cases: [string[], RegExp][] = [
    [['run', '--group', ''], /--group is not valid/],
    [['run', '--group', 'wrok'], /--group is not valid.*did you mean work/],
    [['run', '--rate', '10/s'], /--rate is not valid/],
    [['run', '--when-ambiguous', 'guess'], /--when-ambiguous is not valid/],
    [['survey', '--config', 'amqp://user:secret@host'], /password|config/],
    [['run', '--group', 'amqp://user:secret@host'], /holds a URL with a password/],
  ];
  for (const [args, line] of cases) {
    const { code, stderr } = await run(args);
    expect([args, code]).toEqual([args, 2]);
    expect(stderr).toMatch(line);
    expect(stderr).not.toContain('secret@');
    expect(stderr.trim().split('\n')).toHaveLength(1);
  }
});
