/** The clients and ORMs whose transactions are known, and which one a package belongs to. */

import { NO_TABLE, type PackageTable } from '../package-table.js';
import { drizzle } from './drizzle.js';
import type { Idiom } from './idiom.js';
import { knex } from './knex.js';
import { kysely } from './kysely.js';
import { mikroorm } from './mikroorm.js';
import { objection } from './objection.js';
import { pgPromise } from './pg-promise.js';
import { postgresJs } from './postgres-js.js';
import { prisma } from './prisma.js';
import { sequelize } from './sequelize.js';
import { typeorm } from './typeorm.js';

export const IDIOMS: readonly Idiom[] = [
  knex,
  objection,
  typeorm,
  prisma,
  sequelize,
  drizzle,
  kysely,
  mikroorm,
  pgPromise,
  postgresJs,
];

const BY_PACKAGE = new Map(IDIOMS.flatMap((idiom) => idiom.packages.map((pkg) => [pkg, idiom] as const)));

export function idiomOf(pkg: string): Idiom | undefined {
  return BY_PACKAGE.get(pkg);
}

export function ormTable(pkg: string): PackageTable {
  return BY_PACKAGE.get(pkg)?.table ?? NO_TABLE;
}
