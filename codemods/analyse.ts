/**
 * From texts to one program and the tools over it. Programs grow until no new file holds a publisher's name; what
 * does not parse is named and left out.
 */

import { ts } from 'ts-morph';
import type { CodemodConfig } from './config.js';
import { ENQUEUE_TEXT } from './enqueues.js';
import type { Progress, Sources } from './files.js';
import { calledName, unaliased } from './origins.js';
import { BROKER_SENDERS } from './packages.js';
import { aliases, firstNames, lastPart, seeds, withNames } from './prefilter.js';
import { type Analysis, ProgramMaker } from './program.js';
import { SiteReader } from './site.js';
import { eachNode, scopeOf } from './syntax.js';
import type { Skipped } from './walk.js';
import { namedScopeOf, type Wrapper } from './wrappers.js';

const MAX_ROUNDS = 6;

/** Programs grow until no new file holds a wrapper's name; most repositories need one or two. */
export function analyse(
  sources: Sources,
  config: CodemodConfig,
  types: boolean,
  skipped: Skipped[],
  progress: Progress,
): { analysis: Analysis; reader: SiteReader } {
  const first = seeds(sources.files, config);
  const names = firstNames(sources.files, first, config);
  const roots = new Set([...first, ...(first.size === 0 ? [] : withNames(sources.files, names))]);
  if (config.registry)
    for (const [path, { text }] of sources.files) if (ENQUEUE_TEXT.test(text)) roots.add(path);
  const broken = new Set<string>();
  const maker = new ProgramMaker(sources, types, config.checkedIndexes === true);
  for (let round = 1; ; round++) {
    for (const path of roots) if (!broken.has(path) && isBroken(path, maker, skipped)) broken.add(path);
    progress(`Round ${round}: following the publishers through ${roots.size} files`);
    const analysis = maker.make([...roots].filter((path) => !broken.has(path)).sort());
    const reader = new SiteReader(analysis, sources, config);
    for (const name of newNames(analysis, reader, names)) names.add(name);
    const before = roots.size;
    if (first.size > 0) for (const path of withNames(sources.files, names)) roots.add(path);
    if (roots.size === before || round === MAX_ROUNDS) return { analysis, reader };
  }
}

function isBroken(path: string, maker: ProgramMaker, skipped: Skipped[]): boolean {
  const parsed = maker.parsedFile(path);
  if (parsed === undefined) {
    skipped.push({ path, reason: 'nested-too-deep', detail: 'the parser ran out of stack' });
    return true;
  }
  const [error] = syntaxErrors(parsed);
  if (error === undefined) return false;
  const line = parsed.getLineAndCharacterOfPosition(error.start).line + 1;
  skipped.push({
    path,
    reason: 'syntax-error',
    detail: `line ${line}: ${ts.flattenDiagnosticMessageText(error.messageText, ' ')}`,
  });
  return true;
}

/** The parser's own complaints; the public way to them, transpileModule, would also complain about TypeScript in JS. */
export function syntaxErrors(file: ts.SourceFile): readonly ts.DiagnosticWithLocation[] {
  return (
    (file as unknown as { readonly parseDiagnostics?: readonly ts.DiagnosticWithLocation[] })
      .parseDiagnostics ?? []
  );
}

function newNames(analysis: Analysis, reader: SiteReader, names: ReadonlySet<string>): string[] {
  const found = [...[...reader.discovery.wrappers.values()].map((w) => w.name), ...reader.carrierNames()].map(
    lastPart,
  );
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

/** Publishing calls that are no wrapper's own: those of business code, and of functions that nobody calls. */
export function siteCalls(reader: SiteReader): ts.CallExpression[] {
  const { wrappers, publishes, denied } = reader.discovery;
  const called = new Set<Wrapper['fn']>();
  for (const call of publishes) {
    const callee = reader.resolver.calleeOf(call);
    if (callee.kind === 'own') for (const fn of callee.fns) called.add(fn);
  }
  return publishes.filter((call) => {
    const scope = namedScopeOf(call);
    if (ts.isSourceFile(scope)) return true;
    if (denied.has(scope)) return false;
    const wrapper = wrappers.get(scope);
    return wrapper === undefined || (wrapper.obstacles.length > 0 && !called.has(scope));
  });
}

/** `channel[method](…)`: a method of something that publishes, and nobody can tell which. */
function isComputed(call: ts.CallExpression, reader: SiteReader): boolean {
  const target = call.expression;
  if (!ts.isElementAccessExpression(target)) return false;
  const role = reader.resolver.roleOf(target.expression);
  return role !== undefined && BROKER_SENDERS[role.pkg]?.includes(role.what) === true;
}

/** `options.onError(error)` of a function type: whatever is handed over is called, and nothing is untraced. */
function isCallback(call: ts.CallExpression, analysis: Analysis): boolean {
  const declared = analysis.checker.getResolvedSignature(call)?.declaration;
  if (declared === undefined || !ts.isFunctionTypeNode(declared)) return false;
  // `const tell: Tell = async (order) => …` is nobody's callback: what it is stands there.
  const symbol = analysis.checker.getSymbolAtLocation(call.expression);
  const named = unaliased(analysis.checker, symbol)?.valueDeclaration;
  return !(named !== undefined && ts.isVariableDeclaration(named) && named.initializer !== undefined);
}

/** Calls with a publisher's name on something that could not be traced at all: reported, never rewritten. */
export function unresolvedCalls(analysis: Analysis, reader: SiteReader): ts.CallExpression[] {
  // What only a test calls so, or what a typed callback is called, is no publisher's name.
  const wrappers = [...reader.discovery.wrappers.values()].filter(
    ({ fn }) => !analysis.isTest(fn.getSourceFile()),
  );
  const publishes = reader.discovery.wrappers.size > 0;
  const sends = new Set(publishes ? ['sendToQueue', 'publish'] : ['sendToQueue']);
  const methods = new Set(wrappers.map((w) => lastPart(w.name)));
  const functions = new Set(
    wrappers.filter(({ fn }) => !ts.isClassLike(fn.parent)).map((w) => lastPart(w.name)),
  );
  const isNamed = (call: ts.CallExpression): boolean => {
    const name = calledName(call);
    if (sends.has(name)) return true;
    const isMember = ts.isPropertyAccessExpression(call.expression);
    return (isMember ? methods : functions).has(name) && !isCallback(call, analysis);
  };
  const found: ts.CallExpression[] = [];
  for (const file of analysis.roots) {
    eachNode(file, (node) => {
      if (!ts.isCallExpression(node)) return;
      if (!isNamed(node) && !isComputed(node, reader)) return;
      const scope = scopeOf(node);
      if (!ts.isSourceFile(scope) && reader.discovery.wrappers.has(scope)) return;
      if (reader.resolver.calleeOf(node).kind === 'unresolved') found.push(node);
    });
  }
  return found;
}
