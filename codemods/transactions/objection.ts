/** Objection: `Model.transaction(async (trx) => …)`, `Model.startTransaction()`; its transactions are Knex's. */

import type { Idiom } from './idiom.js';
import { joinQuery } from './joins.js';

const WRITES =
  /^(?:insert|insertAndFetch|insertGraph\w*|patch\w*|update|updateAndFetch\w*|delete|deleteById|upsertGraph\w*|relate|unrelate|increment|decrement|truncate)$/;

export const objection: Idiom = {
  name: 'objection',
  summary: 'Model.transaction with a callback, Model.startTransaction with commit and rollback',
  packages: ['objection'],
  adapter: 'fromKnex',
  table: {
    types: { Model: 'model', QueryBuilder: 'builder', Transaction: 'trx' },
    calls: {
      'module.Model.startTransaction': 'trx',
      'model.startTransaction': 'trx',
      'model.query': 'builder',
    },
    news: {},
    members: { 'module.Model': 'model' },
    callbacks: {
      'model.transaction': 'trx',
      'module.transaction': 'trx',
    },
    begins: {
      'model.startTransaction': 'result',
      'module.startTransaction': 'result',
      'module.transaction.start': 'result',
    },
    ends: { 'trx.commit': 'commit', 'trx.rollback': 'rollback' },
  },
  writes: (_what, method) => (WRITES.test(method) ? 'write' : 'none'),
  postgresOnly: false,
  wrap: {
    roots: new Set(['model class']),
    names: ['trx', 'tx', 'transaction'],
    open: (root, _what, handle) => `${root}.transaction(async (${handle}) => {`,
    join: joinQuery,
  },
};
