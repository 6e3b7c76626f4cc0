/**
 * A transaction that is a callback: `withTransaction(pool, async (client) => …)`, `knex.transaction(async (trx) => …)`.
 * It finds the place in the callback and what the transaction's result is called there; which calls open a
 * transaction is said by pg-callback.ts and library-callback.ts.
 */

import { ts } from 'ts-morph';
import type { Effects } from '../effects.js';
import { isWrite } from '../effects.js';
import { enclosures, follows, statementOf } from '../hazards.js';
import type { Obstacle } from '../reasons.js';
import type { Resolver } from '../resolve.js';
import { bare, contains, type Fn, isAsync, isFn, lineOf, ownCalls, quote, type Scope } from '../syntax.js';
import type { InnerNames, Target, TransactionScope } from './scope.js';
import type { Opened, Writes } from './writes.js';

type Callback = ts.ArrowFunction | ts.FunctionExpression;

/** A call that runs a callback in a transaction. A callback without a parameter may get one. */
export interface CallbackCall extends Opened {
  readonly idiom: string;
  /** What the call is made on, where the adapter wants it beside the transaction. */
  readonly root: ts.Expression | undefined;
}

export type CallbackOpener = (call: ts.CallExpression) => CallbackCall | undefined;

/** The name of a parameter that is added. */
const ADDED = 'transaction';

export class CallbackFinder {
  constructor(
    private readonly resolver: Resolver,
    private readonly effects: Effects,
    private readonly openers: readonly CallbackOpener[],
    private readonly proof: Writes,
  ) {}

  find(scope: Scope, publish: ts.Statement): TransactionScope | undefined {
    return this.inside(scope, publish) ?? this.after(scope, publish);
  }

  private helperCall(call: ts.CallExpression): CallbackCall | undefined {
    for (const open of this.openers) {
      const found = open(call);
      if (found !== undefined) return found;
    }
    return undefined;
  }

  private inside(scope: Scope, publish: ts.Statement): TransactionScope | undefined {
    if (ts.isSourceFile(scope) || !ts.isCallExpression(scope.parent) || scope.body === undefined)
      return undefined;
    const helper = this.helperCall(scope.parent);
    if (helper?.callback !== scope) return undefined;
    // A loop or a branch stays as it is; an own catch would hide an aborted transaction.
    const obstacles = enclosures(publish, scope.body).filter(
      (o) => o.code !== 'loop' && o.code !== 'conditional-path',
    );
    return {
      ...this.common(helper, [...obstacles, ...notAsync(scope)]),
      position: 'inside',
      target: { before: publish },
      between: [],
      inner: undefined,
    };
  }

  private after(scope: Scope, publish: ts.Statement): TransactionScope | undefined {
    const reached = ownCalls(scope).flatMap((call) => {
      const helper = call.end <= publish.end ? this.helperCall(call) : undefined;
      const statement = helper === undefined ? undefined : statementOf(call);
      if (helper === undefined || statement === undefined) return [];
      const relation = follows(statement, publish, scope);
      return relation.reachable ? [{ helper, statement, relation }] : [];
    });
    const last = reached.at(-1);
    if (last === undefined) return undefined;
    const { helper, statement, relation } = last;
    const obstacles: Obstacle[] = [...relation.obstacles, ...notAsync(helper.callback)];
    if (reached.length > 1) {
      obstacles.push({
        code: 'two-commits',
        what: reached.map((r) => `line ${lineOf(r.helper.call)}`).join(', '),
      });
    }
    const write = relation.between
      .flatMap((s) => this.effects.of(s))
      .find((e) => isWrite(e) || e.kind === 'pg-transaction');
    if (write !== undefined)
      obstacles.push({ code: 'write-after-commit', what: `line ${lineOf(write.at)}, ${quote(write.at)}` });
    const place = this.place(helper, statement, publish, obstacles);
    return { ...this.common(helper, obstacles), position: 'after', between: relation.between, ...place };
  }

  private common(
    helper: CallbackCall,
    obstacles: readonly Obstacle[],
  ): Omit<TransactionScope, 'position' | 'between' | 'target' | 'inner'> {
    const written = this.proof.of(helper);
    const handle = helper.client?.text ?? ADDED;
    return {
      idiom: helper.idiom,
      handle: helper.root === undefined ? handle : `${helper.root.getText()}, ${handle}`,
      handleNode: helper.client ?? helper.root ?? helper.call.expression,
      library: helper.library,
      parameter: helper.client === undefined ? { callback: helper.callback, name: ADDED } : undefined,
      begin: helper.call,
      end: helper.callback,
      rollbackCatch: undefined,
      writes: written.writes,
      obstacles: [...obstacles, ...written.obstacles],
    };
  }

  /** Where in the callback the enqueue goes, and what the result is called there. */
  private place(
    helper: CallbackCall,
    statement: ts.Statement,
    publish: ts.Statement,
    obstacles: Obstacle[],
  ): { target: Target; inner: InnerNames | undefined } {
    const { body } = helper.callback;
    if (!ts.isBlock(body)) {
      obstacles.push({
        code: 'transaction-unclear',
        what: `the callback at line ${lineOf(helper.callback)} has no block`,
      });
      return { target: { before: publish }, inner: undefined };
    }
    const last = body.statements.at(-1);
    const returns = returnStatements(helper.callback);
    const final = last !== undefined && ts.isReturnStatement(last) ? last : undefined;
    if (returns.some((r) => r !== final)) {
      obstacles.push({
        code: 'conditional-path',
        what: `an early return in the transaction, line ${lineOf(returns[0] ?? body)}`,
      });
    }
    const target: Target = final === undefined ? { atEndOf: body } : { before: final };
    return { target, inner: this.innerNames(helper, statement, final, obstacles) };
  }

