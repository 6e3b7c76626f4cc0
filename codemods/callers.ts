/**
 * Everybody who calls a function of the repository, and whatever else knows it: its overloads, the interface or base
 * class that declares it, its other implementations, test doubles. A changed signature has to fit all of them, so what
 * cannot be seen is an obstacle: a function that is handed on as a value, a call by a computed name, an export of a
 * published package. It edits nothing.
 */

import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { ts } from 'ts-morph';
import type { Sources } from './files.js';
import { calledName, declaredIn, isLibrary } from './origins.js';
import { parse } from './program.js';
import type { Obstacle } from './reasons.js';
import type { Resolver } from './resolve.js';
import { bare, eachNode, eachOwnNode, type Fn, isFn, lineOf, quote } from './syntax.js';

export interface Family {
  readonly name: string;
  /** Every implementation with a body, tests left out. */
  readonly bodies: readonly Fn[];
  /** Declarations without a body: overloads, abstract methods, interface members. */
  readonly declarations: readonly ts.SignatureDeclaration[];
  /** Implementations in tests. */
  readonly doubles: readonly ts.Node[];
  /** Calls outside tests. */
  readonly calls: readonly ts.CallExpression[];
  readonly testCalls: readonly ts.CallExpression[];
  /** Why not everybody who calls it can be seen, or why its signature is not the repository's to change. */
  readonly obstacles: readonly Obstacle[];
  /** Those of them that are only calls which cannot be traced: in files that were not read, and by its name elsewhere. */
  readonly unseen: ReadonlyMap<Obstacle, string | ts.CallExpression>;
}

const MAX_HEIRS = 200;
const MAX_EXPORTS = 200;

export class Callers {
  private readonly families = new Map<Fn, Family | undefined>();
  private computed: readonly ts.ElementAccessExpression[] | undefined;
  private calls: ReadonlyMap<Fn, readonly ts.CallExpression[]> | undefined;

  constructor(
    private readonly resolver: Resolver,
    private readonly sources: Sources,
  ) {}

  /** Undefined for a function that has no name to be called by. */
  familyOf(fn: Fn): Family | undefined {
    if (!this.families.has(fn)) {
      const family = this.read(fn);
      for (const body of [fn, ...(family?.bodies ?? [])]) this.families.set(body, family);
    }
    return this.families.get(fn);
  }

  private get checker(): ts.TypeChecker {
    return this.resolver.analysis.checker;
  }

  private read(fn: Fn): Family | undefined {
    const name = nameNode(fn);
    if (name === undefined || ts.isConstructorDeclaration(fn)) return undefined;
    const { analysis } = this.resolver;
    const obstacles: Obstacle[] = [];
    const members = this.membersOf(fn, name, obstacles);
    const fns = members.flatMap((m) => bodyOf(m) ?? []);
    const bodies = fns.filter((f) => !analysis.isTest(f.getSourceFile()));
    if (!bodies.includes(fn)) bodies.push(fn);
    const declarations = members.filter(
      (m): m is ts.SignatureDeclaration => ts.isFunctionLike(m) && !(isFn(m) && m.body !== undefined),
    );
    const all = this.callsOf(bodies);
    const isTest = (c: ts.Node): boolean => analysis.isTest(c.getSourceFile());
    const typed = members.find((m) => !ts.isFunctionLike(m) && !analysis.isTest(m.getSourceFile()));
    if (typed !== undefined) obstacles.push({ code: 'dynamic-dispatch', what: quote(typed) });
    const unseen = new Map<Obstacle, string | ts.CallExpression>();
    obstacles.push(...this.signatureObstacles(bodies), ...this.otherUses(members, bodies, name, unseen));
    return {
      name: name.text,
      bodies,
      declarations,
      doubles: members.filter((m) => isTest(m)),
      calls: all.filter((c) => !isTest(c)),
      testCalls: all.filter(isTest),
      obstacles,
      unseen,
    };
  }

