import postgres from 'postgres';

const db = postgres(process.env.DATABASE_URL ?? '', { onnotice: () => {} });
await db`select 1`;
export const close = () => db.end();

/** @param {string} customer */
export async function insert(customer) {
  const [order] = await db`insert into orders ${db({ customer })} returning id`;
  await db`insert into order_lines (order_id, sku) values (${order?.id}, 'book')`;
}

class Orders {
  /** @param {import('postgres').Sql} sql */
  constructor(sql) {
    this.sql = sql;
  }

  /** @param {string} customer */
  async insert(customer) {
    const [order] = await this.sql`insert into orders (customer) values (${customer}) returning id`;
    await this.sql.unsafe("insert into order_lines (order_id, sku) values ($1, 'book')", [order?.id]);
  }
}

export const orders = new Orders(db);