  private innerNames(
    helper: CallbackCall,
    statement: ts.Statement,
    final: ts.ReturnStatement | undefined,
    obstacles: Obstacle[],
  ): InnerNames | undefined {
    const declaration = declarationOf(helper.call, statement);
    const returned = final?.expression === undefined ? undefined : bare(final.expression);
    const unclear = (): undefined => {
      obstacles.push({
        code: 'transaction-unclear',
        what: `what line ${lineOf(statement)} makes of the transaction's result`,
      });
      return undefined;
    };
    const symbol = (id: ts.Node): ts.Symbol | undefined =>
      this.resolver.analysis.checker.getSymbolAtLocation(id);
    if (ts.isExpressionStatement(statement)) {
      if (bareCall(statement, helper.call)) return undefined;
      const assigned = assignedName(statement, helper.call);
      const outer = assigned === undefined ? undefined : symbol(assigned);
      if (outer === undefined || returned === undefined || !ts.isIdentifier(returned)) return unclear();
      return { renames: new Map([[outer, returned.text]]), introduce: undefined };
    }
    if (declaration === undefined || final === undefined || returned === undefined) return unclear();
    if (ts.isIdentifier(declaration.name)) {
      const outer = symbol(declaration.name);
      if (outer === undefined) return unclear();
      if (ts.isIdentifier(returned))
        return { renames: new Map([[outer, returned.text]]), introduce: undefined };
      if (namesIn(helper.callback).has(declaration.name.text)) return unclear();
      const introduce = { name: declaration.name.text, statement: final };
      return { renames: new Map([[outer, declaration.name.text]]), introduce };
    }
    if (!ts.isObjectBindingPattern(declaration.name) || !ts.isObjectLiteralExpression(returned))
      return unclear();
    const renames = new Map<ts.Symbol, string>();
    for (const element of declaration.name.elements) {
      const outer = symbol(element.name);
      const value = propertyName(returned, (element.propertyName ?? element.name).getText());
      // A part without a name inside is an obstacle only to a publish that reads it.
      if (outer !== undefined && value !== undefined && element.initializer === undefined)
        renames.set(outer, value);
    }
    return { renames, introduce: undefined };
  }
}

function notAsync(fn: Fn): Obstacle[] {
  return isAsync(fn) ? [] : [{ code: 'not-async', what: `line ${lineOf(fn)}` }];
}

/** `await helper(…)` and nothing else. */
function bareCall(statement: ts.ExpressionStatement, call: ts.CallExpression): boolean {
  const e = bare(statement.expression);
  return ts.isAwaitExpression(e) && bare(e.expression) === call;
}

/** `const result = await helper(…)`. */
function declarationOf(call: ts.CallExpression, statement: ts.Statement): ts.VariableDeclaration | undefined {
  if (!ts.isVariableStatement(statement) || statement.declarationList.declarations.length !== 1)
    return undefined;
  const [declaration] = statement.declarationList.declarations;
  const value = declaration?.initializer === undefined ? undefined : bare(declaration.initializer);
  return value !== undefined && ts.isAwaitExpression(value) && bare(value.expression) === call
    ? declaration
    : undefined;
}

/** The name in `result = await helper(…)`. */
function assignedName(statement: ts.ExpressionStatement, call: ts.CallExpression): ts.Identifier | undefined {
  const e = bare(statement.expression);
  if (!ts.isBinaryExpression(e) || e.operatorToken.kind !== ts.SyntaxKind.EqualsToken) return undefined;
  const value = bare(e.right);
  const made = ts.isAwaitExpression(value) && bare(value.expression) === call;
  return made && ts.isIdentifier(e.left) ? e.left : undefined;
}

function propertyName(object: ts.ObjectLiteralExpression, key: string): string | undefined {
  for (const p of object.properties) {
    if (p.name?.getText() !== key) continue;
    if (ts.isShorthandPropertyAssignment(p)) return p.name.text;
    if (ts.isPropertyAssignment(p) && ts.isIdentifier(p.initializer)) return p.initializer.text;
  }
  return undefined;
}

function returnStatements(fn: Callback): ts.ReturnStatement[] {
  const found: ts.ReturnStatement[] = [];
  const walk = (node: ts.Node): void => {
    if (isFn(node)) return;
    if (ts.isReturnStatement(node)) found.push(node);
    ts.forEachChild(node, walk);
  };
  ts.forEachChild(fn.body, walk);
  return found;
}

function namesIn(fn: Callback): ReadonlySet<string> {
  const names = new Set<string>();
  const walk = (node: ts.Node): void => {
    const isProperty = ts.isPropertyAccessExpression(node.parent) && node.parent.name === node;
    if (ts.isIdentifier(node) && !isProperty && contains(fn, node)) names.add(node.text);
    ts.forEachChild(node, walk);
  };
  walk(fn);
  return names;
}
