/**
 * `unbroker/transactions`: one function per client or ORM, from its transaction handle to what `enqueue` takes. Nothing
 * here imports any of them, so whatever versions a caller has are the ones that run.
 */
export { type DrizzleHandle, fromDrizzle } from './drizzle.js';
export { fromKnex, type KnexHandle } from './knex.js';
export { fromKysely, type KyselyHandle } from './kysely.js';
export { fromMikroorm, type MikroormHandle } from './mikroorm.js';
export { fromPgPromise, type PgPromiseHandle } from './pg-promise.js';
export { fromPostgresJs, type PostgresJsHandle } from './postgres-js.js';
export { fromPrisma, type PrismaHandle } from './prisma.js';
export { fromSequelize, type SequelizeHandle, type SequelizeTransaction } from './sequelize.js';
export { fromTypeorm, type TypeormHandle } from './typeorm.js';
