/**
 * Where a file opens a connection through a client or ORM, and which database it says that is: read from the text of
 * the file alone, literals only. Pure: text in, openings out. It refuses to guess: a dialect that comes from the
 * environment is unknown.
 */

import { ts } from 'ts-morph';
import { isConst, requiredModule } from './origins.js';
import { packageOfSpecifier } from './packages.js';
import { bare, eachNode, lineOf } from './syntax.js';
import { idiomOf } from './transactions/idioms.js';

export interface Opening {
  readonly idiom: string;
  /** `postgres`, another database's name, or undefined when the file does not say. */
  readonly dialect: string | undefined;
  /** Equal for two openings of one connection, as far as the text shows. */
  readonly identity: string;
  /** Whether it is opened over a pg pool, which is counted itself. */
  readonly overPool: boolean;
  readonly line: number;
  /** The variable that holds it. */
  readonly name: string | undefined;
}

/** Names that open a connection, by idiom; the import they come from is checked. */
const OPENERS: Readonly<Record<string, RegExp>> = {
  knex: /^(?:knex|Knex|default|module)$/,
  objection: /^(?!)/,
  typeorm: /^(?:DataSource|createConnection|createConnections|forRoot|forRootAsync)$/,
  prisma: /^(?!)/,
  sequelize: /^(?:Sequelize|forRoot|forRootAsync|module|default)$/,
  drizzle: /^drizzle$/,
  kysely: /^Kysely$/,
  mikroorm: /^(?:init|initSync|defineConfig|forRoot|forRootAsync|MikroORM)$/,
  'pg-promise': /^(?:pgp|default|module)$/,
  'postgres-js': /^(?:postgres|default|module)$/,
};

const SAYS_DIALECT = new Set([
  'client',
  'type',
  'dialect',
  'driver',
  'url',
  'connectionString',
  'connection',
  'clientUrl',
]);
const IDENTIFIES = new Set([
  'url',
  'host',
  'port',
  'database',
  'dbName',
  'connection',
  'connectionString',
  'clientUrl',
  'name',
]);

const POSTGRES = /^(?:pg|pg-native|postgres|postgresql|pgnative|aurora-postgres)$/i;
const OTHERS =
  /^(?:mysql2?|mariadb|sqlite3?|better-sqlite3?|libsql|mssql|tedious|oracledb|oracle|mongodb?|cockroach(?:db)?|redshift|sqljs|expo|sap|spanner|aurora-mysql)$/i;
const URL_SCHEME = /^([a-z][a-z0-9+]*):\/\//i;

/** `postgres`, `mysql2`, … for a literal that names a driver, a dialect or begins a URL. */
export function dialectNamed(text: string): string | undefined {
  const word = URL_SCHEME.exec(text)?.[1] ?? text;
  if (POSTGRES.test(word)) return 'postgres';
  return OTHERS.test(word) ? word.toLowerCase() : undefined;
}

/** Of an import or a class name: `drizzle-orm/mysql2`, `@mikro-orm/mysql`, `MysqlDialect`. */
function dialectInName(name: string): string | undefined {
  if (/(?:postgres|node-postgres|pg-core|neon|vercel-postgres|pglite|PGlite|PgDialect)/i.test(name))
    return 'postgres';
  return /(mysql2?|mariadb|sqlite|libsql|planetscale|singlestore|mssql|mongodb|d1|tidb)/i
    .exec(name)?.[1]
    ?.toLowerCase();
}

export function openingsIn(file: ts.SourceFile): Opening[] {
  const imports = importsOf(file);
  const found: Opening[] = [];
  eachNode(file, (node) => {
    if (!ts.isCallExpression(node) && !ts.isNewExpression(node)) return;
    const called = calledImport(node.expression, imports);
    if (ts.isNewExpression(node) && called?.pkg === 'pg' && called.name === 'Pool') {
      found.push(openingOf(node, 'pg', called.specifier, file));
      return;
    }
    const idiom = called === undefined ? undefined : idiomOf(called.pkg);
    if (called === undefined || idiom === undefined || !OPENERS[idiom.name]?.test(called.name)) return;
    found.push(openingOf(node, idiom.name, called.specifier, file));
  });
  return found;
}

