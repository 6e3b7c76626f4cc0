import { drizzle } from 'drizzle-orm/node-postgres';
import { integer, pgTable, serial, text } from 'drizzle-orm/pg-core';
import pg from 'pg';

export const orders = pgTable('orders', {
  id: serial('id').primaryKey(),
  customer: text('customer').notNull(),
});
export const lines = pgTable('order_lines', {
  orderId: integer('order_id').notNull(),
  sku: text('sku').notNull(),
});

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });

export const db = drizzle(pool);
export const close = () => pool.end();
