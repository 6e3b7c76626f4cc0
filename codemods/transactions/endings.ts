/**
 * What ends a transaction before the place where an enqueue would go: a COMMIT or ROLLBACK in its callback, in a function that
 * is handed its client or has it in reach, or another client under the same name. The enqueue would commit by itself
 * there. It finds; the ends that the transaction is known by are not its business.
 */

import { ts } from 'ts-morph';
import { isAssignment } from '../availability.js';
import type { Effect, Effects } from '../effects.js';
import { alwaysExits, blockExits, statementOf } from '../hazards.js';
import type { Obstacle } from '../reasons.js';
import { bare, contains, eachNode, isFn, lineOf, ownCalls, quote, type Scope } from '../syntax.js';
import type { Key, TransactionScope } from './scope.js';

const ENDS = /^(?:commit|rollback|end|abort)\b/i;

/** The code that runs in the transaction in front of the enqueue. */
interface Extent {
  readonly within: ts.Node;
  readonly from: number;
  readonly to: number;
  /** Its own ends are known: only those of others count. */
  readonly ended: boolean;
}

export class Endings {
  constructor(
    private readonly effects: Effects,
    private readonly key: Key,
  ) {}

  of(found: TransactionScope, scope: Scope, publish: ts.Statement): Obstacle[] {
    const extent = extentOf(found, scope, publish);
    const inside = (n: ts.Node): boolean => n.pos >= extent.from && n.end <= extent.to;
    const calls = ownCalls(extent.within).filter((c) => inside(c) && !isHandler(c, extent.within));
    const ending = calls.find((call) => this.ends(call, found.handleNode, extent));
    const what = (n: ts.Node, why: string): Obstacle => ({
      code: 'transaction-unclear',
      what: `line ${lineOf(n)} ${why} (${quote(n)})`,
    });
    const swapped = this.swapped(found.handleNode, extent.within, inside);
    return [
      ...(ending === undefined ? [] : [what(ending, 'ends it earlier')]),
      ...(swapped === undefined ? [] : [what(swapped, 'puts another client there')]),
    ];
  }

  private ends(call: ts.CallExpression, handle: ts.Expression, extent: Extent): boolean {
    return this.effects
      .ofCall(call)
      .filter((e) => e.kind === 'pg-transaction' && ENDS.test(e.what))
      .some((e) => (e.direct ? !extent.ended && !leaves(call) : true) && this.isOn(e, call, handle));
  }

  /** Whether it is this transaction's: on its handle, or by a function that is handed it. */
  private isOn({ source, direct }: Effect, call: ts.CallExpression, handle: ts.Expression): boolean {
    const wanted = this.key(handle);
    const target = ts.isCallExpression(source) ? bare(source.expression) : source.tag;
    if (ts.isPropertyAccessExpression(target) && this.key(target.expression) === wanted) return true;
    return !direct && call.arguments.some((a) => this.mentions(a, wanted));
  }

  private mentions(node: ts.Node, wanted: string): boolean {
    let found = false;
    eachNode(node, (n) => {
      if ((ts.isIdentifier(n) || ts.isPropertyAccessExpression(n)) && this.key(n) === wanted) found = true;
    });
    return found;
  }

  private swapped(
    handle: ts.Expression,
    within: ts.Node,
    inside: (n: ts.Node) => boolean,
  ): ts.Node | undefined {
    const wanted = this.key(handle);
    let found: ts.Node | undefined;
    eachNode(within, (n) => {
      if (!ts.isBinaryExpression(n) || !isAssignment(n) || !inside(n)) return;
      if (this.key(n.left) === wanted) found ??= n;
    });
    return found;
  }
}

function extentOf(found: TransactionScope, scope: Scope, publish: ts.Statement): Extent {
  const { begin, end, position } = found;
  const before = position === 'inside' ? publish.getStart() : Number.MAX_SAFE_INTEGER;
  if (isFn(end) && end.body !== undefined)
    return { within: end.body, from: end.body.pos, to: Math.min(end.body.end, before), ended: false };
  const isHere = begin !== undefined && !ts.isParameter(begin) && contains(scope, begin);
  if (isHere) return { within: scope, from: begin.end, to: Math.min(end.pos, before), ended: true };
  return { within: scope, from: scope.pos, to: before, ended: false };
}

/** In a catch or finally: the way there is not the way to the enqueue. */
function isHandler(node: ts.Node, within: ts.Node): boolean {
  for (let n = node; n !== within && !ts.isSourceFile(n); n = n.parent) {
    if (ts.isCatchClause(n)) return true;
    if (ts.isTryStatement(n.parent) && n.parent.finallyBlock === n) return true;
  }
  return false;
}

/** Nobody goes on behind it: `{ await client.query('ROLLBACK'); return; }`. */
function leaves(call: ts.CallExpression): boolean {
  const statement = statementOf(call);
  if (statement === undefined) return false;
  const { parent } = statement;
  return alwaysExits(statement) || (ts.isBlock(parent) && !isFn(parent.parent) && blockExits(parent));
}
