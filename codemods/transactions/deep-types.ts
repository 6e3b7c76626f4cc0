/**
 * How a transaction is handed to a function that writes on a pool, a client or an ORM: the parameter's type and default,
 * what takes the root's place in the function, and what a method that opens the transaction is written like. Each library
 * that has such a form is an entry here; one that has none is left to people.
 */

import { ts } from 'ts-morph';
import type { HandleType } from '../handle-types.js';
import { isConst, specifierOf, unaliased } from '../origins.js';
import type { Analysis } from '../program.js';
import { unwrapped } from '../syntax.js';
import type { PoolQuery } from './pool-query.js';

export interface DownForm {
  /** Names for the parameter, by preference. */
  readonly names: readonly string[];
  /** Its type, out of the root's own, of the members that are used of it and of the root's package; undefined: it cannot be written there. */
  readonly parameter: (
    root: RootType | undefined,
    members: readonly string[],
    pkg: string | undefined,
  ) => HandleType | undefined;
  /** What a callback of a new transaction is handed. */
  readonly handle: (root: RootType | undefined) => HandleType | undefined;
  /** What runs such a callback; undefined: BEGIN and COMMIT. */
  readonly run?: (root: string, what: string) => string;
  /** What a statement asks of a root that it is handed: ``sql`…`.execute(db)``. */
  readonly handed?: string;
  /** Why a method that opens the transaction would not do; undefined: it does. */
  readonly noOpener?: string;
  /** The parameter's default; undefined: it may be missing. */
  readonly fallback: (root: string, what: string) => string | undefined;
  /** What takes the root's place; not asked where statements are told of their transaction. */
  readonly replaced: (root: string, what: string, name: string) => string;
}

/** A root's type as it can be written: with `*` for what has to be imported. */
export interface RootType {
  readonly type: string;
  readonly need: HandleType['need'];
  /** Its type arguments, where the type is known. */
  readonly args: readonly string[];
  /** The text that makes it, of a constant or a property. */
  readonly made: string;
}

const from = (module: string, name: string, type = '*'): HandleType => ({
  names: [],
  need: { module, name },
  type,
});

/** `Pick<Kysely<Database>, 'insertInto'>`: a transaction has these, too. */
function picked(root: RootType | undefined, members: readonly string[]): HandleType | undefined {
  if (root === undefined || members.length === 0) return undefined;
  return {
    names: [],
    need: root.need,
    type: `Pick<${root.type}, ${members.map((m) => `'${m}'`).join(' | ')}>`,
  };
}

const of = (root: RootType | undefined, type: (root: string) => string): HandleType | undefined =>
  root === undefined ? undefined : { names: [], need: root.need, type: type(root.type) };

/** What `$extends` makes is no PrismaClient, nor are its transactions. */
const isExtended = (root: RootType | undefined): boolean => root?.made.includes('.$extends(') === true;

const asName = (_root: string, _what: string, name: string): string => name;
const asRoot = (root: string): string => root;

/** In JSDoc, where nothing says more. */
export const ANY: HandleType = { names: [], need: undefined, type: '*' };

const SEQUELIZE_7 = '@sequelize/core';

const DB_NAMES = ['db', 'client', 'connection', 'queryable'];

export const PG_DOWN: DownForm = {
  names: DB_NAMES,
  parameter: () => from('pg', 'Pool', "Pick<*, 'query'>"),
  handle: () => from('pg', 'PoolClient'),
  fallback: asRoot,
  replaced: asName,
};

const DOWN: Readonly<Record<string, DownForm>> = {
  knex: {
    names: DB_NAMES,
    parameter: () => from('knex', 'Knex'),
    handle: () => from('knex', 'Knex', '*.Transaction'),
    run: (root) => `${root}.transaction(work)`,
    fallback: asRoot,
    replaced: asName,
  },
  kysely: {
    names: DB_NAMES,
    parameter: picked,
    handle: (root) =>
      of(root, (t) => `Parameters<Parameters<ReturnType<${t}['transaction']>['execute']>[0]>[0]`),
    run: (root) => `${root}.transaction().execute(work)`,
    handed: 'getExecutor',
    fallback: asRoot,
    replaced: asName,
  },
  drizzle: {
    names: DB_NAMES,
    parameter: picked,
    handle: (root) => of(root, (t) => `Parameters<Parameters<${t}['transaction']>[0]>[0]`),
    run: (root) => `${root}.transaction(work)`,
    fallback: asRoot,
    replaced: asName,
  },
  prisma: {
    names: ['db', 'prismaClient', 'tx'],
    parameter: (root, members) =>
      isExtended(root) ? picked(root, members) : from('@prisma/client', 'Prisma', '*.TransactionClient'),
    handle: (root) =>
      isExtended(root) ? undefined : from('@prisma/client', 'Prisma', '*.TransactionClient'),
    run: (root) => `${root}.$transaction(work)`,
    fallback: asRoot,
    replaced: asName,
  },
  'pg-promise': {
    names: DB_NAMES,
    parameter: picked,
    handle: (root) => from('pg-promise', 'ITask', `*<${/^\*<([^,>]+)/.exec(root?.type ?? '')?.[1] ?? '{}'}>`),
    run: (root) => `${root}.tx(work)`,
    fallback: asRoot,
    replaced: asName,
  },
  'postgres-js': {
    names: [...DB_NAMES, 'tx'],
    // With types of its own the root is a template for other values than ISql is.
    parameter: (root) => (root?.args.every((a) => a === '{}') ? from('postgres', 'ISql') : undefined),
    handle: (root) => (root?.args.every((a) => a === '{}') ? from('postgres', 'TransactionSql') : undefined),
    // What begin gives is typed as if lists were lists of promises.
    run: (root) => `(await ${root}.begin(async (sql) => ({ done: await work(sql) }))).done`,
    fallback: asRoot,
    replaced: asName,
  },
  objection: {
    names: ['trx', 'transaction'],
    parameter: () => from('objection', 'Transaction'),
    handle: () => undefined,
    noOpener: 'its model is no name of a module',
    fallback: () => undefined,
    replaced: asRoot,
  },
  sequelize: {
    names: ['transaction', 'sequelizeTransaction'],
    // Sequelize 7 has another name; what is built on 6 takes 6's.
    parameter: (_root, _members, pkg) => from(pkg === SEQUELIZE_7 ? pkg : 'sequelize', 'Transaction'),
    handle: () => undefined,
    noOpener:
      'an enqueue in a transaction of Sequelize needs the connection, too, and only the object has it',
    fallback: () => undefined,
    replaced: asRoot,
  },
  typeorm: {
    names: ['manager', 'entityManager', 'transactionManager'],
    parameter: () => from('typeorm', 'EntityManager'),
    handle: () => from('typeorm', 'EntityManager'),
    run: (root, what) => `${root}${what === 'repository' ? '.manager' : ''}.transaction(work)`,
    // A test's repository may have no manager.
    fallback: (root, what) =>
      what === 'repository' ? undefined : what === 'source' ? `${root}.manager` : root,
    replaced: (root, what, name) =>
      what === 'repository' ? `(${name}?.withRepository(${root}) ?? ${root})` : name,
  },
};

