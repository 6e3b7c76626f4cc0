/**
 * The plan of a repository: read, prefilter, one program, facts, verdicts, and last the new text of each file. Nothing
 * is written here; apply.ts does that, from this plan and nothing else.
 */

import { ts } from 'ts-morph';
import { type CodemodConfig, readConfig } from './config.js';
import { type Delta, deltaOf } from './delta.js';
import { applyEdits, indentAt, indentableLines, layoutOf, lineStart, type TextEdit } from './edits.js';
import { readSources, type Skipped, type Sources, type SourceText } from './files.js';
import { aliases, firstNames, lastPart, seeds, withNames } from './prefilter.js';
import { type Analysis, ProgramMaker, parse } from './program.js';
import { NO_SEAM, type Obstacle, type ReasonCode } from './reasons.js';
import { calledName, isTestFile } from './resolve.js';
import { type Rewrite, type Rewritten, rewriteFile } from './rewrite.js';
import { type ReadSite, SiteReader } from './site.js';
import { contains, eachNode, endLineOf, lineOf, quote, scopeOf } from './syntax.js';
import { type Confidence, decide, type Level } from './verdict.js';
import type { Wrapper } from './wrappers.js';

export interface PlanOptions {
  /** Directory of the repository. */
  readonly root: string;
  /** Files or directories in it to report and edit; empty: all. */
  readonly paths: readonly string[];
  readonly level: 'safe' | 'wrap';
  readonly inlineSql: boolean;
  /** Leave one comment at each refused site. */
  readonly todo: boolean;
  /** Look packages up; false is faster and traces values by imports alone. */
  readonly types: boolean;
}

export interface PlanSite {
  readonly file: string;
  readonly line: number;
  readonly endLine: number;
  readonly function: string;
  readonly source: string;
  readonly publish: {
    readonly idiom: string;
    readonly path: readonly string[];
    readonly exchange: string | null;
  };
  readonly kind: string | null;
  readonly payload: string | null;
  readonly options: Readonly<Record<string, string>>;
  readonly transaction: {
    readonly idiom: string;
    readonly handle: string;
    readonly begin: number | null;
    readonly commit: number | null;
    readonly position: 'after' | 'inside' | 'none';
  } | null;
  readonly level: Level;
  /** Whether this plan's level applies it. */
  readonly applied: boolean;
  readonly reason: ReasonCode | null;
  readonly message: string | null;
  readonly next: string | null;
  readonly also: readonly Obstacle[];
  readonly confidence: Confidence;
  readonly delta: Delta | null;
}

export interface PlanWrapper {
  readonly id: string;
  readonly file: string;
  readonly line: number;
  readonly calls: number;
  readonly usable: boolean;
  readonly confirmed: boolean;
  readonly obstacles: readonly Obstacle[];
  readonly notes: readonly string[];
}

/** The new text of one file, with the hash of what was scanned. */
export interface FileChange {
  readonly path: string;
  readonly absolute: string;
  readonly hash: string;
  readonly bom: boolean;
  readonly before: string;
  readonly after: string;
  readonly edits: readonly TextEdit[];
  /** What nothing reads any more and a person may remove: `channel (line 12)`. */
  readonly leftovers: readonly string[];
}

export interface Plan {
  readonly version: 1;
  readonly root: string;
  readonly level: 'safe' | 'wrap';
  /** Why answers may be less sure than usual; null when everything resolved. */
  readonly degraded: { readonly why: string; readonly packages: readonly string[] } | null;
  readonly counts: {
    readonly files: number;
    readonly parsed: number;
    readonly safe: number;
    readonly wrap: number;
    readonly refused: number;
  };
  readonly wrappers: readonly PlanWrapper[];
  readonly sites: readonly PlanSite[];
  readonly skipped: readonly Skipped[];
  readonly changes: readonly FileChange[];
}

const MAX_ROUNDS = 6;

