/**
 * Calls of the program by the name that they are made under. To ask the checker what each of 100,000 calls reaches
 * costs minutes where packages are not installed; a function can only be reached under its own name, under one that
 * something else was given (an import renamed, a variable, a property that was assigned), or under no name at all.
 * It resolves nothing: it says which calls are worth asking about.
 */

import { ts } from 'ts-morph';
import { calledName } from './origins.js';
import { bare, eachNode, type Fn, isFn, nameOf, unwrapped } from './syntax.js';

export class CallNames {
  private readonly calls = new Map<string, ts.CallExpression[]>();
  private readonly news: ts.NewExpression[] = [];
  /** Names that stand for something that was computed, handed on or renamed: any function may be behind them. */
  private readonly given = new Set<string>();
  private readonly underGiven: ts.CallExpression[];

  /** `files`: where calls are looked for; `own`: where names are given. */
  constructor(files: readonly ts.SourceFile[], own: readonly ts.SourceFile[]) {
    for (const file of files) {
      eachNode(file, (node) => {
        if (ts.isNewExpression(node)) this.news.push(node);
        if (!ts.isCallExpression(node)) return;
        const name = calledName(node);
        const list = this.calls.get(name);
        if (list === undefined) this.calls.set(name, [node]);
        else list.push(node);
      });
    }
    for (const file of own) eachNode(file, (node) => this.readGiven(node));
    this.underGiven = [...this.given, UNNAMED].flatMap((name) => this.calls.get(name) ?? []);
  }

  /** Calls that may reach the function; of a constructor the `new`s, too. */
  of(fn: Fn): readonly (ts.CallExpression | ts.NewExpression)[] {
    // `const send = function next() { next(); }` calls itself by its own name.
    const own = ts.isFunctionExpression(fn) && fn.name !== undefined ? [fn.name.text] : [];
    const calls = this.named([...new Set([lastOf(nameOf(fn)), ...own])]);
    return ts.isConstructorDeclaration(fn) ? [...calls, ...this.news] : calls;
  }

  /** Calls under one of these names, or under a name that may stand for one of them. */
  named(names: readonly string[]): readonly ts.CallExpression[] {
    const wanted = names.filter((name) => name !== UNNAMED && !this.given.has(name));
    const found = wanted.flatMap((name) => this.calls.get(name) ?? []);
    return [...found, ...this.underGiven];
  }

  private readGiven(node: ts.Node): void {
    if (ts.isImportSpecifier(node) || ts.isExportSpecifier(node)) {
      if (node.propertyName !== undefined) this.give(node.name);
    } else if (ts.isImportClause(node) || ts.isImportEqualsDeclaration(node)) {
      if (node.name !== undefined) this.give(node.name);
    } else if (ts.isBindingElement(node)) {
      const renamed = node.propertyName !== undefined || node.initializer !== undefined;
      if (renamed || ts.isArrayBindingPattern(node.parent)) this.give(node.name);
    } else if (isDefaultExport(node)) {
      // `require('./bus').default(…)`.
      this.given.add('default');
    } else if (ts.isGetAccessorDeclaration(node) || hasComputedName(node)) {
      this.give(node.name);
    } else if (ts.isBinaryExpression(node) && node.operatorToken.kind === ts.SyntaxKind.EqualsToken) {
      const left = bare(node.left);
      if (mayBeFunction(node.right)) this.give(ts.isPropertyAccessExpression(left) ? left.name : left);
    } else if (isHolder(node)) {
      if (node.initializer === undefined ? isOfList(node) : mayBeFunction(node.initializer))
        this.give(node.name);
    }
    if ('type' in node && 'name' in node && node.type !== undefined && asksForType(node.type as ts.Node))
      this.give(node.name as ts.Node);
  }

  private give(given: ts.Node): void {
    const name = ts.isComputedPropertyName(given) ? given.expression : given;
    if (ts.isIdentifier(name) || ts.isStringLiteralLike(name) || ts.isPrivateIdentifier(name))
      this.given.add(name.text);
  }
}

/** What `calledName` says of a call of something that has no name. */
const UNNAMED = '(expression)';

function hasComputedName(node: ts.Node): node is ts.MethodDeclaration {
  return ts.isMethodDeclaration(node) && ts.isComputedPropertyName(node.name);
}

/** `export default publish`, `export default function publish() {}`. */
function isDefaultExport(node: ts.Node): boolean {
  if (ts.isExportAssignment(node)) return node.isExportEquals !== true;
  return (
    ts.isFunctionDeclaration(node) &&
    (node.modifiers?.some((m) => m.kind === ts.SyntaxKind.DefaultKeyword) ?? false)
  );
}

/** `for (const send of senders)`. */
function isOfList(holder: Holder): boolean {
  return ts.isVariableDeclarationList(holder.parent) && ts.isForOfStatement(holder.parent.parent);
}

type Holder =
  | ts.VariableDeclaration
  | ts.PropertyAssignment
  | ts.PropertyDeclaration
  | ts.ParameterDeclaration;

function isHolder(node: ts.Node): node is Holder {
  return (
    ts.isVariableDeclaration(node) ||
    ts.isPropertyAssignment(node) ||
    ts.isPropertyDeclaration(node) ||
    ts.isParameter(node)
  );
}

/** A function under its holder's name is found by that name; a literal is none. */
function mayBeFunction(given: ts.Expression): boolean {
  const e = unwrapped(given);
  if (isFn(e)) return ts.isFunctionExpression(e) && e.name !== undefined;
  return (
    ts.isIdentifier(e) ||
    ts.isPropertyAccessExpression(e) ||
    ts.isElementAccessExpression(e) ||
    ts.isCallExpression(e) ||
    ts.isConditionalExpression(e) ||
    ts.isBinaryExpression(e) ||
    ts.isTaggedTemplateExpression(e)
  );
}

/** `typeof publish` in a type. */
function asksForType(type: ts.Node): boolean {
  let found = false;
  eachNode(type, (n) => {
    if (ts.isTypeQueryNode(n)) found = true;
  });
  return found;
}

function lastOf(name: string | undefined): string {
  return name === undefined ? UNNAMED : name.slice(name.lastIndexOf('.') + 1);
}
