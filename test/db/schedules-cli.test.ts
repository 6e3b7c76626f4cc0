/** `unbroker schedules`, as a person and as a program: real commands against a real table. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { createSchedules } from '../../src/schedules.js';
import { startCli } from '../support/cli.js';
import { jobsDatabase } from '../support/jobs.js';

const db = await jobsDatabase();
const folder = mkdtempSync(join(tmpdir(), 'unbroker-schedules-'));
afterAll(async () => {
  rmSync(folder, { recursive: true, force: true });
  await db.close();
});

/** Runs one verb; `last` is its last line, read when it is JSON. */
async function run(args: readonly string[], input?: string) {
  const child = startCli(['schedules', ...args], { cwd: folder, env: { DATABASE_URL: db.url } });
  if (input !== undefined) child.write(input);
  child.endInput();
  const { code } = await child.waitForExit(90_000);
  const last = child.stdout.trimEnd().split('\n').at(-1) ?? '';
  return {
    code,
    stdout: child.stdout,
    stderr: child.stderr,
    json: last.startsWith('{') ? JSON.parse(last) : undefined,
  };
}

test('made, listed, looked ahead, paused, resumed, triggered, deleted', async () => {
  writeFileSync(join(folder, 'payload.json'), '{"order": 9007199254740993}');
  const made = await run([
    'create',
    'report',
    '--kind',
    'report.daily',
    '--cron',
    '30 2 * * *',
    '--time-zone',
    'America/New_York',
    '--misfire',
    'all',
    '--payload-file',
    'payload.json',
    '--priority',
    '-3',
    '--start-at',
    '2090-03-11T00:00:00-05:00',
  ]);
  expect(made.stderr).toBe('');
  expect(made.stdout).toContain(
    'Created: report fires next at 2090-03-11T07:30:00.000Z (Sat 2090-03-11 02:30:00 America/New_York)',
  );
  const again = await run(
    ['create', 'report', '--kind', 'report.daily', '--cron', '@every 90s', '--payload-file', '-', '--json'],
    '[1]',
  );
  expect(again.json).toMatchObject({
    created: false,
    cron: '@every 90s',
    payloadText: '[1]',
    timeZone: 'UTC',
  });
  expect((await run(['list'])).stdout).toMatch(/report\b.*report\.daily.*@every 90s.*UTC.*once.*active/);
  expect((await run(['pause', 'report', '--json'])).json).toMatchObject({ paused: true });
  expect((await run(['list', '--json'])).json.schedules).toMatchObject([{ name: 'report', paused: true }]);
  expect((await run(['resume', 'report'])).stdout).toMatch(/^Resumed: report; next slot: \d{4}-/);
  const triggered = await run(['trigger', 'report', '--json']);
  expect(await db.job(triggered.json.job)).toMatchObject({ kind: 'report.daily', payloadText: '[1]' });
  expect((await run(['next', 'report', '--count', '3', '--json'])).json.next).toHaveLength(3);
  expect((await run(['delete', 'report'])).code).toBe(0);
  expect(await createSchedules().listSchedules(db.pool)).toEqual([]);
}, 120_000);

test('what an expression means, without a database', async () => {
  const shown = await run([
    'next',
    '--cron',
    '30 2 * * *',
    '--time-zone',
    'America/New_York',
    '--from',
    '2025-03-08T12:00:00Z',
    '--count',
    '2',
  ]);
  expect(shown.stdout).toMatch(/Sun 2025-03-09 03:00:00.*2025-03-09T07:00:00\.000Z/);
  expect(shown.stdout).toMatch(/Mon 2025-03-10 02:30:00.*2025-03-10T06:30:00\.000Z/);
}, 180_000);

test.each([
  [['next', '--cron', '60 * * * *'], 'schedule-invalid'],
  [['next', '--cron', '0 0 30 2 *'], 'schedule-never'],
  [['next', '--cron', '@daily', '--from', '2025-02-30T00:00:00Z'], 'config-invalid'],
  [['pause', 'nobody'], 'schedule-missing'],
  [['create', 'a', '--kind', 'k', '--cron', '@daily', '--payload-file', 'missing.json'], 'config-invalid'],
] as const)(
  '%j is refused with one line and status 2',
  async (args, code) => {
    const refused = await run(args);
    expect(refused).toMatchObject({ code: 2, stdout: '' });
    expect(refused.stderr).toMatch(new RegExp(`^unbroker: [^\\n]+ \\[${code}\\]\\n$`));
  },
  180_000,
);
