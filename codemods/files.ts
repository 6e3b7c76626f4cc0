/**
 * Which files of the caller's repository are looked at, and their text. It walks the tree without following links,
 * reads what is small, plain UTF-8 and not absurdly nested, and names everything it leaves out. It refuses to know
 * what is in the text.
 */

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { lstatSync, readdirSync, readFileSync, realpathSync, statSync } from 'node:fs';
import { isAbsolute, join, relative, resolve, sep } from 'node:path';
import { EXIT, UnbrokerError } from '../src/errors.js';

export const FILE_LIMITS = {
  /** Larger files are data or bundles; each is named in the report. */
  maxBytes: 1_048_576,
  /** Open brackets at one place. The parser recurses: 10,000 overflow its stack, 1,000 are far from that. */
  maxNesting: 1_000,
  maxFiles: 100_000,
} as const;

export type SkipReason =
  | 'link'
  | 'compiled'
  | 'too-large'
  | 'not-utf8'
  | 'unreadable'
  | 'nested-too-deep'
  | 'syntax-error'
  | 'too-many-files';

export interface Skipped {
  /** Relative to the root, with `/`. */
  readonly path: string;
  readonly reason: SkipReason;
  readonly detail: string;
}

export interface SourceText {
  /** Relative to the root, with `/`. */
  readonly path: string;
  readonly absolute: string;
  /** Without the byte order mark. */
  readonly text: string;
  readonly bom: boolean;
  /** SHA-256 of the bytes on disk, hex. */
  readonly hash: string;
}

export interface Sources {
  /** The real path of the root. */
  readonly root: string;
  readonly files: ReadonlyMap<string, SourceText>;
  readonly skipped: readonly Skipped[];
  /** Whether a file (relative path) lies under one of the paths that were asked for. */
  readonly selected: (path: string) => boolean;
  /** Whether a file is a test or double; who asks for a path under `test/` means what is in it. */
  readonly isTest: (path: string) => boolean;
}

const SOURCE_NAME = /\.[cm]?[jt]sx?$/;
const DECLARATION_NAME = /\.d\.[cm]?ts$/;
const NEVER_ENTERED = new Set(['node_modules', '.git', '.hg', '.svn', 'dist', 'build', 'coverage']);

export function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

/**
 * Reads the sources under `root`. `paths` (relative to root or absolute, inside it) select what is reported and
 * edited; the whole root is read all the same, since wrappers live elsewhere.
 */
export function readSources(root: string, paths: readonly string[]): Sources {
  const real = realDirectory(root);
  const wanted = paths.map((path) => insideRoot(real, path));
  const walk = new Walk(real, ignoredByGit(real));
  walk.directory('');
  return {
    root: real,
    files: walk.files,
    skipped: walk.skipped,
    selected: (path) => wanted.length === 0 || wanted.some((w) => isUnder(path, w)),
    isTest: (path) => {
      const asked = wanted.find((w) => isUnder(path, w));
      return TEST_PATH.test(asked === undefined || asked === path ? path : path.slice(asked.length));
    },
  };
}

const TEST_PATH =
  /(?:^|\/)(?:tests?|__tests__|__mocks__|mocks|fixtures)\/|\.(?:[\w-]+-)?(?:test|spec|mock)\.[cm]?[jt]sx?$/;

function isUnder(path: string, folder: string): boolean {
  return folder === '' || path === folder || path.startsWith(`${folder}/`);
}

function realDirectory(root: string): string {
  try {
    const real = realpathSync(root);
    if (statSync(real).isDirectory()) return real;
  } catch {
    // Falls through to the one error for "not there" and "not a directory".
  }
  throw new UnbrokerError('path-not-found', `No directory ${root}`, {
    hint: 'Name a directory that exists',
    exitStatus: EXIT.badInput,
  });
}

function insideRoot(root: string, path: string): string {
  let real: string;
  try {
    real = realpathSync(resolve(root, path));
  } catch (cause) {
    throw new UnbrokerError('path-not-found', `No such path: ${path}`, {
      hint: 'Name a file or directory that exists',
      exitStatus: EXIT.badInput,
      cause,
    });
  }
  const rel = relative(root, real);
  if (rel === '..' || rel.startsWith(`..${sep}`) || isAbsolute(rel)) {
    throw new UnbrokerError('path-outside', `${path} is outside ${root}`, {
      hint: 'Run the command in the repository that holds the path',
      exitStatus: EXIT.badInput,
    });
  }
  return rel.split(sep).join('/');
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
  readonly files = new Map<string, SourceText>();
  readonly skipped: Skipped[] = [];
  private full = false;

  constructor(
    private readonly root: string,
    private readonly ignored: ReadonlySet<string>,
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
    if (stats.size > FILE_LIMITS.maxBytes) {
      this.skip(path, 'too-large', `${stats.size} bytes`);
      return;
    }
    if (this.files.size >= FILE_LIMITS.maxFiles) {
      this.tooMany(path);
      return;
    }
    this.read(path, absolute);
  }

  private read(path: string, absolute: string): void {
    let bytes: Buffer;
    try {
      bytes = readFileSync(absolute);
    } catch (error) {
      this.skip(path, 'unreadable', errorCode(error));
      return;
    }
    const decoded = decode(bytes);
    if (decoded === undefined) {
      this.skip(path, 'not-utf8', 'the bytes are not plain UTF-8');
      return;
    }
    const depth = bracketDepth(decoded.text);
    if (depth > FILE_LIMITS.maxNesting) {
      this.skip(path, 'nested-too-deep', `${depth} open brackets`);
      return;
    }
    this.files.set(path, { path, absolute, ...decoded, hash: sha256(bytes) });
  }

  private tooMany(path: string): void {
    if (!this.full)
      this.skip(path, 'too-many-files', `more than ${FILE_LIMITS.maxFiles} files; this and later ones`);
    this.full = true;
  }

  private skip(path: string, reason: SkipReason, detail: string): void {
    this.skipped.push({ path: path === '' ? '.' : path, reason, detail });
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

function errorCode(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : 'cannot be read';
}

/** UTF-8 or nothing. A NUL means UTF-16 without a mark, or no text at all. */
export function decode(bytes: Uint8Array): { readonly text: string; readonly bom: boolean } | undefined {
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    if (text.includes('\0')) return undefined;
    return text.startsWith('\uFEFF') ? { text: text.slice(1), bom: true } : { text, bom: false };
  } catch {
    return undefined;
  }
}

/** Most brackets open at one place, counted in raw text: strings count too, which only makes it stricter. */
export function bracketDepth(text: string): number {
  let depth = 0;
  let most = 0;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c === 40 || c === 91 || c === 123) {
      depth++;
      if (depth > most) most = depth;
    } else if ((c === 41 || c === 93 || c === 125) && depth > 0) depth--;
  }
  return most;
}