  /** Whether calls that were not seen all leave out a parameter that comes last, and none hands the function on. */
  leaveOut(family: Family, index: number): boolean {
    return [...family.unseen.values()].every((at) =>
      typeof at === 'string' ? this.onlyCalled(at, family, index) : isShort(at, index),
    );
  }

  /** By syntax alone: the program does not hold the file. */
  private onlyCalled(path: string, { name, bodies }: Family, index: number): boolean {
    const text = this.sources.files.get(path)?.text;
    const parsed = text === undefined ? undefined : parse(path, text);
    if (parsed === undefined) return false;
    // A member is never imported by its own name.
    const imported = bodies.every(isMember) && importedNames(parsed).has(name);
    let only = true;
    eachNode(parsed, (node) => {
      if (!ts.isIdentifier(node) || node.text !== name || isNameOnly(node)) return;
      const { parent } = node;
      if (imported && !ts.isPropertyAccessExpression(parent)) return;
      const access = ts.isPropertyAccessExpression(parent) && parent.name === node ? parent : node;
      const call = callOf(access);
      if (call === undefined ? !ts.isTypeNode(parent) : !isShort(call, index)) only = false;
    });
    return only;
  }

  // ── declarations of one signature ──

  private membersOf(fn: Fn, name: ts.Identifier | ts.PrivateIdentifier, obstacles: Obstacle[]): ts.Node[] {
    const owner = ownerOf(fn);
    if (owner === undefined || ts.isPrivateIdentifier(name)) {
      const symbol = this.checker.getSymbolAtLocation(name);
      return [...new Set([fn, ...(symbol?.declarations ?? []).filter((d) => ts.isFunctionLike(d))])];
    }
    const found = new Set<ts.Node>();
    const seen = new Set<ts.Node>();
    const queue: ts.Node[] = [owner];
    for (let at = queue.shift(); at !== undefined && seen.size < MAX_HEIRS; at = queue.shift()) {
      if (seen.has(at) || !(ts.isClassLike(at) || ts.isInterfaceDeclaration(at))) continue;
      seen.add(at);
      const own = at.members.filter((m) => m.name !== undefined && m.name.getText() === name.text);
      for (const member of own) found.add(member);
      for (const type of (at.heritageClauses ?? []).flatMap((c) => [...c.types])) {
        const symbol = this.checker.getTypeAtLocation(type).getSymbol();
        for (const declaration of symbol?.declarations ?? []) {
          const foreign = declaredIn(declaration) !== undefined || isLibrary(declaration);
          if (!foreign) queue.push(declaration);
          else if (symbol?.members?.has(ts.escapeLeadingUnderscores(name.text)))
            obstacles.push({ code: 'framework-signature', what: quote(type) });
        }
      }
      const symbol = at.name === undefined ? undefined : this.checker.getSymbolAtLocation(at.name);
      if (symbol !== undefined && (at === owner || own.length > 0))
        queue.push(...this.resolver.heirsOf(symbol));
    }
    return [...found].map(signatureOf);
  }

  private signatureObstacles(bodies: readonly Fn[]): Obstacle[] {
    const obstacles: Obstacle[] = [];
    for (const fn of bodies) {
      const holder = ts.isPropertyDeclaration(fn.parent) ? fn.parent : fn;
      const [decorator] = ts.canHaveDecorators(holder) ? (ts.getDecorators(holder) ?? []) : [];
      const parameter = fn.parameters.find((p) => (ts.getDecorators(p) ?? []).length > 0);
      if (decorator !== undefined || parameter !== undefined)
        obstacles.push({ code: 'framework-signature', what: quote(decorator ?? (parameter as ts.Node)) });
      const generated = generatedObstacle(fn.getSourceFile());
      if (generated !== undefined) obstacles.push(generated);
      if (usesArguments(fn))
        obstacles.push({ code: 'dynamic-dispatch', what: `arguments in ${quote(fn).slice(0, 40)}` });
      const exported = this.publicExport(fn);
      if (exported !== undefined) obstacles.push({ code: 'public-export', what: exported });
    }
    return obstacles;
  }

