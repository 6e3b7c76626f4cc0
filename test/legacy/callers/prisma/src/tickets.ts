import type { EventBus } from './event-bus.js';
import { prisma } from './prisma.js';

export class Tickets {
  constructor(private readonly bus: EventBus) {}

  async sell(seat: string): Promise<number> {
    const ticket = await prisma.ticket.create({ data: { seat } });
    await this.bus.emit('ticket.sold', { id: ticket.id, seat });
    return ticket.id;
  }

  async use(id: number): Promise<void> {
    const ticket = await prisma.$transaction(async (tx) => {
      const found = await tx.ticket.findUniqueOrThrow({ where: { id } });
      if (found.used) throw new Error('used before');
      return tx.ticket.update({ where: { id }, data: { used: true } });
    });
    await this.bus.emit('ticket.used', { id, seat: ticket.seat });
  }

  async refund(id: number): Promise<void> {
    await prisma.$transaction(async (tx) => {
      await tx.ticket.delete({ where: { id } });
      await this.bus.emit('ticket.refunded', { id });
    });
  }
}
