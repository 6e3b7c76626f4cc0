/**
 * Whether a call asks a database, be it only to read: on its own connection it would not see what an open transaction wrote,
 * and on the transaction's it might be made after the end. It errs towards "asks"; which connection it is it refuses to know.
 */

import { ts } from 'ts-morph';
import type { CallLike, Effects } from '../effects.js';
import { isOpaque } from '../origins.js';
import { classOf } from '../packages.js';
import type { Resolver } from '../resolve.js';
import type { Role } from '../role-types.js';
import { eachNode, type Fn } from '../syntax.js';
import { waits } from '../waits.js';
import { idiomOf } from './idioms.js';
import type { PoolQuery } from './pool-query.js';

/** Functions that are looked into for one call: a repository's whole web of them is not. */
const MAX_FUNCTIONS = 200;

export class Asking {
  constructor(
    private readonly resolver: Resolver,
    private readonly effects: Effects,
  ) {}

  /** Whether somebody waits, or could, for a client or ORM here: in a called function of the repository's own, too. */
  asks(call: ts.CallExpression): boolean {
    const callee = this.resolver.calleeOf(call);
    if (callee.kind === 'own') return this.isThenable(call) === true || this.reaches(callee.fns);
    return this.asksItself(call);
  }

  /** Whether a template is a statement and not a part of one. */
  runs(template: ts.TaggedTemplateExpression): boolean {
    const called = this.effects.taggedRole(template);
    if (called === undefined || !isDatabase(called.role)) return false;
    const isRoot = idiomOf(called.role.pkg)?.wrap?.roots.has(called.role.what) === true;
    return this.isThenable(template) ?? isRoot;
  }

  /** Undefined: its type is not known. */
  isThenable(call: CallLike): boolean | undefined {
    const type = this.resolver.analysis.checker.getTypeAtLocation(call);
    return isOpaque(type) ? undefined : type.getProperty('then') !== undefined;
  }

  /** Like `asks`, of what is waited for anyway: a promise alone is no question. */
  reachesDatabase(call: ts.CallExpression): boolean {
    const callee = this.resolver.calleeOf(call);
    return callee.kind === 'own' ? this.reaches(callee.fns) : this.asksItself(call);
  }

  /** `repository.create({ … })`: it gives an object, and nothing to wait for. */
  onlyMakes({ call, sql, library }: PoolQuery): boolean {
    if (sql !== 'read') return false;
    const thenable = this.isThenable(call);
    return thenable === undefined ? library?.name === 'typeorm' && isCreate(call) : !thenable;
  }

  private asksItself(call: ts.CallExpression): boolean {
    const callee = this.resolver.calleeOf(call);
    if (callee.kind !== 'package' || !isDatabase(callee.role)) return false;
    return this.isThenable(call) ?? (waits(call) || ts.isExpressionStatement(call.parent));
  }

  private reaches(fns: readonly Fn[]): boolean {
    const seen = new Set(fns);
    for (const fn of seen) {
      if (seen.size > MAX_FUNCTIONS) return true;
      if (fn.body !== undefined && this.holdsQuestion(fn.body, seen)) return true;
    }
    return false;
  }

  /** Functions that are called here are looked into next. */
  private holdsQuestion(body: ts.Node, next: Set<Fn>): boolean {
    let found = false;
    eachNode(body, (n) => {
      if (found) return;
      if (ts.isTaggedTemplateExpression(n)) found = this.runs(n);
      else if (ts.isCallExpression(n)) {
        const callee = this.resolver.calleeOf(n);
        if (callee.kind === 'own') for (const fn of callee.fns) next.add(fn);
        else found = this.asksItself(n);
      }
    });
    return found;
  }
}

function isDatabase({ pkg }: Role): boolean {
  const cls = classOf(pkg);
  return cls === 'pg' || cls === 'orm';
}

function isCreate(call: CallLike): boolean {
  return (
    ts.isCallExpression(call) &&
    ts.isPropertyAccessExpression(call.expression) &&
    call.expression.name.text === 'create'
  );
}
