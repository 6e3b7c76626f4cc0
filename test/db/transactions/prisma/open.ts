/** Prisma 7 with its pg driver adapter. Checked by the tsconfig beside it, once the client is generated. */
import { PrismaPg } from '@prisma/adapter-pg';
import { fromPrisma } from '../../../../adapters/transactions/index.js';
import type { Library, Scope } from '../contract.js';
import { type Prisma, PrismaClient } from './generated/client.js';

/** Prisma has no nested transaction in a transaction's callback; a savepoint by hand is how it is done. */
async function savepoint(tx: Prisma.TransactionClient, work: () => Promise<void>): Promise<void> {
  await tx.$executeRawUnsafe('savepoint inner_work');
  await work().catch(async (error: unknown) => {
    await tx.$executeRawUnsafe('rollback to savepoint inner_work');
    throw error;
  });
}

const scopeOf = (tx: Prisma.TransactionClient): Scope => ({
  db: fromPrisma(tx),
  insertOrder: (note) => tx.order.create({ data: { note } }),
  nested: (work) => savepoint(tx, () => work(scopeOf(tx))),
});

export function openPrisma(url: string): Library {
  const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: url, max: 2 }) });
  return {
    alone: fromPrisma(prisma),
    transaction: (work) => prisma.$transaction((tx) => work(scopeOf(tx))),
    close: () => prisma.$disconnect(),
  };
}

export function openExtendedPrisma(url: string): Library {
  const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: url, max: 2 }) }).$extends({
    name: 'an application that extends its client',
    model: { order: { hello: () => 'hello' } },
  });
  return {
    alone: fromPrisma(prisma),
    transaction: (work) =>
      prisma.$transaction((tx) => {
        const scope: Scope = {
          db: fromPrisma(tx),
          insertOrder: (note) => tx.order.create({ data: { note } }),
          nested: (inner) => savepoint(tx as never, () => inner(scope)),
        };
        return work(scope);
      }),
    close: () => prisma.$disconnect(),
  };
}
