/**
 * What an expression is: a value of which package, or which function of the repository's own. Types are asked
 * first; where they are `any` (no installed packages, plain JavaScript) the value is traced through imports,
 * annotations, initialisers and assignments. It refuses to conclude anything from the name of a method or variable.
 */

import { ts } from 'ts-morph';
import {
  calledName,
  declaredIn,
  isAnyKeyword,
  isConst,
  isFallback,
  isLibrary,
  isNodeGlobal,
  isNothing,
  isNothingType,
  isOpaque,
  isTestFile,
  memberOf,
  requiredModule,
  returnsOf,
  specifierOf,
  throughOf,
} from './origins.js';
import { packageOfSpecifier, tableOf } from './packages.js';
import type { Analysis } from './program.js';
import { ProgramIndex } from './program-index.js';
import { bare, type Fn, isFn, unwrapped } from './syntax.js';

/** A value of a package: `amqplib`'s `channel`, `pg`'s `pool`, or `other` for what the tables do not name. */
export interface Role {
  readonly pkg: string;
  readonly what: string;
}

export type Callee =
  | { readonly kind: 'package'; readonly role: Role; readonly method: string }
  | { readonly kind: 'own'; readonly fns: readonly Fn[]; readonly through: string | undefined }
  | { readonly kind: 'builtin' }
  | { readonly kind: 'unresolved'; readonly name: string };

const MAX_DEPTH = 25;

export class Resolver {
  private readonly checker: ts.TypeChecker;
  private readonly callees = new Map<ts.CallExpression, Callee>();
  private readonly roles = new Map<ts.Expression, Role | undefined>();
  private readonly index: ProgramIndex;

  constructor(readonly analysis: Analysis) {
    this.checker = analysis.checker;
    this.index = new ProgramIndex(analysis);
  }

  // ── roles ──

  roleOf(expression: ts.Expression, seen: ReadonlySet<ts.Node> = new Set()): Role | undefined {
    const e = unwrapped(expression);
    if (seen.has(e) || seen.size > MAX_DEPTH) return undefined;
    if (this.roles.has(e)) return this.roles.get(e);
    const type = this.checker.getTypeAtLocation(e);
    const role =
      this.roleOfType(type) ?? (isOpaque(type) ? this.traced(e, new Set([...seen, e])) : undefined);
    if (seen.size === 0) this.roles.set(e, role);
    return role;
  }

  roleOfType(given: ts.Type, depth = 0): Role | undefined {
    const type = this.checker.getAwaitedType(given) ?? given;
    if (depth > 5) return undefined;
    if (type.isUnion()) {
      const parts = type.types.filter(
        (t) => !(t.flags & (ts.TypeFlags.Undefined | ts.TypeFlags.Null | ts.TypeFlags.Void)),
      );
      return agreed(parts.map((t) => this.roleOfType(t, depth + 1)));
    }
    if (type.isIntersection())
      return type.types.map((t) => this.roleOfType(t, depth + 1)).find((r) => r !== undefined);
    if (type.flags & ts.TypeFlags.TypeParameter) {
      const bound = this.checker.getBaseConstraintOfType(type);
      return bound === undefined || bound === type ? undefined : this.roleOfType(bound, depth + 1);
    }
    const symbol = type.getSymbol();
    const declaration = symbol?.declarations?.[0];
    if (symbol === undefined || declaration === undefined) return undefined;
    const pkg = declaredIn(declaration);
    if (pkg !== undefined) return { pkg, what: tableOf(pkg).types[symbol.name] ?? 'other' };
    if (!type.isClassOrInterface()) return undefined;
    return this.checker
      .getBaseTypes(type)
      .map((base) => this.roleOfType(base, depth + 1))
      .find((r) => r !== undefined && r.what !== 'other');
  }

  private traced(e: ts.Expression, seen: ReadonlySet<ts.Node>): Role | undefined {
    if (ts.isIdentifier(e)) return this.tracedSymbol(this.checker.getSymbolAtLocation(e), seen);
    if (ts.isCallExpression(e)) return this.tracedCall(e, seen);
    if (ts.isNewExpression(e)) {
      const made = this.roleOf(e.expression, seen);
      return made && { pkg: made.pkg, what: tableOf(made.pkg).news[made.what] ?? 'other' };
    }
    if (ts.isPropertyAccessExpression(e)) {
      const owner = this.roleOf(e.expression, seen);
      if (owner !== undefined) return { pkg: owner.pkg, what: memberOf(owner.what, e.name.text) };
      return this.tracedSymbol(this.checker.getSymbolAtLocation(e.name), seen);
    }
    if (ts.isBinaryExpression(e) && isFallback(e.operatorToken.kind)) {
      return agreed([e.left, e.right].filter((x) => !isNothing(x)).map((x) => this.roleOf(x, seen)));
    }
    if (ts.isConditionalExpression(e)) {
      return agreed([e.whenTrue, e.whenFalse].filter((x) => !isNothing(x)).map((x) => this.roleOf(x, seen)));
    }
    return undefined;
  }