  // ── who calls ──

  private callsOf(bodies: readonly Fn[]): ts.CallExpression[] {
    this.calls ??= this.indexCalls();
    return [...new Set(bodies.flatMap((fn) => this.calls?.get(fn) ?? []))];
  }

  private indexCalls(): Map<Fn, ts.CallExpression[]> {
    const index = new Map<Fn, ts.CallExpression[]>();
    for (const file of this.resolver.analysis.own) {
      eachNode(file, (node) => {
        if (!ts.isCallExpression(node)) return;
        const callee = this.resolver.calleeOf(node);
        if (callee.kind !== 'own') return;
        for (const fn of callee.fns) {
          const list = index.get(fn);
          if (list === undefined) index.set(fn, [node]);
          else list.push(node);
        }
      });
    }
    return index;
  }

  /** Mentions that are no calls, and calls that may be meant for it and cannot be traced. */
  private otherUses(
    members: readonly ts.Node[],
    bodies: readonly Fn[],
    name: ts.Identifier | ts.PrivateIdentifier,
    unseen: Map<Obstacle, string | ts.CallExpression>,
  ): Obstacle[] {
    const known = new Set<ts.Node>([...members, ...bodies]);
    const obstacles: Obstacle[] = [];
    const word = new RegExp(`(?<![\\w$])${name.text.replace(/[$#]/g, '\\$&')}(?![\\w$])`);
    const own = new Set(this.resolver.analysis.own.map((f) => this.resolver.analysis.pathOf(f)));
    for (const [path, file] of this.sources.files) {
      if (own.has(path) || this.sources.isTest(path) || !word.test(file.text)) continue;
      const unread: Obstacle = { code: 'dynamic-dispatch', what: `${path} names it and could not be read` };
      unseen.set(unread, path);
      obstacles.push(unread);
    }
    const isDefault = bodies.some((body) => isDefaultExport(body, name.text));
    for (const file of this.resolver.analysis.own) {
      if (this.resolver.analysis.isTest(file) || !(isDefault || word.test(file.text))) continue;
      const names = this.namesIn(file, name.text, known);
      eachNode(file, (node) => {
        const found = this.otherUse(node, names, known, name.text);
        if (found === undefined) return;
        const obstacle: Obstacle = { code: found.code, what: `${this.place(node)}, ${quote(found.at)}` };
        if (found.call !== undefined) unseen.set(obstacle, found.call);
        obstacles.push(obstacle);
      });
    }
    for (const node of this.computedCalls()) {
      if (this.reaches(node, name.text, known))
        obstacles.push({ code: 'dynamic-dispatch', what: `${this.place(node)}, ${quote(node)}` });
    }
    return obstacles;
  }

  private otherUse(
    node: ts.Node,
    names: ReadonlySet<string>,
    known: ReadonlySet<ts.Node>,
    member: string,
  ): { code: 'function-as-value' | 'dynamic-dispatch'; at: ts.Node; call?: ts.CallExpression } | undefined {
    if (ts.isElementAccessExpression(node) && ts.isStringLiteralLike(node.argumentExpression)) {
      const hit = node.argumentExpression.text === member && this.reaches(node, member, known);
      return hit ? { code: 'dynamic-dispatch', at: node } : undefined;
    }
    if (!(ts.isIdentifier(node) || ts.isPrivateIdentifier(node)) || !names.has(node.text)) return undefined;
    const { parent } = node;
    const access = ts.isPropertyAccessExpression(parent) && parent.name === node ? parent : node;
    const call = callOf(access);
    if (call !== undefined) {
      const lost = this.resolver.calleeOf(call).kind === 'unresolved';
      return lost && calledName(call) === member ? { code: 'dynamic-dispatch', at: call, call } : undefined;
    }
    if (isNameOnly(node) || isExport(access)) return undefined;
    return this.pointsAt(node, known) ? { code: 'function-as-value', at: access.parent } : undefined;
  }

