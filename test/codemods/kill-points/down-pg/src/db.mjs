import pg from 'pg';

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
export const close = () => pool.end();

const ORDER = 'insert into orders (customer) values ($1) returning id';
const LINE = "insert into order_lines (order_id, sku) values ($1, 'book')";

/**
 * @param {string} text
 * @param {unknown[]} values
 */
const call = async (text, values) => {
  const { rows } = await pool.query(text, values);
  return rows;
};

/** Statements under names, each of which commits by itself. */
export const fns = {
  /** @param {string} customer */
  order: (customer) => call(ORDER, [customer]),
  /** @param {number} id */
  line: (id) => call(LINE, [id]),
};

export class Rows {
  /** @param {import('pg').Pool} pool */
  constructor(pool) {
    this.pool = pool;
  }

  /** @param {string} customer */
  async insert(customer) {
    const { rows } = await this.pool.query(ORDER, [customer]);
    await this.pool.query(LINE, [rows[0].id]);
  }
}

/** Knows the rows, and no pool. */
export class Orders {
  /** @param {Rows} rows */
  constructor(rows) {
    this.rows = rows;
  }

  /** @param {string} customer */
  async place(customer) {
    await this.rows.insert(customer);
  }
}

/**
 * @param {import('pg').Pool} on
 * @param {string} customer
 */
export async function insertOn(on, customer) {
  const { rows } = await on.query(ORDER, [customer]);
  await on.query(LINE, [rows[0].id]);
}

export const shared = pool;
export const orders = new Orders(new Rows(pool));

/**
 * Takes a transaction already, and goes without.
 * @param {string} customer
 * @param {import('pg').PoolClient} [client]
 */
export async function insertMaybe(customer, client) {
  const db = client ?? pool;
  const { rows } = await db.query(ORDER, [customer]);
  await db.query(LINE, [rows[0].id]);
}
