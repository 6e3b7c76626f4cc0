import { Bus } from './bus.mjs';
import { pool, withTransaction } from './db.mjs';
import { saveOrder } from './rows.mjs';
import { addLine, tell } from './tell.mjs';

const ORDER = 'insert into orders (customer) values ($1) returning id, customer';
const LINE = "insert into order_lines (order_id, sku) values ($1, 'book')";

/** @param {Bus} bus @param {string} customer */
export async function callback(bus, customer) {
  await withTransaction(async (client) => {
    const { rows } = await client.query(ORDER, [customer]);
    await client.query(LINE, [rows[0].id]);
    await tell(bus, rows);
  });
}

/** @param {Bus} bus @param {string} customer */
export async function byHand(bus, customer) {
  const client = await pool.connect();
  try {
    await client.query('BEGIN');
    const { rows } = await client.query(ORDER, [customer]);
    await client.query(LINE, [rows[0].id]);
    await client.query('COMMIT');
    await tell(bus, rows);
  } finally {
    client.release();
  }
}

/** @param {Bus} bus @param {string} customer */
export async function carried(bus, customer) {
  await withTransaction(async (client) => {
    const { rows } = await client.query(ORDER, [customer]);
    await addLine(client, bus, rows[0]);
  });
}

/** @param {Bus} bus @param {string} customer */
export async function autocommit(bus, customer) {
  const { rows } = await pool.query(ORDER, [customer]);
  await pool.query(LINE, [rows[0].id]);
  await tell(bus, rows);
}

/** @param {Bus} bus @param {string} customer */
export async function down(bus, customer) {
  await saveOrder(customer);
  await bus.publish('order.placed', { customer });
}