  /** `this[name](…)` anywhere: asked by every family, so collected once. */
  private computedCalls(): readonly ts.ElementAccessExpression[] {
    if (this.computed !== undefined) return this.computed;
    const found: ts.ElementAccessExpression[] = [];
    for (const file of this.resolver.analysis.own) {
      if (this.resolver.analysis.isTest(file)) continue;
      eachNode(file, (node) => {
        const isComputed =
          ts.isElementAccessExpression(node) && !ts.isStringLiteralLike(node.argumentExpression);
        if (isComputed && callOf(node) !== undefined) found.push(node);
      });
    }
    this.computed = found;
    return found;
  }

  private reaches(node: ts.ElementAccessExpression, member: string, known: ReadonlySet<ts.Node>): boolean {
    const property = this.checker.getTypeAtLocation(node.expression).getProperty(member);
    return (property?.declarations ?? []).some((d) => known.has(d) || known.has(signatureOf(d)));
  }

  private pointsAt(node: ts.Identifier | ts.PrivateIdentifier, known: ReadonlySet<ts.Node>): boolean {
    const symbol = ts.isShorthandPropertyAssignment(node.parent)
      ? this.checker.getShorthandAssignmentValueSymbol(node.parent)
      : this.checker.getSymbolAtLocation(node);
    const target =
      symbol !== undefined && symbol.flags & ts.SymbolFlags.Alias
        ? this.checker.getAliasedSymbol(symbol)
        : symbol;
    if ((target?.declarations ?? []).some((d) => known.has(d) || known.has(signatureOf(d)))) return true;
    const signatures = this.checker.getTypeAtLocation(node).getCallSignatures();
    return signatures.some((s) => s.declaration !== undefined && known.has(s.declaration));
  }

  /** Its own name, and the names that this file gives to it by importing it. */
  private namesIn(file: ts.SourceFile, name: string, known: ReadonlySet<ts.Node>): ReadonlySet<string> {
    const names = new Set([name]);
    for (const statement of file.statements) {
      if (!ts.isImportDeclaration(statement)) continue;
      const clause = statement.importClause;
      const bound = clause?.namedBindings;
      const locals = [
        ...(clause?.name === undefined ? [] : [clause.name]),
        ...(bound !== undefined && ts.isNamedImports(bound) ? bound.elements.map((e) => e.name) : []),
      ];
      for (const local of locals) if (this.pointsAt(local, known)) names.add(local.text);
    }
    return names;
  }

  // ── who may call from outside ──

