/** Knex: `knex.transaction(async (trx) => …)`, `const trx = await knex.transaction()` … `trx.commit()`, and `knex('t').insert(…)`. */

import type { Idiom } from './idiom.js';

const WRITES = new Set(
  'insert batchInsert update upsert delete del truncate increment decrement merge createTable dropTable'.split(
    ' ',
  ),
);

export const knex: Idiom = {
  name: 'knex',
  summary: 'knex.transaction with a callback or with commit and rollback; autocommitted builders',
  packages: ['knex'],
  adapter: 'fromKnex',
  table: {
    types: { Knex: 'db', Transaction: 'trx', QueryBuilder: 'builder' },
    parts: { db: 'part', trx: 'part', part: 'part' },
    calls: {
      module: 'db',
      'module.knex': 'db',
      db: 'builder',
      trx: 'builder',
      'db.transaction': 'trx',
      'db.transactionProvider': 'provider',
      provider: 'trx',
      'trx.transaction': 'trx',
    },
    news: {},
    callbacks: { 'db.transaction': 'trx', 'trx.transaction': 'trx' },
    begins: { 'db.transaction': 'result', provider: 'result', 'provider.call': 'result' },
    ends: { 'trx.commit': 'commit', 'trx.rollback': 'rollback' },
  },
  writes: (_what, method) => (method === 'raw' ? 'sql' : WRITES.has(method) ? 'write' : 'none'),
  postgresOnly: false,
  wrap: {
    roots: new Set(['db']),
    members: { db: /^(?!(?:destroy|initialize|migrate|seed)$)/ },
    names: ['trx', 'tx', 'transaction'],
    open: (root, _what, handle) => `${root}.transaction(async (${handle}) => {`,
  },
};
