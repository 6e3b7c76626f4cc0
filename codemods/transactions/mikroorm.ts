/** MikroORM: `em.transactional(async (em) => …)`, and `em.begin()` … `em.commit()`. */

import type { Idiom } from './idiom.js';

const WRITES =
  /^(?:flush|persist|persistAndFlush|remove|removeAndFlush|nativeInsert|nativeUpdate|nativeDelete|upsert|upsertMany|insert|insertMany)$/;

export const mikroorm: Idiom = {
  name: 'mikroorm',
  summary: 'em.transactional with a callback, and em.begin with commit and rollback',
  packages: [
    '@mikro-orm/core',
    '@mikro-orm/postgresql',
    '@mikro-orm/knex',
    '@mikro-orm/nestjs',
    '@mikro-orm/mysql',
    '@mikro-orm/mariadb',
    '@mikro-orm/sqlite',
    '@mikro-orm/better-sqlite',
    '@mikro-orm/mssql',
    '@mikro-orm/mongodb',
  ],
  adapter: 'fromMikroorm',
  table: {
    types: { EntityManager: 'em', SqlEntityManager: 'em', MikroORM: 'orm', EntityRepository: 'repository' },
    parts: { em: 'part', repository: 'part', part: 'part' },
    calls: {
      'module.MikroORM.init': 'orm',
      'em.fork': 'em',
      'orm.em.fork': 'em',
      'em.getRepository': 'repository',
    },
    news: {},
    members: { 'orm.em': 'em' },
    callbacks: { 'em.transactional': 'em' },
    begins: { 'em.begin': 'receiver' },
    ends: { 'em.commit': 'commit', 'em.rollback': 'rollback' },
  },
  writes: (_what, method) => (method === 'execute' ? 'sql' : WRITES.test(method) ? 'write' : 'none'),
  postgresOnly: false,
  // A callback would fork: entities that are managed here would be others there.
  bracket: { roots: new Set(['em']) },
};
