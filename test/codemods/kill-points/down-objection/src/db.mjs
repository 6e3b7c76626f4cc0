import createKnex from 'knex';
import { Model } from 'objection';

const knex = createKnex({ client: 'pg', connection: process.env.DATABASE_URL ?? '' });
Model.knex(knex);

export class Order extends Model {
  static tableName = 'orders';
}
class Line extends Model {
  static tableName = 'order_lines';
  static idColumn = ['order_id', 'sku'];
}

await knex.raw('select 1');
export const close = () => knex.destroy();

/** @param {string} customer */
export async function insert(customer) {
  const order = await Order.query().insertAndFetch({ customer });
  await Line.query().insert({ order_id: order.$id(), sku: 'book' });
}

class Orders {
  /** @param {string} customer */
  async insert(customer) {
    await this.save(customer);
  }

  /** @param {string} customer */
  async save(customer) {
    const order = await Order.query().insertAndFetch({ customer });
    await Order.query().patch({ customer }).where('id', order.$id());
    await Line.query().insert({ order_id: order.$id(), sku: 'book' });
  }
}

export const orders = new Orders();
