import { DataTypes, Sequelize } from 'sequelize';

const db = new Sequelize(process.env.DATABASE_URL ?? '', { dialect: 'postgres', logging: false });
export const Order = db.define('orders', { customer: DataTypes.TEXT }, { timestamps: false });
const Line = db.define(
  'order_lines',
  { order_id: { type: DataTypes.INTEGER, primaryKey: true }, sku: DataTypes.TEXT },
  { timestamps: false },
);
await db.query('select 1');
export const close = () => db.close();

/** @param {string} customer */
export async function insert(customer) {
  const order = await Order.create({ customer });
  await Line.create({ order_id: order.get('id'), sku: 'book' });
}

/** @param {string} customer */
async function insertRaw(customer) {
  await db.query(
    "with made as (insert into orders (customer) values ($1) returning id) insert into order_lines select id, 'book' from made",
    { bind: [customer] },
  );
  await Order.update({ customer }, { where: { customer } });
}

class Orders {
  /** @param {string} customer */
  async insert(customer) {
    await insertRaw(customer);
  }
}

export const orders = new Orders();
