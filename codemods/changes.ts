/**
 * The new text of each file, out of verdicts that are final. What would not parse, or would overlap, is taken back
 * and its sites are refused.
 */

import type { ts } from 'ts-morph';
import { syntaxErrors } from './analyse.js';
import { applyEdits, indentAt, indentableLines, layoutOf, lineStart, type TextEdit } from './edits.js';
import type { Sources } from './files.js';
import { type Analysis, parse } from './program.js';
import { NO_SEAM } from './reasons.js';
import { type Passing, type Rewrite, type Rewritten, rewriteFile } from './rewrite.js';
import type { ReadSite, SiteReader } from './site.js';
import { fileWork, refuseBrokenThreads } from './thread-work.js';
import { decide } from './verdict.js';

/** A site while verdicts may still change: one refused neighbour spoils a common transaction. */
export interface OpenSite {
  read: ReadSite;
  readonly reach: 'safe' | 'wrap' | 'thread' | null;
}

/** The new text of one file, with the hash of what was scanned. */
export interface FileChange {
  readonly path: string;
  readonly absolute: string;
  /** SHA-256 of the bytes that were read; null: there must be no such file. */
  readonly hash: string | null;
  readonly bom: boolean;
  readonly before: string;
  readonly after: string;
  readonly edits: readonly TextEdit[];
  /** What nothing reads any more and a person may remove: `channel (line 12)`. */
  readonly leftovers: readonly string[];
}

export interface ChangeOptions {
  /** Where a file's calls import `kinds` from; undefined: kinds are named by their text. */
  readonly kindsFor?: ((file: ts.SourceFile) => { readonly fileName: string } | undefined) | undefined;
  readonly inlineSql: boolean;
  readonly todo: boolean;
}

export function changesOf(
  sites: OpenSite[],
  applied: (site: OpenSite) => boolean,
  analysis: Analysis,
  reader: SiteReader,
  sources: Sources,
  options: ChangeOptions,
): FileChange[] {
  const made = editsOf(sites, applied, analysis, reader, options);
  const changes: FileChange[] = [];
  for (const file of new Set([...made.keys(), ...sites.map((s) => s.read.call.getSourceFile())])) {
    const source = sources.files.get(analysis.pathOf(file));
    if (source === undefined) continue;
    const todos = options.todo
      ? todoEdits(
          file,
          // A site that a person declined has nothing in its way, and needs no comment.
          sites.filter(
            ({ read }) =>
              read.call.getSourceFile() === file && read.rewrite === undefined && read.obstacles.length > 0,
          ),
        )
      : [];
    const all = [...(made.get(file)?.edits ?? []), ...todos];
    if (all.length === 0) continue;
    const after = applyEdits(source.text, all);
    if (after === source.text) continue;
    changes.push({
      path: source.path,
      absolute: source.absolute,
      hash: source.hash,
      bom: source.bom,
      before: source.text,
      after,
      edits: all,
      leftovers: made.get(file)?.leftovers ?? [],
    });
  }
  return changes;
}

/** A file whose edits cannot be made takes every site back that reaches into it, and theirs in other files with them. */
function editsOf(
  sites: OpenSite[],
  applied: (site: OpenSite) => boolean,
  analysis: Analysis,
  reader: SiteReader,
  options: ChangeOptions,
): ReadonlyMap<ts.SourceFile, Rewritten> {
  for (;;) {
    const made = new Map<ts.SourceFile, Rewritten>();
    const work = fileWork(sites.filter(applied));
    let spoiled = false;
    for (const [file, { rewrites, passing, by }] of work) {
      const edits = safeEdits(file, rewrites, passing, analysis, reader, options);
      if (edits !== undefined) made.set(file, edits);
      else {
        for (const site of by) spoil(site, 'its edits would overlap with another site');
        spoiled = true;
      }
    }
    if (!spoiled) return made;
    refuseBrokenThreads(sites, analysis.pathOf);
  }
}

/** The edits, unless they overlap or the result does not parse: then the file is left alone. */
function safeEdits(
  file: ts.SourceFile,
  rewrites: readonly Rewrite[],
  passing: Passing,
  analysis: Analysis,
  reader: SiteReader,
  options: ChangeOptions,
): Rewritten | undefined {
  try {
    const how = {
      inlineSql: options.inlineSql,
      isSpent: reader.isSpent,
      kinds: options.kindsFor?.(file),
    };
    const made = rewriteFile(file, rewrites, analysis.checker, how, passing);
    const parsed = parse(file.fileName, applyEdits(file.text, made.edits));
    return parsed !== undefined && syntaxErrors(parsed).length === 0 ? made : undefined;
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

function spoil(site: OpenSite, what: string): void {
  site.read = {
    ...site.read,
    rewrite: undefined,
    obstacles: [...site.read.obstacles, { code: 'transaction-unclear', what }],
  };
}

export const TODO_MARK = 'TODO(unbroker)';

/** One comment above each refused site; a site that has one keeps it. */
function todoEdits(file: ts.SourceFile, sites: readonly OpenSite[]): TextEdit[] {
  const layout = layoutOf(file);
  const edits = new Map<number, TextEdit>();
  for (const { read } of sites) {
    if (read.statement === undefined) continue;
    const start = lineStart(file.text, read.statement.getStart(file));
    const above = file.text.slice(lineStart(file.text, Math.max(0, start - 1)), start);
    const isCode = indentableLines(file, { start, end: start + 1 }).includes(start);
    if (above.includes(TODO_MARK) || !isCode || edits.has(start)) continue;
    const verdict = decide({
      reach: null,
      obstacles: read.obstacles,
      degraded: false,
      caveats: 0,
      noWriteSeen: false,
    });
    if (verdict.reason !== null && NO_SEAM.has(verdict.reason)) continue;
    const text = `${indentAt(file.text, read.statement.getStart(file))}// ${TODO_MARK} ${verdict.reason}: ${verdict.message}. ${verdict.next}.${layout.eol}`;
    edits.set(start, { start, end: start, text });
  }
  return [...edits.values()];
}
