import createKnex from 'knex';

const db = createKnex({ client: 'pg', connection: process.env.DATABASE_URL });
export const close = () => db.destroy();

/** @param {string} customer */
export async function insert(customer) {
  const [order] = await db('orders').insert({ customer }).returning('id');
  await db('order_lines').insert({ order_id: order.id, sku: 'book' });
}

class Orders {
  /** @param {import('knex').Knex} knex */
  constructor(knex) {
    this.knex = knex;
  }

  /** @param {string} customer */
  async insert(customer) {
    const [order] = await this.knex('orders').insert({ customer }).returning('id');
    await this.knex.raw('insert into order_lines (order_id, sku) values (?, ?)', [order.id, 'book']);
  }
}

export const orders = new Orders(db);
