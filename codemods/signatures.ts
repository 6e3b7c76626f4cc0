/**
 * Small facts about functions and their declarations: the name that they are called by, what declares them, whether a mention
 * is a call. Syntax alone; no state.
 */

import { ts } from 'ts-morph';
import type { Obstacle } from './reasons.js';
import { bare, eachOwnNode, type Fn, isFn } from './syntax.js';

/** The identifier that a function is called by. */
export function nameNode(node: ts.Node): ts.Identifier | ts.PrivateIdentifier | undefined {
  const named = (name: ts.Node | undefined): ts.Identifier | ts.PrivateIdentifier | undefined =>
    name !== undefined && (ts.isIdentifier(name) || ts.isPrivateIdentifier(name)) ? name : undefined;
  if (!ts.isFunctionExpression(node) && !ts.isArrowFunction(node))
    return named(ts.getNameOfDeclaration(node as ts.Declaration));
  const { parent } = node;
  if (ts.isVariableDeclaration(parent) || ts.isPropertyDeclaration(parent) || ts.isPropertyAssignment(parent))
    return named(parent.name);
  if (ts.isBinaryExpression(parent) && ts.isPropertyAccessExpression(parent.left))
    return named(parent.left.name);
  return undefined;
}

export function ownerOf(fn: ts.Node): ts.ClassLikeDeclaration | undefined {
  const member = ts.isPropertyDeclaration(fn.parent) ? fn.parent : fn;
  return ts.isClassLike(member.parent) ? member.parent : undefined;
}

/** `tell = async () => …` and `tell: (x: X) => void`: the function behind a property. */
export function signatureOf(member: ts.Node): ts.Node {
  if (ts.isPropertyDeclaration(member) && member.initializer !== undefined && isFn(member.initializer))
    return member.initializer;
  if (
    (ts.isVariableDeclaration(member) || ts.isPropertyAssignment(member)) &&
    member.initializer !== undefined &&
    isFn(member.initializer)
  )
    return member.initializer;
  if (
    (ts.isPropertySignature(member) || ts.isPropertyDeclaration(member)) &&
    member.type !== undefined &&
    ts.isFunctionTypeNode(member.type)
  )
    return member.type;
  return member;
}

export function bodyOf(member: ts.Node): Fn | undefined {
  return isFn(member) && member.body !== undefined ? member : undefined;
}

export function callOf(node: ts.Node): ts.CallExpression | undefined {
  let n = node;
  while (ts.isParenthesizedExpression(n.parent) || ts.isNonNullExpression(n.parent)) n = n.parent;
  const { parent } = n;
  return ts.isCallExpression(parent) && bare(parent.expression) === node ? parent : undefined;
}

export function isMember(fn: Fn): boolean {
  return ownerOf(fn) !== undefined || ts.isPropertyAssignment(fn.parent);
}

export function importedNames(file: ts.SourceFile): ReadonlySet<string> {
  const bound = file.statements.flatMap((s) =>
    ts.isImportDeclaration(s) ? (s.importClause?.namedBindings ?? []) : [],
  );
  return new Set(bound.flatMap((b) => (ts.isNamedImports(b) ? b.elements.map((e) => e.name.text) : [])));
}

/** A call that leaves out the argument of this number. */
export function isShort(call: ts.CallExpression, index: number): boolean {
  return call.arguments.length <= index && !call.arguments.some(ts.isSpreadElement);
}

/** A name that only declares, imports or exports. */
export function isNameOnly(node: ts.Node): boolean {
  const { parent } = node;
  if (ts.isImportSpecifier(parent) || ts.isExportSpecifier(parent) || ts.isImportClause(parent)) return true;
  if (ts.isExportAssignment(parent)) return true;
  if (ts.isShorthandPropertyAssignment(parent)) return isExport(parent.parent);
  const named = parent as { readonly name?: ts.Node };
  return named.name === node && !ts.isPropertyAccessExpression(parent);
}

/** `module.exports = x`, `exports.x = x`, and the object in `module.exports = { x }`. */
export function isExport(node: ts.Node): boolean {
  const held = ts.isPropertyAssignment(node.parent) ? node.parent.parent : node;
  const { parent } = held;
  if (ts.isExportAssignment(parent)) return true;
  if (!ts.isBinaryExpression(parent)) return false;
  const left = parent.left.getText();
  return /^(?:module\.)?exports(?:\.|$)/.test(left);
}

/** `export default` of a function or of its name: others may call it anything. */
export function isDefaultExport(fn: Fn, name: string): boolean {
  return fn.getSourceFile().statements.some((statement) => {
    if (ts.isExportAssignment(statement))
      return ts.isIdentifier(statement.expression) && statement.expression.text === name;
    if (statement !== fn || !ts.canHaveModifiers(statement)) return false;
    return ts.getModifiers(statement)?.some((m) => m.kind === ts.SyntaxKind.DefaultKeyword) === true;
  });
}

/** The parameters by number: another one would be read there, too. */
export function usesArguments(fn: Fn): boolean {
  let found = false;
  eachOwnNode(fn, (n) => {
    if (ts.isIdentifier(n) && n.text === 'arguments') found = true;
  });
  return found;
}

const GENERATED = /@generated\b|do not edit|auto-?generated/i;

/** A header that says that the next run of a generator would undo an edit. */
export function generatedObstacle(file: ts.SourceFile): Obstacle | undefined {
  const head = file.text.slice(0, 600).split('\n').slice(0, 10);
  const line = head.find((l) => /^\s*(?:\/\/|\/?\*|#)/.test(l) && GENERATED.test(l));
  return line === undefined ? undefined : { code: 'generated-file', what: line.trim().slice(0, 80) };
}
