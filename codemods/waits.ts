/**
 * Whether the function around a call waits for it: awaited where it stands, or given back to somebody who may wait. A
 * call that nobody waits for may still run when its transaction has ended. Syntax only.
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
