/**
 * Small facts about declarations and expressions that tracing needs: where something is declared, what a require
 * names, which values say nothing. No state, no decisions.
 */

import { ts } from 'ts-morph';
import { packageOfPath, packageOfSpecifier } from './packages.js';
import { bare, type Fn, isFn } from './syntax.js';

const NODE_GLOBALS = new Set([
  'Buffer',
  'console',
  'process',
  'setTimeout',
  'setInterval',
  'setImmediate',
  'clearTimeout',
  'clearInterval',
  'queueMicrotask',
  'structuredClone',
  'crypto',
  'performance',
  'globalThis',
  'URL',
]);

export function isNodeGlobal(name: string): boolean {
  return NODE_GLOBALS.has(name);
}

export function declaredIn(declaration: ts.Node): string | undefined {
  const path = declaration.getSourceFile().fileName;
  const pkg = packageOfPath(path);
  if (pkg === 'typescript') return undefined;
  if (pkg !== 'node') return pkg;
  // @types/node declares many modules: `events` and `http` are packages of their own here.
  let n: ts.Node = declaration;
  while (!ts.isSourceFile(n) && !(ts.isModuleDeclaration(n) && ts.isStringLiteral(n.name))) n = n.parent;
  return ts.isModuleDeclaration(n) ? packageOfSpecifier(n.name.text) : 'node';
}

export function isLibrary(declaration: ts.Node): boolean {
  return packageOfPath(declaration.getSourceFile().fileName) === 'typescript';
}

export function isOpaque(type: ts.Type): boolean {
  return (
    (type.flags & (ts.TypeFlags.Any | ts.TypeFlags.Unknown | ts.TypeFlags.Null | ts.TypeFlags.Undefined)) !==
    0
  );
}

export function memberOf(what: string, name: string): string {
  return name === 'default' && what === 'module' ? 'module' : `${what}.${name}`;
}

export function isFallback(kind: ts.SyntaxKind): boolean {
  return kind === ts.SyntaxKind.QuestionQuestionToken || kind === ts.SyntaxKind.BarBarToken;
}

/** `null`, `undefined`: a placeholder that says nothing about the value. */
export function isNothing(e: ts.Expression): boolean {
  const x = bare(e);
  return x.kind === ts.SyntaxKind.NullKeyword || (ts.isIdentifier(x) && x.text === 'undefined');
}

export function isNothingType(node: ts.TypeNode): boolean {
  return (
    node.kind === ts.SyntaxKind.UndefinedKeyword ||
    (ts.isLiteralTypeNode(node) && node.literal.kind === ts.SyntaxKind.NullKeyword)
  );
}

export function isAnyKeyword(node: ts.TypeNode): boolean {
  return node.kind === ts.SyntaxKind.AnyKeyword || node.kind === ts.SyntaxKind.UnknownKeyword;
}

/** The symbol of a name where it stands; of `{ a }` the variable, not the property. Aliases are not followed. */
export function localSymbol(checker: ts.TypeChecker, id: ts.Node): ts.Symbol | undefined {
  const parent = id.parent;
  return ts.isShorthandPropertyAssignment(parent)
    ? checker.getShorthandAssignmentValueSymbol(parent)
    : checker.getSymbolAtLocation(id);
}

export function isConst(declaration: ts.VariableDeclaration): boolean {
  return (
    ts.isVariableDeclarationList(declaration.parent) && (declaration.parent.flags & ts.NodeFlags.Const) !== 0
  );
}

/** `require('x')` → `x`. */
export function requiredModule(node: ts.Node): string | undefined {
  if (!ts.isCallExpression(node) || node.arguments.length !== 1) return undefined;
  if (!ts.isIdentifier(node.expression) || node.expression.text !== 'require') return undefined;
  const [argument] = node.arguments;
  return argument !== undefined && ts.isStringLiteralLike(argument) ? argument.text : undefined;
}

export function specifierOf(declaration: ts.Node): string | undefined {
  if (ts.isImportEqualsDeclaration(declaration)) {
    const ref = declaration.moduleReference;
    return ts.isExternalModuleReference(ref) && ts.isStringLiteral(ref.expression)
      ? ref.expression.text
      : undefined;
  }
  let n: ts.Node = declaration;
  while (!ts.isSourceFile(n) && !ts.isImportDeclaration(n) && !ts.isVariableDeclaration(n)) n = n.parent;
  if (ts.isImportDeclaration(n) && ts.isStringLiteral(n.moduleSpecifier)) return n.moduleSpecifier.text;
  if (ts.isVariableDeclaration(n) && n.initializer !== undefined) return requiredModule(bare(n.initializer));
  return undefined;
}

export function returnsOf(fn: Fn): ts.Expression[] {
  if (fn.body === undefined) return [];
  if (!ts.isBlock(fn.body)) return [fn.body];
  const found: ts.Expression[] = [];
  const walk = (node: ts.Node): void => {
    if (isFn(node)) return;
    if (ts.isReturnStatement(node) && node.expression !== undefined) found.push(node.expression);
    ts.forEachChild(node, walk);
  };
  ts.forEachChild(fn.body, walk);
  return found;
}

export function calledName(call: ts.CallExpression): string {
  const target = bare(call.expression);
  if (ts.isPropertyAccessExpression(target)) return target.name.text;
  return ts.isIdentifier(target) ? target.text : '(expression)';
}

export function throughOf(declaration: ts.Node): string | undefined {
  const owner = declaration.parent;
  return ts.isInterfaceDeclaration(owner) ? owner.name.text : undefined;
}
