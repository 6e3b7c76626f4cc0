/**
 * Declarations that nothing refers to any more once a publish is gone: imports, requires and constants that only fed
 * it. Offsets in, edits out.
 */

import { ts } from 'ts-morph';
import { lineStart, nextLine, type TextEdit } from './edits.js';
import { localSymbol, requiredModule } from './origins.js';
import { bare, eachNode } from './syntax.js';

export interface Gone {
  /** Names that the edits take away. */
  readonly dropped: readonly ts.Identifier[];
  /** Names of a transaction's result: without a reader `const order = await f()` becomes `await f()`. */
  readonly results: ReadonlySet<ts.Symbol>;
  /** Whether an initialiser may go with its name. */
  readonly isSpent: (initializer: ts.Expression) => boolean;
}

/**
 * Takes out declarations that nothing refers to once `dropped` is gone: imports, requires, and constants that only
 * fed the publish. Removing one may free the next.
 */
export function removeUnused(
  file: ts.SourceFile,
  checker: ts.TypeChecker,
  { dropped, results, isSpent }: Gone,
): Unused {
  const references = referencesOf(file, checker);
  const leftovers: ts.Declaration[] = [];
  const gone = new Set<ts.Node>(dropped);
  const unused = new Set<ts.Node>();
  const removed = new Set<ts.Node>();
  let queue = [...dropped];
  while (queue.length > 0) {
    const symbols = new Set(queue.flatMap((id) => localSymbol(checker, id) ?? []));
    queue = [];
    for (const symbol of symbols) {
      const declaration = symbol.declarations?.[0];
      if (declaration === undefined || declaration.getSourceFile() !== file || unused.has(declaration))
        continue;
      const isField = ts.isPropertyDeclaration(declaration);
      if ((references.get(symbol) ?? []).some((id) => !gone.has(id) && !(isField && isAssigned(id))))
        continue;
      if (results.has(symbol)) {
        unused.add(declaration);
        continue;
      }
      if (!isRemovable(declaration, isSpent)) {
        if (isUnread(declaration)) leftovers.push(declaration);
        continue;
      }
      unused.add(declaration);
      for (const id of freedBy(declaration, unused, removed)) {
        gone.add(id);
        queue.push(id);
      }
    }
  }
  return { ...removalOf(file, unused, isSpent), leftovers };
}

/** `this.bus` of `this.bus = bus`: that is no reading. */
function isAssigned(id: ts.Identifier): boolean {
  const access = id.parent;
  return (
    ts.isPropertyAccessExpression(access) &&
    ts.isBinaryExpression(access.parent) &&
    access.parent.left === access &&
    access.parent.operatorToken.kind === ts.SyntaxKind.EqualsToken
  );
}

export interface Unused {
  /** Whole lines to remove. */
  readonly lines: readonly { start: number; end: number }[];
  readonly edits: readonly TextEdit[];
  /** What nothing reads any more and what is not ours to remove: parameters, connections that are opened. */
  readonly leftovers: readonly ts.Declaration[];
}

/** Something that a person may want to remove: exported names have readers elsewhere. */
function isUnread(declaration: ts.Declaration): boolean {
  if (ts.isParameter(declaration) || ts.isPropertyDeclaration(declaration)) {
    const modifiers = declaration.modifiers ?? [];
    const isMember = ts.isPropertyDeclaration(declaration) || modifiers.length > 0;
    return !isMember || modifiers.some((m) => m.kind === ts.SyntaxKind.PrivateKeyword);
  }
  if (!ts.isVariableDeclaration(declaration)) return false;
  const holder = declaration.parent.parent;
  return (
    !ts.isVariableStatement(holder) ||
    !(holder.modifiers?.some((m) => m.kind === ts.SyntaxKind.ExportKeyword) ?? false)
  );
}

function referencesOf(file: ts.SourceFile, checker: ts.TypeChecker): Map<ts.Symbol, ts.Identifier[]> {
  const found = new Map<ts.Symbol, ts.Identifier[]>();
  eachNode(file, (n) => {
    if (!ts.isIdentifier(n) || isDeclaredName(n)) return;
    const symbol = localSymbol(checker, n);
    if (symbol === undefined) return;
    const list = found.get(symbol);
    if (list === undefined) found.set(symbol, [n]);
    else list.push(n);
  });
  return found;
}

function isDeclaredName(id: ts.Identifier): boolean {
  const parent = id.parent;
  if (ts.isImportSpecifier(parent) || ts.isImportClause(parent) || ts.isNamespaceImport(parent)) return true;
  if (ts.isParameter(parent) || ts.isPropertyDeclaration(parent)) return parent.name === id;
  if (!ts.isVariableDeclaration(parent) && !ts.isBindingElement(parent)) return false;
  return parent.name === id || (ts.isBindingElement(parent) && parent.propertyName === id);
}

function isRemovable(declaration: ts.Node, isSpent: (initializer: ts.Expression) => boolean): boolean {
  if (
    ts.isImportSpecifier(declaration) ||
    ts.isImportClause(declaration) ||
    ts.isNamespaceImport(declaration)
  )
    return true;
  const variable = ts.isBindingElement(declaration) ? declaration.parent.parent : declaration;
  if (!ts.isVariableDeclaration(variable) || variable.initializer === undefined) return false;
  if (!ts.isVariableDeclarationList(variable.parent) || variable.parent.declarations.length !== 1)
    return false;
  if (!ts.isVariableStatement(variable.parent.parent)) return false;
  if (variable.parent.parent.modifiers?.some((m) => m.kind === ts.SyntaxKind.ExportKeyword)) return false;
  if (requiredModule(bare(variable.initializer)) !== undefined) return true;
  return isSpent(variable.initializer);
}

