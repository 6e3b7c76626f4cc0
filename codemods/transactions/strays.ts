/**
 * Statements that nobody sees among a function's own calls: a template, or anything in a callback of it. In a transaction
 * they would go another way than its own. It finds the first one; it edits nothing.
 */

import { ts } from 'ts-morph';
import type { CallLike, Effects } from '../effects.js';
import { bare, eachNode, type Fn, isFn, type Scope, scopeOf } from '../syntax.js';
import type { Asking } from './asking.js';

export class Strays {
  constructor(
    private readonly effects: Effects,
    private readonly asking: Asking,
  ) {}

  /** In `node`, which runs as part of `scope`. `known`: statements that are looked after; `skipped`: functions that are, too. */
  in(
    node: ts.Node,
    scope: Scope,
    known: ReadonlySet<ts.Node>,
    skipped: (node: ts.Node) => boolean = () => false,
  ): CallLike | undefined {
    let found: CallLike | undefined;
    eachNode(node, (n) => {
      if (found !== undefined || known.has(n) || skipped(n)) return;
      if (ts.isTaggedTemplateExpression(n)) {
        if (this.asking.runs(n)) found = n;
      } else if (ts.isCallExpression(n) && scopeOf(n) !== scope) {
        const writes = this.effects.ofCall(n).length > 0;
        if (writes || (this.asking.asks(n) && !isOfItsBuilder(n, known))) found = n;
      }
    });
    return found;
  }
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
