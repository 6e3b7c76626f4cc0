/**
 * What a call calls: a package's function, the repository's own, a builtin, or something that cannot be told.
 * Interfaces lead to what implements them, aliases to what they stand for.
 */

import { ts } from 'ts-morph';
import type { CallNames } from './call-names.js';
import type { Sources } from './files.js';
import { Injections } from './injections.js';
import { Instances } from './instances.js';
import {
  calledName,
  declaredIn,
  isConst,
  isLibrary,
  isNodeGlobal,
  isOpaque,
  throughOf,
  unaliased,
} from './origins.js';
import { tableOf } from './packages.js';
import type { Analysis } from './program.js';
import { ProgramIndex } from './program-index.js';
import type { Role } from './role-types.js';
import { Roles } from './roles.js';
import { bare, type Fn, isFn } from './syntax.js';

export type Callee =
  | { readonly kind: 'package'; readonly role: Role; readonly method: string }
  | {
      readonly kind: 'own';
      readonly fns: readonly Fn[];
      readonly through: string | undefined;
      /** Bindings of a dependency container that do not settle which of the functions it is. */
      readonly bindings?: readonly string[];
      /** Whether one of them binds a class that is none of the repository's. */
      readonly foreign?: boolean;
    }
  | { readonly kind: 'builtin' }
  | { readonly kind: 'unresolved'; readonly name: string };

export class Resolver {
  private readonly checker: ts.TypeChecker;
  private readonly callees = new Map<ts.CallExpression, Callee>();
  private readonly roles: Roles;
  private readonly index: ProgramIndex;
  private readonly instances: Instances;
  private readonly injections: Injections | undefined;

  /** Without `sources` no dependency container is looked into. */
  constructor(
    readonly analysis: Analysis,
    sources?: Sources,
  ) {
    this.checker = analysis.checker;
    this.index = new ProgramIndex(analysis);
    const functionsOf = (call: ts.CallExpression): readonly Fn[] => {
      const callee = this.calleeOf(call);
      return callee.kind === 'own' ? callee.fns : [];
    };
    this.roles = new Roles(this.checker, this.index, functionsOf);
    this.instances = new Instances(this.checker, this.index, functionsOf);
    this.injections = sources === undefined ? undefined : new Injections(analysis, sources, this.index);
  }

  roleOf(expression: ts.Expression): Role | undefined {
    return this.roles.roleOf(expression);
  }

  /** Of a class as a value, what its instances are: `Order` in `Order.query()`. */
  roleOfInstances(e: ts.Expression): Role | undefined {
    const [made] = this.checker.getTypeAtLocation(e).getConstructSignatures();
    return made === undefined
      ? undefined
      : this.roles.roleOfType(this.checker.getReturnTypeOfSignature(made));
  }

  /** The role that a type's name gives, where the type itself is an alias of something nameless. */
  roleOfAnnotation(node: ts.TypeNode): Role | undefined {
    return this.roles.named(node);
  }

  /** Classes that extend or implement a class or interface, directly. */
  heirsOf(symbol: ts.Symbol): readonly ts.ClassLikeDeclaration[] {
    return this.index.heirsOf(symbol);
  }

  /** Whether a variable or property is ever assigned after its declaration. */
  isReassigned(symbol: ts.Symbol): boolean {
    return this.index.isReassigned(symbol);
  }

  /** The calls in the program's root files, by the name that they are made under. */
  get callNames(): CallNames {
    return this.index.callNames;
  }

  /** The same in every file of the repository's own that the program holds. */
  get ownCallNames(): CallNames {
    return this.index.ownCallNames;
  }