  private tracedCall(call: ts.CallExpression, seen: ReadonlySet<ts.Node>): Role | undefined {
    const required = requiredModule(call);
    if (required !== undefined) {
      const pkg = packageOfSpecifier(required);
      return pkg === undefined ? undefined : { pkg, what: 'module' };
    }
    const made = this.roleOf(call.expression, seen);
    if (made !== undefined) return { pkg: made.pkg, what: tableOf(made.pkg).calls[made.what] ?? 'other' };
    const callee = this.calleeOf(call);
    if (callee.kind !== 'own') return undefined;
    return agreed(callee.fns.map((fn) => this.returned(fn, seen)));
  }

  /** What a function of the repository's own gives back. */
  private returned(fn: Fn, seen: ReadonlySet<ts.Node>): Role | undefined {
    if (seen.has(fn)) return undefined;
    const inner = new Set([...seen, fn]);
    if (fn.type !== undefined) return this.annotated(fn.type, inner);
    return agreed(
      returnsOf(fn)
        .filter((x) => !isNothing(x))
        .map((x) => this.roleOf(x, inner)),
    );
  }

  private tracedSymbol(symbol: ts.Symbol | undefined, seen: ReadonlySet<ts.Node>): Role | undefined {
    const declaration = symbol?.declarations?.[0];
    if (symbol === undefined || declaration === undefined || seen.has(declaration)) return undefined;
    const inner = new Set([...seen, declaration]);
    if (symbol.flags & ts.SymbolFlags.Alias) return this.tracedImport(symbol, declaration, inner);
    if (ts.isBindingElement(declaration)) return this.tracedBinding(declaration, inner);
    const typed =
      ts.isVariableDeclaration(declaration) ||
      ts.isParameter(declaration) ||
      ts.isPropertyDeclaration(declaration) ||
      ts.isPropertySignature(declaration) ||
      ts.isGetAccessorDeclaration(declaration);
    if (typed && declaration.type !== undefined) {
      const role = this.annotated(declaration.type, inner);
      if (role !== undefined || !isAnyKeyword(declaration.type)) return role;
    }
    if (ts.isGetAccessorDeclaration(declaration)) return this.returned(declaration, inner);
    const born: ts.Expression[] = [...this.index.assignedTo(symbol)];
    if ('initializer' in declaration && declaration.initializer !== undefined) {
      born.push(declaration.initializer as ts.Expression);
    }
    if (ts.isPropertyAssignment(declaration)) born.push(declaration.initializer);
    if (ts.isShorthandPropertyAssignment(declaration)) {
      return this.tracedSymbol(this.checker.getShorthandAssignmentValueSymbol(declaration), inner);
    }
    if (ts.isParameter(declaration)) born.push(...this.passedTo(declaration));
    const fromCallback = ts.isParameter(declaration) ? this.callbackRole(declaration, inner) : undefined;
    return fromCallback ?? agreed(born.filter((x) => !isNothing(x)).map((x) => this.roleOf(x, inner)));
  }

  private tracedImport(
    symbol: ts.Symbol,
    declaration: ts.Node,
    seen: ReadonlySet<ts.Node>,
  ): Role | undefined {
    const specifier = specifierOf(declaration);
    const pkg = specifier === undefined ? undefined : packageOfSpecifier(specifier);
    const target = this.checker.getAliasedSymbol(symbol);
    const resolved = target.declarations?.[0];
    if (resolved !== undefined && declaredIn(resolved) === undefined) {
      if (ts.isExportAssignment(resolved)) return this.roleOf(resolved.expression, seen);
      return this.tracedSymbol(target, seen);
    }
    if (pkg === undefined) return undefined;
    if (!ts.isImportSpecifier(declaration)) return { pkg, what: 'module' };
    const name = (declaration.propertyName ?? declaration.name).text;
    return { pkg, what: name === 'default' ? 'module' : memberOf('module', name) };
  }

