/**
 * Prisma: the client that `prisma.$transaction(async (tx) => …)` gives, or a PrismaClient as a transaction of its own.
 * With a driver adapter (Prisma 7, or 6 with `engineType = "client"`): the older query engine types raw parameters itself.
 */
import type { Queryable } from '../../src/jobs/job.js';
import { plainParameters } from './parameters.js';

/** The part of Prisma that is used; extended clients have it too. */
export interface PrismaHandle {
  $queryRawUnsafe(query: string, ...values: unknown[]): PromiseLike<unknown>;
}

export function fromPrisma(handle: PrismaHandle): Queryable {
  return {
    async query(text, values) {
      const rows = (await handle.$queryRawUnsafe(text, ...plainParameters(values))) as unknown[];
      return { rows, rowCount: rows.length };
    },
  };
}
