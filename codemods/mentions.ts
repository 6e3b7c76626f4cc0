/**
 * Where each name stands in the program's files, and which files that are not in it have it as a word. Every function that
 * is followed to its callers asks, so both are looked up, not searched. It resolves nothing: a name is not yet a function.
 */

import { ts } from 'ts-morph';
import type { Sources } from './files.js';
import type { Analysis } from './program.js';
import { eachNode } from './syntax.js';

/** A name, or `bus['publish']` under the name in the brackets. */
export type Mention = ts.Identifier | ts.PrivateIdentifier | ts.ElementAccessExpression;

export class Mentions {
  private index: ReadonlyMap<string, ReadonlyMap<ts.SourceFile, readonly Mention[]>> | undefined;
  private unread: readonly (readonly [path: string, text: string])[] | undefined;
  private own: readonly ts.SourceFile[] | undefined;

  constructor(
    private readonly analysis: Analysis,
    private readonly sources: Sources,
  ) {}

  /** The program's own files, tests left out. */
  get files(): readonly ts.SourceFile[] {
    this.own ??= this.analysis.own.filter((file) => !this.analysis.isTest(file));
    return this.own;
  }

  has(name: string, file: ts.SourceFile): boolean {
    return this.named(name)?.has(file) === true;
  }

  /** In source order. */
  of(names: ReadonlySet<string>, file: ts.SourceFile): readonly Mention[] {
    const found = [...names].flatMap((name) => this.named(name)?.get(file) ?? []);
    return names.size > 1 ? found.sort((a, b) => a.getStart() - b.getStart()) : found;
  }

  /** Files that the program does not hold and that have the name as a word, tests left out. */
  beyond(name: string): readonly string[] {
    this.unread ??= this.filesBeyond();
    const word = new RegExp(`(?<![\\w$])${name.replace(/[$#]/g, '\\$&')}(?![\\w$])`);
    return this.unread.filter(([, text]) => text.includes(name) && word.test(text)).map(([path]) => path);
  }

  private filesBeyond(): [path: string, text: string][] {
    const own = new Set(this.analysis.own.map((file) => this.analysis.pathOf(file)));
    return [...this.sources.files.values()].flatMap(({ path, text }): [string, string][] =>
      own.has(path) || this.sources.isTest(path) ? [] : [[path, text]],
    );
  }

  private named(name: string): ReadonlyMap<ts.SourceFile, readonly Mention[]> | undefined {
    this.index ??= indexOf(this.files);
    return this.index.get(name);
  }
}

function indexOf(files: readonly ts.SourceFile[]): Map<string, Map<ts.SourceFile, Mention[]>> {
  const index = new Map<string, Map<ts.SourceFile, Mention[]>>();
  for (const file of files) {
    eachNode(file, (node) => {
      const name = nameOf(node);
      if (name === undefined) return;
      const places = index.get(name) ?? new Map<ts.SourceFile, Mention[]>();
      index.set(name, places);
      const list = places.get(file);
      if (list === undefined) places.set(file, [node as Mention]);
      else list.push(node as Mention);
    });
  }
  return index;
}

function nameOf(node: ts.Node): string | undefined {
  if (ts.isIdentifier(node) || ts.isPrivateIdentifier(node)) return node.text;
  return ts.isElementAccessExpression(node) && ts.isStringLiteralLike(node.argumentExpression)
    ? node.argumentExpression.text
    : undefined;
}
