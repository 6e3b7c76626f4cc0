/** `unbroker suppressions`: put on, listed, taken off by the command line, and what a delivery's gate then says. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach, expect, test, vi } from 'vitest';
import { createGate } from '../../src/notify/gate.js';
import { createSuppressions, hashOf } from '../../src/notify/suppressions.js';
import { createOperations } from '../../src/operations.js';
import { startCli } from '../support/cli.js';
import { jobsDatabase } from '../support/jobs.js';

// Each command is a process.
vi.setConfig({ testTimeout: 180_000 });

const db = await jobsDatabase();
const folder = mkdtempSync(join(tmpdir(), 'unbroker-suppressions-'));
afterAll(async () => {
  rmSync(folder, { recursive: true, force: true });
  await db.close();
});
beforeEach(async () => {
  await db.pool.query('truncate unbroker.suppressions, unbroker.operations');
});

const SECRET_FREE = /^unbroker: [^\n]*\[[a-z-]+\]$/;

async function run(args: readonly string[]) {
  const child = startCli(['suppressions', ...args], { cwd: tmpdir(), env: { DATABASE_URL: db.url } });
  child.endInput();
  const { code } = await child.waitForExit(90_000);
  const last = child.stdout.trimEnd().split('\n').at(-1) ?? '';
  const json = last.startsWith('{') ? (JSON.parse(last) as Record<string, unknown>) : undefined;
  return { code, stderr: child.stderr, stdout: child.stdout, json };
}

test('added from arguments and a file, listed, removed; each written down without the address', async () => {
  const file = join(folder, 'bounced.txt');
  writeFileSync(file, 'bo@example.org\n\n cy@example.org \r\nBO@EXAMPLE.ORG\n');
  const added = await run([
    ...['add', 'Ann@B\u00fccher.example', '--file', file, '--reason', 'complaint', '--json'],
  ]);
  expect([added.code, added.stderr]).toEqual([0, '']);
  expect(added.json).toEqual({
    channel: 'email',
    added: ['ann@xn--bcher-kva.example', 'bo@example.org', 'cy@example.org'],
  });
  const gate = createGate(db.pool, 'unbroker');
  for (const to of ['ann@b\u00fccher.example', 'ANN@xn--bcher-kva.EXAMPLE', 'bo@Example.org'])
    expect([to, await gate.suppressed('email', to)]).toEqual([to, true]);
  expect(await gate.suppressed('email', 'di@example.org')).toBe(false);
  expect(await gate.suppressed('sms', 'bo@example.org')).toBe(false);

  const { json } = await run([
    'list',
    '--channel',
    'email',
    '--after',
    'ann@xn--bcher-kva.example',
    '--json',
  ]);
  expect(json).toMatchObject({
    suppressions: [
      { channel: 'email', recipient: 'bo@example.org', reason: 'complaint' },
      { channel: 'email', recipient: 'cy@example.org', reason: 'complaint' },
    ],
  });
  const removed = await run(['remove', 'Bo@example.org', 'nobody@example.org']);
  expect([removed.code, removed.stdout.trim()]).toEqual([0, '1 taken off the list; 1 were not on it.']);
  expect(await gate.suppressed('email', 'bo@example.org')).toBe(false);

  const lines = await createOperations('unbroker').list(db.pool, 10);
  expect(lines.map(({ act, filter, changed }) => ({ act, filter, changed }))).toEqual([
    {
      act: 'unsuppress',
      filter: { suppression: 'email', recipients: [hashOf('bo@example.org')] },
      changed: 1,
    },
    {
      act: 'suppress',
      filter: {
        suppression: 'email',
        recipients: ['ann@xn--bcher-kva.example', 'bo@example.org', 'cy@example.org'].map(hashOf),
      },
      changed: 3,
    },
  ]);
  expect(lines.every(({ by, finishedAt }) => /@.+ as /.test(by) && finishedAt !== null)).toBe(true);
  expect(JSON.stringify(lines)).not.toContain('example');
});

test('what cannot be a recipient: exit 2, one line that does not repeat it, nothing changed', async () => {
  const file = join(folder, 'many.txt');
  writeFileSync(file, Array.from({ length: 10_000 }, (_, n) => `u${n}@example.org`).join('\n'));
  for (const args of [
    ['add', 'ok@example.org', 'Eve <secret@example.org>'],
    ['add', 'one-too-many@example.org', '--file', file],
  ]) {
    const { code, stderr } = await run(args);
    expect([args, code]).toEqual([args, 2]);
    expect(stderr.trim()).toMatch(SECRET_FREE);
    expect(stderr).not.toContain('secret@example.org');
  }
  const { rows } = await db.pool.query(
    'select 1 from unbroker.suppressions union all select 1 from unbroker.operations',
  );
  expect(rows).toEqual([]);
});

test('one that is there keeps its reason; a failing audit line puts nobody on', async () => {
  const suppressions = createSuppressions('unbroker');
  await suppressions.add(db.pool, 'sms', ['+15550100'], 'asked for', 'test');
  expect(await suppressions.add(db.pool, 'sms', ['+15550100', '+15550101'], 'bounce', 'test')).toEqual([
    '+15550101',
  ]);
  const [first] = await suppressions.list(db.pool, { channel: 'sms', limit: 10 });
  expect(first).toMatchObject({ recipient: '+15550100', reason: 'asked for' });
  await db.pool.query(
    `alter table unbroker.operations add constraint never check (act <> 'suppress') not valid`,
  );
  try {
    await expect(suppressions.add(db.pool, 'sms', ['+15550102'], null, 'test')).rejects.toThrow('never');
  } finally {
    await db.pool.query('alter table unbroker.operations drop constraint never');
  }
  expect(await suppressions.list(db.pool, { channel: 'sms', limit: 10 })).toHaveLength(2);
});
