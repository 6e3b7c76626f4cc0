/**
 * Sequelize: `sequelize.transaction(async (t) => …)` and `const t = await sequelize.transaction()` … `t.commit()`. A
 * statement runs in it only if it is told so, by `{ transaction: t }` or by a CLS namespace.
 */

import type { Idiom } from './idiom.js';
import { joinOptions } from './joins.js';

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
  wrap: {
    roots: new Set(['db', 'model', 'model class']),
    names: ['transaction', 't', 'trx'],
    open: (root, what, handle, isTyped) =>
      `${connection(root, what, isTyped)}.transaction(async (${handle}) => {`,
    join: joinOptions,
    adapted: (root, what, handle, isTyped) => `${connection(root, what, isTyped)}, ${handle}`,
  },
};

/** A model knows its connection once it has been initialised: a static property that may be undefined by its type. */
function connection(root: string, what: string, isTyped: boolean): string {
  if (what === 'db') return root;
  return `${root}.sequelize${what === 'model class' && isTyped ? '!' : ''}`;
}
