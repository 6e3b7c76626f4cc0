import { EntitySchema, MikroORM } from '@mikro-orm/postgresql';

export const Order = new EntitySchema({
  name: 'Order',
  tableName: 'orders',
  properties: { id: { type: 'integer', primary: true }, customer: { type: 'text' } },
});
export const Line = new EntitySchema({
  name: 'Line',
  tableName: 'order_lines',
  properties: { orderId: { type: 'integer', fieldName: 'order_id', primary: true }, sku: { type: 'text' } },
});

const orm = await MikroORM.init({ entities: [Order, Line], clientUrl: process.env.DATABASE_URL ?? '' });

export const db = orm.em.fork();
export const close = () => orm.close();
