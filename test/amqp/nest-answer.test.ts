/** The unmodified NestJS client: what it emits and sends comes through the bridge as jobs, and a send gets its answer. */
import { ClientProxyFactory, Transport } from '@nestjs/microservices';
import { firstValueFrom, timeout } from 'rxjs';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { bridge } from '../../adapters/rabbitmq/bridge.js';
import { connectBroker } from '../../adapters/rabbitmq/broker.js';
import { compileRules, type DrainConfig } from '../../adapters/rabbitmq/drain-config.js';
import { asQueue } from '../../adapters/rabbitmq/drain-plan.js';
import { answerNest } from '../../adapters/rabbitmq/nest-answer.js';
import { createAmqpRelay } from '../../adapters/rabbitmq/relay.js';
import { createWorker } from '../../src/jobs/worker.js';
import { SILENT } from '../../src/log.js';
import { until } from '../support/until.js';
import { type DrainWorld, drainWorld } from './drain-world.js';

vi.setConfig({ testTimeout: 180_000 });

let world: DrainWorld;
beforeAll(async () => {
  world = await drainWorld();
});
afterAll(() => world.close());

test('emit is a job; send is a job whose result comes back to the client', async () => {
  const queue = 'nest-rpc';
  await world.channel.assertQueue(queue, { durable: true });
  // Who names the dialect says that requests of this queue are jobs, too.
  const config: DrainConfig = { rules: [{ match: { queue }, dialect: 'nestjs' }] };
  const seen = await world.look(config);
  const stop = new AbortController();
  const bridging = bridge({
    ...{ amqpUrl: world.vhost.url, pool: world.database.pool, store: world.database.store, log: SILENT },
    groups: seen.groups.map(({ name, queues }) => ({ name, queues: queues.map(asQueue) })),
    ...{ rules: compileRules(config.rules), signal: stop.signal },
  });
  bridging.catch(() => undefined);
  const relay = createAmqpRelay({ connect: () => connectBroker(world.vhost.url) });
  const events: unknown[] = [];
  const db = world.database.pool;
  const worker = createWorker({
    db,
    handlers: {
      ...relay.handlers,
      'order.placed': (job) => void events.push(job.payload),
      '{"cmd":"sum"}': answerNest(({ payload }) => (payload as number[]).reduce((sum, one) => sum + one, 0), {
        db,
      }),
    },
    pollMs: 20,
  });
  worker.start();
  const client = ClientProxyFactory.create({
    transport: Transport.RMQ,
    options: { urls: [world.vhost.url], queue, queueOptions: { durable: true }, persistent: true },
  });
  try {
    await client.connect();
    await new Promise<void>((resolve, reject) =>
      client.emit('order.placed', { n: 1 }).subscribe({ complete: resolve, error: reject }),
    );
    await until('the event is handled', () => events.length === 1, { withinMs: 60_000 });
    expect(events).toEqual([{ n: 1 }]);
    const sums = [
      [1, 2, 3],
      [40, 2],
    ].map((numbers) => firstValueFrom(client.send({ cmd: 'sum' }, numbers).pipe(timeout(30_000))));
    expect(await Promise.all(sums)).toEqual([6, 42]);
  } finally {
    await client.close();
    await worker.stop({ deadlineMs: 2_000 });
    await relay.close();
    stop.abort();
    await bridging.catch(() => undefined);
  }
});
