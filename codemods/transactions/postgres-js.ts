/** postgres.js: `sql.begin(async (tx) => …)`, and tagged templates that commit by themselves. */

import type { Idiom } from './idiom.js';

export const postgresJs: Idiom = {
  name: 'postgres-js',
  summary: 'sql.begin with a callback, and tagged templates that commit by themselves',
  packages: ['postgres'],
  adapter: 'fromPostgresJs',
  table: {
    types: { Sql: 'db', TransactionSql: 'tx', ISql: 'db', ReservedSql: 'db' },
    parts: { db: 'part', tx: 'part', part: 'part' },
    calls: { module: 'db' },
    news: {},
    callbacks: { 'db.begin': 'tx' },
  },
  // A tagged template is a call without a method.
  writes: (_what, method) => (method === 'unsafe' || method === '' ? 'sql' : 'none'),
  postgresOnly: true,
  wrap: {
    roots: new Set(['db']),
    members: { db: /^(?:unsafe|file|json|array|typed|types|notify)$/ },
    names: ['tx', 'trx', 'transaction'],
    open: (root, _what, handle) => `${root}.begin(async (${handle}) => {`,
  },
};
