/**
 * Statements of clients and ORMs that commit by themselves: `db.insert(orders).values(…)`, `repository.save(order)`,
 * `prisma.order.create(…)`. Each is found with the handle it starts from, which a transaction's would replace; the
 * idiom's data says which roles those are.
 */

import { ts } from 'ts-morph';
import type { CallLike, Effects } from '../effects.js';
import { declaredIn } from '../origins.js';
import type { Resolver } from '../resolve.js';
import { bare, eachNode, eachOwnNode, type Scope } from '../syntax.js';
import { choicesOf } from './choices.js';
import type { Idiom } from './idiom.js';
import { idiomOf } from './idioms.js';
import type { PoolQuery } from './pool-query.js';

export function autocommits(scope: Scope, resolver: Resolver, effects: Effects): PoolQuery[] {
  const found: PoolQuery[] = [];
  eachOwnNode(scope, (node) => {
    if (!ts.isCallExpression(node) && !ts.isTaggedTemplateExpression(node)) return;
    const list = ts.isCallExpression(node) ? listOf(node, resolver, effects) : undefined;
    if (list !== undefined) found.push(list);
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

/**
 * `await prisma.$transaction([…])`, where each element is a statement of that client and nothing else is evaluated in it: as a
 * callback these run one after the other. The results have to be taken apart by position, or not be used.
 */
function listOf(call: ts.CallExpression, resolver: Resolver, effects: Effects): PoolQuery | undefined {
  const [array, ...options] = call.arguments;
  const target = bare(call.expression);
  const waited = call.parent;
  if (array === undefined || !ts.isArrayLiteralExpression(array) || options.length > 0) return undefined;
  if (!ts.isPropertyAccessExpression(target) || effects.transactionWord(call) !== 'begin') return undefined;
  if (!ts.isAwaitExpression(waited) || !takesApart(waited) || hasComments(array)) return undefined;
  // What is waited for in front of the whole list would be waited for in the middle of it.
  if (holds(array, ts.isAwaitExpression)) return undefined;
  const list = array.elements.map((e) =>
    ts.isCallExpression(e) ? queryOf(e, resolver, effects) : undefined,
  );
  const queries = list.filter((q) => q !== undefined);
  const [first] = queries;
  const root = target.expression.getText();
  const isWhole = first !== undefined && queries.length === array.elements.length;
  if (!isWhole || queries.some((q) => q.handle.getText() !== root || q.library?.name !== 'prisma'))
    return undefined;
  const writes = queries.some((q) => q.sql === 'write');
  return {
    ...{ call, on: 'pool', handle: target.expression, text: '', helper: undefined, list: queries },
    sql: writes ? 'write' : 'read',
    spine: new Set<ts.Node>([call, ...queries.flatMap((q) => [...(q.spine ?? [])])]),
    ...(first.library === undefined ? {} : { library: first.library }),
    what: first.what ?? '',
  };
}

function takesApart(waited: ts.AwaitExpression): boolean {
  const { parent } = waited;
  if (ts.isExpressionStatement(parent)) return true;
  return (
    ts.isVariableDeclaration(parent) && ts.isArrayBindingPattern(parent.name) && parent.type === undefined
  );
}

function holds(node: ts.Node, test: (n: ts.Node) => boolean): boolean {
  let found = false;
  eachNode(node, (n) => {
    if (test(n)) found = true;
  });
  return found;
}

/** Between the elements nothing but commas. */
function hasComments(array: ts.ArrayLiteralExpression): boolean {
  const { text } = array.getSourceFile();
  const ends = [array.getStart() + 1, ...array.elements.map((e) => e.end)];
  const starts = [...array.elements.map((e) => e.getStart()), array.end - 1];
  return starts.some((start, i) => !/^[\s,]*$/.test(text.slice(ends[i], start)));
}

/** A class of the repository's own with a constructor: `withRepository` would hand that a manager instead. */
function makesItself(e: ts.Expression, resolver: Resolver): boolean {
  const { checker } = resolver.analysis;
  let type: ts.Type | undefined = checker.getTypeAtLocation(e);
  for (let depth = 0; type !== undefined && depth < MAX_BASES; depth++) {
    const declaration = type.getSymbol()?.valueDeclaration;
    if (declaration === undefined || !ts.isClassLike(declaration)) return false;
    if (declaredIn(declaration) !== undefined) return false;
    if (declaration.members.some(ts.isConstructorDeclaration)) return true;
    type = type.getBaseTypes()?.[0];
  }
  return false;
}

const MAX_BASES = 5;

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
  const common = { call, on: 'pool', handle, text: '', helper: undefined, library, ...role } as const;
  return { ...common, sql: writes ? 'write' : 'read', spine: new Set<ts.Node>([call]) };
}

/** `prisma.$disconnect()` is about the connection: a transaction has no such member, and must not end it. */
function isShared(root: ts.Expression, members: RegExp | undefined): boolean {
  const { parent } = root;
  const name =
    ts.isPropertyAccessExpression(parent) && parent.expression === root ? parent.name.text : undefined;
  return name === undefined || members === undefined || members.test(name);
}

/** Where another transaction can be begun in one, its statements and the job still commit together with that one's. */
function mayBeTransaction(root: ts.Expression, library: Idiom, resolver: Resolver): boolean {
  return choicesOf(root, resolver).some((e) => {
    const role = resolver.roleOf(e);
    return role !== undefined && idiomOf(role.pkg) === library && library.wrap?.roots.has(role.what) !== true;
  });
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
      if (role !== undefined && library !== undefined && roots?.has(what)) {
        // Its own begin on a manager that somebody hands over could end that one's transaction.
        if (library.bracket !== undefined && isPassedIn(e, resolver)) return undefined;
        if (library.wrap?.join?.(node, '') === undefined && library.wrap?.join !== undefined)
          return undefined;
        if (!isShared(e, library.wrap?.members?.[what])) return undefined;
        if (library.wrap?.flat === true && mayBeTransaction(e, library, resolver)) return undefined;
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
          pkg: role.pkg,
          what,
          ...(what === 'repository' && makesItself(e, resolver) ? { fixed: true } : {}),
        };
      }
      if (!ts.isPropertyAccessExpression(e)) return undefined;
      e = bare(e.expression);
    }
  }
}
