/**
 * Tells RabbitMQ what became of a notification, as the old service did: a job of kind relay.amqp for each status. The job
 * is enqueued before the delivery is settled, under a key of its own, so a second telling of the same is none.
 */
import { RELAY_AMQP } from '../../adapters/rabbitmq/relay-kind.js';
import { createEnqueue } from '../enqueue.js';
import type { HandlerJob } from '../jobs/handler.js';
import type { Queryable } from '../jobs/job.js';
import type { NotifyConfig } from './config.js';
import type { DeliveryOptions, DeliveryStatus } from './handler.js';

const EXCHANGE = 'notification.status';

/** null: nothing is to be told, or there is no database to tell it through. */
export function statusTeller({
  config,
  db,
  schema,
}: {
  readonly config: NotifyConfig;
  readonly db?: Queryable;
  readonly schema?: string;
}): DeliveryOptions['onStatus'] | null {
  const { statusEvents } = config;
  if (statusEvents === undefined || db === undefined) return null;
  const { enqueue } = createEnqueue(schema);
  const { exchange = EXCHANGE } = statusEvents;
  return async (job, status, error) => {
    const payload = { exchange, routingKey: `status.${status}`, body: bodyOf(job, status, error) };
    const dedupeKey = `status:${job.id}:${job.attempt}:${status}`;
    await enqueue(db, RELAY_AMQP, payload, { dedupeKey, source: `status:${job.id}` });
  };
}

function bodyOf(job: HandlerJob, status: DeliveryStatus, error: string | null) {
  const { template } = (job.payload ?? {}) as { template?: unknown };
  return {
    id: job.id,
    status,
    kind: typeof template === 'string' ? template : null,
    channel: job.kind.replace(/^notify\./, ''),
    attempt: job.attempt,
    error,
    at: new Date().toISOString(),
  };
}
