/** The last line of a run, from real runs of small test files: a run that is broken in any way must not look green. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { startProcess } from '../support/processes.js';

const VITEST = fileURLToPath(new URL('../../node_modules/vitest/vitest.mjs', import.meta.url));
const REPORTER = fileURLToPath(new URL('../support/summary-reporter.ts', import.meta.url));

/** Runs vitest on files with these contents; resolves to the last line and whether the run counts as successful. */
async function run(...contents: string[]): Promise<{ last: string | undefined; success: boolean }> {
  const folder = mkdtempSync(join(tmpdir(), 'unbroker-summary-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  // Else vitest looks for one in the folders above, and a temporary folder may lie in a project.
  writeFileSync(join(folder, 'vitest.config.mjs'), 'export default {};\n');
  contents.forEach((content, at) => {
    writeFileSync(join(folder, `${at}.test.js`), content);
  });
  const args = [VITEST, 'run', '--root', folder, '--globals', '--reporter=default', `--reporter=${REPORTER}`];
  const child = startProcess(process.execPath, args, {
    env: { VITEST: undefined, NODE_ENV: undefined },
    cwd: folder,
  });
  const { code } = await child.waitForExit(60_000);
  return { last: child.stdout.trimEnd().split('\n').at(-1), success: code === 0 };
}

const passing = "test('a', () => {}); test('b', () => {});";

test.each([
  ['all pass', [passing, passing], '4 passed, 0 failed'],
  [
    'some are skipped',
    [passing, "test.skip('c', () => {}); test.todo('d');"],
    '2 passed, 0 failed, 2 skipped',
  ],
  ['one fails', [passing, "test('c', () => { throw new Error('no'); });"], '2 passed, 1 failed'],
  ['a file does not load', [passing, "throw new Error('no');"], '2 passed, 1 failed'],
  [
    'a hook fails',
    [passing, "beforeAll(() => { throw new Error('no'); }); test('c', () => {});"],
    '2 passed, 1 failed, 1 skipped',
  ],
  [
    'an error is caught by nobody',
    [
      passing,
      "test('c', () => { setTimeout(() => { throw new Error('no'); }); }); test('d', () => new Promise((r) => setTimeout(r, 50)));",
    ],
    '4 passed, 1 failed',
  ],
  ['there is no test', [''], '0 passed, 1 failed'],
  ['there is no file', [], '0 passed, 1 failed'],
])('when %s', async (_, contents, expected) => {
  const { last, success } = await run(...contents);
  expect(last).toBe(expected);
  expect(success).toBe(/ 0 failed/.test(expected));
});
