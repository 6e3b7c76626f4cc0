/**
 * What a handle may be at run time, where the code says so: `tx ?? this.db`, a constant made of it, a parameter and what its
 * callers hand over. A type alone would not tell: a transaction often passes for the database itself.
 */

import { ts } from 'ts-morph';
import { isConst, isFallback, isNothing, localSymbol, unaliased } from '../origins.js';
import type { Resolver } from '../resolve.js';
import { isFn, unwrapped } from '../syntax.js';

const MAX_DEPTH = 5;

/** `tx` and `this.db` of `tx ?? this.db`; a handle that is no choice is its own. */
export function choicesOf(handle: ts.Expression, resolver: Resolver, depth = 0): readonly ts.Expression[] {
  const e = unwrapped(handle);
  const more = (all: readonly ts.Expression[]): readonly ts.Expression[] =>
    all.filter((x) => !isNothing(x)).flatMap((x) => choicesOf(x, resolver, depth + 1));
  if (depth > MAX_DEPTH) return [e];
  if (ts.isBinaryExpression(e) && isFallback(e.operatorToken.kind)) return more([e.left, e.right]);
  if (ts.isConditionalExpression(e)) return more([e.whenTrue, e.whenFalse]);
  const { checker } = resolver.analysis;
  const declaration = ts.isIdentifier(e)
    ? unaliased(checker, localSymbol(checker, e))?.valueDeclaration
    : undefined;
  if (declaration === undefined) return [e];
  if (
    ts.isVariableDeclaration(declaration) &&
    isConst(declaration) &&
    declaration.initializer !== undefined
  ) {
    const made = unwrapped(declaration.initializer);
    return isChoice(made) || ts.isIdentifier(made) ? more([made]) : [e];
  }
  if (!ts.isParameter(declaration) || !isFn(declaration.parent)) return [e];
  const index = declaration.parent.parameters.indexOf(declaration);
  const handed = resolver.callsOf(declaration.parent).flatMap((call) => call.arguments[index] ?? []);
  return [e, ...more(handed)];
}

/** The choice that a handle is or was made of. */
export function choiceBehind(handle: ts.Expression, resolver: Resolver): ts.Expression | undefined {
  const e = unwrapped(handle);
  if (isChoice(e)) return e;
  const { checker } = resolver.analysis;
  const declaration = ts.isIdentifier(e) ? localSymbol(checker, e)?.valueDeclaration : undefined;
  const made =
    declaration !== undefined && ts.isVariableDeclaration(declaration) ? declaration.initializer : undefined;
  return made !== undefined && isChoice(unwrapped(made)) ? unwrapped(made) : undefined;
}

function isChoice(e: ts.Expression): boolean {
  return ts.isConditionalExpression(e) || (ts.isBinaryExpression(e) && isFallback(e.operatorToken.kind));
}
