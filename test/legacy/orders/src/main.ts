/** Puts the application together from its environment and runs it. */
import type { AddressInfo } from 'node:net';
import { createPool, migrate } from './db.js';
import { connectBroker, EventPublisher } from './events.js';
import { Fulfilment } from './fulfilment.js';
import { createHttp } from './http.js';
import { Orders } from './orders.js';
import { Refunds } from './refunds.js';
import { Reminders } from './reminders.js';
import { SchedulingClient } from './scheduling-client.js';
import { SupportDesk } from './support-desk.js';

const { AMQP_URL = '', DATABASE_URL = '', SCHEDULING_URL, PORT = '0' } = process.env;
const DAY_MS = 86_400_000;
const delayMs = (name: string, fallback: number): number => Number(process.env[name] ?? fallback);

const pool = createPool(DATABASE_URL);
await migrate(pool);
const { connection, channel } = await connectBroker(AMQP_URL);
let stopping = false;
connection.on('error', (error) => console.error(`orders: broker: ${error.message}`));
connection.on('close', () => {
  if (!stopping) process.exit(1);
});
channel.on('error', (error) => console.error(`orders: channel: ${error.message}`));

const publisher = new EventPublisher(channel);
const server = createHttp({
  orders: new Orders(pool, publisher),
  fulfilment: new Fulfilment(pool, publisher, { reviewDelayMs: delayMs('REVIEW_DELAY_MS', 7 * DAY_MS) }),
  refunds: new Refunds(pool, publisher),
  supportDesk: new SupportDesk(pool, publisher),
  reminders:
    SCHEDULING_URL === undefined
      ? undefined
      : new Reminders(pool, new SchedulingClient(SCHEDULING_URL), delayMs('REMINDER_DELAY_MS', 2 * DAY_MS)),
});
server.listen(Number(PORT), '127.0.0.1', () => {
  console.log(`orders listening on http://127.0.0.1:${(server.address() as AddressInfo).port}`);
});

async function stop(): Promise<void> {
  if (stopping) return;
  stopping = true;
  server.closeIdleConnections();
  await new Promise((resolve) => server.close(resolve));
  await channel.close();
  await connection.close();
  await pool.end();
  process.exit(0);
}
process.on('SIGTERM', stop);
process.on('SIGINT', stop);
