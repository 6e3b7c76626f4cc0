import { PrismaPg } from '@prisma/adapter-pg';
import { PrismaClient } from '@prisma/client';

const db = new PrismaClient({ adapter: new PrismaPg({ connectionString: process.env.DATABASE_URL }) });
export const close = () => db.$disconnect();

/** @param {string} customer */
export async function insert(customer) {
  const order = await db.order.create({ data: { customer } });
  await db.line.create({ data: { orderId: order.id, sku: 'book' } });
}

class Orders {
  /** @param {PrismaClient} prisma */
  constructor(prisma) {
    this.prisma = prisma;
  }

  /** @param {string} customer */
  async insert(customer) {
    const order = await this.prisma.order.create({ data: { customer } });
    await this.prisma.$executeRaw`insert into order_lines (order_id, sku) values (${order.id}, 'book')`;
  }
}

export const orders = new Orders(db);
