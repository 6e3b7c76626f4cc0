/**
 * Whether a published package gives a function away: then others call it whom nobody here can see. It reads manifests and
 * follows exports by syntax, from the entries that packages commonly have.
 */

import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { ts } from 'ts-morph';
import type { Sources } from './files.js';
import { parse } from './program.js';
import { nameNode, ownerOf } from './signatures.js';
import type { Fn } from './syntax.js';

const MAX_EXPORTS = 200;

export class PublicExports {
  constructor(private readonly sources: Sources) {}

  /** The entry that a published package gives it away by. */
  of(fn: Fn): string | undefined {
    const file = fn.getSourceFile();
    const name = nameNode(ownerOf(fn) ?? fn)?.text;
    let folder = dirname(file.fileName);
    while (folder.length > this.sources.root.length && !existsSync(join(folder, 'package.json')))
      folder = dirname(folder);
    const manifest = join(folder, 'package.json');
    if (name === undefined || !existsSync(manifest)) return undefined;
    if (!isPublished(readFileSync(manifest, 'utf8'))) return undefined;
    const entry = [
      'src/index.ts',
      'src/index.mts',
      'src/index.js',
      'index.ts',
      'index.mts',
      'index.js',
      'index.cjs',
    ]
      .map((path) => this.relative(join(folder, path)))
      .find((path) => this.sources.files.has(path));
    if (entry === undefined) return undefined;
    return this.gives(entry, this.relative(file.fileName), name, new Set()) ? entry : undefined;
  }

  private gives(entry: string, file: string, name: string, seen: Set<string>): boolean {
    if (entry === file) return true;
    if (seen.has(entry) || seen.size > MAX_EXPORTS) return false;
    seen.add(entry);
    const text = this.sources.files.get(entry)?.text;
    const parsed = text === undefined ? undefined : parse(entry, text);
    for (const statement of parsed?.statements ?? []) {
      if (!ts.isExportDeclaration(statement) && !ts.isImportDeclaration(statement)) continue;
      const specifier = statement.moduleSpecifier;
      const target =
        specifier !== undefined && ts.isStringLiteral(specifier)
          ? this.fileOf(entry, specifier.text)
          : undefined;
      if (target === undefined) continue;
      const clause = ts.isExportDeclaration(statement) ? statement.exportClause : undefined;
      const named =
        clause === undefined || ts.isNamespaceExport(clause)
          ? ts.isExportDeclaration(statement)
          : clause.elements.some((e) => (e.propertyName ?? e.name).text === name);
      if (named && this.gives(target, file, name, seen)) return true;
    }
    return false;
  }

  private fileOf(from: string, specifier: string): string | undefined {
    if (!specifier.startsWith('.')) return undefined;
    const base = join(dirname(from), specifier).replaceAll('\\', '/');
    const stem = base.replace(/\.[cm]?js$/, '');
    const paths = [
      base,
      `${stem}.ts`,
      `${stem}.tsx`,
      `${stem}.mts`,
      `${stem}.js`,
      `${base}/index.ts`,
      `${base}/index.js`,
    ];
    return paths.find((path) => this.sources.files.has(path));
  }

  private relative(path: string): string {
    return path.slice(this.sources.root.length + 1).replaceAll('\\', '/');
  }
}

/** `main`, `exports` or `types`, and not private: others may install it. */
function isPublished(text: string): boolean {
  try {
    const manifest = JSON.parse(text) as Record<string, unknown>;
    const entries = ['main', 'module', 'exports', 'types', 'typings'];
    return manifest['private'] !== true && entries.some((key) => manifest[key] !== undefined);
  } catch {
    return false;
  }
}
