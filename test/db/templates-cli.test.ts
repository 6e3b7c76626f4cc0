/** `unbroker templates`: a folder checked, pushed into the table as versions, rendered from either. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { createTemplateTable } from '../../src/notify/template-table.js';
import { startCli } from '../support/cli.js';
import { jobsDatabase } from '../support/jobs.js';

const db = await jobsDatabase();
const folder = mkdtempSync(join(tmpdir(), 'unbroker-templates-'));
afterAll(async () => {
  rmSync(folder, { recursive: true, force: true });
  await db.close();
});

function write(path: string, text: string): void {
  const file = join(folder, 'templates', path);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
}

async function run(...args: readonly string[]) {
  const child = startCli(['templates', ...args, '--folder', 'templates', '--json'], {
    cwd: folder,
    env: { DATABASE_URL: db.url },
  });
  child.endInput();
  const { code } = await child.waitForExit(90_000);
  const last = child.stdout.trimEnd().split('\n').at(-1) ?? '';
  return { code, stderr: child.stderr, json: last.startsWith('{') ? JSON.parse(last) : undefined };
}

test('what differs from the table becomes a version; a second push changes nothing', async () => {
  write('welcome/en.email.subject', 'Hello {{name}}\n');
  write('welcome/en.email.text', 'Dear {{name}}');
  write('welcome/fr.sms.text', 'Bonjour {{name}}');
  write('bye/default.sms.text', 'Bye');
  expect((await run('push')).json.pushed).toEqual([
    { key: 'bye', version: 1, changes: ['default.sms'] },
    { key: 'welcome', version: 1, changes: ['en.email', 'fr.sms'] },
  ]);
  expect((await run('push')).json).toEqual({ pushed: [], unchanged: 2 });

  write('welcome/en.email.text', 'Dearest {{name}}');
  rmSync(join(folder, 'templates/welcome/fr.sms.text'));
  expect((await run('push', '--prune', '--dry-run')).json.pushed).toEqual([
    { key: 'welcome', version: null, changes: ['en.email', '-fr.sms'] },
  ]);
  expect((await run('push', '--prune')).json.pushed).toMatchObject([{ key: 'welcome', version: 2 }]);
  const table = createTemplateTable('unbroker');
  expect(await table.at(db.pool, 'welcome', null)).toMatchObject({
    version: 2,
    changes: [
      { locale: 'en', parts: { text: 'Dearest {{name}}' } },
      { locale: 'fr', parts: null },
    ],
  });

  writeFileSync(join(folder, 'data.json'), '{"name":"Ann"}');
  const old = await run('preview', 'welcome', '--data-file', 'data.json', '--template-version', '1');
  expect(old.json.parts).toEqual({ subject: 'Hello Ann', text: 'Dear Ann' });
  const now = await run('preview', 'welcome', '--data-file', 'data.json', '--locale', 'en-GB');
  expect(now.json).toMatchObject({ locale: 'en', parts: { text: 'Dearest Ann' } });
  expect(await run('preview', 'welcome')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('[render-failed]'),
  });
});

test('a folder that cannot be used is named and pushes nothing', async () => {
  for (const [path, text, code] of [
    ['zz/en.email.html', '{{#if', 'template-invalid'],
    ['zz/en.fax.text', 'x', 'template-invalid'],
    ['zz/en.email.mjml', '<mjml></mjml>', 'mjml-missing'],
  ] as const) {
    write(path, text);
    const { code: status, stderr } = await run('push');
    expect([status, stderr]).toEqual([2, expect.stringContaining(`[${code}]`)]);
    rmSync(join(folder, 'templates/zz'), { recursive: true });
  }
  expect(await createTemplateTable('unbroker').keys(db.pool, '', 10)).toEqual(['bye', 'welcome']);
});
