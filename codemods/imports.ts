/**
 * Imports that an edit needs: added or merged, as ES imports or as `require`, whichever the file uses. It knows names
 * and offsets, no transactions. What becomes unused is unused.ts.
 */

import { existsSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { ts } from 'ts-morph';
import { type Layout, nextLine, type TextEdit } from './edits.js';
import { requiredModule } from './origins.js';
import { bare, contains, eachNode } from './syntax.js';

export interface Need {
  /** As it is written in an import. */
  readonly module: string;
  readonly name: string;
}

/** Where the adapters of clients and ORMs come from. */
export const TRANSACTIONS = 'unbroker/transactions';

export const ENQUEUE: Need = { module: 'unbroker/enqueue', name: 'enqueue' };
export const ENQUEUE_MANY: Need = { module: 'unbroker/enqueue', name: 'enqueueMany' };

export class FileImports {
  private readonly edits: TextEdit[] = [];
  private readonly added = new Map<string, string[]>();
  private readonly addedTypes = new Map<string, string[]>();
  private readonly locals = new Map<string, string>();
  private readonly commonJs: boolean;
  /** Lists that got names, and lists of types that became lists of values. */
  private readonly merged = new Set<ts.Node>();
  private readonly valued = new Set<ts.Node>();

  constructor(
    private readonly file: ts.SourceFile,
    private readonly layout: Layout,
  ) {
    this.commonJs = isCommonJs(file);
  }

  /** The name under which `need` can be used in this file; adds the import when there is none. */
  use(need: Need): string {
    const key = `${need.module} ${need.name}`;
    const known =
      this.locals.get(key) ?? this.existing(need.module).find((e) => e.imported === need.name)?.local;
    if (known !== undefined) return known;
    const promoted = this.promoted(need);
    const local = promoted ?? this.freeName(need.name);
    this.locals.set(key, local);
    if (promoted !== undefined) return promoted;
    const list = this.mergeable(need.module);
    if (list === undefined) {
      const specifiers = this.added.get(need.module) ?? [];
      this.added.set(need.module, [...specifiers, this.specifier(need.name, local, this.commonJs)].sort());
    } else this.merge(list, this.specifier(need.name, local, this.commonJs));
    return local;
  }

  /** The name of a type in this file; adds an import that leaves nothing behind at run time. */
  useType(need: Need): string {
    const key = `type ${need.module} ${need.name}`;
    const known = this.locals.get(key) ?? this.locals.get(`${need.module} ${need.name}`);
    if (known !== undefined) return known;
    const lists = this.namedImports(need.module);
    for (const { list } of lists) {
      const found = list.elements.find((e) => (e.propertyName ?? e.name).text === need.name);
      if (found !== undefined) return found.name.text;
    }
    const local = this.freeName(need.name);
    this.locals.set(key, local);
    const specifier = this.specifier(need.name, local, false);
    const [open] = [...lists.filter((l) => l.typeOnly), ...lists];
    if (open === undefined)
      this.addedTypes.set(need.module, [...(this.addedTypes.get(need.module) ?? []), specifier].sort());
    else this.merge(open.list, open.typeOnly ? specifier : `type ${specifier}`);
    return local;
  }

  /** `import type { Order }` of what is a value as well, by itself in its list, becomes an import of both. */
  private promoted({ module, name }: Need): string | undefined {
    for (const statement of this.file.statements) {
      if (!ts.isImportDeclaration(statement) || importedFrom(statement) !== module) continue;
      const clause = statement.importClause;
      const bound = clause?.namedBindings;
      if (clause === undefined || bound === undefined || !ts.isNamedImports(bound)) continue;
      const element = bound.elements.find((e) => (e.propertyName ?? e.name).text === name);
      if (element === undefined || (clause.isTypeOnly && bound.elements.length > 1)) continue;
      const holder = clause.isTypeOnly ? clause : element;
      const start = holder.getStart();
      const word = /^type\s+/.exec(this.file.text.slice(start, holder.end));
      if (word === null || this.merged.has(bound)) continue;
      this.valued.add(bound);
      this.edits.push({ start, end: start + word[0].length, text: '' });
      return element.name.text;
    }
    return undefined;
  }

  private namedImports(module: string): { list: ts.NamedImports; typeOnly: boolean }[] {
    return this.file.statements.flatMap((statement) => {
      if (!ts.isImportDeclaration(statement) || importedFrom(statement) !== module) return [];
      const bound = statement.importClause?.namedBindings;
      const isPromoted = bound !== undefined && this.valued.has(bound);
      const typeOnly = statement.importClause?.isTypeOnly === true && !isPromoted;
      return bound !== undefined && ts.isNamedImports(bound) ? [{ list: bound, typeOnly }] : [];
    });
  }

  finish(): TextEdit[] {
    if (this.added.size === 0 && this.addedTypes.size === 0) return this.edits;
    const at = this.insertionPoint();
    const { eol } = this.layout;
    const lead = at > 0 && this.file.text[at - 1] !== '\n' ? eol : '';
    const first = this.isFirst(at) ? eol : '';
    const { quote, semi } = this.layout;
    const values = new Map(this.added);
    const types: string[] = [];
    for (const [module, names] of this.addedTypes) {
      const beside = values.get(module);
      if (beside !== undefined) values.set(module, [...names.map((n) => `type ${n}`), ...beside]);
      else types.push(`import type { ${names.join(', ')} } from ${quote}${module}${quote}${semi}${eol}`);
    }
    const lines = [...types, ...[...values].map(([module, names]) => this.statement(module, names) + eol)];
    return [...this.edits, { start: at, end: at, text: lead + lines.join('') + first }];
  }

  private existing(module: string): { imported: string; local: string }[] {
    return this.file.statements.flatMap((statement) => {
      if (ts.isImportDeclaration(statement) && importedFrom(statement) === module) {
        if (statement.importClause?.isTypeOnly) return [];
        const named = statement.importClause?.namedBindings;
        if (named === undefined || !ts.isNamedImports(named)) return [];
        return named.elements
          .filter((e) => !e.isTypeOnly)
          .map((e) => ({ imported: (e.propertyName ?? e.name).text, local: e.name.text }));
      }
      const pattern = requirePattern(statement, module);
      return (pattern?.elements ?? []).map((e) => ({
        imported: (e.propertyName ?? e.name).getText(),
        local: e.name.getText(),
      }));
    });
  }

  private mergeable(module: string): ts.NamedImports | ts.ObjectBindingPattern | undefined {
    for (const statement of this.file.statements) {
      if (
        ts.isImportDeclaration(statement) &&
        importedFrom(statement) === module &&
        !statement.importClause?.isTypeOnly
      ) {
        const named = statement.importClause?.namedBindings;
        if (named !== undefined && ts.isNamedImports(named)) return named;
      }
      const pattern = requirePattern(statement, module);
      if (pattern !== undefined) return pattern;
    }
    return undefined;
  }

  private merge(list: ts.NamedImports | ts.ObjectBindingPattern, specifier: string): void {
    this.merged.add(list);
    const last = list.elements.at(-1);
    if (last === undefined)
      this.edits.push({ start: list.getStart() + 1, end: list.getStart() + 1, text: ` ${specifier} ` });
    else this.edits.push({ start: last.end, end: last.end, text: `, ${specifier}` });
  }

  private specifier(name: string, local: string, commonJs: boolean): string {
    return name === local ? name : commonJs ? `${name}: ${local}` : `${name} as ${local}`;
  }

  private statement(module: string, specifiers: readonly string[]): string {
    const { quote, semi } = this.layout;
    const specifier = specifiers.join(', ');
    return this.commonJs
      ? `const { ${specifier} } = require(${quote}${module}${quote})${semi}`
      : `import { ${specifier} } from ${quote}${module}${quote}${semi}`;
  }

  private freeName(wanted: string): string {
    const taken = new Set<string>();
    eachNode(this.file, (n) => {
      if (ts.isIdentifier(n) && !(ts.isPropertyAccessExpression(n.parent) && n.parent.name === n))
        taken.add(n.text);
    });
    const candidates = [wanted, `${wanted}Job`, `${wanted}InTransaction`];
    return candidates.find((c) => !taken.has(c)) ?? `${wanted}${taken.size}`;
  }

  /** Behind the last import or leading require; else behind shebang, directives and the header comment. */
  private insertionPoint(): number {
    const { text } = this.file;
    const imports = this.file.statements.filter((s) =>
      this.commonJs ? isRequire(s) : ts.isImportDeclaration(s),
    );
    const last = this.commonJs ? leadingRun(this.file, imports) : imports.at(-1);
    const directive = [...this.file.statements].filter((s, i) => isDirective(s, i, this.file)).at(-1);
    const after = last ?? directive;
    if (after !== undefined) return nextLine(text, after.end);
    const shebang = /^#![^\n]*\n/.exec(text)?.[0].length ?? 0;
    const [first] = this.file.statements;
    if (first === undefined) return text.length;
    // A comment that a blank line sets apart is the file's header; one that does not belongs to the first statement.
    const lead = text.slice(shebang, first.getStart());
    const gap = lead.lastIndexOf(`${this.layout.eol}${this.layout.eol}`);
    return gap < 0 ? shebang : shebang + gap + 2 * this.layout.eol.length;
  }

  private isFirst(at: number): boolean {
    const before = this.file.text.slice(0, at).trim();
    const next = this.file.text.slice(at, nextLine(this.file.text, at)).trim();
    return next !== '' && (before === '' || !this.file.statements.some((s) => s.end <= at));
  }
}

/** How the folder of `file` names `target` in an import; keeps the style of the file's other relative imports. */
export function specifierFor(file: ts.SourceFile, target: Pick<ts.SourceFile, 'fileName'>): string {
  const path = relative(dirname(file.fileName), target.fileName).replaceAll('\\', '/');
  const dotted = path.startsWith('.') ? path : `./${path}`;
  const withJs = /(?:from|require\()\s*['"]\.[^'"]*\.[cm]?js['"]/.test(file.text);
  return withJs ? dotted.replace(/\.([cm]?)tsx?$/, '.$1js') : dotted.replace(/\.[cm]?[jt]sx?$/, '');
}

/** The specifier under which the file already imports `target`, or a new one. */
export function moduleName(file: ts.SourceFile, target: ts.SourceFile, checker: ts.TypeChecker): string {
  return importOf(file, target, checker)?.text ?? specifierFor(file, target);
}

/** The first import or require of `target` in the file: its specifier. */
export function importOf(
  file: ts.SourceFile,
  target: ts.SourceFile,
  checker: ts.TypeChecker,
): ts.StringLiteral | undefined {
  let found: ts.StringLiteral | undefined;
  eachNode(file, (n) => {
    if (found !== undefined || !ts.isStringLiteral(n)) return;
    const isModule = ts.isImportDeclaration(n.parent) || requiredModule(n.parent) !== undefined;
    if (isModule && checker.getSymbolAtLocation(n)?.valueDeclaration === target) found = n;
  });
  return found;
}

function importedFrom(statement: ts.ImportDeclaration): string | undefined {
  return ts.isStringLiteral(statement.moduleSpecifier) ? statement.moduleSpecifier.text : undefined;
}

/** The pattern of `const { a } = require('module')`. */
function requirePattern(statement: ts.Statement, module: string): ts.ObjectBindingPattern | undefined {
  if (!ts.isVariableStatement(statement)) return undefined;
  const [declaration] = statement.declarationList.declarations;
  if (declaration?.initializer === undefined || !ts.isObjectBindingPattern(declaration.name))
    return undefined;
  return requiredModule(bare(declaration.initializer)) === module ? declaration.name : undefined;
}

function isRequire(statement: ts.Statement): boolean {
  if (ts.isExpressionStatement(statement)) return requiredModule(bare(statement.expression)) !== undefined;
  if (!ts.isVariableStatement(statement)) return false;
  return statement.declarationList.declarations.some((d) => {
    let found = false;
    if (d.initializer !== undefined && contains(statement, d.initializer)) {
      let e: ts.Expression = bare(d.initializer);
      while (ts.isPropertyAccessExpression(e) || ts.isCallExpression(e)) {
        if (requiredModule(e) !== undefined) found = true;
        e = bare(e.expression);
      }
    }
    return found;
  });
}

/** The last require of the run at the top: later ones are lazy. */
function leadingRun(file: ts.SourceFile, requires: readonly ts.Statement[]): ts.Statement | undefined {
  let last: ts.Statement | undefined;
  for (const [index, statement] of file.statements.entries()) {
    if (requires.includes(statement)) last = statement;
    else if (!isDirective(statement, index, file)) break;
  }
  return last ?? undefined;
}

function isDirective(statement: ts.Statement, index: number, file: ts.SourceFile): boolean {
  const before = file.statements.slice(0, index);
  const is = (s: ts.Statement): boolean => ts.isExpressionStatement(s) && ts.isStringLiteral(s.expression);
  return is(statement) && before.every(is);
}

export function isCommonJs(file: ts.SourceFile): boolean {
  if (/\.c[jt]s$/.test(file.fileName)) return true;
  if (/\.m[jt]s$/.test(file.fileName)) return false;
  const isModule = file.statements.some(
    (s) =>
      ts.isImportDeclaration(s) ||
      ts.isExportDeclaration(s) ||
      ts.isExportAssignment(s) ||
      (ts.canHaveModifiers(s) &&
        (ts.getModifiers(s)?.some((m) => m.kind === ts.SyntaxKind.ExportKeyword) ?? false)),
  );
  if (isModule) return false;
  if (/\brequire\s*\(|\bmodule\.exports\b|\bexports\./.test(file.text)) return true;
  return /\.jsx?$/.test(file.fileName) && !isModulePackage(file.fileName);
}

export function isModulePackage(path: string): boolean {
  let folder = dirname(path);
  for (;;) {
    const manifest = join(folder, 'package.json');
    if (existsSync(manifest)) return /"type"\s*:\s*"module"/.test(readFileSync(manifest, 'utf8'));
    if (dirname(folder) === folder) return false;
    folder = dirname(folder);
  }
}
