/**
 * Small questions about syntax that every idiom asks: which function am I in, what is around this call, what does
 * this function call. It refuses to ask for types.
 */

import { ts } from 'ts-morph';

export type Fn =
  | ts.FunctionDeclaration
  | ts.FunctionExpression
  | ts.ArrowFunction
  | ts.MethodDeclaration
  | ts.ConstructorDeclaration
  | ts.GetAccessorDeclaration
  | ts.SetAccessorDeclaration;

/** A function, or a file for code at its top level. */
export type Scope = Fn | ts.SourceFile;

export function isFn(node: ts.Node): node is Fn {
  return (
    ts.isFunctionDeclaration(node) ||
    ts.isFunctionExpression(node) ||
    ts.isArrowFunction(node) ||
    ts.isMethodDeclaration(node) ||
    ts.isConstructorDeclaration(node) ||
    ts.isGetAccessorDeclaration(node) ||
    ts.isSetAccessorDeclaration(node)
  );
}

/** Without parentheses, casts and `!`. */
export function bare(node: ts.Expression): ts.Expression {
  let e = node;
  while (
    ts.isParenthesizedExpression(e) ||
    ts.isAsExpression(e) ||
    ts.isSatisfiesExpression(e) ||
    ts.isNonNullExpression(e) ||
    ts.isTypeAssertionExpression(e)
  ) {
    e = e.expression;
  }
  return e;
}

/** Also without `await`. */
export function unwrapped(node: ts.Expression): ts.Expression {
  let e = bare(node);
  while (ts.isAwaitExpression(e)) e = bare(e.expression);
  return e;
}

/** `new Promise((resolve) => …)` runs its function at once: that function is part of the one around it. */
export function isPromiseExecutor(fn: ts.Node): boolean {
  const parent = fn.parent;
  return (
    (ts.isArrowFunction(fn) || ts.isFunctionExpression(fn)) &&
    ts.isNewExpression(parent) &&
    ts.isIdentifier(parent.expression) &&
    parent.expression.text === 'Promise' &&
    parent.arguments?.[0] === fn
  );
}

/** The function whose body runs this node, or the file. */
export function scopeOf(node: ts.Node): Scope {
  let n = node.parent;
  while (!ts.isSourceFile(n)) {
    if (isFn(n) && !isPromiseExecutor(n)) return n;
    n = n.parent;
  }
  return n;
}

/** Visits the nodes that run as part of `scope` itself: nested functions are left out, promise executors are not. */
export function eachOwnNode(scope: ts.Node, visit: (node: ts.Node) => void): void {
  const isOther = (node: ts.Node): boolean =>
    node !== scope && ((isFn(node) && !isPromiseExecutor(node)) || ts.isClassLike(node));
  traverse(scope, (node) => {
    if (isOther(node)) return false;
    visit(node);
    return true;
  });
}

/** Visits every node below, nested functions included. */
export function eachNode(node: ts.Node, visit: (node: ts.Node) => void): void {
  traverse(node, (n) => {
    visit(n);
    return true;
  });
}

/** In source order, without recursion: a sum of 50,000 terms is a tree as deep. `visit` says whether to go deeper. */
function traverse(root: ts.Node, visit: (node: ts.Node) => boolean): void {
  const stack = [root];
  for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
    if (!visit(node)) continue;
    const first = stack.length;
    ts.forEachChild(node, (child) => {
      stack.push(child);
    });
    // The children were pushed in order: turn them, so that the first is taken first.
    for (let a = first, b = stack.length - 1; a < b; a++, b--) {
      const swapped = stack[a] as ts.Node;
      stack[a] = stack[b] as ts.Node;
      stack[b] = swapped;
    }
  }
}

/** Whether one of the nodes that run as part of it is one of these. */
export function holds(node: ts.Node, test: (n: ts.Node) => boolean): boolean {
  let found = false;
  eachOwnNode(node, (n) => {
    if (test(n)) found = true;
  });
  return found;
}

export function ownCalls(scope: ts.Node): ts.CallExpression[] {
  const calls: ts.CallExpression[] = [];
  eachOwnNode(scope, (node) => {
    if (ts.isCallExpression(node)) calls.push(node);
  });
  return calls;
}

export function contains(outer: ts.Node, inner: ts.Node): boolean {
  return inner.pos >= outer.pos && inner.end <= outer.end && inner.getSourceFile() === outer.getSourceFile();
}

/** Sorts nodes by file and place. */
export function inOrder(a: ts.Node, b: ts.Node): number {
  const [left, right] = [a.getSourceFile().fileName, b.getSourceFile().fileName];
  return left === right ? a.pos - b.pos : left < right ? -1 : 1;
}

