/**
 * The text of the caller's repository: reads what is plain UTF-8 and not absurdly nested, and names everything that it
 * leaves out. Which paths there are says walk.ts; what is in the text it refuses to know.
 */

import { createHash } from 'node:crypto';
import { readFileSync, realpathSync, statSync } from 'node:fs';
import { isAbsolute, relative, resolve, sep } from 'node:path';
import { EXIT, UnbrokerError } from '../src/errors.js';
import { errorCode, type Found, type Skipped, type SourcePath, sourcesIn } from './walk.js';

export const FILE_LIMITS = {
  /** Larger files are data or bundles; each is named in the report. */
  maxBytes: 1_048_576,
  /** Open brackets at one place. The parser recurses: 10,000 overflow its stack, 1,000 are far from that. */
  maxNesting: 1_000,
  /** Source files of one repository, unless the options say otherwise. The largest that were met have 4,000. */
  maxFiles: 20_000,
  /** Entries of directories that are looked at, for each source file that is allowed. */
  maxEntriesPerFile: 50,
} as const;

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

export function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

/** Told now and then what a long run is at. */
export type Progress = (step: string) => void;

export interface ReadOptions {
  /** Default 20,000. */
  readonly maxFiles?: number;
  readonly progress?: Progress;
}

/**
 * Reads the sources under `root`. `paths` (relative to root or absolute, inside it) select what is reported and
 * edited; the whole root is read all the same, since wrappers live elsewhere.
 * Throws `path-not-found`, `path-outside`, `not-a-repository` and `too-many-files`, the last two before a file is read.
 */
export function readSources(
  root: string,
  paths: readonly string[],
  { maxFiles = FILE_LIMITS.maxFiles, progress = () => undefined }: ReadOptions = {},
): Sources {
  const { root: real, wanted } = checkedPaths(root, paths);
  return {
    root: real,
    ...readAll(sourcesIn(real, { ...FILE_LIMITS, maxFiles }, progress), progress),
    selected: (path) => wanted.length === 0 || wanted.some((w) => isUnder(path, w)),
    isTest: (path) => {
      const asked = wanted.find((w) => isUnder(path, w));
      return TEST_PATH.test(asked === undefined || asked === path ? path : path.slice(asked.length));
    },
  };
}

/** The real root, and the paths relative to it. Throws `path-not-found` and `path-outside`. */
export function checkedPaths(
  root: string,
  paths: readonly string[],
): { readonly root: string; readonly wanted: readonly string[] } {
  const real = realDirectory(root);
  return { root: real, wanted: paths.map((path) => insideRoot(real, path)) };
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

function readAll(found: readonly Found[], progress: Progress): Pick<Sources, 'files' | 'skipped'> {
  const files = new Map<string, SourceText>();
  const skipped: Skipped[] = [];
  for (const [index, entry] of found.entries()) {
    const read = 'reason' in entry ? entry : readOne(entry);
    if ('reason' in read) skipped.push(read);
    else files.set(read.path, read);
    if (index % 1_000 === 999) progress(`Read ${index + 1} of ${found.length} files`);
  }
  return { files, skipped };
}

function readOne({ path, absolute }: SourcePath): SourceText | Skipped {
  let bytes: Buffer;
  try {
    bytes = readFileSync(absolute);
  } catch (error) {
    return { path, reason: 'unreadable', detail: errorCode(error) };
  }
  const decoded = decode(bytes);
  if (decoded === undefined) return { path, reason: 'not-utf8', detail: 'the bytes are not plain UTF-8' };
  const depth = bracketDepth(decoded.text);
  if (depth > FILE_LIMITS.maxNesting)
    return { path, reason: 'nested-too-deep', detail: `${depth} open brackets` };
  return { path, absolute, ...decoded, hash: sha256(bytes) };
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
