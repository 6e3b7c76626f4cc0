import { Kysely, PostgresDialect, sql } from 'kysely';
import pg from 'pg';

const db = new Kysely({
  dialect: new PostgresDialect({ pool: new pg.Pool({ connectionString: process.env.DATABASE_URL }) }),
});
export const close = () => db.destroy();

/** @param {string} customer */
export async function insert(customer) {
  const { id } = await db.insertInto('orders').values({ customer }).returning('id').executeTakeFirstOrThrow();
  await db.insertInto('order_lines').values({ order_id: id, sku: 'book' }).execute();
}

class Orders {
  /** @param {import('kysely').Kysely<any>} kysely */
  constructor(kysely) {
    this.kysely = kysely;
  }

  /** @param {string} customer */
  async insert(customer) {
    const { id } = await this.kysely
      .insertInto('orders')
      .values({ customer })
      .returning('id')
      .executeTakeFirstOrThrow();
    await sql`insert into order_lines (order_id, sku) values (${id}, 'book')`.execute(this.kysely);
  }
}

export const orders = new Orders(db);
