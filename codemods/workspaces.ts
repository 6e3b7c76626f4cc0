/**
 * Packages of the repository's own (workspaces): a name in an import leads to their sources, whether they are built,
 * installed or neither. It reads package.json files and nothing else.
 */

import { readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { packageOfSpecifier } from './packages.js';

const MAX_MANIFEST_BYTES = 1_048_576;
const EXTENSIONS = ['.ts', '.tsx', '.mts', '.cts', '.js', '.jsx', '.mjs', '.cjs'];
/** Folders that builds write to; sources lie beside them under `src` or at the top. */
const BUILT = /^(?:dist|build|lib|out|esm|cjs)\//;

interface Manifest {
  readonly name?: unknown;
  readonly source?: unknown;
  readonly main?: unknown;
  readonly module?: unknown;
  readonly types?: unknown;
  readonly exports?: unknown;
}

interface Workspace {
  readonly folder: string;
  readonly manifest: Manifest;
}

export class Workspaces {
  private readonly byName = new Map<string, Workspace>();

  /** `files`: the sources' paths, relative to `root`, with `/`. */
  constructor(
    root: string,
    private readonly files: ReadonlyMap<string, unknown>,
  ) {
    const folders = new Set<string>();
    for (const path of files.keys()) {
      for (let folder = dirname(path); !folders.has(folder); folder = dirname(folder)) folders.add(folder);
    }
    for (const folder of folders) {
      const manifest = readManifest(join(root, folder, 'package.json'));
      const name = manifest?.name;
      if (manifest !== undefined && typeof name === 'string' && !this.byName.has(name))
        this.byName.set(name, { folder: folder === '.' ? '' : folder, manifest });
    }
  }

  /** The source file, relative to the root, that an import of one of the repository's packages means. */
  resolve(specifier: string): string | undefined {
    const name = packageOfSpecifier(specifier);
    const workspace = name === undefined ? undefined : this.byName.get(name);
    if (name === undefined || workspace === undefined) return undefined;
    const sub = specifier.slice(name.length + 1);
    for (const target of targets(workspace.manifest, sub)) {
      const found = this.source(workspace.folder, target);
      if (found !== undefined) return found;
    }
    return undefined;
  }

  private source(folder: string, target: string): string | undefined {
    const bare = target.replace(/^\.\//, '').replace(/(?:\.d)?\.[cm]?[jt]sx?$/, '');
    const inside = bare.replace(BUILT, '');
    const stems = inside === bare ? [bare, `src/${bare}`] : [`src/${inside}`, inside, bare];
    for (const stem of stems.flatMap((s) => (s === '' ? ['index'] : [s, `${s}/index`]))) {
      for (const extension of EXTENSIONS) {
        const path = (folder === '' ? '' : `${folder}/`) + stem + extension;
        if (this.files.has(path)) return path;
      }
    }
    return undefined;
  }
}

/** What the manifest says the import means, surest first, then the usual places. */
function targets(manifest: Manifest, sub: string): string[] {
  const named = exported(manifest.exports, sub === '' ? '.' : `./${sub}`);
  const main = sub === '' ? [manifest.source, manifest.types, manifest.module, manifest.main] : [];
  const usual = sub === '' ? ['src/index', 'index'] : [sub, `src/${sub}`];
  return [...named, ...main, ...usual].filter((t): t is string => typeof t === 'string');
}

/** Every file that an entry of `exports` names; `*` stands for one piece of the path. */
function exported(exports: unknown, key: string): string[] {
  if (typeof exports === 'string') return key === '.' ? [exports] : [];
  if (typeof exports !== 'object' || exports === null) return [];
  const entries = Object.entries(exports);
  const hasPaths = entries.some(([k]) => k.startsWith('.'));
  if (!hasPaths) return key === '.' ? texts(exports) : [];
  return entries.flatMap(([pattern, value]) => {
    if (pattern === key) return texts(value);
    const [before = '', after] = pattern.split('*');
    if (after === undefined || !key.startsWith(before) || !key.endsWith(after)) return [];
    const star = key.slice(before.length, key.length - after.length);
    return texts(value).map((text) => text.replaceAll('*', star));
  });
}

function texts(value: unknown): string[] {
  if (typeof value === 'string') return [value];
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap(texts) : [];
}

function readManifest(path: string): Manifest | undefined {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (stats === undefined || !stats.isFile() || stats.size > MAX_MANIFEST_BYTES) return undefined;
  try {
    const value: unknown = JSON.parse(readFileSync(path, 'utf8'));
    return typeof value === 'object' && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}
