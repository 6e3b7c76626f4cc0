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

function isPassedIn(e: ts.Expression, resolver: Resolver): boolean {
  const declaration = resolver.analysis.checker.getSymbolAtLocation(e)?.valueDeclaration;
  return ts.isIdentifier(e) && declaration !== undefined && ts.isParameter(declaration);
}

/** ``sql`update …`.execute(db)``: the root is what the statement is handed. */
function handedRoot(call: ts.CallExpression, resolver: Resolver, effects: Effects): PoolQuery | undefined {
  const callee = resolver.calleeOf(call);
  const library = callee.kind === 'package' ? idiomOf(callee.role.pkg) : undefined;
  if (callee.kind !== 'package' || library?.wrap?.handed === undefined) return undefined;
  const index = library.wrap.handed[`${callee.role.what}.${callee.method}`];
  const handle = index === undefined ? undefined : call.arguments[index];
  const role = handle === undefined ? undefined : resolver.roleOf(handle);
  if (handle === undefined || role === undefined || !library.wrap.roots.has(role.what)) return undefined;
  const target = bare(call.expression);
  const statement = ts.isPropertyAccessExpression(target) ? target.expression : call.arguments[0];
  const writes = effects.writesThrough(callee.role, callee.method, statement);
  const common = { call, on: 'pool', handle, text: '', helper: undefined, library, what: role.what } as const;
  return { ...common, sql: writes ? 'write' : 'read', spine: new Set<ts.Node>([call]) };
}

function queryOf(node: CallLike, resolver: Resolver, effects: Effects): PoolQuery | undefined {
  const handed = ts.isCallExpression(node) ? handedRoot(node, resolver, effects) : undefined;
  if (handed !== undefined) return handed;
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
      const cls = resolver.roleOfInstances(e);
      const role = cls ?? resolver.roleOf(e);
      const library = role === undefined ? undefined : idiomOf(role.pkg);
      const what = role === undefined ? '' : cls === undefined ? role.what : `${role.what} class`;
      const roots = library?.wrap?.roots ?? library?.bracket?.roots;
      if (library !== undefined && roots?.has(what)) {
        // Its own begin on a manager that somebody hands over could end that one's transaction.
        if (library.bracket !== undefined && isPassedIn(e, resolver)) return undefined;
        if (library.wrap?.join?.(node, '') === undefined && library.wrap?.join !== undefined)
          return undefined;
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
          what,
        };
      }
      if (!ts.isPropertyAccessExpression(e)) return undefined;
      e = bare(e.expression);
    }
  }
}
