/** MikroORM 6: `em.transactional`, explicit begin and commit, and outside of a transaction. */
import { type EntityManager, EntitySchema, MikroORM } from '@mikro-orm/postgresql';
import { expect, it } from 'vitest';
import { fromMikroorm } from '../../../adapters/transactions/index.js';
import { enqueue } from '../../../src/enqueue.js';
import { describeLibrary, type Scope } from './contract.js';

interface Order {
  id?: string;
  note: string;
}

const OrderSchema = new EntitySchema<Order>({
  name: 'Order',
  tableName: 'orders',
  properties: {
    id: { type: 'bigint', primary: true, generated: 'always as identity' },
    note: { type: 'text' },
  },
});

const connect = (url: string) =>
  MikroORM.init({ clientUrl: url, entities: [OrderSchema], pool: { min: 0, max: 2 } });

describeLibrary('MikroORM', async (url) => {
  const orm = await connect(url);
  const scopeOf = (em: EntityManager): Scope => ({
    db: fromMikroorm(em),
    // Left to the flush before the commit, as an application would.
    insertOrder: async (note) => em.persist(em.create(OrderSchema, { note })),
    nested: (work) => em.transactional((inner) => work(scopeOf(inner))),
  });
  return {
    alone: null,
    transaction: (work) => orm.em.fork().transactional((em) => work(scopeOf(em))),
    close: () => orm.close(),
  };
});

describeLibrary('MikroORM with begin and commit', async (url) => {
  const orm = await connect(url);
  const inTransaction = async (em: EntityManager, work: (scope: Scope) => Promise<void>): Promise<void> => {
    await em.begin();
    const scope: Scope = {
      db: fromMikroorm(em),
      insertOrder: (note) => em.insert(OrderSchema, { note }),
      nested: (inner) => em.transactional((nested) => inner({ ...scope, db: fromMikroorm(nested) })),
    };
    await work(scope).catch(async (error: unknown) => {
      await em.rollback();
      throw error;
    });
    await em.commit();
  };
  return {
    alone: null,
    transaction: (work) => inTransaction(orm.em.fork(), work),
    close: () => orm.close(),
  };
});

it('MikroORM: refuses an EntityManager that is in no transaction', async () => {
  const orm = MikroORM.initSync({ dbName: 'unused', entities: [OrderSchema] });
  const answer = enqueue(fromMikroorm(orm.em.fork()), 'never');
  await expect(answer).rejects.toThrow(/em\.transactional/);
  await expect(answer).rejects.toThrow(TypeError);
});
