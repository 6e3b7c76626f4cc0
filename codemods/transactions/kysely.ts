/** Kysely: `db.transaction().execute(async (trx) => …)`, `db.startTransaction().execute()` … `trx.commit().execute()`. */

import type { Idiom } from './idiom.js';

const WRITES = new Set('insertInto updateTable deleteFrom replaceInto mergeInto executeQuery'.split(' '));

export const kysely: Idiom = {
  name: 'kysely',
  summary: 'db.transaction().execute with a callback, controlled transactions, autocommitted builders',
  packages: ['kysely'],
  adapter: 'fromKysely',
  table: {
    types: {
      Kysely: 'db',
      Transaction: 'trx',
      ControlledTransaction: 'trx',
      TransactionBuilder: 'tx-builder',
      ControlledTransactionBuilder: 'begin-builder',
      RawBuilder: 'raw',
    },
    parts: { db: 'part', trx: 'part', part: 'part' },
    calls: {
      'db.transaction': 'tx-builder',
      'tx-builder.setIsolationLevel': 'tx-builder',
      'tx-builder.setAccessMode': 'tx-builder',
      'db.startTransaction': 'begin-builder',
      'begin-builder.setIsolationLevel': 'begin-builder',
      'begin-builder.execute': 'trx',
      'module.sql': 'raw',
    },
    news: { 'module.Kysely': 'db' },
    callbacks: { 'tx-builder.execute': 'trx' },
    begins: { 'begin-builder.execute': 'result' },
    ends: { 'trx.commit': 'commit', 'trx.rollback': 'rollback' },
  },
  writes: (what, method) => {
    if (what === 'raw' && method === 'execute') return 'sql';
    return WRITES.has(method) ? 'write' : 'none';
  },
  postgresOnly: false,
  executed: true,
  wrap: {
    roots: new Set(['db']),
    flat: true,
    members: { db: /^(?!(?:connection|destroy)$)/ },
    handed: { 'raw.execute': 0 },
    names: ['trx', 'tx', 'transaction'],
    open: (root, _what, handle) => `${root}.transaction().execute(async (${handle}) => {`,
  },
};
