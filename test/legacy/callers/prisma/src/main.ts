import { EventBus } from './event-bus.js';
import { migrate, prisma } from './prisma.js';
import { Tickets } from './tickets.js';

await migrate();
const bus = await EventBus.open(process.env['AMQP_URL'] ?? '');
const tickets = new Tickets(bus);
const id = await tickets.sell('A1');
await tickets.use(id);
await tickets.refund(id);
await bus.close();
await prisma.$disconnect();