export function downForm(query: Pick<PoolQuery, 'library'>): DownForm | undefined {
  return query.library === undefined ? PG_DOWN : DOWN[query.library.name];
}

const NO_FORM: Readonly<Record<string, string>> = {
  mikroorm:
    'a transaction that is begun on a manager of MikroORM belongs to whoever holds the manager, and may end theirs',
};

export function whyNoForm({ library }: Pick<PoolQuery, 'library'>): string {
  return NO_FORM[library?.name ?? ''] ?? `transactions of ${library?.name ?? 'it'} are not handed down`;
}

/** The type of `pool` or `this.db`, as its declaration says it. */
export function rootTypeOf(root: ts.Expression, analysis: Analysis): RootType | undefined {
  const e = unwrapped(root);
  const { checker } = analysis;
  const args = argumentsOf(checker.getTypeAtLocation(e), checker);
  const symbol = checker.getSymbolAtLocation(ts.isPropertyAccessExpression(e) ? e.name : e);
  const target = unaliased(checker, symbol);
  const declaration = target?.valueDeclaration;
  if (target === undefined || declaration === undefined) return undefined;
  const file = declaration.getSourceFile();
  const isHeld = ts.isPropertyDeclaration(declaration) || ts.isParameter(declaration);
  if (!ts.isVariableDeclaration(declaration) && !isHeld) return undefined;
  const made = declaration.initializer?.getText() ?? '';
  if (ts.isVariableDeclaration(declaration)) {
    const need = { file, name: target.name };
    return isConst(declaration) ? { type: 'typeof *', need, args, made } : undefined;
  }
  const { type } = declaration;
  if (type !== undefined) return { ...annotated(type, file), args, made };
  const owner = declaration.parent;
  const isOpen =
    ts.isIdentifier(declaration.name) && ts.isClassDeclaration(owner) && owner.name !== undefined;
  if (!isOpen || !ts.isClassDeclaration(owner) || owner.typeParameters !== undefined) return undefined;
  return { type: `*['${target.name}']`, need: { file, name: owner.name?.text ?? '' }, args, made };
}

function argumentsOf(type: ts.Type, checker: ts.TypeChecker): string[] {
  const flags = type.flags & ts.TypeFlags.Object ? (type as ts.ObjectType).objectFlags : 0;
  if (!(flags & ts.ObjectFlags.Reference)) return [];
  return checker.getTypeArguments(type as ts.TypeReference).map((a) => checker.typeToString(a));
}

const KEYWORDS =
  /^(?:any|unknown|never|object|string|number|boolean|\{\}|Record<string, (?:never|unknown|any)>)$/;

/** `NodePgDatabase` that a package exports; anything else only where it is written. */
function annotated(type: ts.TypeNode, file: ts.SourceFile): Pick<RootType, 'type' | 'need'> {
  const here = { type: type.getText(), need: { file, name: '' } };
  if (!ts.isTypeReferenceNode(type) || !ts.isIdentifier(type.typeName)) return here;
  const args = type.typeArguments ?? [];
  if (!args.every((a) => KEYWORDS.test(a.getText()))) return here;
  const name = type.typeName.text;
  const written = `*${args.length === 0 ? '' : `<${args.map((a) => a.getText()).join(', ')}>`}`;
  for (const statement of file.statements) {
    const bound = ts.isImportDeclaration(statement) ? statement.importClause?.namedBindings : undefined;
    if (bound === undefined || !ts.isNamedImports(bound)) continue;
    const element = bound.elements.find((x) => x.name.text === name);
    const module = element === undefined ? undefined : specifierOf(element);
    if (element === undefined || module === undefined || module.startsWith('.')) continue;
    return { type: written, need: { module, name: (element.propertyName ?? element.name).text } };
  }
  return here;
}
