/** Sequelize 6: managed transactions, unmanaged ones with a search path in every text, and the argument left out. */
import { DataTypes, Sequelize, type Transaction } from 'sequelize';
import { expect, it } from 'vitest';
import { fromSequelize } from '../../../adapters/transactions/index.js';
import { enqueue } from '../../../src/enqueue.js';
import { describeLibrary, type Scope } from './contract.js';

const scopes = (sequelize: Sequelize) => {
  const Order = sequelize.define(
    'Order',
    { note: { type: DataTypes.TEXT, allowNull: false } },
    { tableName: 'orders', timestamps: false },
  );
  const scopeOf = (transaction: Transaction): Scope => ({
    db: fromSequelize(sequelize, transaction),
    insertOrder: (note) => Order.create({ note }, { transaction }),
    nested: (work) => sequelize.transaction({ transaction }, (inner) => work(scopeOf(inner))),
  });
  return scopeOf;
};

describeLibrary('Sequelize', async (url) => {
  const sequelize = new Sequelize(url, { logging: false, pool: { max: 2 } });
  const scopeOf = scopes(sequelize);
  return {
    alone: fromSequelize(sequelize, null),
    transaction: (work) => sequelize.transaction((transaction) => work(scopeOf(transaction))),
    close: () => sequelize.close(),
  };
});

describeLibrary('Sequelize with an unmanaged transaction', async (url) => {
  const sequelize = new Sequelize(url, {
    logging: false,
    pool: { max: 2 },
    // Sequelize then puts `SET search_path to …;` before a text, unless it is told not to.
    dialectOptions: { prependSearchPath: true },
  });
  const scopeOf = scopes(sequelize);
  return {
    alone: fromSequelize(sequelize, null),
    async transaction(work) {
      const transaction = await sequelize.transaction();
      await work(scopeOf(transaction)).catch(async (error: unknown) => {
        await transaction.rollback();
        throw error;
      });
      await transaction.commit();
    },
    close: () => sequelize.close(),
  };
});

it('Sequelize: refuses to guess when the transaction is left out', () => {
  const sequelize = new Sequelize('postgres://unused', { logging: false });
  // @ts-expect-error the compiler refuses it, too
  expect(() => fromSequelize(sequelize)).toThrow(TypeError);
  expect(() => fromSequelize(sequelize, null)).not.toThrow();
});

it('Sequelize: its own handle in the place of a transaction is refused, with the wrapping', async () => {
  const sequelize = new Sequelize('postgres://unused', { logging: false });
  await expect(enqueue(sequelize as never, 'k')).rejects.toThrow(/fromSequelize/);
});
