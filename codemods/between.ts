/**
 * A statement between a write and its publish that has no place in a transaction, such as a cache write: may it run
 * behind the commit instead? Only where nothing that stays in front can tell: no name of it, no value that it gets hold
 * of, no write of its own. Answers are yes and no; it moves nothing.
 */

import { ts } from 'ts-morph';
import { boundNames, isAssignment, variableOf } from './availability.js';
import { type Effects, isWrite } from './effects.js';
import { isConst, localSymbol } from './origins.js';
import type { Resolver } from './resolve.js';
import { contains, eachNode, eachOwnNode, isFn, isReference, ownCalls, type Scope } from './syntax.js';

const MAX_DEPTH = 3;

export class Between {
  private readonly checker: ts.TypeChecker;

  constructor(
    private readonly resolver: Resolver,
    private readonly effects: Effects,
  ) {
    this.checker = resolver.analysis.checker;
  }

  /** Whether `late` may run behind everything in `kept`, which follows it now. */
  mayFollow(late: ts.Node, kept: readonly ts.Node[], scope: Scope): boolean {
    return this.isMovable(late, scope) && !this.feeds(late, kept, scope) && !this.isFed(late, kept);
  }

  /** Names that a statement declares and `nodes` read. */
  reads(nodes: readonly ts.Node[], declaring: ts.Statement): boolean {
    const declared = this.declared(declaring);
    return nodes.some((n) => this.references(n).some((id) => declared.has(this.symbol(id))));
  }

  /** No write to a database that is spoken to here, no message, no way out of the function. */
  private isMovable(late: ts.Node, scope: Scope): boolean {
    if (ts.isVariableStatement(late) && late.declarationList.flags & ts.NodeFlags.Using) return false;
    let plain = true;
    eachNode(late, (n) => {
      if (ts.isYieldExpression(n)) plain = false;
    });
    return (
      plain &&
      !this.effects.of(late).some((e) => isWrite(e) || e.kind === 'pg-transaction' || e.kind === 'broker') &&
      !ownCalls(late).some((call) => this.effects.mayWrite(call) || this.isLocal(call, scope))
    );
  }

  /** A call of a function of this very function: it may change anything that is here. */
  private isLocal(call: ts.CallExpression, scope: Scope): boolean {
    const callee = this.resolver.calleeOf(call);
    return callee.kind === 'own' && !ts.isSourceFile(scope) && callee.fns.some((fn) => contains(scope, fn));
  }

  /** Something that is kept reads a name, a variable or an object that this statement may have changed. */
  private feeds(late: ts.Node, kept: readonly ts.Node[], scope: Scope): boolean {
    const changed = new Set([...this.declared(late), ...this.assigned(late), ...this.held(late)]);
    const calls = ownCalls(late).length > 0;
    return kept.some(
      (node) =>
        this.references(node).some((id) => {
          const symbol = this.symbol(id);
          return changed.has(symbol) || (calls && symbol !== undefined && this.mayChange(symbol, scope));
        }) ||
        (calls && this.readsState(node)),
    );
  }

  /** What is kept assigns a variable that this statement reads: it would see the later value. */
  private isFed(late: ts.Node, kept: readonly ts.Node[]): boolean {
    const assigned = new Set(kept.flatMap((n) => [...this.assigned(n)]));
    return this.references(late).some((id) => assigned.has(this.symbol(id)));
  }

  private symbol(id: ts.Node): ts.Symbol | undefined {
    return localSymbol(this.checker, id);
  }

  private references(node: ts.Node): ts.Identifier[] {
    const found: ts.Identifier[] = [];
    eachNode(node, (n) => {
      if (ts.isIdentifier(n) && isReference(n)) found.push(n);
    });
    return found;
  }

  private declared(node: ts.Node): Set<ts.Symbol | undefined> {
    const found = new Set<ts.Symbol | undefined>();
    eachOwnNode(node, (n) => {
      if (!ts.isVariableDeclaration(n)) return;
      for (const id of boundNames(n.name)) found.add(this.symbol(id));
    });
    found.delete(undefined);
    return found;
  }

