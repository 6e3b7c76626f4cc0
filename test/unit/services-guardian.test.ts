/**
 * Whatever way the owner of a service folder ends, nothing of it is left: no process, no folder. The "server" here is
 * a shell that starts a child, so the test needs nothing installed.
 */
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, test } from 'vitest';
import {
  cleanFolder,
  FOLDER_PREFIX,
  GUARDED,
  MARK,
  recordOwner,
  sweepLeftovers,
} from '../support/leftovers.js';
import { isRunning, listProcesses } from '../support/process-list.js';
import { type StartedProcess, startScript } from '../support/processes.js';
import { openServiceFolder } from '../support/service-folder.js';
import { until } from '../support/until.js';

const owners: StartedProcess[] = [];
afterEach(async () => {
  for (const owner of owners.splice(0)) await owner.kill();
});

const OWNER = fileURLToPath(new URL('../support/owner-of-a-folder.ts', import.meta.url));

/** An owner that holds a folder with a server (and the server's child) running out of it. */
async function startOwner(): Promise<{ owner: StartedProcess; folder: string; pids: number[] }> {
  const owner = startScript(OWNER);
  owners.push(owner);
  const [, folder = '', pid = ''] = await owner.waitFor(/folder=(\S+) pid=(\d+)/);
  const child = await until('the server has started its child', () =>
    listProcesses().find(({ parentPid }) => parentPid === Number(pid)),
  );
  // From here on it is the guardian that cleans up, and not the sweep with which it begins.
  await until('the guardian watches', () => existsSync(join(folder, GUARDED)));
  return { owner, folder, pids: [Number(pid), child.pid] };
}

describe('a service folder is gone with its owner', () => {
  test.each([
    ['is killed', (owner: StartedProcess) => owner.kill('SIGKILL')],
    ['is terminated', (owner: StartedProcess) => owner.kill('SIGTERM')],
    ['gets Ctrl-C', (owner: StartedProcess) => owner.kill('SIGINT')],
    ['throws', (owner: StartedProcess) => owner.write('throw\n')],
    ['exits without closing', (owner: StartedProcess) => owner.write('exit\n')],
    ['ends its work without closing', (owner: StartedProcess) => owner.endInput()],
    ['closes it', (owner: StartedProcess) => owner.write('close\n')],
  ])('when it %s', async (_, end) => {
    const { owner, folder, pids } = await startOwner();
    expect(existsSync(folder) && pids.every(isRunning)).toBe(true);
    end(owner);
    await owner.exit;
    await until('the folder is gone', () => !existsSync(folder));
    expect(pids.filter(isRunning)).toEqual([]);
  });
});

test('what a dead owner and its dead guardian left is swept by the next start, a living owner is left alone', async () => {
  const left = mkdtempSync(join(tmpdir(), `${FOLDER_PREFIX}test-`));
  const orphan = spawn('sleep', ['1000'], { env: { ...process.env, [MARK]: left }, stdio: 'ignore' });
  recordOwner(left);
  const record = JSON.parse(readFileSync(join(left, 'owner.json'), 'utf8'));
  writeFileSync(join(left, 'owner.json'), JSON.stringify({ ...record, birthMark: 'born another time' }));
  const living = openServiceFolder('test');

  const swept = await sweepLeftovers();

  expect(swept).toContain(left);
  expect(swept).not.toContain(living.path);
  expect(existsSync(left)).toBe(false);
  await until('the orphan is gone', () => orphan.exitCode !== null || orphan.signalCode !== null);
  expect(existsSync(living.path)).toBe(true);
  await living.close();
  expect(existsSync(living.path)).toBe(false);
});

test('cleaning a folder twice, or twice at once, is no error', async () => {
  const folder = mkdtempSync(join(tmpdir(), `${FOLDER_PREFIX}test-`));
  await Promise.all([cleanFolder(folder), cleanFolder(folder)]);
  await cleanFolder(folder);
  expect(existsSync(folder)).toBe(false);
});
