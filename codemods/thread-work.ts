/**
 * Sites and the functions that their handles pass through, sorted by the file that has to be edited; and the rule that all
 * calls of a threaded function are rewritten, or none is.
 */

import type { ts } from 'ts-morph';
import type { Passing, Replace, Rewrite } from './rewrite.js';
import { isSpread } from './rewrite.js';
import type { ReadSite } from './site.js';
import { lineOf } from './syntax.js';
import type { Addition, InnerPublish, NewArgument, NewParameter, Threading } from './thread-shapes.js';

interface Site {
  read: ReadSite;
}

export interface FileWork<S> {
  readonly rewrites: Rewrite[];
  readonly passing: Passing & {
    readonly parameters: NewParameter[];
    readonly arguments: NewArgument[];
    readonly replacements: Threading['replacements'][number][];
    readonly additions: Addition[];
  };
  /** The sites that the edits of this file belong to. */
  readonly by: Set<S>;
}

export function fileWork<S extends Site>(sites: readonly S[]): ReadonlyMap<ts.SourceFile, FileWork<S>> {
  const work = new Map<ts.SourceFile, FileWork<S>>();
  const at = (file: ts.SourceFile, site: S): FileWork<S> => {
    const known = work.get(file) ?? {
      rewrites: [],
      passing: { parameters: [], arguments: [], replacements: [], additions: [] },
      by: new Set(),
    };
    work.set(file, known);
    known.by.add(site);
    return known;
  };
  // Two sites may ask for the same parameter, each on its own.
  const done = new Set<ts.Node>();
  const added = new Set<ts.Node>();
  const once = (node: ts.Node): boolean => !done.has(node) && done.add(node) !== undefined;
  for (const site of sites) {
    const { rewrite, call } = site.read;
    if (rewrite === undefined) continue;
    at(call.getSourceFile(), site).rewrites.push(rewrite);
    const { threading } = rewrite;
    if (threading === undefined) continue;
    for (const p of threading.parameters) {
      const { passing } = at(p.signature.getSourceFile(), site);
      if (once(p.signature)) passing.parameters.push(p);
    }
    for (const a of threading.arguments) {
      const { passing } = at(a.call.getSourceFile(), site);
      if (once(a.call)) passing.arguments.push(a);
    }
    for (const r of threading.replacements) {
      const { passing } = at(r.node.getSourceFile(), site);
      if (once(r.node)) passing.replacements.push(r);
    }
    for (const a of threading.additions) {
      const { passing } = at(a.beside.getSourceFile(), site);
      // Two functions of a class ask for the same method, each on its own.
      const place = a.what === 'export' ? a.beside : a.beside.parent;
      if (!added.has(place)) passing.additions.push(a);
      added.add(place);
    }
    for (const p of threading.publishes) {
      const { rewrites } = at(p.call.getSourceFile(), site);
      if (once(p.statement)) rewrites.push(replaced(p));
    }
  }
  return work;
}

function replaced({ call, statement, facts, handle, library }: InnerPublish): Replace {
  return {
    how: 'replace',
    statement,
    kept: facts.kept,
    parts: {
      handle,
      adapter: library?.adapter,
      kind: facts.kind ?? '',
      payload: facts.payload,
      plain: facts.plain,
      options: facts.options,
      spread: isSpread(call),
      trailingComma: call.arguments.hasTrailingComma,
    },
  };
}

/** A threaded function wants its handle at every call: one call that stays as it is keeps all others as they are. */
export function refuseBrokenThreads(sites: readonly Site[], pathOf: (file: ts.SourceFile) => string): void {
  for (let changed = true; changed; ) {
    changed = false;
    for (const site of sites) {
      const { rewrite } = site.read;
      const threading = rewrite?.threading;
      if (threading === undefined) continue;
      const missing = threading.needs.find(
        (call) => !sites.some((s) => s.read.call === call && s.read.rewrite?.threading === threading),
      );
      if (missing === undefined) continue;
      const other = sites.find((s) => s.read.call === missing)?.read.obstacles[0];
      const why = other === undefined ? 'stays as it is' : `${other.code}: ${other.what}`;
      const what = `${pathOf(missing.getSourceFile())}:${lineOf(missing)} (${why})`;
      site.read = {
        ...site.read,
        rewrite: undefined,
        obstacles: [
          ...site.read.obstacles,
          ...(site.read.untold ?? []),
          { code: 'caller-without-transaction', what },
        ],
      };
      changed = true;
    }
  }
}
