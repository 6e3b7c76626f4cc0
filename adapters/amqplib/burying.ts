/**
 * Where a delivery goes that is not acknowledged: back to its queue, or to the dead letter exchange, or to an operator. It
 * knows no channel.
 */
import type { ClaimedJob } from '../../src/jobs/job.js';
import { type ChannelWorld, held } from './channel-world.js';
import { contentOf, jobOf, keptOf, MAX_ATTEMPTS, withDeath } from './message.js';
import { route } from './topology.js';

/** Back to where it lay, marked as delivered before; no attempt is spent. */
export async function giveBack({ pool, store }: ChannelWorld, jobs: readonly ClaimedJob[]): Promise<void> {
  for (const job of jobs) await store.checkpoint(pool, held(job), '{"delivered":true}');
  if (jobs.length > 0) await store.release(pool, jobs.map(held));
}

/** To the queue's dead letter exchange; without one the row is dead, where an operator finds it. */
export async function bury(
  { pool, store, tables }: ChannelWorld,
  deliveries: readonly { readonly job: ClaimedJob; readonly queue: string }[],
  reason: 'rejected' | 'expired' = 'rejected',
): Promise<void> {
  const topology = await tables.read(pool);
  const nowMs = await store.clock(pool);
  for (const { job, queue } of deliveries) {
    const { 'x-dead-letter-exchange': exchange, 'x-dead-letter-routing-key': key } =
      topology.queues.get(queue) ?? {};
    const kept = keptOf(job);
    const failure = { name: reason, message: `${reason}, and its queue has no dead letter exchange` };
    if (typeof exchange !== 'string') {
      await store.discard(pool, [{ ...held(job), ...failure }]);
      continue;
    }
    const routingKey = typeof key === 'string' ? key : kept.routingKey;
    const properties = withDeath(kept.properties, { ...kept, queue, reason }, nowMs);
    const headers = properties['headers'] as Readonly<Record<string, unknown>>;
    const copies = (route(topology, exchange, routingKey, headers) ?? []).map((target) =>
      jobOf(target, { exchange, routingKey }, properties, contentOf(job)),
    );
    const client = await pool.connect();
    let broken = true;
    try {
      // Both or neither: a message is in one queue.
      await client.query('begin');
      const mine = await store.complete(client, [{ ...held(job), resultText: '{"deadLettered":true}' }]);
      if (mine.length === 1 && copies.length > 0) await store.enqueueBodies(client, copies, MAX_ATTEMPTS);
      await client.query('commit');
      broken = false;
    } finally {
      if (broken) await client.query('rollback').catch(() => undefined);
      client.release(broken);
    }
  }
}
