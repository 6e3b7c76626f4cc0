import { pool } from './db.mjs';

/** @param {string} customer */
export async function saveOrder(customer) {
  const { rows } = await pool.query('insert into orders (customer) values ($1) returning id', [customer]);
  await pool.query("insert into order_lines (order_id, sku) values ($1, 'book')", [rows[0].id]);
}
