/**
 * Whether the function around a call waits for it: awaited where it stands, or given back to somebody who may wait. A
 * call that nobody waits for may still run when its transaction has ended. And who handles its error. Syntax only.
 */

import { ts } from 'ts-morph';
import type { CallLike } from './effects.js';

export type Waiting = 'waits' | 'could' | 'no';

/** `could`: a statement of its own that lacks the `await`. */
export function waiting(call: CallLike): Waiting {
  let n: ts.Node = call;
  for (;;) {
    const { parent } = n;
    if (ts.isAwaitExpression(parent) || ts.isReturnStatement(parent)) return 'waits';
    if (ts.isArrowFunction(parent)) return parent.body === n ? 'waits' : 'no';
    if (ts.isExpressionStatement(parent)) return n === call ? 'could' : 'no';
    if (!ts.isParenthesizedExpression(parent) && !ts.isNonNullExpression(parent)) return 'no';
    n = parent;
  }
}

export function waits(call: CallLike): boolean {
  return waiting(call) === 'waits';
}

/** `.catch(…)` and `.then(…, …)`: in a transaction a statement that failed has aborted it, whoever handles that. */
export function handlesError(node: ts.Node): boolean {
  if (!ts.isCallExpression(node) || !ts.isPropertyAccessExpression(node.expression)) return false;
  const method = node.expression.name.text;
  return method === 'catch' || (method === 'then' && node.arguments.length > 1);
}
