/**
 * A loop that does nothing but publish: `for (const x of xs) publish(x)`, `xs.forEach((x) => publish(x))`,
 * `await Promise.all(xs.map((x) => publish(x)))`. Such a loop becomes one bulk enqueue. Syntax alone.
 */

import { ts } from 'ts-morph';
import { bare, type Scope, scopeOf } from './syntax.js';

export interface Bulk {
  /** The whole loop. */
  readonly statement: ts.Statement;
  readonly scope: Scope;
  /** What the loop binds, as it is written: `x`, `{ id }`. */
  readonly binding: ts.BindingName;
  readonly iterable: ts.Expression;
  /** Comments above the publish inside the loop, one text each. */
  readonly comments: readonly string[];
}

export function bulkOf(call: ts.CallExpression): Bulk | undefined {
  let node: ts.Node = call;
  while (
    ts.isAwaitExpression(node.parent) ||
    ts.isParenthesizedExpression(node.parent) ||
    ts.isVoidExpression(node.parent)
  )
    node = node.parent;
  if (ts.isExpressionStatement(node.parent) || ts.isReturnStatement(node.parent)) node = node.parent;
  const holder = alone(node);
  const found = ts.isForOfStatement(holder)
    ? forOf(holder)
    : ts.isArrowFunction(holder)
      ? callback(holder)
      : undefined;
  return found === undefined ? undefined : { ...found, comments: commentsAbove(node) };
}

function commentsAbove(node: ts.Node): string[] {
  const { text } = node.getSourceFile();
  return (ts.getLeadingCommentRanges(text, node.pos) ?? []).map((c) => text.slice(c.pos, c.end));
}

/** What runs a statement and nothing else: the loop or function around its block, or around it directly. */
function alone(node: ts.Node): ts.Node {
  const { parent } = node;
  return ts.isBlock(parent) && parent.statements.length === 1 ? parent.parent : parent;
}

type Loop = Omit<Bulk, 'comments'>;

function forOf(loop: ts.ForOfStatement): Loop | undefined {
  const list = loop.initializer;
  if (loop.awaitModifier !== undefined || !ts.isVariableDeclarationList(list)) return undefined;
  const [declaration] = list.declarations;
  if (declaration === undefined || !ts.isBlock(loop.parent)) return undefined;
  return { statement: loop, scope: scopeOf(loop), binding: declaration.name, iterable: loop.expression };
}

function callback(fn: ts.ArrowFunction): Loop | undefined {
  const [parameter, ...more] = fn.parameters;
  const each = fn.parent;
  if (parameter === undefined || more.length > 0 || parameter.dotDotDotToken !== undefined) return undefined;
  if (parameter.initializer !== undefined || !ts.isCallExpression(each) || each.arguments.length !== 1)
    return undefined;
  const target = bare(each.expression);
  if (!ts.isPropertyAccessExpression(target)) return undefined;
  const method = target.name.text;
  let outer: ts.Node = each;
  if (method === 'map') {
    const all = each.parent;
    if (!ts.isCallExpression(all) || all.expression.getText() !== 'Promise.all') return undefined;
    outer = ts.isAwaitExpression(all.parent) ? all.parent : all;
  } else if (method !== 'forEach') return undefined;
  const statement = outer.parent;
  if (!ts.isExpressionStatement(statement) || !ts.isBlock(statement.parent)) return undefined;
  return { statement, scope: scopeOf(statement), binding: parameter.name, iterable: target.expression };
}

/** The names that a loop binds. */
export function boundNames(name: ts.BindingName): ts.Identifier[] {
  if (ts.isIdentifier(name)) return [name];
  return name.elements.flatMap((e) => (ts.isOmittedExpression(e) ? [] : boundNames(e.name)));
}
