import { DataTypes, Sequelize } from 'sequelize';

export const db = new Sequelize(process.env.DATABASE_URL ?? '', { dialect: 'postgres', logging: false });
export const Order = db.define('orders', { customer: DataTypes.TEXT }, { timestamps: false });
export const Line = db.define(
  'order_lines',
  { order_id: { type: DataTypes.INTEGER, primaryKey: true }, sku: DataTypes.TEXT },
  { timestamps: false },
);
await db.query('select 1');
export const close = () => db.close();
