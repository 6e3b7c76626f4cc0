/**
 * Where the transaction is opened whose client goes down to a function that writes: on a pool that has a name at the call,
 * on an argument of it, or by a new method of the object that holds the pool. Whatever is less than certain has a reason.
 */

import { ts } from 'ts-morph';
import { isCommonJs } from '../imports.js';
import { isConst, localSymbol, unaliased } from '../origins.js';
import type { Resolver } from '../resolve.js';
import { bare, eachNode, isReference, unwrapped } from '../syntax.js';
import type { Addition } from '../thread-shapes.js';
import { classOf, DeepOpeners, isRefusal, leaving, type Refusal, refuse, type Step } from './deep-opener.js';
import type { DownForm } from './deep-types.js';
import type { PoolName } from './pool-name.js';

export interface Opening {
  readonly pool: PoolName | undefined;
  readonly opener: string | undefined;
  readonly key: string | undefined;
  readonly additions: readonly Addition[];
  /** The root is a parameter of all functions on the way: the number of the call's argument. */
  readonly argument: { readonly index: number; readonly node: ts.Expression } | undefined;
}

export class Openings {
  private readonly openers: DeepOpeners;

  constructor(
    private readonly resolver: Resolver,
    private readonly isSelected: (file: ts.SourceFile) => boolean,
  ) {
    this.openers = new DeepOpeners(resolver);
  }

  private get checker(): ts.TypeChecker {
    return this.resolver.analysis.checker;
  }

  of(
    call: ts.CallExpression,
    path: readonly Step[],
    root: ts.Expression,
    what: string,
    form: DownForm,
  ): Opening | Refusal {
    const e = unwrapped(root);
    const last = path.at(-1);
    if (last === undefined) return refuse('nothing is on the way');
    if (ts.isIdentifier(e)) {
      const index = last.fn.parameters.findIndex((p) => p.name === this.declarationOf(e)?.name);
      return index < 0 ? this.named(call, e) : this.argumentAt(call, path, index);
    }
    if (!ts.isPropertyAccessExpression(e) || e.expression.kind !== ts.SyntaxKind.ThisKeyword)
      return refuse(`${root.getText()} has no name where the transaction would begin`);
    return this.climbed(call, path, e, what, form);
  }

  private declarationOf(e: ts.Identifier): ts.ParameterDeclaration | undefined {
    const declaration = localSymbol(this.checker, e)?.valueDeclaration;
    return declaration !== undefined && ts.isParameter(declaration) ? declaration : undefined;
  }

  // ── a constant of a module ──

  isOfModule(root: ts.Expression): boolean {
    const e = unwrapped(root);
    const symbol = ts.isIdentifier(e) ? this.checker.getSymbolAtLocation(e) : undefined;
    const declaration = unaliased(this.checker, symbol)?.valueDeclaration;
    return declaration !== undefined && moduleStatement(declaration) !== undefined;
  }

  private named(call: ts.CallExpression, root: ts.Identifier): Opening | Refusal {
    const symbol = this.checker.getSymbolAtLocation(root);
    const target = unaliased(this.checker, symbol);
    const declaration = target?.valueDeclaration;
    const none = refuse(`${root.text} has no name where the transaction would begin`);
    const statement = declaration === undefined ? undefined : moduleStatement(declaration);
    if (target === undefined || statement === undefined) return none;
    const opening = (pool: PoolName, additions: readonly Addition[] = []): Opening => ({
      pool,
      opener: undefined,
      key: undefined,
      additions,
      argument: undefined,
    });
    const here = this.checker.getSymbolsInScope(call, ts.SymbolFlags.Value | ts.SymbolFlags.Alias);
    const visible = here.find(
      (s) => s === target || (s.flags & ts.SymbolFlags.Alias && this.checker.getAliasedSymbol(s) === target),
    );
    if (visible !== undefined && !isTypeOnly(visible))
      return opening({ text: visible.name, from: undefined });
    const module = statement.parent;
    if (here.some((s) => s.name === target.name && s !== visible) || module === call.getSourceFile())
      return none;
    const pool = { text: target.name, from: { module, name: target.name } };
    const exports = this.checker.getSymbolAtLocation(module)?.exports;
    if (exports?.get(ts.escapeLeadingUnderscores(target.name)) === target) return opening(pool);
    const alone = ts.isVariableStatement(statement) && statement.declarationList.declarations.length === 1;
    if (
      !alone ||
      !ts.isIdentifier(statement.declarationList.declarations[0]?.name ?? statement) ||
      isCommonJs(module) ||
      exports === undefined ||
      this.isPassedOnWhole(module)
    )
      return refuse(`${root.text} is not exported`);
    return this.isSelected(module)
      ? opening(pool, [{ what: 'export', beside: statement }])
      : refuse(`${root.text} is not exported, and its file is not among the paths`);
  }