interface Imported {
  readonly specifier: string;
  readonly pkg: string;
  readonly name: string;
}

function openingOf(
  node: ts.CallExpression | ts.NewExpression,
  idiom: string,
  specifier: string,
  file: ts.SourceFile,
): Opening {
  const facts = { dialect: new Set<string>(), identity: [] as string[], overPool: false };
  for (const argument of node.arguments ?? []) readArgument(argument, file, facts, 0);
  const named = idiom === 'drizzle' || idiom === 'mikroorm' ? dialectInName(specifier) : undefined;
  const dialect = named ?? (facts.dialect.size > 1 ? undefined : [...facts.dialect][0]);
  const holder = node.parent;
  return {
    idiom,
    dialect,
    identity:
      facts.identity.sort().join(' ') ||
      (node.arguments ?? []).map((a) => a.getText(file).replace(/\s+/g, '')).join(),
    overPool: facts.overPool,
    line: lineOf(node),
    name: ts.isVariableDeclaration(holder) && ts.isIdentifier(holder.name) ? holder.name.text : undefined,
  };
}

function readArgument(
  node: ts.Node,
  file: ts.SourceFile,
  facts: { readonly dialect: Set<string>; readonly identity: string[]; overPool: boolean },
  depth: number,
): void {
  const add = (dialect: string | undefined): void => {
    if (dialect !== undefined) facts.dialect.add(dialect);
  };
  eachNode(node, (n) => {
    if (ts.isPropertyAssignment(n) && (ts.isIdentifier(n.name) || ts.isStringLiteral(n.name))) {
      const value = bare(n.initializer);
      if (SAYS_DIALECT.has(n.name.text) && ts.isStringLiteralLike(value)) add(dialectNamed(value.text));
      if (IDENTIFIES.has(n.name.text)) facts.identity.push(`${n.name.text}=${settingOf(value, file, 0)}`);
      if (n.name.text === 'pool') facts.overPool = true;
    }
    if (ts.isShorthandPropertyAssignment(n)) {
      if (n.name.text === 'pool') facts.overPool = true;
      follow(n.name, file, facts, depth);
    }
    if (ts.isNewExpression(n)) {
      const made = n.expression.getText(file);
      if (/Dialect$/.test(made)) add(dialectInName(made));
      if (/Pool$/.test(made)) facts.overPool = true;
    }
    // `useFactory: (config) => optionsFrom(config)`
    if (ts.isCallExpression(n) && ts.isIdentifier(n.expression)) follow(n.expression, file, facts, depth);
    if (ts.isIdentifier(n) && /Driver$/.test(n.text)) add(dialectInName(n.text));
    if (ts.isStringLiteralLike(n) && URL_SCHEME.test(n.text)) add(dialectNamed(n.text));
    if (
      ts.isIdentifier(n) &&
      (n === node ||
        ts.isSpreadAssignment(n.parent) ||
        (ts.isPropertyAssignment(n.parent) && n.parent.initializer === n))
    )
      follow(n, file, facts, depth);
  });
}

/**
 * Where a setting comes from: a command-line tool's connection and the service's own read one environment, each in its
 * own words. The text where it is no single variable of it.
 */
function settingOf(value: ts.Expression, file: ts.SourceFile, depth: number): string {
  const e = bare(value);
  const constant = ts.isIdentifier(e) && depth < 2 ? onlyConstant(e.text, file) : undefined;
  if (constant !== undefined) return settingOf(constant, file, depth + 1);
  const text = e.getText(file).replace(/\s+/g, '');
  const names = new Set([...text.matchAll(ENVIRONMENT)].map((m) => m[1] ?? m[2] ?? m[3]));
  const [name] = names;
  return names.size === 1 && name !== undefined ? `$${name}` : text;
}

