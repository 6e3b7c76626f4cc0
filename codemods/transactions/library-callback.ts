/**
 * A client's or ORM's own call that runs a callback in a transaction: `knex.transaction(async (trx) => …)`,
 * `prisma.$transaction(async (tx) => …)`. The idiom's table says which calls those are.
 */

import { ts } from 'ts-morph';
import type { Resolver } from '../resolve.js';
import { bare } from '../syntax.js';
import type { CallbackCall } from './callback.js';
import { idiomOf } from './idioms.js';

export class LibraryCallbacks {
  constructor(private readonly resolver: Resolver) {}

  readonly callOf = (call: ts.CallExpression): CallbackCall | undefined => {
    const opened = this.resolver.pathOf(call);
    const library = opened === undefined ? undefined : idiomOf(opened.pkg);
    if (opened === undefined || library?.table.callbacks?.[opened.what] === undefined) return undefined;
    const callback = call.arguments.map(bare).find(isCallback);
    if (callback === undefined) return undefined;
    const [parameter] = callback.parameters;
    const client = parameter === undefined || !ts.isIdentifier(parameter.name) ? undefined : parameter.name;
    const target = bare(call.expression);
    const root =
      library.transactionAsOption && ts.isPropertyAccessExpression(target) ? target.expression : undefined;
    if (client === undefined && parameter !== undefined) return undefined;
    return { idiom: library.name, call, callback, client, library, root };
  };
}

function isCallback(node: ts.Node): node is ts.ArrowFunction | ts.FunctionExpression {
  return ts.isArrowFunction(node) || ts.isFunctionExpression(node);
}