  /** Variables that are assigned, counted up or down, or of which a part is assigned or deleted. */
  private assigned(node: ts.Node): Set<ts.Symbol | undefined> {
    const found = new Set<ts.Symbol | undefined>();
    const take = (target: ts.Node): void => {
      for (const id of this.references(target)) found.add(this.symbol(id));
      if (ts.isPropertyAccessExpression(target)) found.add(this.checker.getSymbolAtLocation(target.name));
    };
    eachNode(node, (n) => {
      if (ts.isBinaryExpression(n) && isAssignment(n)) take(n.left);
      else if (ts.isDeleteExpression(n)) take(n.expression);
      else if (
        (ts.isPrefixUnaryExpression(n) || ts.isPostfixUnaryExpression(n)) &&
        (n.operator === ts.SyntaxKind.PlusPlusToken || n.operator === ts.SyntaxKind.MinusMinusToken)
      )
        take(n.operand);
      else if (ts.isForInStatement(n) || ts.isForOfStatement(n)) take(n.initializer);
    });
    found.delete(undefined);
    return found;
  }

  /** Objects that a call gets hold of: whole arguments, parts of them, and what a method is called on. */
  private held(node: ts.Node): Set<ts.Symbol | undefined> {
    const found = new Set<ts.Symbol | undefined>();
    for (const id of this.references(node)) {
      let top: ts.Node = id;
      while (
        (ts.isPropertyAccessExpression(top.parent) || ts.isElementAccessExpression(top.parent)) &&
        top.parent.expression === top &&
        !(ts.isCallExpression(top.parent.parent) && top.parent.parent.expression === top.parent)
      )
        top = top.parent;
      const isValue = ts.isExpression(top) && this.isPrimitive(top);
      if (!isValue) found.add(this.symbol(id));
    }
    found.delete(undefined);
    return found;
  }

  private isPrimitive(e: ts.Expression): boolean {
    const { parent } = e;
    // Made a text or compared, whatever it is.
    if (ts.isTemplateSpan(parent)) return true;
    const type = this.checker.getTypeAtLocation(e);
    const parts = type.isUnion() ? type.types : [type];
    const flags =
      ts.TypeFlags.StringLike |
      ts.TypeFlags.NumberLike |
      ts.TypeFlags.BooleanLike |
      ts.TypeFlags.BigIntLike |
      ts.TypeFlags.Null |
      ts.TypeFlags.Undefined;
    return parts.every((t) => (t.flags & flags) !== 0);
  }

  /** A variable of the module's, or one that a nested function assigns: any call may change it. */
  private mayChange(symbol: ts.Symbol, scope: Scope): boolean {
    const declaration = symbol.valueDeclaration;
    const variable = declaration === undefined ? undefined : (variableOf(declaration) ?? declaration);
    if (variable === undefined || !(ts.isVariableDeclaration(variable) || ts.isParameter(variable)))
      return false;
    if (ts.isVariableDeclaration(variable) && isConst(variable)) return false;
    if (!contains(scope, variable)) return true;
    let nested = false;
    eachOwnNode(scope, (n) => {
      if (isFn(n) && n !== scope && this.assigned(n).has(symbol)) nested = true;
    });
    return nested;
  }

  /** `this.count` as a value, where somebody other than a constructor assigns it, also in what a call computes. */
  private readsState(node: ts.Node, depth = 0): boolean {
    let reads = depth < MAX_DEPTH && ownCalls(node).some((call) => this.computesFromState(call, depth + 1));
    eachNode(node, (n) => {
      if (!ts.isPropertyAccessExpression(n) || n.expression.kind !== ts.SyntaxKind.ThisKeyword) return;
      const symbol = this.checker.getSymbolAtLocation(n.name);
      const owner = classOf(n);
      if (symbol === undefined || owner === undefined) return;
      for (const member of owner.members) {
        if (!ts.isConstructorDeclaration(member) && this.assigned(member).has(symbol)) reads = true;
      }
    });
    return reads;
  }

  private computesFromState(call: ts.CallExpression, depth: number): boolean {
    const callee = this.resolver.calleeOf(call);
    // What sends the message is replaced.
    if (callee.kind !== 'own' || this.effects.ofCall(call).length > 0) return false;
    return callee.fns.some(
      (fn) =>
        fn.body !== undefined &&
        (this.readsState(fn.body, depth) ||
          this.references(fn.body).some((id) => {
            const symbol = this.symbol(id);
            return symbol !== undefined && this.mayChange(symbol, fn);
          })),
    );
  }
}

function classOf(node: ts.Node): ts.ClassLikeDeclaration | undefined {
  let n = node;
  while (!ts.isSourceFile(n)) {
    if (ts.isClassLike(n)) return n;
    n = n.parent;
  }
  return undefined;
}
