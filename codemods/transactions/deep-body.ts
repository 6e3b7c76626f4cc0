/**
 * Whether all that a function does can run on a transaction that it is handed: its statements on one root, each of them
 * waited for, and nothing beside them that stays on the connection. It gives the first reason against; it edits nothing.
 */

import { ts } from 'ts-morph';
import type { CallLike, Effects } from '../effects.js';
import { enclosures } from '../hazards.js';
import { isOpaque } from '../origins.js';
import { classOf } from '../packages.js';
import type { Resolver } from '../resolve.js';
import type { Role } from '../roles.js';
import { bare, contains, eachNode, type Fn, isFn, ownCalls, scopeOf } from '../syntax.js';
import { handlesError, waits } from '../waits.js';
import { idiomOf } from './idioms.js';
import type { PoolQuery } from './pg-pool.js';
import type { Key } from './scope.js';

/** How far a helper is followed to see whether it asks a database. */
const MAX_DEPTH = 4;

export class DeepBodies {
  constructor(
    private readonly resolver: Resolver,
    private readonly effects: Effects,
    private readonly key: Key,
    private readonly isPlain: (node: ts.Node) => boolean,
  ) {}

  /** What else happens in it, is swallowed, or runs beside another. */
  otherIn(
    fn: Fn,
    queries: readonly PoolQuery[],
    spine: ReadonlySet<ts.Node>,
    inner: readonly ts.CallExpression[],
  ): string | undefined {
    const { body } = fn;
    if (body === undefined) return 'it has no body';
    const known = new Set<ts.Node>([...spine, ...inner]);
    const others = ownCalls(body).filter((c) => !known.has(c));
    const other = others.find(
      (c) => this.stays(c) || (!this.isPlain(c) && !isConsole(c) && ![...known].some((k) => contains(c, k))),
    );
    if (other !== undefined) return `${other.expression.getText()} is called beside the write`;
    const stray = this.strayIn(fn, body, known, inner);
    if (stray !== undefined) return `${stray.getText().slice(0, 60)} is called beside the write`;
    const swallowing = [...spine].find(handlesError);
    if (swallowing !== undefined) return `the error of ${swallowing.getText().slice(0, 60)} is handled`;
    const calls = [...queries.map((q) => q.call), ...inner];
    for (const call of calls) {
      if (scopeOf(call) !== fn) return 'the write is in a callback';
      const around = enclosures(call, body).find(
        (o) => o.code === 'catch-swallows' || o.code === 'finally-block' || o.code === 'publishes-on-failure',
      );
      if (around !== undefined) return `${around.what} handles its errors`;
    }
    return undefined;
  }

  /** Why its statements do not belong to one transaction. */
  apart(queries: readonly PoolQuery[]): string | undefined {
    const [first] = queries;
    if (first === undefined || !queries.some((q) => q.sql === 'write' || q.sql === 'unknown'))
      return 'its write was not found';
    // `sql(order)` in a template, a subquery: whoever waits for the whole waits for it.
    const isPart = (q: PoolQuery): boolean => queries.some((o) => o !== q && contains(o.call, q.call));
    for (const q of queries) {
      if (!waits(q.call) && !isPart(q) && !this.onlyMakes(q)) return 'nobody waits for its write';
      if (q.on !== 'pool') return 'it writes on a client of its own';
      if (q.fixed === true) return 'its repository has a constructor of its own';
      if (q.library !== first.library) return 'it writes in two ways';
      // Repositories and models lead to one connection, or the package's openings have refused it.
      const one =
        first.library?.wrap?.join !== undefined ||
        (first.library?.name === 'typeorm' && q.what === first.what && q.what === 'repository');
      if (!one && this.key(q.handle) !== this.key(first.handle)) return 'it writes on two pools';
    }
    return undefined;
  }

  /**
   * A statement that `otherIn` does not see among the function's own calls: a template, or anything in a callback. The
   * functions that the inner calls lead to are looked through for themselves.
   */
  private strayIn(
    fn: Fn,
    body: ts.Node,
    known: ReadonlySet<ts.Node>,
    inner: readonly ts.CallExpression[],
  ): CallLike | undefined {
    const followed = inner.flatMap((call) => this.ownFunctions(call));
    let found: CallLike | undefined;
    eachNode(body, (n) => {
      if (found !== undefined || known.has(n) || followed.some((f) => contains(f, n))) return;
      if (ts.isTaggedTemplateExpression(n)) {
        if (this.runs(n)) found = n;
      } else if (ts.isCallExpression(n) && scopeOf(n) !== fn) {
        const writes = this.effects.ofCall(n).length > 0;
        if (writes || (this.asks(n) && !isOfItsBuilder(n, known))) found = n;
      }
    });
    return found;
  }

