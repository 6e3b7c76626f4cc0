/**
 * Statements of clients and ORMs that commit by themselves: `db.insert(orders).values(…)`, `repository.save(order)`,
 * `prisma.order.create(…)`. Each is found with the handle it starts from, which a transaction's would replace; the
 * idiom's data says which roles those are.
 */

import { ts } from 'ts-morph';
import type { CallLike, Effects } from '../effects.js';
import type { Resolver } from '../resolve.js';
import { bare, eachOwnNode, type Scope } from '../syntax.js';
import { idiomOf } from './idioms.js';
import type { PoolQuery } from './pg-pool.js';

export function autocommits(scope: Scope, resolver: Resolver, effects: Effects): PoolQuery[] {
  const found: PoolQuery[] = [];
  eachOwnNode(scope, (node) => {
    if (!ts.isCallExpression(node) && !ts.isTaggedTemplateExpression(node)) return;
    if (isInner(node) || isHandedToTransaction(node, effects)) return;
    const query = queryOf(node, resolver, effects);
    if (query !== undefined) found.push(query);
  });
  return found;
}

/** `db.insert(orders)` in `db.insert(orders).values(…)`: the whole builder is asked for. */
function isInner(node: CallLike): boolean {
  let n: ts.Node = node;
  while (ts.isPropertyAccessExpression(n.parent) && n.parent.expression === n) n = n.parent;
  return n !== node && ts.isCallExpression(n.parent) && n.parent.expression === n;
}

/** An element of `prisma.$transaction([…])`: its transaction is the array's. */
function isHandedToTransaction(node: ts.Node, effects: Effects): boolean {
  for (let n = node.parent; !ts.isStatement(n) && !ts.isSourceFile(n); n = n.parent) {
    if (ts.isCallExpression(n) && effects.transactionWord(n) !== undefined) return true;
  }
  return false;
}

function queryOf(node: CallLike, resolver: Resolver, effects: Effects): PoolQuery | undefined {
  const spine = new Set<ts.Node>();
  let writes = false;
  let e: ts.Expression = node;
  for (;;) {
    if (ts.isCallExpression(e)) {
      spine.add(e);
      if (effects.transactionWord(e) !== undefined) return undefined;
      const callee = resolver.calleeOf(e);
      if (callee.kind === 'package' && idiomOf(callee.role.pkg) !== undefined) {
        writes ||= effects.writesThrough(callee.role, callee.method, e.arguments[0]);
      }
      e = bare(e.expression);
    } else if (ts.isTaggedTemplateExpression(e)) {
      spine.add(e);
      const called = effects.taggedRole(e);
      if (called !== undefined && idiomOf(called.role.pkg) !== undefined) {
        writes ||= effects.writesThrough(called.role, called.method, e);
      }
      e = bare(e.tag);
    } else {
      const role = resolver.roleOf(e);
      const library = role === undefined ? undefined : idiomOf(role.pkg);
      if (role !== undefined && library?.wrap?.roots.has(role.what)) {
        const sql = writes ? 'write' : 'read';
        return {
          call: node,
          on: 'pool',
          handle: e,
          sql,
          text: '',
          helper: undefined,
          spine,
          library,
          what: role.what,
        };
      }
      if (!ts.isPropertyAccessExpression(e)) return undefined;
      e = bare(e.expression);
    }
  }
}
