/**
 * A helper that runs a callback in a pg transaction: `withTransaction(pool, async (client) => …)`. The helper must
 * prove itself: BEGIN, one call of its callback with that client, COMMIT. A function that merely has such a name, or
 * only awaits its callback, is none.
 */

import { ts } from 'ts-morph';
import type { Effects } from '../effects.js';
import { isWrite } from '../effects.js';
import { enclosures, follows, statementOf } from '../hazards.js';
import type { Obstacle } from '../reasons.js';
import type { Resolver } from '../resolve.js';
import { bare, contains, type Fn, isAsync, isFn, lineOf, ownCalls, quote, type Scope } from '../syntax.js';
import { transactionStatements } from './pg-client.js';
import type { InnerNames, Key, Target, TransactionScope } from './scope.js';

export const name = 'pg-callback';
export const summary = "the repository's own helper that runs a callback between BEGIN and COMMIT";

type Callback = ts.ArrowFunction | ts.FunctionExpression;

/** A call of such a helper: the callback that is passed and its parameter that is the client. */
interface HelperCall {
  readonly call: ts.CallExpression;
  readonly callback: Callback;
  readonly client: ts.Identifier;
}

export class CallbackFinder {
  private readonly helpers = new Map<Fn, { callback: number; client: number } | undefined>();

  constructor(
    private readonly resolver: Resolver,
    private readonly effects: Effects,
    private readonly key: Key,
  ) {}

  find(scope: Scope, publish: ts.Statement): TransactionScope | undefined {
    return this.inside(scope, publish) ?? this.after(scope, publish);
  }

  /** Whether a call opens and commits a transaction for its callback. */
  isTransaction(call: ts.CallExpression): boolean {
    return this.helperCall(call) !== undefined;
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
    helper: HelperCall,
    obstacles: readonly Obstacle[],
  ): Omit<TransactionScope, 'position' | 'between' | 'target' | 'inner'> {
    const body = helper.callback.body;
    const passes = ownCalls(body).some((c) =>
      c.arguments.some((a) => ts.isIdentifier(a) && a.text === helper.client.text),
    );
    return {
      idiom: name,
      handle: helper.client.text,
      handleNode: helper.client,
      begin: helper.call,
      end: helper.callback,
      rollbackCatch: undefined,
      writes: passes || this.effects.of(body).some(isWrite),
      obstacles,
    };
  }

  /** Where in the callback the enqueue goes, and what the result is called there. */
  private place(
    helper: HelperCall,
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
    helper: HelperCall,
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
    if (ts.isExpressionStatement(statement)) return bareCall(statement, helper.call) ? undefined : unclear();
    if (declaration === undefined || final === undefined || returned === undefined) return unclear();
    const symbol = (id: ts.Node): ts.Symbol | undefined =>
      this.resolver.analysis.checker.getSymbolAtLocation(id);
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

  private helperCall(call: ts.CallExpression): HelperCall | undefined {
    const callee = this.resolver.calleeOf(call);
    const fn = callee.kind === 'own' && callee.fns.length === 1 ? callee.fns[0] : undefined;
    const shape = fn === undefined ? undefined : this.shapeOf(fn);
    if (shape === undefined) return undefined;
    const passed = call.arguments[shape.callback];
    const callback = passed === undefined ? undefined : bare(passed);
    if (callback === undefined || !(ts.isArrowFunction(callback) || ts.isFunctionExpression(callback)))
      return undefined;
    const client = callback.parameters[shape.client]?.name;
    return client !== undefined && ts.isIdentifier(client) ? { call, callback, client } : undefined;
  }

  private shapeOf(fn: Fn): { callback: number; client: number } | undefined {
    if (this.helpers.has(fn)) return this.helpers.get(fn);
    this.helpers.set(fn, undefined);
    const shape = this.judge(fn);
    this.helpers.set(fn, shape);
    return shape;
  }

  /** BEGIN, then the one awaited call of a parameter with that client, then COMMIT, on every path that returns. */
  private judge(fn: Fn): { callback: number; client: number } | undefined {
    if (fn.body === undefined) return undefined;
    const all = transactionStatements(fn, this.effects);
    const begins = all.filter((t) => t.query.sql === 'begin');
    const commits = all.filter((t) => t.query.sql === 'commit');
    const [begin] = begins;
    const [commit] = commits;
    if (begin === undefined || commit === undefined || begins.length > 1 || commits.length > 1)
      return undefined;
    if (begin.query.on !== 'client' || this.key(begin.query.handle) !== this.key(commit.query.handle))
      return undefined;
    const uses = ownCalls(fn.body).filter((c) => this.parameterOf(fn, c) >= 0);
    const [use] = uses;
    const statement = use === undefined ? undefined : statementOf(use);
    if (use === undefined || uses.length > 1 || statement === undefined || !ts.isAwaitExpression(use.parent))
      return undefined;
    const client = use.arguments.findIndex((a) => this.key(a) === this.key(begin.query.handle));
    const before = follows(begin.statement, statement, fn);
    const after = follows(statement, commit.statement, fn);
    const straight = [before, after].every((r) => r.reachable && r.obstacles.length === 0);
    return straight && client >= 0 ? { callback: this.parameterOf(fn, use), client } : undefined;
  }

  /** Which parameter of `fn` this call calls; -1 when it calls something else. */
  private parameterOf(fn: Fn, call: ts.CallExpression): number {
    const target = bare(call.expression);
    if (!ts.isIdentifier(target)) return -1;
    const declaration = this.resolver.analysis.checker.getSymbolAtLocation(target)?.valueDeclaration;
    return fn.parameters.indexOf(declaration as ts.ParameterDeclaration);
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
    if (ts.isIdentifier(node) && contains(fn, node)) names.add(node.text);
    ts.forEachChild(node, walk);
  };
  walk(fn);
  return names;
}