  /** `export * from './db.js'`: a new name there might hide another's. */
  private isPassedOnWhole(module: ts.SourceFile): boolean {
    return this.resolver.analysis.own.some((file) =>
      file.statements.some(
        (s) =>
          ts.isExportDeclaration(s) &&
          s.exportClause === undefined &&
          s.moduleSpecifier !== undefined &&
          this.checker.getSymbolAtLocation(s.moduleSpecifier)?.valueDeclaration === module,
      ),
    );
  }

  // ── a parameter ──

  private argumentAt(call: ts.CallExpression, path: readonly Step[], last: number): Opening | Refusal {
    let index = last;
    for (const step of [...path].reverse()) {
      const parameter = step.fn.parameters[index];
      if (parameter === undefined || !this.isOnlyHandedOn(step, parameter))
        return refuse(`${parameter?.name.getText() ?? 'its pool'} is used for more than its statements`);
      const before = path[path.indexOf(step) - 1];
      if (before === undefined) break;
      const handed: number[] = before.nexts.map((next) => {
        const argument = next.arguments[index];
        const declared =
          argument !== undefined && ts.isIdentifier(argument) ? this.declarationOf(argument) : undefined;
        return declared === undefined ? -1 : before.fn.parameters.indexOf(declared);
      });
      index = handed.every((at) => at === handed[0]) ? (handed[0] ?? -1) : -1;
      if (index < 0) return refuse('its pool is not a parameter on the way');
    }
    const argument = call.arguments[index];
    if (argument === undefined || !this.isStable(argument))
      return refuse(`${argument?.getText() ?? 'its pool'} is no plain name`);
    return {
      pool: { text: argument.getText(), from: undefined },
      opener: undefined,
      key: undefined,
      additions: [],
      argument: { index, node: argument },
    };
  }

  /** Its statements and the next call are all that a parameter is read for. */
  private isOnlyHandedOn(step: Step, parameter: ts.ParameterDeclaration): boolean {
    const symbol = this.checker.getSymbolAtLocation(parameter.name);
    let only = parameter.dotDotDotToken === undefined && ts.isIdentifier(parameter.name);
    eachNode(step.fn, (n) => {
      if (!ts.isIdentifier(n) || n === parameter.name || localSymbol(this.checker, n) !== symbol) return;
      const called = ts.isPropertyAccessExpression(n.parent) || ts.isCallExpression(n.parent);
      const handedOn = step.nexts.some((next) => next.arguments.some((a) => a === n));
      if (!handedOn && !(called && isReference(n) && isCallee(n))) only = false;
    });
    return only;
  }

  // ── a property of whoever writes ──

