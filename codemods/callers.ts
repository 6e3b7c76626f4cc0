/**
 * Everybody who calls a function of the repository, and whatever else knows it: its overloads, the interface or base
 * class that declares it, its other implementations, test doubles. A changed signature has to fit all of them, so what
 * cannot be seen is an obstacle: a function that is handed on as a value, a call by a computed name, an export of a
 * published package. It edits nothing.
 */

import { ts } from 'ts-morph';
import type { Sources } from './files.js';
import { type Mention, Mentions } from './mentions.js';
import { calledName, declaredIn, isLibrary, localSymbol, unaliased } from './origins.js';
import { parse } from './program.js';
import { PublicExports } from './public-exports.js';
import type { Obstacle } from './reasons.js';
import type { Resolver } from './resolve.js';
import {
  bodyOf,
  callOf,
  generatedObstacle,
  importedNames,
  isDefaultExport,
  isExport,
  isMember,
  isNameOnly,
  isShort,
  nameNode,
  ownerOf,
  signatureOf,
  usesArguments,
} from './signatures.js';
import { eachNode, type Fn, inOrder, isFn, lineOf, quote } from './syntax.js';

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

export class Callers {
  private readonly families = new Map<Fn, Family | undefined>();
  private computed: readonly ts.ElementAccessExpression[] | undefined;

  private readonly exports: PublicExports;
  private readonly mentions: Mentions;

  constructor(
    private readonly resolver: Resolver,
    private readonly sources: Sources,
  ) {
    this.exports = new PublicExports(sources);
    this.mentions = new Mentions(resolver.analysis, sources);
  }

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
      const exported = this.exports.of(fn);
      if (exported !== undefined) obstacles.push({ code: 'public-export', what: exported });
    }
    return obstacles;
  }

  // ── who calls ──

  /** In source order. Only calls under its names are asked about: to resolve all of a large program takes minutes. */
  private callsOf(bodies: readonly Fn[]): ts.CallExpression[] {
    const known = new Set(bodies);
    const found = new Set<ts.CallExpression>();
    for (const call of bodies.flatMap((fn) => this.resolver.ownCallNames.of(fn))) {
      if (!ts.isCallExpression(call)) continue;
      const callee = this.resolver.calleeOf(call);
      if (callee.kind === 'own' && callee.fns.some((fn) => known.has(fn))) found.add(call);
    }
    return [...found].sort(inOrder);
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
    for (const path of this.mentions.beyond(name.text)) {
      const unread: Obstacle = { code: 'dynamic-dispatch', what: `${path} names it and could not be read` };
      unseen.set(unread, path);
      obstacles.push(unread);
    }
    const isDefault = bodies.some((body) => isDefaultExport(body, name.text));
    for (const file of this.mentions.files) {
      if (!isDefault && !this.mentions.has(name.text, file)) continue;
      for (const node of this.mentions.of(this.namesIn(file, name.text, known), file)) {
        const found = this.otherUse(node, known, name.text);
        if (found === undefined) continue;
        const obstacle: Obstacle = { code: found.code, what: `${this.place(node)}, ${quote(found.at)}` };
        if (found.call !== undefined) unseen.set(obstacle, found.call);
        obstacles.push(obstacle);
      }
    }
    for (const node of this.computedCalls()) {
      if (this.reaches(node, name.text, known))
        obstacles.push({ code: 'dynamic-dispatch', what: `${this.place(node)}, ${quote(node)}` });
    }
    return obstacles;
  }

  private otherUse(
    node: Mention,
    known: ReadonlySet<ts.Node>,
    member: string,
  ): { code: 'function-as-value' | 'dynamic-dispatch'; at: ts.Node; call?: ts.CallExpression } | undefined {
    if (ts.isElementAccessExpression(node)) {
      const { argumentExpression: named } = node;
      const hit = ts.isStringLiteralLike(named) && named.text === member && this.reaches(node, member, known);
      return hit ? { code: 'dynamic-dispatch', at: node } : undefined;
    }
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
    for (const file of this.mentions.files) {
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
    const target = unaliased(this.checker, localSymbol(this.checker, node));
    if ((target?.declarations ?? []).some((d) => known.has(d) || known.has(signatureOf(d)))) return true;
    const signatures = this.checker.getTypeAtLocation(node).getCallSignatures();
    return signatures.some((s) => s.declaration !== undefined && known.has(s.declaration));
  }

  /** Its own name, that of its function expression, and the names that this file gives to it by importing it. */
  private namesIn(file: ts.SourceFile, name: string, known: ReadonlySet<ts.Node>): ReadonlySet<string> {
    const names = new Set([name]);
    for (const fn of known) if (ts.isFunctionExpression(fn) && fn.name !== undefined) names.add(fn.name.text);
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

  private place(node: ts.Node): string {
    return `${this.resolver.analysis.pathOf(node.getSourceFile())}:${lineOf(node)}`;
  }
}
