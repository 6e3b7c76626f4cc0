/**
 * The handler of `relay.amqp`: publish what the job carries, so that consumers can stay on the broker for as long as they
 * like. Done means confirmed and not returned. Not confirmed means published again: consumers know repeats by the
 * message id, which is the same for every try.
 */

import { refuseExpired } from '../../src/jobs/expiry.js';
import type { HandlerContext, KindOptions } from '../../src/jobs/handler.js';
import { Discard } from '../../src/jobs/settle.js';
import type { Broker } from './broker.js';
import { type Publication, readPublication } from './publication.js';
import { type RelayBroker, relayBroker } from './relay-broker.js';
import { RELAY_AMQP } from './relay-kind.js';

export interface RelayOptions {
  /** Opens the one connection that all jobs share; asked when the first message is to go, and again when it was lost. */
  readonly connect: () => Promise<Broker>;
  /** No queue takes it, or there is no such exchange. `retry` (default): by the kind's policy; `dead`: at once. */
  readonly onUnroutable?: 'retry' | 'dead';
  /** A broker whose memory or disk alarm is on confirms nothing. Default 30,000. */
  readonly confirmWithinMs?: number;
}

export interface AmqpRelay {
  /** `relay.amqp` to its handler. */
  readonly handlers: Readonly<Record<string, KindOptions>>;
  close(): Promise<void>;
}

export function createAmqpRelay({ onUnroutable = 'retry', ...options }: RelayOptions): AmqpRelay {
  const broker = relayBroker(options);
  const handle: KindOptions['handle'] = async (job, context) => {
    await refuseExpired(job.headers, context.databaseNow);
    const publication = readPublication(job);
    const refusal = await publish(broker, publication, context);
    if (refusal === null) return;
    throw onUnroutable === 'dead' ? new Discard(refusal, 'unroutable') : new Unroutable(refusal);
  };
  return { handlers: { [RELAY_AMQP]: { handle } }, close: () => broker.close() };
}

class Unroutable extends Error {
  override readonly name = 'Unroutable';
}

/** Null: the broker has it. Else why nobody would get it. Throws what is worth another try. */
async function publish(
  broker: RelayBroker,
  publication: Publication,
  { signal }: HandlerContext,
): Promise<string | null> {
  try {
    const end = await broker.publish(publication, signal);
    if (end === 'taken') return null;
    if (end === 'returned') return `no queue behind the exchange takes it: ${where(publication)}`;
    throw new Error('the broker could not keep the message (nack)');
  } catch (error) {
    const { code, message } = error as { code?: unknown; message: string };
    if (code === 404) return `there is no such exchange or queue: ${where(publication)}`;
    if (code === 406) throw new Discard(`the broker refuses it for ever: ${message}`, 'relay-refused');
    throw error;
  }
}

const where = ({ exchange, queue }: Publication): string =>
  queue ?? (exchange === '' ? '(default)' : exchange);
