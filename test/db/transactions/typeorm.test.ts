/** TypeORM 1: an EntityManager, a QueryRunner, and a DataSource as a transaction of its own. */
import { DataSource, type EntityManager, EntitySchema, type QueryRunner } from 'typeorm';
import { expect, it } from 'vitest';
import { fromTypeorm } from '../../../adapters/transactions/index.js';
import { enqueue } from '../../../src/enqueue.js';
import { describeLibrary, type Scope } from './contract.js';

interface Order {
  id: string;
  note: string;
}

const OrderEntity = new EntitySchema<Order>({
  name: 'orders',
  columns: {
    id: { type: 'bigint', primary: true, generated: 'increment' },
    note: { type: 'text' },
  },
});

const connect = (url: string) =>
  new DataSource({ type: 'postgres', url, entities: [OrderEntity], extra: { max: 2 } }).initialize();

describeLibrary('TypeORM with an EntityManager', async (url) => {
  const dataSource = await connect(url);
  const scopeOf = (manager: EntityManager): Scope => ({
    db: fromTypeorm(manager),
    insertOrder: (note) => manager.save(OrderEntity, { note }),
    nested: (work) => manager.transaction((inner) => work(scopeOf(inner))),
  });
  return {
    alone: fromTypeorm(dataSource),
    transaction: (work) => dataSource.transaction((manager) => work(scopeOf(manager))),
    close: () => dataSource.destroy(),
  };
});

describeLibrary('TypeORM with a QueryRunner', async (url) => {
  const dataSource = await connect(url);
  const inTransaction = async (runner: QueryRunner, work: (scope: Scope) => Promise<void>): Promise<void> => {
    await runner.startTransaction();
    const scope: Scope = {
      db: fromTypeorm(runner),
      insertOrder: (note) => runner.manager.insert(OrderEntity, { note }),
      nested: (inner) => inTransaction(runner, inner),
    };
    await work(scope).catch(async (error: unknown) => {
      await runner.rollbackTransaction();
      throw error;
    });
    await runner.commitTransaction();
  };
  return {
    alone: fromTypeorm(dataSource.manager),
    async transaction(work) {
      const runner = dataSource.createQueryRunner();
      await inTransaction(runner, work).finally(() => runner.release());
    },
    close: () => dataSource.destroy(),
  };
});

it('TypeORM: its own handles are refused, with the wrapping', async () => {
  const dataSource = new DataSource({ type: 'postgres', url: 'postgres://unused' });
  for (const handle of [dataSource, dataSource.manager, dataSource.createQueryRunner()])
    await expect(enqueue(handle as never, 'k')).rejects.toThrow(/fromTypeorm/);
});
