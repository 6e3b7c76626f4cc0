/**
 * Whether all that a function does can run on a transaction that it is handed: its statements on one root, each of them
 * waited for, and nothing beside them that stays on the connection. It gives the first reason against; it edits nothing.
 */

import { ts } from 'ts-morph';
import { enclosures } from '../hazards.js';
import type { Resolver } from '../resolve.js';
import type { Rethrows } from '../rethrow.js';
import { bare, contains, type Fn, ownCalls, scopeOf } from '../syntax.js';
import { waits } from '../waits.js';
import type { Asking } from './asking.js';
import { idiomOf } from './idioms.js';
import type { PoolQuery } from './pool-query.js';
import type { Key } from './scope.js';
import type { Strays } from './strays.js';

export class DeepBodies {
  constructor(
    private readonly resolver: Resolver,
    private readonly key: Key,
    private readonly isPlain: (node: ts.Node) => boolean,
    private readonly asking: Asking,
    private readonly strays: Strays,
    private readonly rethrows: Rethrows,
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
    // The functions that the inner calls lead to are looked through for themselves.
    const followed = inner.flatMap((call) => this.ownFunctions(call));
    const stray = this.strays.in(body, fn, known, (n) => followed.some((f) => contains(f, n)));
    if (stray !== undefined) return `${stray.getText().slice(0, 60)} is called beside the write`;
    const swallowing = [...spine].find((n) => this.rethrows.swallows(n));
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
      if (!waits(this.rethrows.outer(q.call)) && !isPart(q) && !this.asking.onlyMakes(q))
        return 'nobody waits for its write';
      if (q.on !== 'pool') return 'it writes on a client of its own';
      if (q.fixed === true) return 'its repository has a constructor of its own';
      if (q.library !== first.library) return 'it writes in two ways';
      // Repositories and models lead to one connection, or the package's openings have refused it.
      const one =
        first.library?.wrap?.join !== undefined ||
        (first.library?.name === 'typeorm' && q.what === first.what && q.what === 'repository');
      if (!one && this.rootOf(q) !== this.rootOf(first)) return 'it writes on two pools';
    }
    return undefined;
  }

  /** A call that a database may answer, and which is no statement on the root: it would go another way. */
  private stays(call: ts.CallExpression): boolean {
    const callee = this.resolver.calleeOf(call);
    if (callee.kind === 'own') return this.asking.asks(call);
    if (callee.kind !== 'package' || idiomOf(callee.role.pkg) === undefined) return false;
    return waits(call) || ts.isExpressionStatement(call.parent) || this.asking.isThenable(call) === true;
  }

  /** One class of two objects may hold two pools. */
  private rootOf({ handle }: PoolQuery): string {
    const e = bare(handle);
    return `${this.key(e)} ${ts.isPropertyAccessExpression(e) ? e.expression.getText() : ''}`;
  }

  private ownFunctions(call: ts.CallExpression): readonly Fn[] {
    const callee = this.resolver.calleeOf(call);
    return callee.kind === 'own' ? callee.fns : [];
  }
}

function isConsole(call: ts.CallExpression): boolean {
  return /^console\./.test(call.expression.getText());
}
