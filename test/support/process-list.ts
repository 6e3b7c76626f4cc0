/**
 * What the operating system says about running processes: who is whose child, who carries our mark in its
 * environment, and whether a pid is still the process we once knew. Linux is read from /proc (a slim image has no
 * `ps`), other systems through `ps`. It refuses to know which servers these processes are.
 */
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

export interface RunningProcess {
  readonly pid: number;
  readonly parentPid: number;
}

const onLinux = process.platform === 'linux';

/** The fields of /proc/<pid>/stat after the command name, which may itself hold spaces and parentheses. */
function statFields(pid: number): string[] | null {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1');
    return text.slice(text.lastIndexOf(')') + 2).split(' ');
  } catch {
    return null;
  }
}

/**
 * True for a zombie (in a container pid 1 may never collect it). One whose main thread alone has ended is not yet one:
 * its other threads hold the sockets open, and a connection to a server just killed was taken, then reset.
 */
function hasEnded(fields: readonly string[]): boolean {
  return fields[0] === 'Z' && Number(fields[17]) <= 1;
}

/** Every process that still runs. */
export function listProcesses(): RunningProcess[] {
  if (!onLinux) {
    return execFileSync('ps', ['-A', '-o', 'pid=,ppid='], { encoding: 'utf8' })
      .trim()
      .split('\n')
      .map((line) => line.trim().split(/\s+/))
      .map(([pid, parent]) => ({ pid: Number(pid), parentPid: Number(parent) }));
  }
  const found: RunningProcess[] = [];
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    const fields = statFields(Number(name));
    if (fields && !hasEnded(fields)) found.push({ pid: Number(name), parentPid: Number(fields[1]) });
  }
  return found;
}

export function isRunning(pid: number): boolean {
  if (onLinux) {
    const fields = statFields(pid);
    return fields !== null && !hasEnded(fields);
  }
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** What tells a process from a later one with the same pid; null when it does not run. */
export function birthMark(pid: number): string | null {
  if (!isRunning(pid)) return null;
  if (onLinux) return statFields(pid)?.[19] ?? null;
  try {
    return execFileSync('ps', ['-o', 'lstart=', '-p', String(pid)], { encoding: 'utf8' }).trim() || null;
  } catch {
    return null;
  }
}

/** True when the process was started with `entry` (`NAME=value`) in its environment and we may read it. */
export function hasEnvironment(pid: number, entry: string): boolean {
  try {
    if (onLinux) return readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0').includes(entry);
    const shown = execFileSync('ps', ['-E', '-ww', '-o', 'command=', '-p', String(pid)], {
      encoding: 'utf8',
    });
    return shown.split(/\s+/).includes(entry);
  } catch {
    return false;
  }
}

/** `roots` and everything below them, parents first. `leaveAlone` cuts a branch off. */
export function withDescendants(
  roots: readonly number[],
  leaveAlone: (pid: number) => boolean = () => false,
): number[] {
  const children = new Map<number, number[]>();
  for (const { pid, parentPid } of listProcesses()) {
    children.set(parentPid, [...(children.get(parentPid) ?? []), pid]);
  }
  const found = new Set<number>();
  const visit = (pid: number): void => {
    if (found.has(pid) || leaveAlone(pid)) return;
    found.add(pid);
    for (const child of children.get(pid) ?? []) visit(child);
  };
  for (const root of roots) visit(root);
  return [...found];
}

/** Sends a signal to each; a process that is gone already is no error. */
export function signalEach(pids: readonly number[], signal: NodeJS.Signals): void {
  for (const pid of pids) {
    try {
      process.kill(pid, signal);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
  }
}

/** Resolves to true when all are gone, to false when `withinMs` passed first. */
export async function waitUntilGone(pids: readonly number[], withinMs: number): Promise<boolean> {
  const deadline = Date.now() + withinMs;
  while (pids.some(isRunning)) {
    if (Date.now() > deadline) return false;
    await sleep(10);
  }
  return true;
}
