/**
 * Sequelize: `sequelize.transaction(async (t) => …)` and `const t = await sequelize.transaction()` … `t.commit()`. A
 * statement runs in it only if it is told so, by `{ transaction: t }` or by a CLS namespace.
 */

import type { Idiom } from './idiom.js';

const WRITES =
  /^(?:create|bulkCreate|update|upsert|destroy|save|increment|decrement|findOrCreate|findCreateFind|truncate|restore|(?:set|add|remove|create)[A-Z]\w*)$/;

export const sequelize: Idiom = {
  name: 'sequelize',
  summary: 'sequelize.transaction with a callback (CLS or not), or with commit and rollback',
  packages: ['sequelize', 'sequelize-typescript', '@nestjs/sequelize', '@sequelize/core'],
  adapter: 'fromSequelize',
  table: {
    types: { Sequelize: 'db', Transaction: 'transaction', Model: 'model' },
    calls: { 'db.transaction': 'transaction', 'db.define': 'model', 'db.model': 'model' },
    news: { 'module.Sequelize': 'db', module: 'db' },
    members: { 'module.Model': 'model' },
    callbacks: { 'db.transaction': 'transaction' },
    begins: { 'db.transaction': 'result' },
    ends: { 'transaction.commit': 'commit', 'transaction.rollback': 'rollback' },
  },
  writes: (what, method) => {
    if (method === 'query') return 'sql';
    return WRITES.test(method) && what !== 'transaction' ? 'write' : 'none';
  },
  postgresOnly: false,
  transactionAsOption: true,
};
