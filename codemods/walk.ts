/**
 * Which files of the caller's repository are sources. It walks the tree without following links, names what it leaves
 * out and stops where this can be no repository any more. It reads no file.
 */

import { execFileSync } from 'node:child_process';
import { existsSync, lstatSync, readdirSync, realpathSync, statSync } from 'node:fs';
import { homedir } from 'node:os';
import { join, sep } from 'node:path';
import { EXIT, UnbrokerError } from '../src/errors.js';

export type SkipReason =
  | 'link'
  | 'compiled'
  | 'too-large'
  | 'not-utf8'
  | 'unreadable'
  | 'nested-too-deep'
  | 'syntax-error';

export interface Skipped {
  /** Relative to the root, with `/`. */
  readonly path: string;
  readonly reason: SkipReason;
  readonly detail: string;
}

/** A file to be read. */
export interface SourcePath {
  /** Relative to the root, with `/`. */
  readonly path: string;
  readonly absolute: string;
}

export type Found = SourcePath | Skipped;

export interface WalkLimits {
  /** Larger files are named, and left out. */
  readonly maxBytes: number;
  readonly maxFiles: number;
  readonly maxEntriesPerFile: number;
}

const SOURCE_NAME = /\.[cm]?[jt]sx?$/;
const DECLARATION_NAME = /\.d\.[cm]?ts$/;
const NEVER_ENTERED = new Set(['node_modules', '.git', '.hg', '.svn', 'dist', 'build', 'coverage']);

/** In the order of the tree. Throws `not-a-repository` and `too-many-files`. */
export function sourcesIn(
  root: string,
  limits: WalkLimits,
  progress: (step: string) => void,
): readonly Found[] {
  refuseWide(root);
  const walk = new Walk(root, ignoredByGit(root), limits, progress);
  walk.directory('');
  return walk.found;
}

/** Who starts in `/` or at home is in the wrong place, unless a repository was made of it. */
export function refuseWide(root: string): void {
  const isWide = root === sep || root === realHome();
  if (!isWide || ['.git', 'package.json'].some((name) => existsSync(join(root, name)))) return;
  throw new UnbrokerError('not-a-repository', `${root} is no repository; nothing was read`, {
    hint: 'Change to the repository, or name it with --root',
    exitStatus: EXIT.badInput,
  });
}

function realHome(): string | undefined {
  try {
    return realpathSync(homedir());
  } catch {
    return undefined;
  }
}

/** Paths that git ignores, directories with a trailing slash; empty when this is no git work tree. */
function ignoredByGit(root: string): ReadonlySet<string> {
  try {
    const args = ['ls-files', '--others', '--ignored', '--exclude-standard', '--directory', '-z'];
    // fsmonitor is a program named by the repository's own configuration: never start it.
    const out = execFileSync('git', ['-c', 'core.fsmonitor=false', '-C', root, ...args], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
      maxBuffer: 64 * 1024 * 1024,
      env: { ...process.env, GIT_OPTIONAL_LOCKS: '0' },
    });
    return new Set(out.split('\0').filter((p) => p !== '' && p !== './'));
  } catch {
    return new Set();
  }
}

class Walk {
  readonly found: Found[] = [];
  private files = 0;
  private entries = 0;

  constructor(
    private readonly root: string,
    private readonly ignored: ReadonlySet<string>,
    private readonly limits: WalkLimits,
    private readonly progress: (step: string) => void,
  ) {}

  directory(dir: string): void {
    let names: string[];
    try {
      names = readdirSync(join(this.root, dir)).sort();
    } catch (error) {
      this.skip(dir, 'unreadable', errorCode(error));
      return;
    }
    const known = new Set(names);
    for (const name of names) {
      const path = dir === '' ? name : `${dir}/${name}`;
      const source = sourceBeside(name, known);
      if (source === undefined) this.entry(path, name);
      else this.skip(path, 'compiled', `made from ${source} beside it`);
    }
  }

  private entry(path: string, name: string): void {
    this.looked(path);
    if (NEVER_ENTERED.has(name) || this.ignored.has(path) || this.ignored.has(`${path}/`)) return;
    const absolute = join(this.root, path);
    const stats = lstatSync(absolute, { throwIfNoEntry: false });
    if (stats === undefined) return;
    if (stats.isSymbolicLink()) {
      if (SOURCE_NAME.test(name) || isDirectory(absolute))
        this.skip(path, 'link', linkDetail(this.root, absolute));
      return;
    }
    if (stats.isDirectory()) {
      this.directory(path);
      return;
    }
    if (!SOURCE_NAME.test(name) || DECLARATION_NAME.test(name)) return;
    // A fifo or a device would block the read.
    if (!stats.isFile()) {
      this.skip(path, 'unreadable', 'not a regular file');
      return;
    }
    if (stats.size > this.limits.maxBytes) {
      this.skip(path, 'too-large', `${stats.size} bytes`);
      return;
    }
    this.files++;
    this.bounded();
    this.found.push({ path, absolute });
  }

  private skip(path: string, reason: SkipReason, detail: string): void {
    this.found.push({ path: path === '' ? '.' : path, reason, detail });
  }

  /** Entries count, too: a disk of pictures has few sources. */
  private looked(path: string): void {
    this.entries++;
    if (this.entries % 10_000 === 0)
      this.progress(
        `Looked at ${this.entries} files and directories, ${this.files} of them sources (${path})`,
      );
    this.bounded();
  }

  private bounded(): void {
    const { maxFiles, maxEntriesPerFile } = this.limits;
    const what =
      this.files > maxFiles
        ? `${maxFiles} source files`
        : this.entries > maxFiles * maxEntriesPerFile
          ? `${maxFiles * maxEntriesPerFile} files and directories`
          : undefined;
    if (what === undefined) return;
    throw new UnbrokerError('too-many-files', `${this.root} holds more than ${what}; none was read`, {
      hint: 'Name one repository with --root, or give a larger --max-files',
      exitStatus: EXIT.badInput,
    });
  }
}

/** `a.ts` for an `a.js` that lies beside it together with its declarations: a compiler's output. */
function sourceBeside(name: string, names: ReadonlySet<string>): string | undefined {
  const stem = /^(.+)\.jsx?$/.exec(name)?.[1];
  if (stem === undefined || !names.has(`${stem}.d.ts`)) return undefined;
  return [`${stem}.ts`, `${stem}.tsx`].find((source) => names.has(source));
}

function isDirectory(path: string): boolean {
  try {
    return statSync(path).isDirectory();
  } catch {
    return false;
  }
}

function linkDetail(root: string, absolute: string): string {
  try {
    const target = realpathSync(absolute);
    return target.startsWith(root + sep)
      ? 'a link inside the repository'
      : 'a link that leaves the repository';
  } catch {
    return 'a link to nothing';
  }
}

export function errorCode(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : 'cannot be read';
}
