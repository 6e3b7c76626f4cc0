/**
 * Transactions of clients and ORMs that are opened and ended by statements: `const trx = await knex.transaction()` …
 * `await trx.commit()`, a QueryRunner's `startTransaction` and `commitTransaction`. The idiom's table says which calls
 * those are; how a publish stands to them is pg-client.ts.
 */

import { ts } from 'ts-morph';
import { statementOf } from '../hazards.js';
import type { Resolver } from '../resolve.js';
import { bare, isFn, ownCalls, type Scope } from '../syntax.js';
import type { Idiom } from './idiom.js';
import { idiomOf } from './idioms.js';
import type { TxCall, TxStatement } from './pg-client.js';

export function libraryStatements(scope: Scope, resolver: Resolver): TxStatement[] {
  return ownCalls(scope).flatMap((call) => {
    const query = statementCall(call, resolver);
    const statement = statementOf(call);
    return query === undefined || statement === undefined ? [] : [{ query, statement }];
  });
}

function statementCall(call: ts.CallExpression, resolver: Resolver): TxCall | undefined {
  const path = resolver.pathOf(call);
  const library = path === undefined ? undefined : idiomOf(path.pkg);
  if (path === undefined || library === undefined) return undefined;
  const target = bare(call.expression);
  const receiver = ts.isPropertyAccessExpression(target) ? target.expression : undefined;
  const ended = library.table.ends?.[path.what];
  if (ended !== undefined && receiver !== undefined) {
    const run = executedCall(call, library);
    return run === undefined ? undefined : { call: run, on: 'client', handle: receiver, sql: ended, library };
  }
  const begun = library.table.begins?.[path.what];
  if (begun === undefined || call.arguments.some((a) => isFn(bare(a)))) return undefined;
  const handle = begun === 'receiver' ? receiver : resultName(call);
  if (handle === undefined) return undefined;
  const root = library.transactionAsOption ? receiver : undefined;
  return { call, on: 'client', handle, sql: 'begin', library, root };
}

/** `trx.commit()` of a library whose statements run by `.execute()`: the call that runs it. */
function executedCall(call: ts.CallExpression, library: Idiom): ts.CallExpression | undefined {
  if (library.executed !== true) return call;
  const access = call.parent;
  const isExecute = ts.isPropertyAccessExpression(access) && access.name.text === 'execute';
  return isExecute && ts.isCallExpression(access.parent) ? access.parent : undefined;
}

/** `trx` in `const trx = await knex.transaction()` and `trx = await knex.transaction()`. */
function resultName(call: ts.CallExpression): ts.Identifier | undefined {
  let n: ts.Node = call;
  while (ts.isAwaitExpression(n.parent) || ts.isParenthesizedExpression(n.parent)) n = n.parent;
  const { parent } = n;
  if (ts.isVariableDeclaration(parent) && ts.isIdentifier(parent.name)) return parent.name;
  const assigned =
    ts.isBinaryExpression(parent) &&
    parent.operatorToken.kind === ts.SyntaxKind.EqualsToken &&
    parent.right === n &&
    ts.isIdentifier(parent.left);
  return assigned ? (parent.left as ts.Identifier) : undefined;
}
