/**
 * Whether what a client or ORM writes to is the Postgres that holds the jobs table: by where its connections are
 * opened, by schema.prisma, and last by the drivers that the package depends on. What cannot be shown is an obstacle.
 */

import { existsSync, readdirSync, readFileSync, realpathSync, statSync } from 'node:fs';
import { dirname, join, relative, sep } from 'node:path';
import { ts } from 'ts-morph';
import type { CodemodConfig } from './config.js';
import { dialectNamed, type Opening, openingsIn } from './dialects.js';
import type { Sources } from './files.js';
import { unaliased } from './origins.js';
import { parse } from './program.js';
import type { Obstacle } from './reasons.js';
import type { Resolver } from './resolve.js';
import { unwrapped } from './syntax.js';
import type { Idiom } from './transactions/idiom.js';
import { IDIOMS } from './transactions/idioms.js';

interface Placed extends Opening {
  readonly path: string;
}

/** Drivers, by what they speak to. */
const POSTGRES_DRIVERS = [
  'pg',
  'postgres',
  'pg-promise',
  'slonik',
  '@prisma/adapter-pg',
  '@mikro-orm/postgresql',
];
const OTHER_DRIVERS =
  /^(?:mysql2?|mariadb|sqlite3|better-sqlite3|mssql|tedious|oracledb|mongodb|mongoose|sql\.js|@libsql\/client|@mikro-orm\/(?:mysql|mariadb|sqlite|better-sqlite|mongodb|mssql))$/;
const MAX_SCHEMA_BYTES = 1_048_576;
const MAX_SCHEMAS = 50;
const MAX_DEPTH = 5;

export class Databases {
  private opened: readonly Placed[] | undefined;

  constructor(
    private readonly resolver: Resolver,
    private readonly sources: Sources,
    private readonly config: CodemodConfig,
  ) {}

