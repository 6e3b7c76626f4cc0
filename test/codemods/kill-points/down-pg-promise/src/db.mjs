import pgPromise from 'pg-promise';

const db = pgPromise()(process.env.DATABASE_URL ?? '');
export const close = () => db.$pool.end();

const ORDER = 'insert into orders (customer) values ($1) returning id';
const LINE = "insert into order_lines (order_id, sku) values ($1, 'book')";

/** @param {string} customer */
export async function insert(customer) {
  const { id } = await db.one(ORDER, [customer]);
  await db.none(LINE, [id]);
}

class Orders {
  /** @param {import('pg-promise').IDatabase<{}>} database */
  constructor(database) {
    this.database = database;
  }

  /** @param {string} customer */
  async insert(customer) {
    const { id } = await this.database.one(ORDER, [customer]);
    await this.database.none(LINE, [id]);
  }
}

export const orders = new Orders(db);