export function isAsync(scope: Scope): boolean {
  if (ts.isSourceFile(scope)) return true;
  return scope.modifiers?.some((m) => m.kind === ts.SyntaxKind.AsyncKeyword) ?? false;
}

/** A name that stands for a value, not a property's name. */
export function isReference(id: ts.Identifier): boolean {
  const parent = id.parent;
  if (ts.isPropertyAccessExpression(parent)) return parent.expression === id;
  if (ts.isPropertyAssignment(parent)) return parent.initializer === id;
  if (ts.isBindingElement(parent)) return parent.initializer === id;
  if (ts.isMethodDeclaration(parent) || ts.isPropertyDeclaration(parent)) return false;
  if (ts.isParameter(parent) || ts.isVariableDeclaration(parent)) return parent.initializer === id;
  return !ts.isTypeNode(parent) && !ts.isQualifiedName(parent) && !ts.isLabeledStatement(parent);
}

/** 1-based line of a node's first character. */
export function lineOf(node: ts.Node): number {
  const file = node.getSourceFile();
  return file.getLineAndCharacterOfPosition(node.getStart(file)).line + 1;
}

export function endLineOf(node: ts.Node): number {
  const file = node.getSourceFile();
  return file.getLineAndCharacterOfPosition(node.getEnd()).line + 1;
}

/** One line of source, cut to 80 characters: what an obstacle quotes. */
export function quote(node: ts.Node): string {
  const text = node.getText().replace(/\s+/g, ' ');
  return text.length > 80 ? `${text.slice(0, 77)}...` : text;
}

/** A name for people and for ids: `Bus.publish`, `publishEvent`, `orders.create`; undefined for a nameless callback. */
export function nameOf(fn: Scope): string | undefined {
  if (ts.isSourceFile(fn)) return undefined;
  if (ts.isConstructorDeclaration(fn)) return `${classNameOf(fn) ?? 'class'}.constructor`;
  if (fn.name !== undefined && !ts.isFunctionExpression(fn)) {
    const own = ts.isComputedPropertyName(fn.name) ? undefined : fn.name.text;
    const owner = ts.isMethodDeclaration(fn) ? (classNameOf(fn) ?? objectNameOf(fn)) : undefined;
    return own === undefined ? undefined : owner === undefined ? own : `${owner}.${own}`;
  }
  return nameFromPlace(fn);
}

function classNameOf(member: ts.Node): string | undefined {
  const parent = member.parent;
  if (!ts.isClassLike(parent)) return undefined;
  if (parent.name !== undefined) return parent.name.text;
  return ts.isVariableDeclaration(parent.parent) && ts.isIdentifier(parent.parent.name)
    ? parent.parent.name.text
    : undefined;
}

function objectNameOf(member: ts.Node): string | undefined {
  const object = member.parent;
  if (!ts.isObjectLiteralExpression(object)) return undefined;
  const holder = object.parent;
  return ts.isVariableDeclaration(holder) && ts.isIdentifier(holder.name) ? holder.name.text : undefined;
}

/** `const f = () => …`, `{ f: () => … }`, `class { #f = () => … }`, `exports.f = () => …`; `make()` is what make returns. */
function nameFromPlace(fn: Fn): string | undefined {
  const parent = fn.parent;
  if (ts.isVariableDeclaration(parent) && ts.isIdentifier(parent.name)) return parent.name.text;
  if (ts.isPropertyDeclaration(parent) && ts.isMemberName(parent.name)) {
    const owner = classNameOf(parent);
    return owner === undefined ? parent.name.text : `${owner}.${parent.name.text}`;
  }
  if (ts.isPropertyAssignment(parent) && ts.isIdentifier(parent.name)) {
    const owner = objectNameOf(parent);
    return owner === undefined ? parent.name.text : `${owner}.${parent.name.text}`;
  }
  if (ts.isReturnStatement(parent) || ts.isArrowFunction(parent)) {
    const maker = nameOf(scopeOf(fn));
    return maker === undefined ? undefined : `${maker}()`;
  }
  if (ts.isBinaryExpression(parent) && ts.isPropertyAccessExpression(parent.left))
    return parent.left.name.text;
  return ts.isFunctionExpression(fn) && fn.name !== undefined ? fn.name.text : undefined;
}

/** For messages: the name, or where the nameless function is. */
export function describe(fn: Scope): string {
  const name = nameOf(fn);
  if (name !== undefined) return name;
  if (ts.isSourceFile(fn)) return 'the top level';
  const outer = nameOf(scopeOf(fn));
  return outer === undefined
    ? `the function at line ${lineOf(fn)}`
    : `${outer}, the function at line ${lineOf(fn)}`;
}
