/**
 * Service folders on disk: who owns one, and how one is cleaned when its owner is gone. A process belongs to a folder
 * when it was started with the folder's mark in its environment, so nothing has to be written down between starting a
 * server and losing its owner. It refuses to know what the servers are; they are killed, their data is thrown away.
 */
import { readdirSync, readFileSync, readlinkSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  birthMark,
  hasEnvironment,
  listProcesses,
  signalEach,
  waitUntilGone,
  withDescendants,
} from './process-list.js';

export const FOLDER_PREFIX = 'unbroker-services-';
/** Environment variable that ties a server, and whatever it starts, to its folder. */
export const MARK = 'UNBROKER_TEST_FOLDER';
/** Environment variable of a guardian: it must outlive the process that it watches, never die with it. */
export const GUARDIAN_MARK = 'UNBROKER_TEST_GUARDIAN';

/** File in a folder that its guardian has begun to watch: the guardian's pid. */
export const GUARDED = 'guarded';

/** A folder without an owner record is taken for a leftover only after this long: it may just have been made. */
const UNOWNED_GRACE_MS = 60_000;
const GONE_WITHIN_MS = 10_000;

interface Owner {
  readonly pid: number;
  readonly birthMark: string | null;
  readonly namespace: string;
}

/** Which pids we see. Two containers may share a temporary folder, and each sees the other's processes as dead. */
function pidNamespace(): string {
  try {
    return `${hostname()} ${readlinkSync('/proc/self/ns/pid')}`;
  } catch {
    return hostname();
  }
}

export function recordOwner(folder: string): void {
  const owner: Owner = { pid: process.pid, birthMark: birthMark(process.pid), namespace: pidNamespace() };
  writeFileSync(join(folder, 'owner.json'), JSON.stringify(owner));
}

function hasLivingOwner(folder: string): boolean {
  try {
    const owner = JSON.parse(readFileSync(join(folder, 'owner.json'), 'utf8')) as Owner;
    if (owner.namespace !== pidNamespace()) return true;
    return owner.birthMark !== null && birthMark(owner.pid) === owner.birthMark;
  } catch {
    return Date.now() - statSync(folder).mtimeMs < UNOWNED_GRACE_MS;
  }
}

/** Pids of everything that runs out of this folder. Postgres rewrites its children's environment, so they are found as children. */
export function processesOf(folder: string): number[] {
  const marked = listProcesses()
    .map(({ pid }) => pid)
    .filter((pid) => pid !== process.pid && hasEnvironment(pid, `${MARK}=${folder}`));
  return withDescendants(marked, (pid) => pid === process.pid || hasEnvironment(pid, `${GUARDIAN_MARK}=1`));
}

/** Kills what runs out of the folder and removes it. Safe to run twice, and by two at once. */
export async function cleanFolder(folder: string): Promise<void> {
  const deadline = Date.now() + GONE_WITHIN_MS;
  for (let pids = processesOf(folder); pids.length > 0; pids = processesOf(folder)) {
    signalEach(pids, 'SIGKILL');
    await waitUntilGone(pids, GONE_WITHIN_MS);
    if (Date.now() > deadline) break;
  }
  rmSync(folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
}

/** Cleans the folders whose owners died together with their guardians (a killed container, a killed session). */
export async function sweepLeftovers(): Promise<string[]> {
  const swept: string[] = [];
  for (const name of readdirSync(tmpdir())) {
    if (!name.startsWith(FOLDER_PREFIX)) continue;
    const folder = join(tmpdir(), name);
    try {
      const mine = statSync(folder).uid === process.getuid?.();
      if (!mine || hasLivingOwner(folder)) continue;
      await cleanFolder(folder);
      swept.push(folder);
    } catch {
      // Another sweeper was faster, or a process in it is not ours to kill: the next start looks again.
    }
  }
  return swept;
}