  /** The entry that a published package gives it away by. */
  private publicExport(fn: Fn): string | undefined {
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

  private place(node: ts.Node): string {
    return `${this.resolver.analysis.pathOf(node.getSourceFile())}:${lineOf(node)}`;
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

/** The identifier that a function is called by. */
function nameNode(node: ts.Node): ts.Identifier | ts.PrivateIdentifier | undefined {
  const named = (name: ts.Node | undefined): ts.Identifier | ts.PrivateIdentifier | undefined =>
    name !== undefined && (ts.isIdentifier(name) || ts.isPrivateIdentifier(name)) ? name : undefined;
  if (!ts.isFunctionExpression(node) && !ts.isArrowFunction(node))
    return named(ts.getNameOfDeclaration(node as ts.Declaration));
  const { parent } = node;
  if (ts.isVariableDeclaration(parent) || ts.isPropertyDeclaration(parent) || ts.isPropertyAssignment(parent))
    return named(parent.name);
  if (ts.isBinaryExpression(parent) && ts.isPropertyAccessExpression(parent.left))
    return named(parent.left.name);
  return undefined;
}

function ownerOf(fn: ts.Node): ts.ClassLikeDeclaration | undefined {
  const member = ts.isPropertyDeclaration(fn.parent) ? fn.parent : fn;
  return ts.isClassLike(member.parent) ? member.parent : undefined;
}

/** `tell = async () => …` and `tell: (x: X) => void`: the function behind a property. */
function signatureOf(member: ts.Node): ts.Node {
  if (ts.isPropertyDeclaration(member) && member.initializer !== undefined && isFn(member.initializer))
    return member.initializer;
  if (
    (ts.isVariableDeclaration(member) || ts.isPropertyAssignment(member)) &&
    member.initializer !== undefined &&
    isFn(member.initializer)
  )
    return member.initializer;
  if (
    (ts.isPropertySignature(member) || ts.isPropertyDeclaration(member)) &&
    member.type !== undefined &&
    ts.isFunctionTypeNode(member.type)
  )
    return member.type;
  return member;
}

function bodyOf(member: ts.Node): Fn | undefined {
  return isFn(member) && member.body !== undefined ? member : undefined;
}

function callOf(node: ts.Node): ts.CallExpression | undefined {
  let n = node;
  while (ts.isParenthesizedExpression(n.parent) || ts.isNonNullExpression(n.parent)) n = n.parent;
  const { parent } = n;
  return ts.isCallExpression(parent) && bare(parent.expression) === node ? parent : undefined;
}

function isMember(fn: Fn): boolean {
  return ownerOf(fn) !== undefined || ts.isPropertyAssignment(fn.parent);
}

function importedNames(file: ts.SourceFile): ReadonlySet<string> {
  const bound = file.statements.flatMap((s) =>
    ts.isImportDeclaration(s) ? (s.importClause?.namedBindings ?? []) : [],
  );
  return new Set(bound.flatMap((b) => (ts.isNamedImports(b) ? b.elements.map((e) => e.name.text) : [])));
}

/** A call that leaves out the argument of this number. */
function isShort(call: ts.CallExpression, index: number): boolean {
  return call.arguments.length <= index && !call.arguments.some(ts.isSpreadElement);
}

/** A name that only declares, imports or exports. */
function isNameOnly(node: ts.Node): boolean {
  const { parent } = node;
  if (ts.isImportSpecifier(parent) || ts.isExportSpecifier(parent) || ts.isImportClause(parent)) return true;
  if (ts.isExportAssignment(parent)) return true;
  if (ts.isShorthandPropertyAssignment(parent)) return isExport(parent.parent);
  const named = parent as { readonly name?: ts.Node };
  return named.name === node && !ts.isPropertyAccessExpression(parent);
}

/** `module.exports = x`, `exports.x = x`, and the object in `module.exports = { x }`. */
function isExport(node: ts.Node): boolean {
  const held = ts.isPropertyAssignment(node.parent) ? node.parent.parent : node;
  const { parent } = held;
  if (ts.isExportAssignment(parent)) return true;
  if (!ts.isBinaryExpression(parent)) return false;
  const left = parent.left.getText();
  return /^(?:module\.)?exports(?:\.|$)/.test(left);
}

/** `export default` of a function or of its name: others may call it anything. */
function isDefaultExport(fn: Fn, name: string): boolean {
  return fn.getSourceFile().statements.some((statement) => {
    if (ts.isExportAssignment(statement))
      return ts.isIdentifier(statement.expression) && statement.expression.text === name;
    if (statement !== fn || !ts.canHaveModifiers(statement)) return false;
    return ts.getModifiers(statement)?.some((m) => m.kind === ts.SyntaxKind.DefaultKeyword) === true;
  });
}

/** The parameters by number: another one would be read there, too. */
function usesArguments(fn: Fn): boolean {
  let found = false;
  eachOwnNode(fn, (n) => {
    if (ts.isIdentifier(n) && n.text === 'arguments') found = true;
  });
  return found;
}

const GENERATED = /@generated\b|do not edit|auto-?generated/i;

/** A header that says that the next run of a generator would undo an edit. */
export function generatedObstacle(file: ts.SourceFile): Obstacle | undefined {
  const head = file.text.slice(0, 600).split('\n').slice(0, 10);
  const line = head.find((l) => /^\s*(?:\/\/|\/?\*|#)/.test(l) && GENERATED.test(l));
  return line === undefined ? undefined : { code: 'generated-file', what: line.trim().slice(0, 80) };
}