  /** Calls that name the function itself; those through an interface are the interface's. */
  callsOf(fn: Fn): readonly ts.CallExpression[] {
    return this.index.callsOf(fn);
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

  /** The path of what a call calls: `trx.commit`, `module.transaction`; a role of its own for a called value. */
  pathOf(call: ts.CallExpression): Role | undefined {
    const callee = this.calleeOf(call);
    if (callee.kind !== 'package') return undefined;
    const { pkg, what } = callee.role;
    if (ts.isIdentifier(bare(call.expression))) {
      return this.calledValue(call) ?? { pkg, what: what === 'module' ? `module.${callee.method}` : what };
    }
    return { pkg, what: `${what}.${callee.method}` };
  }

  /** `provide()` of `const provide = knex.transactionProvider()`: a function of a package's that a value is. */
  private calledValue(call: ts.CallExpression): Role | undefined {
    const declaration = this.checker.getSymbolAtLocation(bare(call.expression))?.valueDeclaration;
    if (declaration === undefined || !ts.isVariableDeclaration(declaration)) return undefined;
    const made = declaration.initializer === undefined ? undefined : bare(declaration.initializer);
    const path = made !== undefined && ts.isCallExpression(made) ? this.pathOf(made) : undefined;
    const what = path === undefined ? undefined : tableOf(path.pkg).calls[path.what];
    return path === undefined || what === undefined ? undefined : { pkg: path.pkg, what };
  }

  private findCallee(call: ts.CallExpression): Callee {
    const target = bare(call.expression);
    if (ts.isPropertyAccessExpression(target)) {
      const role = this.roleOf(target.expression);
      // A subclass of a package's class has methods of its own: those are the repository's.
      if (role !== undefined && !this.isOwnMethod(target.name))
        return { kind: 'package', role, method: target.name.text };
    }
    const computed = this.computedMethod(target);
    if (computed !== undefined) return computed;
    const bound = this.boundMethod(target) ?? this.unionMethod(target);
    if (bound !== undefined) return bound;
    const declaration = this.checker.getResolvedSignature(call)?.declaration;
    if (declaration !== undefined && declaration.kind !== ts.SyntaxKind.JSDocSignature) {
      const pkg = declaredIn(declaration);
      if (pkg !== undefined)
        return { kind: 'package', role: { pkg, what: 'module' }, method: calledName(call) };
      if (isLibrary(declaration)) return { kind: 'builtin' };
      const isSuper =
        ts.isPropertyAccessExpression(target) && target.expression.kind === ts.SyntaxKind.SuperKeyword;
      const own = isSuper ? this.ownFunctions(declaration).slice(0, 1) : this.ownFunctions(declaration);
      if (own.length > 0 && !isSuper) return this.injected(target, own, throughOf(declaration));
      if (own.length > 0) return { kind: 'own', fns: own, through: throughOf(declaration) };
    }
    const role = ts.isIdentifier(target) ? this.roleOf(target) : undefined;
    if (role !== undefined) return { kind: 'package', role, method: calledName(call) };
    if (
      ts.isPropertyAccessExpression(target) &&
      isOpaque(this.checker.getTypeAtLocation(target.expression))
    ) {
      const method = this.instances.method(target.expression, target.name.text);
      if (method !== undefined) return { kind: 'own', fns: [method], through: undefined };
    }
    return this.looksBuiltin(target) ? { kind: 'builtin' } : { kind: 'unresolved', name: calledName(call) };
  }

  /** What a dependency container puts in the place of an interface or base class decides between implementations. */
  private injected(target: ts.Expression, own: readonly Fn[], through: string | undefined): Callee {
    const all: Callee = { kind: 'own', fns: own, through };
    const found = ts.isPropertyAccessExpression(target)
      ? this.injections?.behind(target.expression)
      : undefined;
    if (found === undefined || !ts.isPropertyAccessExpression(target)) return all;
    const methods = found.classes.map((c) => this.instances.memberOf(c, target.name.text));
    const fns = [...new Set(methods.filter((m) => m !== undefined))];
    if (found.provable && fns.length > 0 && methods.every((m) => m !== undefined)) {
      return fns.length === 1 ? { ...all, fns } : { ...all, fns, bindings: found.places };
    }
    return own.length === 1 && !found.unknown
      ? all
      : { ...all, bindings: found.places, foreign: found.unknown };
  }

  private isOwnMethod(name: ts.MemberName): boolean {
    const declaration = this.checker.getSymbolAtLocation(name)?.valueDeclaration;
    return (
      declaration !== undefined &&
      isFn(declaration) &&
      declaration.body !== undefined &&
      declaredIn(declaration) === undefined &&
      !isLibrary(declaration)
    );
  }

  /** `channel['publish'](…)` is `channel.publish(…)`; which method `channel[name](…)` is nobody can tell. */
  private computedMethod(target: ts.Expression): Callee | undefined {
    if (!ts.isElementAccessExpression(target)) return undefined;
    const role = this.roleOf(target.expression);
    if (role === undefined) return undefined;
    const name = bare(target.argumentExpression);
    return ts.isStringLiteralLike(name)
      ? { kind: 'package', role, method: name.text }
      : { kind: 'unresolved', name: '(expression)' };
  }

  /** `const { sendToQueue } = channel`: a call of the name is a call of the method. */
  private takenMethod(element: ts.BindingElement): Callee | undefined {
    const key = element.propertyName ?? element.name;
    const holder = element.parent.parent;
    if (!ts.isIdentifier(key) || !ts.isObjectBindingPattern(element.parent)) return undefined;
    if (!ts.isVariableDeclaration(holder) || holder.initializer === undefined || !isConst(holder))
      return undefined;
    const role = this.roleOf(holder.initializer);
    const isValue = role !== undefined && role.what !== 'module' && !role.what.startsWith('module.');
    return isValue ? { kind: 'package', role, method: key.text } : undefined;
  }

  /** `const send = channel.sendToQueue.bind(channel)`, here or in the file that exports it: `send` is the method. */
  private boundMethod(target: ts.Expression): Callee | undefined {
    if (!ts.isIdentifier(target)) return undefined;
    const symbol = this.checker.getSymbolAtLocation(target);
    const named = unaliased(this.checker, symbol);
    const declaration = named?.valueDeclaration;
    if (declaration !== undefined && ts.isBindingElement(declaration)) return this.takenMethod(declaration);
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

  /** `bus: RabbitBus | KafkaBus`: the checker names one of them, the call may reach either. */
  private unionMethod(target: ts.Expression): Callee | undefined {
    if (!ts.isPropertyAccessExpression(target)) return undefined;
    const type = this.checker.getNonNullableType(this.checker.getTypeAtLocation(target.expression));
    if (!type.isUnion()) return undefined;
    const declared = type.types.map((t) => t.getProperty(target.name.text)?.declarations?.[0]);
    const [first] = declared;
    if (declared.every((d) => d === first)) return undefined;
    const fns = declared.map((d) => (d === undefined ? [] : this.ownFunctions(d)));
    if (fns.some((f) => f.length === 0)) return { kind: 'unresolved', name: target.name.text };
    return { kind: 'own', fns: [...new Set(fns.flat())], through: undefined };
  }

  /** The bodies behind a declaration: itself, an overload's implementation, or what implements an interface. */
  private ownFunctions(declaration: ts.Node): Fn[] {
    if (isFn(declaration) && declaration.body !== undefined)
      return [declaration, ...this.overrides(declaration)];
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

  /** A subclass may have its own version of a method: a value of the base type may be either. */
  private overrides(method: Fn): Fn[] {
    if (!ts.isMethodDeclaration(method) || !ts.isClassLike(method.parent) || !ts.isIdentifier(method.name))
      return [];
    const name = method.name.text;
    return this.implementations(method.parent, name, 0).filter((fn) => fn !== method);
  }

  private implementations(owner: ts.Node, member: string, depth: number): Fn[] {
    if (depth > 3 || !(ts.isInterfaceDeclaration(owner) || ts.isClassLike(owner)) || owner.name === undefined)
      return [];
    const symbol = this.checker.getSymbolAtLocation(owner.name);
    if (symbol === undefined) return [];
    return this.index.heirsOf(symbol).flatMap((heir) => {
      if (this.analysis.isTest(heir.getSourceFile())) return [];
      const own = heir.members.find(
        (m) => m.name !== undefined && ts.isIdentifier(m.name) && m.name.text === member,
      );
      // An heir of the heir may have its own version again.
      if (own !== undefined && isFn(own) && own.body !== undefined)
        return [own, ...this.implementations(heir, member, depth + 1)];
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
