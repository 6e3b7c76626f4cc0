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

/** @typedef {import('drizzle-orm/node-postgres').NodePgDatabase} Database */

class Store {
  /** @param {Database} database */
  constructor(database) {
    /** @private */
    this.database = database;
  }

  /** @param {string} customer */
  async insert(customer) {
    const [order] = await this.database.insert(orders).values({ customer }).returning();
    await this.database.insert(lines).values({ orderId: order?.id ?? 0, sku: 'book' });
  }
}

export const store = new Store(db);