/** Identifiers that go with a declaration once all of its statement goes. */
function freedBy(declaration: ts.Node, unused: ReadonlySet<ts.Node>, removed: Set<ts.Node>): ts.Identifier[] {
  const statement = statementOfDeclaration(declaration);
  if (statement === undefined || removed.has(statement) || !isWhole(declaration, unused)) return [];
  removed.add(statement);
  const ids: ts.Identifier[] = [];
  eachNode(statement, (n) => {
    if (ts.isIdentifier(n) && !isDeclaredName(n)) ids.push(n);
  });
  return ids;
}

function statementOfDeclaration(declaration: ts.Node): ts.Statement | undefined {
  let n = declaration;
  while (!ts.isSourceFile(n) && !ts.isImportDeclaration(n) && !ts.isVariableStatement(n)) n = n.parent;
  return ts.isSourceFile(n) ? undefined : n;
}

/** Whether every name of the statement is unused. */
function isWhole(declaration: ts.Node, unused: ReadonlySet<ts.Node>): boolean {
  const statement = statementOfDeclaration(declaration);
  if (statement === undefined) return false;
  if (ts.isImportDeclaration(statement)) {
    const clause = statement.importClause;
    const named = clause?.namedBindings;
    const names = named === undefined ? [] : ts.isNamedImports(named) ? [...named.elements] : [named];
    return (
      (clause?.name === undefined || (clause !== undefined && unused.has(clause))) &&
      names.every((n) => unused.has(n))
    );
  }
  if (!ts.isVariableStatement(statement)) return false;
  const [variable] = statement.declarationList.declarations;
  if (variable === undefined) return false;
  if (ts.isIdentifier(variable.name)) return unused.has(variable);
  return ts.isObjectBindingPattern(variable.name) && variable.name.elements.every((e) => unused.has(e));
}

function removalOf(
  file: ts.SourceFile,
  unused: ReadonlySet<ts.Node>,
  isSpent: Gone['isSpent'],
): { lines: { start: number; end: number }[]; edits: TextEdit[] } {
  const lines: { start: number; end: number }[] = [];
  const edits: TextEdit[] = [];
  const whole = new Set<ts.Statement>();
  for (const declaration of unused) {
    const statement = statementOfDeclaration(declaration);
    if (statement === undefined || whole.has(statement)) continue;
    if (isWhole(declaration, unused)) {
      whole.add(statement);
      const kept = effectOf(statement, isSpent);
      if (kept !== undefined) {
        edits.push({ start: statement.getStart(file), end: kept.getStart(file), text: '' });
        continue;
      }
      const start = statement.getStart(file);
      const alone =
        file.text.slice(lineStart(file.text, start), start).trim() === '' &&
        /^[ \t]*\r?\n?$/.test(file.text.slice(statement.end, nextLine(file.text, statement.end)));
      if (alone) lines.push({ start: lineStart(file.text, start), end: nextLine(file.text, statement.end) });
      else edits.push({ start, end: statement.end, text: '' });
    } else {
      whole.add(statement);
      edits.push(...partRemovals(declaration, unused));
    }
  }
  return { lines, edits };
}

/** Some names of a statement that keeps others. */
function partRemovals(declaration: ts.Node, unused: ReadonlySet<ts.Node>): TextEdit[] {
  if (ts.isBindingElement(declaration)) return elementRemovals(declaration.parent.elements, unused);
  let clause = declaration;
  while (!ts.isImportClause(clause) && !ts.isSourceFile(clause)) clause = clause.parent;
  const named = ts.isImportClause(clause) ? clause.namedBindings : undefined;
  if (!ts.isImportClause(clause) || clause.name === undefined || named === undefined) {
    return ts.isImportSpecifier(declaration) ? elementRemovals(declaration.parent.elements, unused) : [];
  }
  if (unused.has(clause)) return [{ start: clause.name.getStart(), end: named.getStart(), text: '' }];
  const all = ts.isNamedImports(named) ? named.elements.every((e) => unused.has(e)) : true;
  if (all) return [{ start: clause.name.end, end: named.end, text: '' }];
  return ts.isNamedImports(named) ? elementRemovals(named.elements, unused) : [];
}

/** The call behind a result's name that has to go on: `await f()` of `const order = await f()`. */
function effectOf(statement: ts.Statement, isSpent: Gone['isSpent']): ts.Expression | undefined {
  if (!ts.isVariableStatement(statement)) return undefined;
  const initializer = statement.declarationList.declarations[0]?.initializer;
  if (initializer === undefined || !ts.isAwaitExpression(initializer) || isSpent(initializer))
    return undefined;
  return initializer;
}

/** Names out of a list, each with one of its commas. */
function elementRemovals(list: readonly ts.Node[], unused: ReadonlySet<ts.Node>): TextEdit[] {
  const lastKept = list.findLastIndex((e) => !unused.has(e));
  const edits: TextEdit[] = [];
  list.slice(0, lastKept).forEach((element, index) => {
    const next = list[index + 1];
    if (unused.has(element) && next !== undefined)
      edits.push({ start: element.getStart(), end: next.getStart(), text: '' });
  });
  const last = list.at(-1);
  const kept = list[lastKept];
  if (last !== undefined && kept !== undefined && last !== kept)
    edits.push({ start: kept.end, end: last.end, text: '' });
  return edits;
}
