/**
 * A helper that runs a callback in a pg transaction: `withTransaction(pool, async (client) => …)`. The helper must
 * prove itself: BEGIN, one call of its callback with that client, COMMIT. A function that merely has such a name, or
 * only awaits its callback, is none.
 */

import { ts } from 'ts-morph';
import type { Effects } from '../effects.js';
import { blockExits, enclosures, follows, statementOf } from '../hazards.js';
import type { Resolver } from '../resolve.js';
import { bare, eachOwnNode, type Fn, holds, ownCalls } from '../syntax.js';
import type { CallbackCall } from './callback.js';
import { transactionStatements } from './pg-client.js';
import type { Key } from './scope.js';

export const name = 'pg-callback';
export const summary = "the repository's own helper that runs a callback between BEGIN and COMMIT";

export class PgHelpers {
  private readonly helpers = new Map<Fn, { callback: number; client: number } | undefined>();

  constructor(
    private readonly resolver: Resolver,
    private readonly effects: Effects,
    private readonly key: Key,
  ) {}

  /** The call's callback and client, when it is a call of such a helper. */
  readonly callOf = (call: ts.CallExpression): CallbackCall | undefined => {
    const callee = this.resolver.calleeOf(call);
    const fn = callee.kind === 'own' && callee.fns.length === 1 ? callee.fns[0] : undefined;
    const shape = fn === undefined ? undefined : this.shapeOf(fn);
    if (shape === undefined) return undefined;
    const passed = call.arguments[shape.callback];
    const callback = passed === undefined ? undefined : bare(passed);
    if (callback === undefined || !(ts.isArrowFunction(callback) || ts.isFunctionExpression(callback)))
      return undefined;
    const client = callback.parameters[shape.client]?.name;
    return client !== undefined && ts.isIdentifier(client)
      ? { idiom: name, call, callback, client, library: undefined, root: undefined }
      : undefined;
  };

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
    const proven = straight && client >= 0 && alwaysCommits(fn, commit.statement);
    return proven ? { callback: this.parameterOf(fn, use), client } : undefined;
  }

  /** Which parameter of `fn` this call calls; -1 when it calls something else. */
  private parameterOf(fn: Fn, call: ts.CallExpression): number {
    const target = bare(call.expression);
    if (!ts.isIdentifier(target)) return -1;
    const declaration = this.resolver.analysis.checker.getSymbolAtLocation(target)?.valueDeclaration;
    return fn.parameters.indexOf(declaration as ts.ParameterDeclaration);
  }
}

/** Whoever comes back from it has committed: nobody returns earlier, passes the transaction by, or goes on after its error. */
function alwaysCommits(fn: Fn, commit: ts.Statement): boolean {
  if (fn.body === undefined) return false;
  let early = false;
  eachOwnNode(fn.body, (n) => {
    if (ts.isReturnStatement(n) && (n.pos < commit.pos || catchAround(n, fn) !== undefined)) early = true;
  });
  const around = enclosures(commit, fn.body);
  if (early || around.some((o) => o.code !== 'catch-swallows' && o.code !== 'loop')) return false;
  const retries = around.some((o) => o.code === 'loop');
  return catchesAround(commit, fn).every((block) =>
    retries ? holds(block, ts.isThrowStatement) : blockExits(block),
  );
}

function catchAround(node: ts.Node, fn: Fn): ts.CatchClause | undefined {
  for (let n = node; n !== fn && !ts.isSourceFile(n); n = n.parent) if (ts.isCatchClause(n)) return n;
  return undefined;
}

/** What an error of the commit reaches. */
function catchesAround(commit: ts.Node, fn: Fn): ts.Block[] {
  const found: ts.Block[] = [];
  for (let n = commit; n !== fn && !ts.isSourceFile(n); n = n.parent) {
    const holder = n.parent;
    if (ts.isTryStatement(holder) && holder.tryBlock === n && holder.catchClause !== undefined)
      found.push(holder.catchClause.block);
  }
  return found;
}
