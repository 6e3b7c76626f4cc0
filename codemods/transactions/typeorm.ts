/**
 * TypeORM: `dataSource.transaction(async (manager) => …)`, a QueryRunner's start and commit, and repositories and
 * managers that commit by themselves.
 */

import type { Idiom } from './idiom.js';

const WRITES = new Set(
  'save insert update upsert delete remove softDelete softRemove restore recover increment decrement clear'.split(
    ' ',
  ),
);

export const typeorm: Idiom = {
  name: 'typeorm',
  summary: 'dataSource.transaction, a QueryRunner, and repositories that commit by themselves',
  packages: ['typeorm', '@nestjs/typeorm'],
  adapter: 'fromTypeorm',
  table: {
    types: {
      DataSource: 'source',
      Connection: 'source',
      EntityManager: 'manager',
      Repository: 'repository',
      TreeRepository: 'repository',
      QueryRunner: 'runner',
      BaseEntity: 'entity',
    },
    parts: { source: 'part', manager: 'part', repository: 'part', part: 'part' },
    calls: {
      'module.getManager': 'manager',
      'module.getConnection': 'source',
      'module.getRepository': 'repository',
      'module.createConnection': 'source',
      'source.getRepository': 'repository',
      'manager.getRepository': 'repository',
      'manager.withRepository': 'repository',
      'source.createQueryRunner': 'runner',
      'source.createQueryBuilder': 'builder',
      'manager.createQueryBuilder': 'builder',
      'repository.createQueryBuilder': 'builder',
    },
    news: { 'module.DataSource': 'source' },
    members: {
      'source.manager': 'manager',
      'runner.manager': 'manager',
      'repository.manager': 'manager',
      'manager.connection': 'source',
    },
    callbacks: { 'source.transaction': 'manager', 'manager.transaction': 'manager' },
    begins: { 'runner.startTransaction': 'receiver' },
    ends: { 'runner.commitTransaction': 'commit', 'runner.rollbackTransaction': 'rollback' },
  },
  writes: (what, method) => {
    if (method === 'query') return 'sql';
    if (what === 'other' && method === 'execute') return 'write';
    return WRITES.has(method) ? 'write' : 'none';
  },
  postgresOnly: false,
  wrap: {
    roots: new Set(['source', 'manager', 'repository']),
    members: { source: /^(?:query|sql|createQueryBuilder|get(?:Tree)?Repository)$/ },
    names: ['manager', 'transactionManager', 'entityManager'],
    open: (root, what, handle) =>
      `${what === 'repository' ? `${root}.manager` : root}.transaction(async (${handle}) => {`,
    inside: (root, what, handle) => (what === 'repository' ? `${handle}.withRepository(${root})` : handle),
  },
};
