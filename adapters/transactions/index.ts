/**
 * `unbroker/transactions`: one function per client or ORM, from its transaction handle to what `enqueue` takes. Nothing
 * here imports any of them, so whatever versions a caller has are the ones that run.
 */
export { fromDrizzle } from './drizzle.js';
export { fromKnex } from './knex.js';
export { fromKysely } from './kysely.js';
export { fromMikroorm } from './mikroorm.js';
export { fromPgPromise } from './pg-promise.js';
export { fromPostgresJs } from './postgres-js.js';
export { fromPrisma } from './prisma.js';
export { fromSequelize } from './sequelize.js';
export { fromTypeorm } from './typeorm.js';
