/**
 * Small facts about the machine that the service starter needs: accounts, programs in PATH, and the one line it may
 * print while it works.
 */
import { execFileSync } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';

export interface Account {
  readonly uid: number;
  readonly gid: number;
}

export const isRoot = (): boolean => process.getuid?.() === 0;

function accountOf(name: string): Account | null {
  try {
    const id = (flag: string) =>
      Number(execFileSync('id', [flag, name], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }));
    return { uid: id('-u'), gid: id('-g') };
  } catch {
    return null;
  }
}

/**
 * Whom a server runs as that refuses to run as root: the account of its own name, else `nobody`, which every Unix
 * has, so that no account has to be made. Undefined when we are not root and nothing has to change.
 */
export function unprivilegedAccount(preferred: string): Account | undefined {
  if (!isRoot()) return undefined;
  const account = accountOf(preferred) ?? accountOf('nobody');
  if (account === null)
    throw new Error(`running as root, and neither ${preferred} nor nobody is an account here`);
  return account;
}

export function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** The folders in PATH that hold an executable of this name, in order. */
export function foldersWith(program: string): string[] {
  return (process.env['PATH'] ?? '')
    .split(delimiter)
    .filter((folder) => folder !== '' && isExecutable(join(folder, program)));
}

/** To stderr: standard output belongs to the program that uses the services. */
export function say(line: string): void {
  process.stderr.write(`[services] ${line}\n`);
}