export function makePlan(options: PlanOptions): Plan {
  const sources = readSources(options.root, options.paths);
  const config = readConfig(sources.root);
  const skipped: Skipped[] = [...sources.skipped];
  const { analysis, reader } = analyse(sources, config, options.types, skipped);
  const sites = readSites(analysis, reader, sources);
  refuseBrokenGroups(sites);
  const applied = (site: Mutable): boolean =>
    site.read.rewrite !== undefined && (site.reach === 'safe' || options.level === 'wrap');
  const changes = changesOf(sites, applied, analysis, reader, sources, options);
  const listed = sites.map((site) => siteOf(site, analysis, reader, applied(site)));
  const count = (level: Level): number => listed.filter((s) => s.level === level).length;
  return {
    version: 1,
    root: sources.root,
    level: options.level,
    degraded: degradedBy(analysis, options.types),
    counts: {
      files: sources.files.size,
      parsed: analysis.roots.length,
      safe: count('safe'),
      wrap: count('wrap'),
      refused: count('refused'),
    },
    wrappers: wrappersOf(reader),
    sites: listed,
    skipped: skipped.sort((a, b) => (a.path < b.path ? -1 : 1)),
    changes,
  };
}

// ── the program ──

/** Programs grow until no new file holds a wrapper's name; most repositories need one or two. */
function analyse(
  sources: Sources,
  config: CodemodConfig,
  types: boolean,
  skipped: Skipped[],
): { analysis: Analysis; reader: SiteReader } {
  const first = seeds(sources.files, config);
  const names = firstNames(sources.files, first, config);
  const roots = new Set([...first, ...(first.size === 0 ? [] : withNames(sources.files, names))]);
  const broken = new Set<string>();
  const maker = new ProgramMaker(sources.root, sources.files, types);
  for (let round = 1; ; round++) {
    for (const path of roots)
      if (!broken.has(path) && isBroken(sources.files.get(path), skipped)) broken.add(path);
    const analysis = maker.make([...roots].filter((path) => !broken.has(path)).sort());
    const reader = new SiteReader(analysis, sources.root, config);
    for (const name of newNames(analysis, reader, names)) names.add(name);
    const before = roots.size;
    if (first.size > 0) for (const path of withNames(sources.files, names)) roots.add(path);
    if (roots.size === before || round === MAX_ROUNDS) return { analysis, reader };
  }
}

function isBroken(file: SourceText | undefined, skipped: Skipped[]): boolean {
  if (file === undefined) return true;
  const parsed = parse(file.path, file.text);
  if (parsed === undefined) {
    skipped.push({ path: file.path, reason: 'nested-too-deep', detail: 'the parser ran out of stack' });
    return true;
  }
  const [error] = syntaxErrors(parsed);
  if (error === undefined) return false;
  const line = parsed.getLineAndCharacterOfPosition(error.start).line + 1;
  skipped.push({
    path: file.path,
    reason: 'syntax-error',
    detail: `line ${line}: ${ts.flattenDiagnosticMessageText(error.messageText, ' ')}`,
  });
  return true;
}

/** The parser's own complaints; the public way to them, transpileModule, would also complain about TypeScript in JS. */
function syntaxErrors(file: ts.SourceFile): readonly ts.DiagnosticWithLocation[] {
  return (
    (file as unknown as { readonly parseDiagnostics?: readonly ts.DiagnosticWithLocation[] })
      .parseDiagnostics ?? []
  );
}

function newNames(analysis: Analysis, reader: SiteReader, names: ReadonlySet<string>): string[] {
  const found = [...reader.discovery.wrappers.values()].map((w) => lastPart(w.name));
  for (const wrapper of reader.discovery.wrappers.values()) {
    const owner = wrapper.fn.parent;
    if (!ts.isClassLike(owner)) continue;
    for (const clause of owner.heritageClauses ?? []) {
      for (const type of clause.types) if (ts.isIdentifier(type.expression)) found.push(type.expression.text);
    }
  }
  const all = new Set([...names, ...found]);
  return [...found, ...analysis.roots.flatMap((file) => aliases(file, all))];
}

// ── the sites ──

/** A site while verdicts may still change: one refused neighbour spoils a common transaction. */
interface Mutable {
  read: ReadSite;
  readonly reach: 'safe' | 'wrap' | null;
}

