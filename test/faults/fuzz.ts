/**
 * `npm run faults -- fuzz [--long]`: 100,000 deliveries that no client would write through the reader, the mapping and back;
 * and 5,000 (long: 100,000) of those that RabbitMQ takes through the broker and the drain. Each becomes one row, and its
 * bytes can be had again.
 */
import { createHash } from 'node:crypto';
import amqp from 'amqplib';
import { type RawDelivery, readDelivery } from '../../adapters/rabbitmq/delivery.js';
import { drainGroup } from '../../adapters/rabbitmq/drain.js';
import { compileRules } from '../../adapters/rabbitmq/drain-config.js';
import { fingerprint } from '../../adapters/rabbitmq/fingerprint.js';
import { mapDelivery, sourceOf } from '../../adapters/rabbitmq/mapping.js';
import { deliveryOf, MessageWriter } from '../../adapters/rabbitmq/message-rows.js';
import { createStore } from '../../src/jobs/store.js';
import { SILENT } from '../../src/log.js';
import { migrate } from '../../src/migrate.js';
import { publishRaw } from '../support/raw-publish.js';
import { seeded } from '../support/seeded.js';
import { freshDatabase, freshVhost, startPostgres, startRabbit } from '../support/services.js';
import { DeliveryFuzz } from './fuzz-deliveries.js';

const READ = 100_000;
const ON_THE_WIRE = { short: 5_000, long: 100_000 };
const QUEUE = { name: 'fuzz', role: 'main', ttlMs: null, feeders: [], singleActive: false } as const;
const RULES = compileRules([{ match: { queue: '*' }, kind: 'fuzz' }]);
const WINDOW = 2_000;
const PAGE = 5_000;

export interface FuzzResult {
  readonly seed: number;
  /** Deliveries that were read, mapped and read back. */
  readonly read: number;
  /** Deliveries that went through the broker. */
  readonly drained: number;
  readonly lost: number;
  readonly extra: number;
  /** Rows whose bytes are not those of their message, and readings that threw. */
  readonly failed: number;
}

export async function faultsFuzz({ long }: { readonly long: boolean }): Promise<FuzzResult> {
  const seed = Number(process.env['UNBROKER_FAULTS_SEED'] ?? Date.now() % 2 ** 31);
  process.stderr.write(`seed ${seed} (UNBROKER_FAULTS_SEED)\n`);
  const unread = readAll(seed);
  process.stderr.write(`${READ} read, ${unread} failed\n`);
  const messages = long ? ON_THE_WIRE.long : ON_THE_WIRE.short;
  const through = await throughTheBroker(seed, messages);
  return { seed, read: READ, drained: messages, ...through, failed: unread + through.failed };
}

/** How many were not read, mapped, written out and read back as they were. */
function readAll(seed: number): number {
  const fuzz = new DeliveryFuzz(seeded(seed), 'reader');
  const writer = new MessageWriter();
  const context = { source: sourceOf('v', '1'), rules: RULES, nowMs: Date.now(), trustDeliveryCount: true };
  let failed = 0;
  for (let number = 0; number < READ; number += 1) {
    const { propertyBytes, body } = fuzz.next(undefined);
    const raw: RawDelivery = {
      ...{
        queue: QUEUE.name,
        exchange: 'e',
        routingKey: 'k',
        redelivered: number % 2 === 0,
        deliveryTag: number,
      },
      ...{ propertyBytes, body },
    };
    try {
      const delivery = readDelivery(raw);
      const print = fingerprint(delivery);
      const mapped = mapDelivery(delivery, QUEUE, { ...context, careful: number % 3 === 0 });
      const back = deliveryOf(writer.write(delivery, print, mapped), QUEUE.name);
      const same =
        back.raw.propertyBytes.equals(propertyBytes) &&
        back.raw.body.equals(body) &&
        back.fingerprint === print &&
        back.raw.redelivered === raw.redelivered;
      if (!same) throw new Error('other bytes came back');
    } catch (error) {
      failed += 1;
      process.stderr.write(`${propertyBytes.toString('hex')} ${body.toString('hex')}: ${String(error)}\n`);
    }
  }
  return failed;
}

async function throughTheBroker(seed: number, messages: number) {
  const [postgres, rabbit] = await Promise.all([
    startPostgres({ controllable: true }),
    startRabbit({ controllable: true }),
  ]);
  try {
    const [database, vhost] = await Promise.all([freshDatabase(postgres), freshVhost(rabbit)]);
    await migrate(database.pool);
    const digests = await publish(vhost.url, new DeliveryFuzz(seeded(seed), 'wire'), messages);
    process.stderr.write(`${messages} published\n`);
    const { runId, books } = await drainGroup({
      ...{ amqpUrl: vhost.url, pool: database.pool, store: createStore(), log: SILENT, rules: RULES },
      group: { name: QUEUE.name, queues: [QUEUE] },
    });
    if (!books.balanced) throw new Error(`the books do not balance: ${JSON.stringify(books)}`);
    let extra = 0;
    let failed = 0;
    for (let batch = '0', position = 0; ; ) {
      const { rows } = await database.pool.query<LedgerRow>(
        `select l.batch::text, l.position, l.message_id as id, l.properties, l.body
         from unbroker.drain_ledger l join unbroker.drain_batches b on b.id = l.batch
         where b.run = $1 and (l.batch, l.position) > ($2, $3) order by l.batch, l.position limit $4`,
        [runId, batch, position, PAGE],
      );
      for (const row of rows) {
        const digest = digests.get(row.id);
        if (digest === undefined) extra += 1;
        else if (digest !== digestOf(row.properties, row.body)) failed += 1;
        digests.delete(row.id);
      }
      const last = rows.at(-1);
      if (last === undefined) return { lost: digests.size, extra, failed };
      ({ batch, position } = last);
    }
  } finally {
    await Promise.all([postgres.close(), rabbit.close()]);
  }
}

interface LedgerRow {
  readonly batch: string;
  readonly position: number;
  readonly id: string;
  readonly properties: Buffer;
  readonly body: Buffer;
}

/** Digests of what was sent, by message id. */
async function publish(url: string, fuzz: DeliveryFuzz, messages: number): Promise<Map<string, string>> {
  const digests = new Map<string, string>();
  const connection = await amqp.connect(url, { noDelay: true });
  connection.on('error', () => {});
  const channel = await connection.createConfirmChannel();
  channel.on('error', () => {});
  const closed = new Promise<never>((_, reject) => {
    const end = (error?: Error): void => reject(error ?? new Error('the broker closed the publisher'));
    connection.on('error', end);
    connection.on('close', end);
    channel.on('error', end);
  });
  closed.catch(() => {});
  await channel.assertQueue(QUEUE.name, { durable: true });
  let confirmed: Promise<void>[] = [];
  for (let number = 0; number < messages; number += 1) {
    const id = `f${number}`;
    const { propertyBytes, body } = fuzz.next(id);
    digests.set(id, digestOf(propertyBytes, body));
    confirmed.push(publishRaw(channel, QUEUE.name, propertyBytes, body));
    if (confirmed.length < WINDOW) continue;
    await Promise.race([Promise.all(confirmed), closed]);
    confirmed = [];
  }
  await Promise.race([Promise.all(confirmed), closed]);
  await connection.close();
  return digests;
}

function digestOf(...parts: readonly Buffer[]): string {
  const sha = createHash('sha256');
  for (const part of parts) sha.update(`${part.length}:`).update(part);
  return sha.digest('base64');
}
