/** What the drain's fault tests put into the broker, and how they compare it with the rows that came to be. */
import amqp from 'amqplib';
import type { QueueToDrain } from '../../adapters/rabbitmq/importer.js';
import type { FreshDatabase } from '../support/services.js';

export type Bodies = 'unique' | 'twins' | 'neighbours';
export type Shape = 'classic' | 'quorum' | 'expiring-group';

/** The last waiting message is let go after this long; a kill and a new start take one to three seconds. */
const WAIT_MS = 10_000;

export function bodiesOf(kind: Bodies, messages: number): string[] {
  return Array.from({ length: messages }, (_, index) => {
    if (kind === 'unique') return JSON.stringify({ n: index });
    if (kind === 'neighbours') return JSON.stringify({ n: Math.floor(index / 3) });
    // 40 % are copies of 20 bodies, spread over the whole queue.
    return index % 5 < 2 ? JSON.stringify({ copy: index % 20 }) : JSON.stringify({ n: index });
  });
}

export async function publish(url: string, shape: Shape, bodies: readonly string[]): Promise<QueueToDrain[]> {
  const connection = await amqp.connect(url, { noDelay: true });
  const channel = await connection.createConfirmChannel();
  const main = 'faults.main';
  const wait = 'faults.wait';
  await channel.assertQueue(main, {
    durable: true,
    ...(shape === 'quorum' ? { arguments: { 'x-queue-type': 'quorum' } } : {}),
  });
  const queues: QueueToDrain[] = [
    { name: main, role: 'main', ttlMs: null, feeders: [wait], singleActive: false },
  ];
  if (shape === 'expiring-group') {
    await channel.assertQueue(wait, {
      durable: true,
      arguments: { 'x-message-ttl': 60_000, 'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': main },
    });
    queues.unshift({ name: wait, role: 'wait', ttlMs: 60_000, feeders: [], singleActive: false });
  }
  bodies.forEach((body, index) => {
    const waits = shape === 'expiring-group' && index % 2 === 0;
    channel.publish('', waits ? wait : main, Buffer.from(body), {
      persistent: true,
      headers: { a: index % 2, b: 'same' },
      // Falling due one after the other while drains start and die: a batch that comes back comes partly here, partly there.
      ...(waits ? { expiration: String(1_000 + Math.round((index / bodies.length) * WAIT_MS)) } : {}),
    });
  });
  await channel.waitForConfirms();
  await connection.close();
  return queues;
}

export async function compare(database: Pick<FreshDatabase, 'pool'>, bodies: readonly string[]) {
  const wanted = countBy(bodies);
  const { rows } = await database.pool.query<{ text: string; count: number }>(
    `select payload::text as text, count(*)::int as count from unbroker.jobs where kind = 'fault.test' group by payload`,
  );
  const found = new Map(rows.map(({ text, count }) => [text.replaceAll(' ', ''), count]));
  let lost = 0;
  let extra = 0;
  for (const body of new Set([...wanted.keys(), ...found.keys()])) {
    const difference = (found.get(body) ?? 0) - (wanted.get(body) ?? 0);
    if (difference < 0) lost -= difference;
    else extra += difference;
  }
  return { lost, extra };
}

function countBy(bodies: readonly string[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const body of bodies) counts.set(body, (counts.get(body) ?? 0) + 1);
  return counts;
}