  /** `const { Pool } = require('pg')`, `const { channel } = broker`. */
  private tracedBinding(element: ts.BindingElement, seen: ReadonlySet<ts.Node>): Role | undefined {
    const pattern = element.parent;
    const holder = pattern.parent;
    if (!ts.isObjectBindingPattern(pattern) || element.dotDotDotToken !== undefined) return undefined;
    const key = element.propertyName ?? element.name;
    if (!ts.isIdentifier(key) || !ts.isVariableDeclaration(holder) || holder.initializer === undefined)
      return undefined;
    const owner = this.roleOf(holder.initializer, seen);
    if (owner !== undefined) return { pkg: owner.pkg, what: memberOf(owner.what, key.text) };
    const property = this.checker.getTypeAtLocation(holder.initializer).getProperty(key.text);
    return this.tracedSymbol(property, seen);
  }

  private annotated(node: ts.TypeNode, seen: ReadonlySet<ts.Node>): Role | undefined {
    const typed = this.roleOfType(this.checker.getTypeFromTypeNode(node));
    if (typed !== undefined) return typed;
    if (ts.isUnionTypeNode(node)) {
      return agreed(node.types.filter((t) => !isNothingType(t)).map((t) => this.annotated(t, seen)));
    }
    if (!ts.isTypeReferenceNode(node)) return undefined;
    const name = node.typeName;
    if (ts.isIdentifier(name) && name.text === 'Promise' && node.typeArguments?.[0] !== undefined) {
      return this.annotated(node.typeArguments[0], seen);
    }
    const last = ts.isIdentifier(name) ? name : name.right;
    const base = ts.isIdentifier(name) ? undefined : name.left;
    const imported = this.checker.getSymbolAtLocation(
      base !== undefined && ts.isIdentifier(base) ? base : last,
    );
    const declaration = imported?.declarations?.[0];
    const specifier = declaration === undefined ? undefined : specifierOf(declaration);
    const pkg = specifier === undefined ? undefined : packageOfSpecifier(specifier);
    if (pkg === undefined || declaration === undefined) return undefined;
    const original = ts.isImportSpecifier(declaration)
      ? (declaration.propertyName ?? declaration.name).text
      : last.text;
    return { pkg, what: tableOf(pkg).types[base === undefined ? original : last.text] ?? 'other' };
  }

  /** `pool.connect((error, client) => …)`: the second parameter is what the awaited call would give. */
  private callbackRole(parameter: ts.ParameterDeclaration, seen: ReadonlySet<ts.Node>): Role | undefined {
    const fn = parameter.parent;
    if (!isFn(fn) || !ts.isCallExpression(fn.parent) || fn.parameters.indexOf(parameter) !== 1)
      return undefined;
    const made = this.roleOf(fn.parent.expression, seen);
    const what = made && tableOf(made.pkg).calls[made.what];
    return made !== undefined && what !== undefined ? { pkg: made.pkg, what } : undefined;
  }

  private passedTo(parameter: ts.ParameterDeclaration): ts.Expression[] {
    const fn = parameter.parent;
    if (!isFn(fn)) return [];
    const position = fn.parameters.indexOf(parameter);
    return this.index.callsOf(fn).flatMap((call) => call.arguments[position] ?? []);
  }

  /** Whether a variable or property is ever assigned after its declaration. */
  isReassigned(symbol: ts.Symbol): boolean {
    return this.index.isReassigned(symbol);
  }

  // ── callees ──

  calleeOf(call: ts.CallExpression): Callee {
    const known = this.callees.get(call);
    if (known !== undefined) return known;
    // Set first: a function that is its own factory would recurse.
    this.callees.set(call, { kind: 'unresolved', name: calledName(call) });
    const found = this.findCallee(call);
    this.callees.set(call, found);
    return found;
  }

  private findCallee(call: ts.CallExpression): Callee {
    const target = bare(call.expression);
    if (ts.isPropertyAccessExpression(target)) {
      const role = this.roleOf(target.expression);
      if (role !== undefined) return { kind: 'package', role, method: target.name.text };
    }
    const bound = this.boundMethod(target);
    if (bound !== undefined) return bound;
    const declaration = this.checker.getResolvedSignature(call)?.declaration;
    if (declaration !== undefined && declaration.kind !== ts.SyntaxKind.JSDocSignature) {
      const pkg = declaredIn(declaration);
      if (pkg !== undefined)
        return { kind: 'package', role: { pkg, what: 'module' }, method: calledName(call) };
      if (isLibrary(declaration)) return { kind: 'builtin' };
      const own = this.ownFunctions(declaration);
      if (own.length > 0) return { kind: 'own', fns: own, through: throughOf(declaration) };
    }
    const role = ts.isIdentifier(target) ? this.roleOf(target) : undefined;
    if (role !== undefined) return { kind: 'package', role, method: calledName(call) };
    return this.looksBuiltin(target) ? { kind: 'builtin' } : { kind: 'unresolved', name: calledName(call) };
  }

