/**
 * What the compiler knows in front of a stretch of statements and forgets inside a callback: `if (!this.user) return` says
 * nothing of `this.user` there. Types only; it edits nothing.
 */

import { ts } from 'ts-morph';
import { isConst, localSymbol } from './origins.js';
import { contains, eachOwnNode, isReference, lineOf } from './syntax.js';

/** The first mention that would lose its type if the statements became a callback. */
export function forgotten(statements: readonly ts.Statement[], checker: ts.TypeChecker): string | undefined {
  const [first] = statements;
  if (first === undefined || !/\.[cm]?tsx?$/.test(first.getSourceFile().fileName)) return undefined;
  let found: string | undefined;
  const take = (node: ts.Expression): void => {
    found ??= `${node.getText()} (line ${lineOf(node)})`;
  };
  for (const statement of statements) {
    eachOwnNode(statement, (n) => {
      if (ts.isPropertyAccessExpression(n) && isRead(n)) {
        const isOutside = !statements.some((s) => isDeclaredIn(n, s, checker));
        if (isOutside && isNarrowed(n, n.name, checker) && !isAsked(n, statements)) take(n);
      } else if (ts.isIdentifier(n) && isReference(n) && isVariable(n, checker)) {
        const symbol = localSymbol(checker, n);
        const declaration = symbol?.valueDeclaration;
        if (symbol === undefined || declaration === undefined) return;
        if (statements.some((s) => contains(s, declaration)) || !isAssigned(symbol, declaration, checker))
          return;
        if (isNarrowed(n, n, checker) && !isAsked(n, statements)) take(n);
      }
    });
  }
  return found;
}

/** Not what is called, assigned or only a step on the way to a property. */
function isRead(node: ts.PropertyAccessExpression): boolean {
  const { parent } = node;
  if (ts.isCallExpression(parent) && parent.expression === node) return false;
  return !(ts.isBinaryExpression(parent) && parent.left === node && isEquals(parent));
}

function isEquals(e: ts.BinaryExpression): boolean {
  return e.operatorToken.kind === ts.SyntaxKind.EqualsToken;
}

function rootOf(e: ts.Expression): ts.Expression {
  let root = e;
  while (
    ts.isPropertyAccessExpression(root) ||
    ts.isElementAccessExpression(root) ||
    ts.isNonNullExpression(root)
  )
    root = root.expression;
  return root;
}

function isDeclaredIn(e: ts.Expression, statement: ts.Statement, checker: ts.TypeChecker): boolean {
  const root = rootOf(e);
  const declaration = ts.isIdentifier(root) ? localSymbol(checker, root)?.valueDeclaration : undefined;
  return declaration !== undefined && contains(statement, declaration);
}

/** Whether the compiler knows more here than the declaration says. */
function isNarrowed(node: ts.Expression, name: ts.Node, checker: ts.TypeChecker): boolean {
  const symbol = checker.getSymbolAtLocation(name);
  if (symbol === undefined || !(symbol.flags & (ts.SymbolFlags.Variable | ts.SymbolFlags.Property)))
    return false;
  const declared = checker.getTypeOfSymbol(symbol);
  const here = checker.getTypeAtLocation(node);
  if (!declared.isUnion() && !(declared.flags & ts.TypeFlags.Unknown)) return false;
  return here !== declared && checker.typeToString(here) !== checker.typeToString(declared);
}

/** The same text is asked inside, so what is known may come from there. */
function isAsked(node: ts.Expression, statements: readonly ts.Statement[]): boolean {
  const text = node.getText();
  let asked = false;
  for (const statement of statements) {
    eachOwnNode(statement, (n) => {
      const condition = ts.isIfStatement(n)
        ? n.expression
        : ts.isConditionalExpression(n)
          ? n.condition
          : ts.isBinaryExpression(n) && !isEquals(n)
            ? n.left
            : undefined;
      if (condition?.getText().includes(text) === true && !contains(condition, node)) asked = true;
    });
  }
  return asked;
}

/** A `let`, `var` or parameter; a constant keeps its type in a callback. */
function isVariable(id: ts.Identifier, checker: ts.TypeChecker): boolean {
  const declaration = localSymbol(checker, id)?.valueDeclaration;
  if (declaration === undefined) return false;
  return ts.isParameter(declaration) || (ts.isVariableDeclaration(declaration) && !isConst(declaration));
}

/** Assigned somewhere; newer compilers forgive what was assigned before, older ones do not. */
function isAssigned(symbol: ts.Symbol, declaration: ts.Declaration, checker: ts.TypeChecker): boolean {
  if (ts.isVariableDeclaration(declaration) && declaration.initializer === undefined) return true;
  let assigned = false;
  let scope: ts.Node = declaration;
  while (!ts.isSourceFile(scope) && !ts.isFunctionLike(scope)) scope = scope.parent;
  eachOwnNode(scope, (n) => {
    if (!ts.isIdentifier(n) || n.text !== symbol.name || localSymbol(checker, n) !== symbol) return;
    const { parent } = n;
    if (
      ts.isBinaryExpression(parent) &&
      parent.left === n &&
      parent.operatorToken.kind >= ts.SyntaxKind.FirstAssignment &&
      parent.operatorToken.kind <= ts.SyntaxKind.LastAssignment
    )
      assigned = true;
  });
  return assigned;
}