  private climbed(
    call: ts.CallExpression,
    path: readonly Step[],
    root: ts.PropertyAccessExpression,
    what: string,
    form: DownForm,
  ): Opening | Refusal {
    const at = leaving([call, ...path.flatMap((p) => p.nexts[0] ?? [])]);
    const owner = classOf(call);
    if (at === undefined) {
      const mine = owner !== undefined && path.every((p) => classOf(p.fn) === owner);
      return mine
        ? {
            pool: { text: root.getText(), from: undefined },
            opener: undefined,
            key: undefined,
            additions: [],
            argument: undefined,
          }
        : refuse(`${root.getText()} belongs to another class`);
    }
    if (
      at.index > 0 &&
      (owner === undefined || !path.slice(0, at.index).every((p) => classOf(p.fn) === owner))
    )
      return refuse('the way there crosses classes');
    if (!this.isStable(at.receiver)) return refuse(`${at.receiver.getText()} is no plain name`);
    const rest = this.openers.of(path.slice(at.index), at.receiver, root, what, form);
    if (isRefusal(rest)) return rest;
    const key = localSymbol(
      this.checker,
      ts.isPropertyAccessExpression(at.receiver) ? at.receiver.name : at.receiver,
    );
    return {
      pool: undefined,
      opener: `${at.receiver.getText()}.${rest.name}`,
      key: `${at.receiver.getText()} ${this.numberOf(key)}`,
      additions: rest.additions,
      argument: undefined,
    };
  }

  private readonly numbers = new Map<ts.Symbol | undefined, number>();

  private numberOf(symbol: ts.Symbol | undefined): number {
    const known = this.numbers.get(symbol) ?? this.numbers.size;
    this.numbers.set(symbol, known);
    return known;
  }

  /** The same object whenever it is read: a constant, a parameter, an import, a property of `this` that is no getter. */
  private isStable(receiver: ts.Expression): boolean {
    const e = bare(receiver);
    if (e !== receiver && ts.isNonNullExpression(receiver)) return false;
    if (e.kind === ts.SyntaxKind.ThisKeyword) return true;
    if (ts.isPropertyAccessExpression(e)) {
      if (e.questionDotToken !== undefined) return false;
      const declaration = this.checker.getSymbolAtLocation(e.name)?.valueDeclaration;
      const isAccessor = declaration !== undefined && ts.isAccessor(declaration);
      return !isAccessor && this.isStable(e.expression);
    }
    if (!ts.isIdentifier(e)) return false;
    const symbol = localSymbol(this.checker, e);
    const declaration = symbol?.valueDeclaration;
    if (symbol === undefined) return false;
    if (symbol.flags & ts.SymbolFlags.Alias) return true;
    if (declaration === undefined) return false;
    if (ts.isVariableDeclaration(declaration)) return isConst(declaration);
    return ts.isParameter(declaration)
      ? !this.resolver.isReassigned(symbol)
      : ts.isBindingElement(declaration);
  }
}

/** `import type { Order }`: its name says nothing at run time. */
function isTypeOnly(symbol: ts.Symbol): boolean {
  return symbol.declarations?.some(ts.isTypeOnlyImportDeclaration) === true;
}

/** The statement of a module that declares a constant or a class. */
function moduleStatement(
  declaration: ts.Declaration,
): ((ts.VariableStatement | ts.ClassDeclaration) & { readonly parent: ts.SourceFile }) | undefined {
  if (ts.isClassDeclaration(declaration) && ts.isSourceFile(declaration.parent))
    return declaration as ts.ClassDeclaration & { readonly parent: ts.SourceFile };
  if (!ts.isVariableDeclaration(declaration) || !isConst(declaration)) return undefined;
  const statement = declaration.parent.parent;
  if (!ts.isVariableStatement(statement) || !ts.isSourceFile(statement.parent)) return undefined;
  return statement as ts.VariableStatement & { readonly parent: ts.SourceFile };
}

/** `db` in `db.query(…)`, `db(…)`, `db.insert(…).values(…)`. */
function isCallee(id: ts.Identifier): boolean {
  const { parent } = id;
  if (ts.isCallExpression(parent)) return parent.expression === id;
  return (
    ts.isPropertyAccessExpression(parent) &&
    parent.expression === id &&
    ts.isCallExpression(parent.parent) &&
    parent.parent.expression === parent
  );
}
