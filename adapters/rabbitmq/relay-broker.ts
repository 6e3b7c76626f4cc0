/**
 * The one connection of a relay: opened when the first message is to go and again after it was lost, with a bounded number
 * of channels. Each channel has one message on its way, so that one which the broker closes takes no other's answer along.
 */
import { Discard } from '../../src/jobs/settle.js';
import type { Broker } from './broker.js';
import { leadingExchange } from './leading-exchange.js';
import type { Publication } from './publication.js';
import type { Publisher, PublishOutcome } from './publisher.js';
import { wayBack } from './way-back.js';

export interface RelayBroker {
  /**
   * Rejects with the channel's or the connection's error, or when no confirm came in time or `signal` fired: then the
   * broker may have it. Throws Discard `relay-refused` for what no broker takes.
   */
  publish(publication: Publication, signal: AbortSignal): Promise<PublishOutcome>;
  close(): Promise<void>;
}

export interface RelayBrokerOptions {
  readonly connect: () => Promise<Broker>;
  readonly confirmWithinMs?: number;
}

const MAX_CHANNELS = 32;

export function relayBroker({ connect, confirmWithinMs = 30_000 }: RelayBrokerOptions): RelayBroker {
  let connection: Promise<Broker> | undefined;
  let idle: Publisher[] = [];
  /** Exchanges of ours that are there, each leading to one queue. */
  let leading = new Set<string>();
  let taken = 0;
  const waiting: (() => void)[] = [];

  const forget = (lost: Promise<Broker>): void => {
    if (connection !== lost) return;
    connection = undefined;
    idle = [];
    leading = new Set();
  };
  const connected = (): Promise<Broker> => {
    if (connection !== undefined) return connection;
    const opening = connect();
    connection = opening;
    opening.then(
      (broker) => void broker.lost.then(() => forget(opening)),
      () => forget(opening),
    );
    return opening;
  };
  const through = async (publication: Publication, signal: AbortSignal): Promise<PublishOutcome> => {
    const current = connected();
    const broker = await current;
    const message = vetted(publication, broker);
    // Of a connection that was lost meanwhile there are none left.
    const publisher = idle.pop() ?? (await broker.publisher());
    const send = async (): Promise<PublishOutcome> => {
      const exchange = exchangeFor(publication);
      const ours = exchange !== publication.exchange;
      if (ours && !leading.has(exchange)) await publisher.lead(exchange, publication.queue ?? '');
      if (ours) leading.add(exchange);
      return publisher.publish({ ...message, exchange });
    };
    try {
      const outcome = await inTime(send(), confirmWithinMs, signal);
      if (connection === current) idle.push(publisher);
      return outcome;
    } catch (error) {
      // One of ours may have been released by an undo: led again next time.
      leading = new Set();
      // A channel that the broker closed is gone. Otherwise what it still says would be about this message.
      if (typeof (error as { code?: unknown }).code !== 'number') {
        forget(current);
        void broker.close();
      }
      throw error;
    }
  };
  return {
    async publish(publication, signal) {
      while (taken >= MAX_CHANNELS) await new Promise<void>((go) => waiting.push(go));
      taken += 1;
      try {
        return await through(publication, signal);
      } finally {
        taken -= 1;
        waiting.shift()?.();
      }
    },
    async close() {
      const broker = await connection?.catch(() => undefined);
      await broker?.close();
    },
  };
}

/** To one queue alone with the routing key kept, by an exchange of our own; the default exchange does that by itself. */
function exchangeFor({ exchange, routingKey, queue }: Publication): string {
  if (queue === null || (exchange === '' && routingKey === queue)) return exchange;
  return leadingExchange(queue, exchange);
}

function vetted(publication: Publication, { user, frameMax }: Broker): Publication {
  const { propertyBytes, body, remainingMs } = publication;
  const context = { user, frameMax, maxMessageBytes: Number.MAX_SAFE_INTEGER };
  const sent = wayBack(propertyBytes, body.length, remainingMs, context);
  if ('refused' in sent) throw new Discard(`no broker takes it: ${sent.refused}`, 'relay-refused');
  return { ...publication, propertyBytes: sent.bytes };
}

async function inTime<T>(asked: Promise<T>, withinMs: number, signal: AbortSignal): Promise<T> {
  let end = (): void => undefined;
  const late = new Promise<never>((_, reject) => {
    const timer = setTimeout(() => reject(new Error(`no confirm came within ${withinMs} ms`)), withinMs);
    const aborted = (): void => reject(new Error('the lease ended before the broker confirmed'));
    signal.addEventListener('abort', aborted, { once: true });
    if (signal.aborted) aborted();
    end = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', aborted);
    };
  });
  asked.catch(() => undefined);
  return Promise.race([asked, late]).finally(end);
}
