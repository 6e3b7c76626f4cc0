/** pg-promise: `db.tx(async (t) => …)`, and `db.none('insert …')` that commits by itself. A `task` opens no transaction. */

import type { Idiom } from './idiom.js';

const QUERIES = /^(?:none|one|oneOrNone|many|manyOrNone|any|result|query|multi|multiResult|map|each)$/;

export const pgPromise: Idiom = {
  name: 'pg-promise',
  summary: 'db.tx with a callback, and queries that commit by themselves',
  packages: ['pg-promise'],
  adapter: 'fromPgPromise',
  table: {
    types: { IMain: 'main', IDatabase: 'db', ITask: 'task', IBaseProtocol: 'db' },
    parts: { db: 'part', task: 'part', part: 'part' },
    calls: { module: 'main', main: 'db' },
    news: {},
    callbacks: { 'db.tx': 'task', 'task.tx': 'task', 'db.txIf': 'task', 'task.txIf': 'task' },
  },
  writes: (_what, method) => {
    if (method === 'func' || method === 'proc') return 'write';
    return QUERIES.test(method) ? 'sql' : 'none';
  },
  postgresOnly: true,
  wrap: {
    roots: new Set(['db']),
    members: { db: /^(?!\$|connect$)/ },
    names: ['t', 'tx', 'transaction'],
    open: (root, _what, handle) => `${root}.tx(async (${handle}) => {`,
  },
};
