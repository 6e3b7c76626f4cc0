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

export class Orders {
  /**
   * @param {import('typeorm').Repository<{ id: number, customer: string }>} orders
   * @param {import('typeorm').Repository<{ order_id: number, sku: string }>} lines
   */
  constructor(orders, lines) {
    this.orders = orders;
    this.lines = lines;
  }

  /** @param {string} customer */
  async insert(customer) {
    const order = await this.orders.save({ customer });
    await this.lines.insert({ order_id: order.id, sku: 'book' });
  }

  /**
   * Takes a transaction already, and goes without.
   * @param {string} customer
   * @param {import('typeorm').EntityManager} [manager]
   */
  async insertMaybe(customer, manager) {
    const orders = manager ? manager.getRepository(Order) : this.orders;
    const order = await orders.save({ customer });
    await (manager?.withRepository(this.lines) ?? this.lines).insert({ order_id: order.id, sku: 'book' });
  }
}

export const orders = new Orders(db.getRepository(Order), db.getRepository(Line));
