import { DataSource, EntitySchema } from 'typeorm';

export const Order = new EntitySchema({
  name: 'orders',
  columns: { id: { type: 'int', primary: true, generated: true }, customer: { type: 'text' } },
});
export const Line = new EntitySchema({
  name: 'order_lines',
  columns: { order_id: { type: 'int', primary: true }, sku: { type: 'text' } },
});

export const db = new DataSource({
  type: 'postgres',
  url: process.env.DATABASE_URL,
  entities: [Order, Line],
});
await db.initialize();
export const close = () => db.destroy();