function readSites(analysis: Analysis, reader: SiteReader, sources: Sources): Mutable[] {
  const calls = [...siteCalls(reader), ...unresolvedCalls(analysis, reader)];
  return calls
    .filter((call) => {
      const path = analysis.pathOf(call.getSourceFile());
      return sources.selected(path) && !isTestFile(path);
    })
    .sort(
      (a, b) =>
        compare(analysis.pathOf(a.getSourceFile()), analysis.pathOf(b.getSourceFile())) || a.pos - b.pos,
    )
    .map((call) => {
      const read = reader.read(call);
      const reach = read.transaction !== undefined ? 'safe' : read.pool !== undefined ? 'wrap' : null;
      return { read, reach };
    });
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** Publishing calls that are no wrapper's own: those of business code, and of functions that nobody calls. */
function siteCalls(reader: SiteReader): ts.CallExpression[] {
  const { wrappers, publishes, denied } = reader.discovery;
  const called = new Set<Wrapper['fn']>();
  for (const call of publishes) {
    const callee = reader.resolver.calleeOf(call);
    if (callee.kind === 'own') for (const fn of callee.fns) called.add(fn);
  }
  return publishes.filter((call) => {
    const scope = scopeOf(call);
    if (ts.isSourceFile(scope)) return true;
    if (denied.has(scope)) return false;
    const wrapper = wrappers.get(scope);
    return wrapper === undefined || (wrapper.obstacles.length > 0 && !called.has(scope));
  });
}

/** Calls with a publisher's name on something that could not be traced at all: reported, never rewritten. */
function unresolvedCalls(analysis: Analysis, reader: SiteReader): ts.CallExpression[] {
  const names = new Set([
    'sendToQueue',
    ...[...reader.discovery.wrappers.values()].map((w) => lastPart(w.name)),
  ]);
  if (reader.discovery.wrappers.size > 0) names.add('publish');
  const found: ts.CallExpression[] = [];
  for (const file of analysis.roots) {
    eachNode(file, (node) => {
      if (!ts.isCallExpression(node) || !names.has(calledName(node))) return;
      const scope = scopeOf(node);
      if (!ts.isSourceFile(scope) && reader.discovery.wrappers.has(scope)) return;
      if (reader.resolver.calleeOf(node).kind === 'unresolved') found.push(node);
    });
  }
  return found;
}

/** A publish that stays keeps its neighbours out of a common transaction: a broker call must not run inside one. */
function refuseBrokenGroups(sites: Mutable[]): void {
  for (let changed = true; changed; ) {
    changed = false;
    for (const site of sites) {
      const { rewrite } = site.read;
      if (rewrite?.how !== 'wrap') continue;
      const spoiler = sites.find(
        (other) =>
          other !== site &&
          other.read.rewrite === undefined &&
          rewrite.scope.statements.some((s) => contains(s, other.read.call)),
      );
      if (spoiler === undefined) continue;
      const obstacle: Obstacle = {
        code: 'between-not-movable',
        what: `line ${lineOf(spoiler.read.call)}, ${quote(spoiler.read.call)}`,
      };
      site.read = { ...site.read, rewrite: undefined, obstacles: [...site.read.obstacles, obstacle] };
      changed = true;
    }
  }
}

function siteOf(site: Mutable, analysis: Analysis, reader: SiteReader, applied: boolean): PlanSite {
  const { read } = site;
  const { publish, transaction } = read;
  const verdict = decide({
    reach: site.reach,
    obstacles: read.obstacles,
    degraded: analysis.unresolvedPackages.length > 0,
    caveats: publish.notes.length + (read.shared ? 1 : 0),
    noWriteSeen: transaction !== undefined && !transaction.writes,
  });
  return {
    file: analysis.pathOf(read.call.getSourceFile()),
    line: lineOf(read.call),
    endLine: endLineOf(read.call),
    function: read.functionName,
    source: quote(read.call),
    publish: { idiom: publish.idiom, path: publish.path, exchange: publish.exchange },
    kind: publish.kind,
    payload: publish.payload,
    options: { ...publish.options },
    transaction: transactionOf(read),
    ...verdict,
    applied,
    delta: verdict.level === 'refused' ? null : delta(read, reader),
  };
}

function transactionOf(read: ReadSite): PlanSite['transaction'] {
  const { transaction, pool } = read;
  if (transaction !== undefined) {
    return {
      idiom: transaction.idiom,
      handle: transaction.handle,
      begin: transaction.begin === undefined ? null : lineOf(transaction.begin),
      commit: lineOf(transaction.end),
      position: transaction.position,
    };
  }
  if (pool === undefined) return null;
  return {
    idiom: pool.idiom,
    handle: pool.pool?.text ?? pool.handleNode.getText(),
    begin: null,
    commit: null,
    position: 'none',
  };
}

function delta(read: ReadSite, reader: SiteReader): Delta {
  const { transaction, pool, publish } = read;
  const how =
    read.rewrite?.how === 'wrap' ? 'wrapped' : read.rewrite?.how === 'replace' ? 'replaced' : 'moved';
  const [first] = pool?.statements ?? [];
  const shared = read.shared
    ? [
        'A call between the commit and the publish was handed a value of the payload; it is read before that call now',
      ]
    : [];
  return deltaOf({
    kind: publish.kind ?? '',
    how,
    awaited: read.awaited || publish.path.length === 1,
    rollbackCatch: transaction?.rollbackCatch,
    commitLine: transaction !== undefined ? lineOf(transaction.end) : first === undefined ? 0 : lineOf(first),
    publishLine: lineOf(read.call),
    notes: [...publish.notes, ...shared],
    copied: !publish.plain,
    writes: pool === undefined ? 0 : reader.writesIn(pool),
  });
}

function wrappersOf(reader: SiteReader): PlanWrapper[] {
  const calls = new Map<Wrapper['fn'], number>();
  for (const call of reader.discovery.publishes) {
    const callee = reader.resolver.calleeOf(call);
    if (callee.kind === 'own') for (const fn of callee.fns) calls.set(fn, (calls.get(fn) ?? 0) + 1);
  }
  return [...reader.discovery.wrappers.values()]
    .map((w) => ({
      id: w.id,
      file: w.file,
      line: w.line,
      calls: calls.get(w.fn) ?? 0,
      usable: w.obstacles.length === 0,
      confirmed: w.override !== undefined,
      obstacles: w.obstacles,
      notes: w.notes,
    }))
    .sort((a, b) => compare(a.id, b.id));
}

function degradedBy(analysis: Analysis, types: boolean): Plan['degraded'] {
  if (!types) return { why: 'packages were not looked up (--no-types)', packages: [] };
  if (analysis.unresolvedPackages.length === 0) return null;
  return {
    why: 'packages are not installed; values were traced by imports',
    packages: analysis.unresolvedPackages,
  };
}

// ── the new texts ──

function changesOf(
  sites: Mutable[],
  applied: (site: Mutable) => boolean,
  analysis: Analysis,
  reader: SiteReader,
  sources: Sources,
  options: PlanOptions,
): FileChange[] {
  const changes: FileChange[] = [];
  const files = new Set(sites.map((s) => s.read.call.getSourceFile()));
  for (const file of files) {
    const mine = sites.filter((s) => s.read.call.getSourceFile() === file);
    const rewrites = mine.filter(applied).flatMap((s) => s.read.rewrite ?? []);
    const source = sources.files.get(analysis.pathOf(file));
    if (source === undefined) continue;
    const made = safeEdits(file, rewrites, analysis, reader, options);
    if (made === undefined) {
      for (const site of mine) if (applied(site)) spoil(site, 'its edits would overlap with another site');
    }
    const todos = options.todo
      ? todoEdits(
          file,
          mine.filter((s) => s.read.rewrite === undefined),
        )
      : [];
    const all = [...(made?.edits ?? []), ...todos];
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
      leftovers: made?.leftovers ?? [],
    });
  }
  return changes;
}

/** The edits, unless they overlap or the result does not parse: then the file is left alone. */
function safeEdits(
  file: ts.SourceFile,
  rewrites: readonly Rewrite[],
  analysis: Analysis,
  reader: SiteReader,
  options: PlanOptions,
): Rewritten | undefined {
  if (rewrites.length === 0) return { edits: [], leftovers: [] };
  try {
    const made = rewriteFile(file, rewrites, analysis.checker, {
      inlineSql: options.inlineSql,
      isSpent: reader.isSpent,
    });
    const parsed = parse(file.fileName, applyEdits(file.text, made.edits));
    return parsed !== undefined && syntaxErrors(parsed).length === 0 ? made : undefined;
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

function spoil(site: Mutable, what: string): void {
  site.read = {
    ...site.read,
    rewrite: undefined,
    obstacles: [...site.read.obstacles, { code: 'transaction-unclear', what }],
  };
}

export const TODO_MARK = 'TODO(unbroker)';

/** One comment above each refused site; a site that has one keeps it. */
function todoEdits(file: ts.SourceFile, sites: readonly Mutable[]): TextEdit[] {
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
