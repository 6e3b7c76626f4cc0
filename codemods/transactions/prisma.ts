/** Prisma: `prisma.$transaction(async (tx) => …)`, and model calls that commit by themselves. */

import type { Idiom } from './idiom.js';

const WRITES =
  /^(?:create|createMany|createManyAndReturn|update|updateMany|updateManyAndReturn|upsert|delete|deleteMany|\$executeRaw|\$executeRawUnsafe)$/;

export const prisma: Idiom = {
  name: 'prisma',
  summary: '$transaction with a callback, and model calls that commit by themselves',
  packages: ['@prisma/client', '.prisma'],
  adapter: 'fromPrisma',
  table: {
    types: { PrismaClient: 'db', TransactionClient: 'tx' },
    parts: { db: 'part', tx: 'part', part: 'part' },
    calls: { 'db.$extends': 'db' },
    news: { 'module.PrismaClient': 'db' },
    callbacks: {
      'db.$transaction': 'tx',
      'part.$transaction': 'tx',
      'module.$transaction': 'tx',
      'other.$transaction': 'tx',
    },
  },
  writes: (_what, method) =>
    method.startsWith('$queryRaw') ? 'sql' : WRITES.test(method) ? 'write' : 'none',
  postgresOnly: false,
  wrap: {
    roots: new Set(['db']),
    members: { db: /^(?!\$(?:connect|disconnect|on|use|extends|metrics)$)/ },
    names: ['tx', 'transaction', 'prismaTx'],
    open: (root, _what, handle) => `${root}.$transaction(async (${handle}) => {`,
  },
};