  /** `const send = channel.sendToQueue.bind(channel)`: a call of `send` is a call of the method. */
  private boundMethod(target: ts.Expression): Callee | undefined {
    if (!ts.isIdentifier(target)) return undefined;
    const declaration = this.checker.getSymbolAtLocation(target)?.valueDeclaration;
    if (declaration === undefined || !ts.isVariableDeclaration(declaration)) return undefined;
    if (declaration.initializer === undefined || !isConst(declaration)) return undefined;
    const bind = bare(declaration.initializer);
    if (!ts.isCallExpression(bind) || bind.arguments.length !== 1) return undefined;
    const access = bare(bind.expression);
    if (!ts.isPropertyAccessExpression(access) || access.name.text !== 'bind') return undefined;
    const method = bare(access.expression);
    if (!ts.isPropertyAccessExpression(method)) return undefined;
    const role = this.roleOf(method.expression);
    if (role !== undefined) return { kind: 'package', role, method: method.name.text };
    const declared = this.checker.getSymbolAtLocation(method.name)?.declarations?.[0];
    const fns = declared === undefined ? [] : this.ownFunctions(declared);
    return fns.length > 0 ? { kind: 'own', fns, through: undefined } : undefined;
  }

  /** The bodies behind a declaration: itself, an overload's implementation, or what implements an interface. */
  private ownFunctions(declaration: ts.Node): Fn[] {
    if (isFn(declaration) && declaration.body !== undefined) return [declaration];
    const name = 'name' in declaration ? (declaration.name as ts.Node | undefined) : undefined;
    const symbol = name === undefined ? undefined : this.checker.getSymbolAtLocation(name);
    const bodies = (symbol?.declarations ?? []).filter((d): d is Fn => isFn(d) && d.body !== undefined);
    if (bodies.length > 0 || symbol === undefined) return bodies;
    const holder = declaration.parent;
    const property = ts.isPropertySignature(holder) ? holder.parent : holder;
    if (!ts.isInterfaceDeclaration(property) && !ts.isClassLike(property)) return [];
    const memberName =
      ts.isPropertySignature(holder) && ts.isIdentifier(holder.name) ? holder.name.text : symbol.name;
    return this.implementations(property, memberName, 0);
  }

  private implementations(owner: ts.Node, member: string, depth: number): Fn[] {
    if (depth > 3 || !(ts.isInterfaceDeclaration(owner) || ts.isClassLike(owner)) || owner.name === undefined)
      return [];
    const symbol = this.checker.getSymbolAtLocation(owner.name);
    if (symbol === undefined) return [];
    return this.index.heirsOf(symbol).flatMap((heir) => {
      if (isTestFile(this.analysis.pathOf(heir.getSourceFile()))) return [];
      const own = heir.members.find(
        (m) => m.name !== undefined && ts.isIdentifier(m.name) && m.name.text === member,
      );
      if (own !== undefined && isFn(own) && own.body !== undefined) return [own];
      if (
        own !== undefined &&
        ts.isPropertyDeclaration(own) &&
        own.initializer !== undefined &&
        isFn(own.initializer)
      ) {
        return [own.initializer];
      }
      return this.implementations(heir, member, depth + 1);
    });
  }

  /** Called on something without a type that no import explains: `JSON`, `console`, `res` of an untyped handler. */
  private looksBuiltin(target: ts.Expression): boolean {
    let root = target;
    while (ts.isPropertyAccessExpression(root) || ts.isCallExpression(root)) root = bare(root.expression);
    if (!ts.isIdentifier(root)) return !ts.isPropertyAccessExpression(target);
    const symbol = this.checker.getSymbolAtLocation(root);
    return symbol === undefined && isNodeGlobal(root.text);
  }
}

function agreed(roles: readonly (Role | undefined)[]): Role | undefined {
  const [first] = roles;
  if (first === undefined) return undefined;
  return roles.every((r) => r !== undefined && r.pkg === first.pkg && r.what === first.what)
    ? first
    : undefined;
}
