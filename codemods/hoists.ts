/**
 * Which variables declared in a stretch of statements are read outside it, or in those that leave it: when the stretch becomes a block of its
 * own, those have to be declared in front of it. It refuses what would lose a variable its type.
 */

import { ts } from 'ts-morph';
import { boundNames } from './availability.js';
import { localSymbol } from './origins.js';
import type { Obstacle } from './reasons.js';
import { contains, eachNode, isFn, lineOf } from './syntax.js';

export interface Hoist {
  /** The declaration that becomes an assignment. */
  readonly declaration: ts.VariableDeclaration;
  /** `order` or `order: Order`, to be declared with `let`. */
  readonly names: readonly string[];
}

export function hoistsOf(
  statements: readonly ts.Statement[],
  checker: ts.TypeChecker,
  behind: readonly ts.Statement[] = [],
): { hoists: Hoist[]; obstacles: Obstacle[] } {
  const hoists: Hoist[] = [];
  const obstacles: Obstacle[] = [];
  const [first] = statements;
  const last = statements.at(-1);
  if (first === undefined || last === undefined) return { hoists, obstacles };
  const outside = usesOutside(first.getSourceFile(), { start: first.pos, end: last.end }, behind, checker);
  for (const statement of statements) {
    if (!ts.isVariableStatement(statement) || behind.includes(statement)) continue;
    const declarations = statement.declarationList.declarations;
    for (const declaration of declarations) {
      const bound = boundNames(declaration.name);
      const used = bound.filter((n) => outside.has(localSymbol(checker, n)));
      if (used.length === 0) continue;
      const untyped = bound.find(
        (n) =>
          isCaptured(outside.get(localSymbol(checker, n)) ?? [], statement) && !keepsType(n, declaration),
      );
      if (
        declarations.length > 1 ||
        untyped !== undefined ||
        declaration.initializer === undefined ||
        hasRest(declaration.name)
      ) {
        obstacles.push({
          code: 'names-needed-later',
          what: `${used[0]?.text} (line ${lineOf(declaration)})`,
        });
      } else hoists.push({ declaration, names: bound.map((n) => nameText(n, declaration)) });
    }
  }
  return { hoists, obstacles };
}

function usesOutside(
  file: ts.SourceFile,
  range: { start: number; end: number },
  behind: readonly ts.Statement[],
  checker: ts.TypeChecker,
): Map<ts.Symbol | undefined, ts.Identifier[]> {
  const uses = new Map<ts.Symbol | undefined, ts.Identifier[]>();
  eachNode(file, (n) => {
    if (!ts.isIdentifier(n)) return;
    if (n.pos >= range.start && n.end <= range.end && !behind.some((s) => contains(s, n))) return;
    const symbol = localSymbol(checker, n);
    if (symbol === undefined) return;
    const list = uses.get(symbol);
    if (list === undefined) uses.set(symbol, [n]);
    else list.push(n);
  });
  return uses;
}

/** Read in a nested function: there a `let` without annotation is an implicit any in TypeScript. */
function isCaptured(uses: readonly ts.Identifier[], statement: ts.Statement): boolean {
  const owner = functionAround(statement);
  return uses.some((use) => functionAround(use) !== owner);
}

function functionAround(node: ts.Node): ts.Node {
  let n = node;
  while (!ts.isSourceFile(n) && !isFn(n)) n = n.parent;
  return n;
}

function keepsType(id: ts.Identifier, declaration: ts.VariableDeclaration): boolean {
  const isScript = /\.[cm]?jsx?$/.test(declaration.getSourceFile().fileName);
  return isScript || (declaration.type !== undefined && id === declaration.name);
}

function nameText(id: ts.Identifier, declaration: ts.VariableDeclaration): string {
  return declaration.type !== undefined && id === declaration.name
    ? `${id.text}: ${declaration.type.getText()}`
    : id.text;
}

function hasRest(name: ts.BindingName): boolean {
  if (ts.isIdentifier(name)) return false;
  return name.elements.some(
    (e) => !ts.isOmittedExpression(e) && (e.dotDotDotToken !== undefined || hasRest(e.name)),
  );
}