  /** Whether statements join an open Sequelize transaction by themselves: somewhere a CLS namespace is handed over. */
  readonly joinsByItself = (node: ts.Node): boolean => {
    const folder = this.packageOf(this.resolver.analysis.pathOf(node.getSourceFile()));
    return [...this.sources.files].some(
      ([path, file]) =>
        /\.useCLS\s*\(/.test(file.text) && !this.sources.isTest(path) && this.packageOf(path) === folder,
    );
  };

  /** Obstacles to saying that the jobs table is where this handle leads. */
  obstacles(library: Idiom, handle: ts.Node): Obstacle[] {
    const path = this.resolver.analysis.pathOf(handle.getSourceFile());
    const folder = this.packageOf(path);
    const openings = this.openingsFor(library, folder);
    const drivers = this.driversOf(folder);
    const dialects = new Set(
      openings.map((o) => o.dialect ?? drivers ?? (library.postgresOnly ? 'postgres' : '')),
    );
    if (library.name === 'prisma') for (const d of this.prismaDialects(folder)) dialects.add(d);
    if (dialects.size === 0) dialects.add(library.postgresOnly ? 'postgres' : (drivers ?? ''));
    const [only] = dialects;
    if (dialects.size === 1 && only !== 'postgres') {
      return only === ''
        ? [{ code: 'dialect-unknown', what: library.packages[0] ?? library.name }]
        : [{ code: 'not-postgres', what: `${only} (${library.packages[0]})` }];
    }
    const pools = this.placed().filter((o) => o.idiom === 'pg' && this.packageOf(o.path) === folder);
    const overPool = openings.some((o) => o.overPool);
    const all = [...openings, ...(overPool ? pools.slice(1) : pools)];
    const distinct = new Set(all.map((o) => `${o.idiom} ${o.identity}`));
    if (dialects.size === 1 && distinct.size <= 1) return [];
    const other = this.openedAs(handle, all);
    if (other !== undefined && this.config.pool !== null && other !== this.config.pool)
      return [{ code: 'two-databases', what: `${other} is not ${this.config.pool}` }];
    return this.named(all);
  }

  /** The connection that a handle leads to by its own name, or by what opened it; undefined: it is handed around. */
  private openedAs(handle: ts.Node, all: readonly Placed[], depth = 0): string | undefined {
    let root = handle;
    while (ts.isPropertyAccessExpression(root) || ts.isCallExpression(root))
      root = unwrapped(root.expression);
    const { checker, pathOf } = this.resolver.analysis;
    const declaration = unaliased(checker, checker.getSymbolAtLocation(root))?.valueDeclaration;
    if (declaration === undefined || depth > MAX_DEPTH) return undefined;
    if (ts.isParameter(declaration)) {
      const opens = declaration.parent.parent;
      return ts.isCallExpression(opens) ? this.openedAs(opens, all, depth + 1) : undefined;
    }
    if (!ts.isVariableDeclaration(declaration)) return undefined;
    const path = pathOf(declaration.getSourceFile());
    const found = all.find((o) => o.path === path && o.name === declaration.name.getText());
    if (found !== undefined) return `${found.path}#${found.name}`;
    const made = declaration.initializer;
    return made === undefined ? undefined : this.openedAs(unwrapped(made), all, depth + 1);
  }

  /** Several connections: one of them has to be named, and it has to be a Postgres. */
  private named(all: readonly Placed[]): Obstacle[] {
    const places = all.map((o) => `${o.path}:${o.line}`).join(', ');
    const chosen = all.find((o) => `${o.path}#${o.name}` === this.config.pool);
    if (chosen === undefined) return [{ code: 'which-database', what: places }];
    return chosen.dialect === undefined || chosen.dialect === 'postgres'
      ? []
      : [{ code: 'not-postgres', what: chosen.dialect }];
  }

  /** Of the handle's package; where that opens none, of the whole repository: a shared library may do it. */
  private openingsFor(library: Idiom, folder: string): Placed[] {
    const name = library.name === 'objection' ? 'knex' : library.name;
    const all = this.placed().filter((o) => o.idiom === name);
    const mine = all.filter((o) => this.packageOf(o.path) === folder);
    return mine.length > 0 ? mine : all;
  }

  private placed(): readonly Placed[] {
    if (this.opened !== undefined) return this.opened;
    const packages = IDIOMS.flatMap((i) => i.packages).map((p) => p.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&'));
    const pattern = new RegExp(`['"](?:${[...packages, 'pg'].join('|')})(?:/[^'"\\n]*)?['"]`);
    const found: Placed[] = [];
    for (const [path, file] of this.sources.files) {
      if (this.sources.isTest(path) || !pattern.test(file.text)) continue;
      const parsed = parse(path, file.text);
      if (parsed !== undefined) found.push(...openingsIn(parsed).map((o) => ({ ...o, path })));
    }
    this.opened = found;
    return found;
  }

  /** `postgres` when every driver among the package's and the root's dependencies is one; else the other's name. */
  private driversOf(folder: string): string | undefined {
    const names = new Set([...this.dependencies(folder), ...this.dependencies('')]);
    const other = [...names].find((n) => OTHER_DRIVERS.test(n));
    const postgres = POSTGRES_DRIVERS.some((n) => names.has(n));
    if (postgres && other === undefined) return 'postgres';
    return postgres ? undefined : other;
  }

  private dependencies(folder: string): string[] {
    const text = this.read(join(folder, 'package.json'));
    if (text === undefined) return [];
    try {
      const { dependencies, devDependencies } = JSON.parse(text) as Record<
        string,
        Record<string, string> | undefined
      >;
      return [...Object.keys(dependencies ?? {}), ...Object.keys(devDependencies ?? {})];
    } catch {
      return [];
    }
  }

  private prismaDialects(folder: string): string[] {
    const places = [folder, ''].flatMap((f) => [
      join(f, 'prisma'),
      f,
      join(f, 'src', 'prisma'),
      join(f, 'prisma', 'schema'),
    ]);
    const schemas = places.flatMap((place) => this.schemasIn(place)).slice(0, MAX_SCHEMAS);
    const providers = schemas.flatMap((path) => {
      const source = /\bdatasource\s+\w+\s*\{[^}]*?\bprovider\s*=\s*"([^"]+)"/.exec(this.read(path) ?? '');
      return source?.[1] === undefined ? [] : [dialectNamed(source[1]) ?? source[1]];
    });
    return [...new Set(providers)];
  }

  private schemasIn(folder: string): string[] {
    try {
      return readdirSync(join(this.sources.root, folder))
        .filter((name) => name.endsWith('.prisma'))
        .map((name) => join(folder, name));
    } catch {
      return [];
    }
  }

  /** A small file inside the repository; undefined for anything else. */
  private read(path: string): string | undefined {
    const absolute = join(this.sources.root, path);
    try {
      const real = realpathSync(absolute);
      if (relative(this.sources.root, real).startsWith('..') || statSync(real).size > MAX_SCHEMA_BYTES)
        return undefined;
      return readFileSync(real, 'utf8');
    } catch {
      return undefined;
    }
  }

  /** The folder of the nearest package.json, relative to the root. */
  private packageOf(path: string): string {
    let folder = dirname(path);
    while (folder !== '.' && folder !== sep && !existsSync(join(this.sources.root, folder, 'package.json')))
      folder = dirname(folder);
    return folder === '.' ? '' : folder;
  }
}