  /** A call that a database may answer, and which is no statement on the root: it would go another way. */
  private stays(call: ts.CallExpression): boolean {
    const callee = this.resolver.calleeOf(call);
    if (callee.kind === 'own') return this.asks(call);
    if (callee.kind !== 'package' || idiomOf(callee.role.pkg) === undefined) return false;
    return waits(call) || ts.isExpressionStatement(call.parent) || this.isThenable(call) === true;
  }

  /** Whether somebody could wait for a client or ORM here; without types: whether somebody does. */
  private asks(call: ts.CallExpression, depth = 0): boolean {
    const callee = this.resolver.calleeOf(call);
    const thenable = this.isThenable(call);
    if (callee.kind === 'own') return thenable ?? callee.fns.some((fn) => this.reaches(fn, depth));
    if (callee.kind !== 'package' || !isDatabase(callee.role)) return false;
    return thenable ?? (waits(call) || ts.isExpressionStatement(call.parent));
  }

  private reaches(fn: Fn, depth: number): boolean {
    if (fn.body === undefined) return false;
    if (depth > MAX_DEPTH) return true;
    let found = false;
    eachNode(fn.body, (n) => {
      if (found) return;
      if (ts.isCallExpression(n)) found = this.asks(n, depth + 1);
      else if (ts.isTaggedTemplateExpression(n)) found = this.runs(n);
    });
    return found;
  }

  /** Whether a template is a statement and not a part of one. */
  private runs(template: ts.TaggedTemplateExpression): boolean {
    const called = this.effects.taggedRole(template);
    if (called === undefined || !isDatabase(called.role)) return false;
    const isRoot = idiomOf(called.role.pkg)?.wrap?.roots.has(called.role.what) === true;
    return this.isThenable(template) ?? isRoot;
  }

  private ownFunctions(call: ts.CallExpression): readonly Fn[] {
    const callee = this.resolver.calleeOf(call);
    return callee.kind === 'own' ? callee.fns : [];
  }

  /** `repository.create({ … })`: it gives an object, and nothing to wait for. */
  private onlyMakes(query: PoolQuery): boolean {
    if (query.sql !== 'read') return false;
    const thenable = this.isThenable(query.call);
    return thenable === undefined ? query.library?.name === 'typeorm' && isCreate(query.call) : !thenable;
  }

  /** Undefined: its type is not known. */
  private isThenable(call: CallLike): boolean | undefined {
    const type = this.resolver.analysis.checker.getTypeAtLocation(call);
    return isOpaque(type) ? undefined : type.getProperty('then') !== undefined;
  }
}

function isCreate(call: CallLike): boolean {
  return (
    ts.isCallExpression(call) &&
    ts.isPropertyAccessExpression(call.expression) &&
    call.expression.name.text === 'create'
  );
}

function isDatabase({ pkg }: Role): boolean {
  const cls = classOf(pkg);
  return cls === 'pg' || cls === 'orm';
}

/** `query.where(…)` in `Order.query().where((query) => { query.where(…) })`: the callback is handed the statement itself. */
function isOfItsBuilder(call: ts.CallExpression, known: ReadonlySet<ts.Node>): boolean {
  let root: ts.Expression = call;
  while (ts.isCallExpression(root) || ts.isPropertyAccessExpression(root)) root = bare(root.expression);
  let fn: ts.Node = call;
  while (!ts.isSourceFile(fn) && !(isFn(fn) && binds(fn, root))) fn = fn.parent;
  while (!ts.isSourceFile(fn) && !ts.isCallExpression(fn)) fn = fn.parent;
  if (!ts.isCallExpression(fn) || /\.(?:then|catch|finally)$/.test(fn.expression.getText())) return false;
  return known.has(fn) || isOfItsBuilder(fn, known);
}

function binds(fn: Fn, root: ts.Expression): boolean {
  if (root.kind === ts.SyntaxKind.ThisKeyword) return !ts.isArrowFunction(fn);
  return ts.isIdentifier(root) && fn.parameters.some((p) => p.name.getText() === root.text);
}

function isConsole(call: ts.CallExpression): boolean {
  return /^console\./.test(call.expression.getText());
}
