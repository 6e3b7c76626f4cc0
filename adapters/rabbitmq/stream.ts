/**
 * A stream keeps what is read, so it is drained by offset: the offset after the last row is written in the transaction of
 * each batch, which makes every message exactly one row without any counting. It is read to the offset that is its last
 * at the start; a second run finds nothing new.
 */
import { EXIT, UnbrokerError } from '../../src/errors.js';
import { Signal } from '../../src/jobs/signal.js';
import { type BridgeOptions, bridge, type StreamEnd } from './bridge.js';
import { type Broker, connectBroker } from './broker.js';
import type { RawDelivery } from './delivery.js';
import { readDelivery } from './delivery.js';
import type { DrainProgress, DrainResult } from './drain.js';
import { offsetOf, type QueueToBridge } from './late-writer.js';

export interface StreamDrainOptions
  extends Omit<BridgeOptions, 'groups' | 'stream' | 'onProgress' | 'idleExitMs'> {
  readonly group: string;
  readonly queue: QueueToBridge;
  /** Messages as somebody else counts them; null = unknown. A passive declare says 0 of every stream. */
  readonly counted: number | null;
  readonly onProgress?: (progress: DrainProgress) => void;
}

/** Nothing for so long after a message: the chunk is over. */
const QUIET_MS = 400;
/** Nothing at all for so long: it is empty, as far as anybody can tell. */
const EMPTY_AFTER_MS = 10_000;
/** The same when it is counted as empty, too. */
const COUNTED_EMPTY_AFTER_MS = 2_000;
/** Nothing for so long before the end is reached: offsets are missing, or its leader is. */
const STALLED_AFTER_MS = 30_000;
const PROBE_PREFETCH = 1_000;

/** Throws as `bridge` does, and `queue-unreachable`. */
export async function drainStream(options: StreamDrainOptions): Promise<DrainResult> {
  const { group, queue, counted, onProgress, ...rest } = options;
  const stream = await findEnds(options.amqpUrl, queue.name, counted);
  const initial = Math.max(0, stream.last - stream.first + 1);
  const result = await bridge({
    ...rest,
    groups: [{ name: group, queues: [queue] }],
    stream,
    idleExitMs: STALLED_AFTER_MS,
    ...(onProgress && { onProgress: ({ messages }) => onProgress({ taken: messages, initial }) }),
  });
  const [drained] = result.groups;
  if (drained === undefined) throw stoppedBlind(queue.name);
  const { runId, books } = drained;
  return {
    ...{ runId, group, books, before: { [queue.name]: books.initial } },
    interrupted: result.end === 'stopped',
  };
}

/** The first and the last offset that it holds. */
async function findEnds(amqpUrl: string, queue: string, counted: number | null): Promise<StreamEnd> {
  const broker = await connectBroker(amqpUrl);
  try {
    const emptyAfterMs = counted === 0 ? COUNTED_EMPTY_AFTER_MS : EMPTY_AFTER_MS;
    const first = await readFrom(broker, queue, 'first', 1, emptyAfterMs);
    if (first === undefined && counted !== null && counted > 0) throw silent(queue, counted);
    if (first === undefined) return { first: 0, last: -1 };
    const last = await readFrom(broker, queue, 'last', Number.POSITIVE_INFINITY, emptyAfterMs);
    return { first, last: last ?? first };
  } finally {
    await broker.close();
  }
}

/** The last offset among the first `max` deliveries from there, until it is quiet. */
async function readFrom(
  broker: Broker,
  queue: string,
  offset: 'first' | 'last',
  max: number,
  emptyAfterMs: number,
): Promise<number | undefined> {
  const signal = new Signal();
  let count = 0;
  let seen: number | undefined;
  let failure: Error | undefined;
  let ack = (_delivery: RawDelivery): void => undefined;
  const source = await broker.consume(queue, {
    ...{ prefetch: PROBE_PREFETCH, exclusive: false, offset },
    onDelivery(delivery) {
      if (count < max) seen = offsetOf(readDelivery(delivery)) ?? seen;
      count += 1;
      ack(delivery);
      signal.fire();
    },
    onEnd(reason) {
      failure = reason;
      signal.fire();
    },
  });
  ack = ({ deliveryTag }) => {
    if (deliveryTag % (PROBE_PREFETCH / 2) === 0) source.ackThrough(deliveryTag);
  };
  for (;;) {
    const before = count;
    const { fired } = signal;
    await signal.wait(count === 0 ? emptyAfterMs : QUIET_MS, fired);
    if (failure !== undefined) throw failure;
    if (count >= max || count === before) return seen;
  }
}

function silent(queue: string, counted: number): UnbrokerError {
  return new UnbrokerError('queue-unreachable', `Stream ${queue} gives none of its ${counted} messages`, {
    hint: 'Look for its leader (rabbitmq-streams), then run again.',
  });
}

function stoppedBlind(queue: string): UnbrokerError {
  return new UnbrokerError(
    'drain-interrupted',
    `Reading stream ${queue} was stopped while a server was away`,
    {
      hint: 'What is committed is safe. Run the same command again: it goes on at the next offset.',
      exitStatus: EXIT.interrupted,
    },
  );
}