/** `process.env.X`, `process.env['X']`, `config.get<string>('X')`. */
const ENVIRONMENT =
  /process\.env\.(\w+)|process\.env\[['"](\w+)['"]\]|\.get(?:OrThrow)?(?:<[^>]*>)?\(['"]([A-Z]\w*)['"]/g;

/** What the one constant of that name is set to, wherever in the file it is declared. */
function onlyConstant(name: string, file: ts.SourceFile): ts.Expression | undefined {
  const found: ts.VariableDeclaration[] = [];
  eachNode(file, (n) => {
    if (ts.isVariableDeclaration(n) && ts.isIdentifier(n.name) && n.name.text === name) found.push(n);
  });
  const [only] = found;
  return found.length === 1 && only !== undefined && isConst(only) ? only.initializer : undefined;
}

/** A constant or function of the same file that the arguments name. */
function follow(
  name: ts.Identifier,
  file: ts.SourceFile,
  facts: { readonly dialect: Set<string>; readonly identity: string[]; overPool: boolean },
  depth: number,
): void {
  if (depth > 2) return;
  for (const statement of file.statements) {
    if (ts.isFunctionDeclaration(statement) && statement.name?.text === name.text)
      readArgument(statement, file, facts, depth + 1);
    if (!ts.isVariableStatement(statement)) continue;
    for (const declaration of statement.declarationList.declarations) {
      if (!ts.isIdentifier(declaration.name) || declaration.name.text !== name.text || !isConst(declaration))
        continue;
      if (declaration.initializer !== undefined)
        readArgument(declaration.initializer, file, facts, depth + 1);
    }
  }
}

/** Local name to where it is imported from; `module` and `default` for whole modules. */
function importsOf(file: ts.SourceFile): ReadonlyMap<string, Imported> {
  const found = new Map<string, Imported>();
  const add = (local: string, specifier: string, name: string): void => {
    const pkg = packageOfSpecifier(specifier);
    if (pkg !== undefined) found.set(local, { specifier, pkg, name });
  };
  for (const statement of file.statements) {
    if (ts.isImportDeclaration(statement) && ts.isStringLiteral(statement.moduleSpecifier)) {
      const specifier = statement.moduleSpecifier.text;
      const clause = statement.importClause;
      if (clause?.name !== undefined) add(clause.name.text, specifier, 'default');
      const named = clause?.namedBindings;
      if (named !== undefined && ts.isNamespaceImport(named)) add(named.name.text, specifier, 'module');
      if (named !== undefined && ts.isNamedImports(named)) {
        for (const e of named.elements) add(e.name.text, specifier, (e.propertyName ?? e.name).text);
      }
    }
    if (ts.isImportEqualsDeclaration(statement) && ts.isExternalModuleReference(statement.moduleReference)) {
      const { expression } = statement.moduleReference;
      if (ts.isStringLiteral(expression)) add(statement.name.text, expression.text, 'module');
    }
    if (!ts.isVariableStatement(statement)) continue;
    for (const { name, initializer } of statement.declarationList.declarations) {
      const specifier = initializer === undefined ? undefined : requiredModule(bare(initializer));
      if (specifier === undefined) continue;
      if (ts.isIdentifier(name)) add(name.text, specifier, 'module');
      else if (ts.isObjectBindingPattern(name)) {
        for (const e of name.elements)
          add(e.name.getText(file), specifier, (e.propertyName ?? e.name).getText(file));
      }
    }
  }
  return found;
}

/** `Kysely`, `knex`, `TypeOrmModule.forRoot`, `require('knex')`: the import behind it and the last name of it. */
function calledImport(given: ts.Expression, imports: ReadonlyMap<string, Imported>): Imported | undefined {
  const e = bare(given);
  const required = requiredModule(e);
  if (required !== undefined) {
    const pkg = packageOfSpecifier(required);
    return pkg === undefined ? undefined : { specifier: required, pkg, name: 'module' };
  }
  if (ts.isIdentifier(e)) return imports.get(e.text);
  if (!ts.isPropertyAccessExpression(e)) return undefined;
  const owner = calledImport(e.expression, imports);
  return owner === undefined ? undefined : { ...owner, name: e.name.text };
}
