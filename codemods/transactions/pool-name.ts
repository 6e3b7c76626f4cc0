/**
 * How a pool is called in a function that uses it: directly, or, behind a helper like `query(text, values)`, as what
 * the helper's module exports. A helper that does more than hand its arguments on has no such name.
 */

import { ts } from 'ts-morph';
import type { PgQuery } from '../effects.js';
import { importOf } from '../imports.js';
import { returnsOf } from '../origins.js';
import type { Analysis } from '../program.js';
import { bare, eachOwnNode, ownCalls, unwrapped } from '../syntax.js';

/** How the pool is named in the function that publishes. */
export interface PoolName {
  readonly text: string;
  /** What has to be imported for that name; undefined when it is in scope already. */
  readonly from: { readonly module: ts.SourceFile; readonly name: string } | undefined;
}

export class PoolNames {
  constructor(private readonly analysis: Analysis) {}

  /** A direct call names its pool; behind a helper the pool has to be exported beside it. */
  of(query: PgQuery): PoolName | undefined {
    if (query.helper === undefined) return { text: query.handle.getText(), from: undefined };
    if (!passesStraightThrough(query)) return undefined;
    const module = query.helper.getSourceFile();
    const handle = bare(query.handle);
    if (!ts.isIdentifier(handle)) return undefined;
    if (query.call.getSourceFile() === module) return { text: handle.text, from: undefined };
    const exported = this.exportedName(query.call.getSourceFile(), module, handle);
    if (exported === undefined) return undefined;
    const target = bare(query.call.expression);
    if (ts.isPropertyAccessExpression(target) && this.isModuleObject(target.expression, module)) {
      return { text: `${target.expression.getText()}.${exported}`, from: undefined };
    }
    return ts.isIdentifier(target) ? { text: exported, from: { module, name: exported } } : undefined;
  }

  /** Asked through the import: a CommonJS module has no symbol of its own. */
  private exportedName(
    from: ts.SourceFile,
    module: ts.SourceFile,
    handle: ts.Identifier,
  ): string | undefined {
    const { checker } = this.analysis;
    const specifier = importOf(from, module, checker);
    const symbol = specifier === undefined ? undefined : checker.getSymbolAtLocation(specifier);
    const pool = checker.getSymbolAtLocation(handle);
    if (symbol === undefined || pool === undefined) return undefined;
    const whole = symbol.exports?.get(ts.InternalSymbolName.ExportEquals);
    const members = whole === undefined ? [] : checker.getTypeOfSymbol(whole).getProperties();
    return [...checker.getExportsOfModule(symbol), ...members].find((s) => this.leadsTo(s, pool))?.name;
  }

  private leadsTo(exported: ts.Symbol, pool: ts.Symbol): boolean {
    const { checker } = this.analysis;
    if (exported === pool) return true;
    if (exported.flags & ts.SymbolFlags.Alias && checker.getAliasedSymbol(exported) === pool) return true;
    const declaration = exported.valueDeclaration ?? exported.declarations?.[0];
    if (declaration === undefined) return false;
    if (ts.isShorthandPropertyAssignment(declaration))
      return checker.getShorthandAssignmentValueSymbol(declaration) === pool;
    if (ts.isPropertyAssignment(declaration))
      return checker.getSymbolAtLocation(declaration.initializer) === pool;
    const holder = declaration.parent;
    return ts.isBinaryExpression(holder) && checker.getSymbolAtLocation(holder.right) === pool;
  }

  /** `db` in `const db = require('./db')` or `import * as db from './db'`. */
  private isModuleObject(e: ts.Expression, module: ts.SourceFile): boolean {
    if (!ts.isIdentifier(e)) return false;
    const { checker } = this.analysis;
    const symbol = checker.getSymbolAtLocation(e);
    const declaration = symbol?.declarations?.[0];
    if (symbol === undefined || declaration === undefined) return false;
    if (symbol.flags & ts.SymbolFlags.Alias)
      return checker.getAliasedSymbol(symbol).valueDeclaration === module;
    if (!ts.isVariableDeclaration(declaration) || declaration.initializer === undefined) return false;
    const required = unwrapped(declaration.initializer);
    if (
      !ts.isCallExpression(required) ||
      required.expression.getText() !== 'require' ||
      required.arguments[0] === undefined
    )
      return false;
    return checker.getSymbolAtLocation(required.arguments[0])?.valueDeclaration === module;
  }
}

/** The helper hands its parameters on in their order and gives back what the query gave. */
function passesStraightThrough(query: PgQuery): boolean {
  const fn = query.helper;
  if (fn?.body === undefined) return false;
  const inner = ownCalls(fn.body).find((c) => {
    const target = bare(c.expression);
    return ts.isPropertyAccessExpression(target) && target.expression === query.handle;
  });
  if (inner === undefined) return false;
  const names = fn.parameters.map((p) => p.name.getText());
  if (!inner.arguments.every((a, i) => ts.isIdentifier(a) && a.text === names[i])) return false;
  return returnsOf(fn).every((r) => {
    const e = unwrapped(r);
    return e === inner || (ts.isIdentifier(e) && declaredAs(fn, e.text, inner));
  });
}

function declaredAs(fn: ts.Node, variable: string, call: ts.CallExpression): boolean {
  let found = false;
  eachOwnNode(fn, (n) => {
    if (ts.isVariableDeclaration(n) && n.name.getText() === variable && n.initializer !== undefined) {
      found = unwrapped(n.initializer) === call;
    }
  });
  return found;
}
