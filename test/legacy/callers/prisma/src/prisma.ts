import { PrismaPg } from '@prisma/adapter-pg';
import { PrismaClient } from './generated/client.js';

export const prisma = new PrismaClient({
  adapter: new PrismaPg({ connectionString: process.env['DATABASE_URL'] ?? '' }),
});

export async function migrate(): Promise<void> {
  await prisma.$executeRawUnsafe(
    'create table if not exists tickets (id serial primary key, seat text not null, used boolean not null default false)',
  );
}
