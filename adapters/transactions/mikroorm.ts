/**
 * MikroORM 6 on Postgres: an EntityManager inside `em.transactional`, or between `em.begin` and `em.commit`.
 */
import type { Queryable } from '../../src/jobs/job.js';
import { type KnexHandle, queryThroughKnex } from './knex.js';

/** The part of MikroORM that is used. */
export interface MikroormHandle {
  getTransactionContext(): object | undefined;
}

/**
 * Goes to the Knex transaction that MikroORM 6 runs in; its own `execute` would write the values into the text. A query
 * rejects with TypeError outside of a transaction: a flush opens its own, so the job would be committed whatever became
 * of the entities.
 */
export function fromMikroorm(em: MikroormHandle): Queryable {
  return {
    async query(text, values) {
      const transaction = em.getTransactionContext();
      if (transaction === undefined) {
        throw new TypeError('fromMikroorm: no transaction is open; call it inside em.transactional(…)');
      }
      return queryThroughKnex(transaction as KnexHandle, text, values);
    },
  };
}
