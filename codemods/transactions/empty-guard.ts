/**
 * `if (rows.length === 0) return` behind `insert … returning`: an early exit that proves that nothing was written, so that
 * ending the new transaction on it, either way, is the same. Anything less plain is no such guard.
 */

import { ts } from 'ts-morph';
import type { Effects } from '../effects.js';
import { alwaysExits } from '../hazards.js';
import { bare, eachOwnNode, unwrapped } from '../syntax.js';

export class EmptyGuards {
  constructor(private readonly effects: Effects) {}

  /**
   * `if (rows.length === 0) return …` or `throw`: the guard of the one write before it. No row came back, so none was
   * written, and ending the transaction either way is the same. Undefined when it is no such guard.
   */
  of(statement: ts.Statement, before: readonly ts.Statement[]): ts.ReturnStatement[] | undefined {
    if (!ts.isIfStatement(statement) || statement.elseStatement !== undefined) return undefined;
    if (!alwaysExits(statement.thenStatement) || !provesEmpty(statement.expression, this.rowNames(before)))
      return undefined;
    const returns: ts.ReturnStatement[] = [];
    let plain = true;
    eachOwnNode(statement.thenStatement, (n) => {
      if (ts.isReturnStatement(n)) returns.push(n);
      if (ts.isBreakStatement(n) || ts.isContinueStatement(n) || ts.isAwaitExpression(n)) plain = false;
      if (ts.isIfStatement(n) || ts.isIterationStatement(n, false) || ts.isTryStatement(n)) plain = false;
    });
    return plain ? returns : undefined;
  }

  /** Names that stand for the write's result, its rows or its first row. */
  private rowNames(statements: readonly ts.Statement[]): ReadonlySet<string> {
    const names = new Set<string>();
    for (const statement of statements) {
      if (!ts.isVariableStatement(statement)) continue;
      for (const { name: bound, initializer } of statement.declarationList.declarations) {
        const source = initializer === undefined ? undefined : unwrapped(initializer);
        if (source === undefined) continue;
        const query = ts.isCallExpression(source) ? this.effects.pgQuery(source) : undefined;
        const root = rootName(source);
        if (query !== undefined) {
          if (returnsWhatItWrote(query.text)) for (const n of resultNames(bound)) names.add(n);
        } else if (root !== undefined && names.has(root) && ts.isIdentifier(bound)) names.add(bound.text);
      }
    }
    return names;
  }
}

/** `insert … returning`: without a row in the answer there is no row that was written. */
function returnsWhatItWrote(sql: string): boolean {
  return /^\s*(?:insert|update|delete)\b[\s\S]*\breturning\b/i.test(sql);
}

/** `result`, `{ rows }`, `{ rowCount }`, `{ rows: [row] }`: names for the whole answer or its first row. */
function resultNames(bound: ts.BindingName): string[] {
  if (ts.isIdentifier(bound)) return [bound.text];
  if (!ts.isObjectBindingPattern(bound)) return [];
  return bound.elements.flatMap((e) => {
    const key = (e.propertyName ?? e.name).getText();
    if (key !== 'rows' && key !== 'rowCount') return [];
    if (ts.isIdentifier(e.name)) return [e.name.text];
    const [first] = ts.isArrayBindingPattern(e.name) ? e.name.elements : [];
    return first !== undefined && ts.isBindingElement(first) && ts.isIdentifier(first.name)
      ? [first.name.text]
      : [];
  });
}

/** `!row`, `row === undefined`, `rows.length === 0`, `result.rowCount === 0`, `!result.rowCount`, and `||` of these. */
function provesEmpty(condition: ts.Expression, names: ReadonlySet<string>): boolean {
  const e = bare(condition);
  const known = (x: ts.Expression): boolean => {
    const root = rootName(x);
    return root !== undefined && names.has(root);
  };
  if (ts.isPrefixUnaryExpression(e) && e.operator === ts.SyntaxKind.ExclamationToken) return known(e.operand);
  if (!ts.isBinaryExpression(e)) return false;
  const kind = e.operatorToken.kind;
  if (kind === ts.SyntaxKind.BarBarToken) return provesEmpty(e.left, names) && provesEmpty(e.right, names);
  const equal = kind === ts.SyntaxKind.EqualsEqualsEqualsToken || kind === ts.SyntaxKind.EqualsEqualsToken;
  const below = kind === ts.SyntaxKind.LessThanToken;
  const right = e.right.getText();
  const isCount = /\.(?:length|rowCount)$/.test(bare(e.left).getText());
  if (equal)
    return known(e.left) && (right === 'undefined' || right === 'null' || (right === '0' && isCount));
  return below && known(e.left) && isCount && right === '1';
}

/** `rows` in `rows[0]`, `result` in `result.rows[0]`: only through rows, length, rowCount and an index. */
function rootName(e: ts.Expression): string | undefined {
  let x = bare(e);
  while (ts.isPropertyAccessExpression(x) || ts.isElementAccessExpression(x)) {
    const step = ts.isPropertyAccessExpression(x) ? x.name.text : '[]';
    if (!['rows', 'length', 'rowCount', '[]'].includes(step)) return undefined;
    x = bare(x.expression);
  }
  return ts.isIdentifier(x) ? x.text : undefined;
}
