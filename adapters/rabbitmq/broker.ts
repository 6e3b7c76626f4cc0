/**
 * The only file that knows the AMQP client. It offers the few methods that a drain and a relay use and nothing that could
 * lose a message: no noAck, no reject, no requeue but by closing, no publish without a confirm. Property bytes are
 * taken from the frames as they came, because the client's own decoder loses what a header table may hold and dies on some of it.
 */
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import amqplib, { type Channel, type ChannelModel, type ConsumeMessage, type Message } from 'amqplib';
import { EXIT, UnbrokerError } from '../../src/errors.js';
import { tlsFailure } from '../../src/tls-failure.js';
import { askForMessages } from './asking-source.js';
import { type RawDelivery, readProperties } from './delivery.js';
import {
  type CutFrame,
  type FramedConnection,
  type KeptProperties,
  PROPERTIES_AT,
  readFramesInPlace,
} from './frame-reader.js';
import { originalExchange } from './leading-exchange.js';
import { type ConfirmingChannel, openPublisher, type Publisher } from './publisher.js';

export interface QueueCount {
  readonly ready: number;
  readonly consumers: number;
}

export interface Broker {
  /** Of the cluster, as the server tells it: which broker a drain's books are about. */
  readonly cluster: string;
  readonly version: string;
  readonly vhost: string;
  /** Whom we are logged in as. */
  readonly user: string;
  /** Largest frame that both sides take. */
  readonly frameMax: number;
  /** Ready messages and consumers, by passive declare; null = there is no such queue. Throws `queue-unreachable`. */
  count(queue: string): Promise<QueueCount | null>;
  /** Starts consuming one queue on a channel of its own. */
  consume(queue: string, options: ConsumeOptions): Promise<Source>;
  /** Publishes on a confirm channel. An alarm stops a connection that publishes, acks included: use one of its own. */
  publisher(): Promise<Publisher>;
  /** Takes a name that one connection at a time can have, until this one is gone; false while another has it. */
  hold(name: string): Promise<boolean>;
  /** Up to `max` messages from the head of a queue, given back at once, in their places: it counts as a delivery. */
  look(queue: string, max: number): Promise<RawDelivery[]>;
  /** Settles when the connection is gone, with the reason. Never rejects. */
  readonly lost: Promise<Error>;
  /** What was delivered and not acked goes back to its queue. */
  close(): Promise<void>;
}

export interface ConsumeOptions {
  /** Deliveries in hand at most. */
  readonly prefetch: number;
  /** While it is drained, nobody else gets a message of it. */
  readonly exclusive: boolean;
  /** Of a stream: where to begin; `last` is the last chunk. A stream keeps what is acked. */
  readonly offset?: number | 'first' | 'last';
  /**
   * Asks for messages one by one instead of being a consumer: an auto-delete queue goes, with all that is left in it, when its
   * last consumer does. A sixth of the speed.
   */
  readonly byGet?: boolean;
  onDelivery(delivery: RawDelivery): void;
  /** The broker ended it (queue deleted, timeout, channel closed): not the same as empty. */
  onEnd(reason: Error): void;
}

export interface Source {
  readonly queue: string;
  /** Acks everything up to this tag in one frame, which the broker takes as a whole or not at all. */
  ackThrough(deliveryTag: number): void;
  /** Settles once the broker has processed what was sent before on this channel; answers the queue's ready count. */
  fence(): Promise<number>;
  /** Changes the number of deliveries in hand. */
  setPrefetch(prefetch: number): Promise<void>;
}

const HEARTBEAT_S = 20;
const FRAME_MAX = 131_072;
const CONNECT_TIMEOUT_MS = 10_000;
const ANSWER_TIMEOUT_MS = 15_000;
const CLOSE_TIMEOUT_MS = 5_000;
const PINNED_AMQPLIB = '2.3.1';

export interface ConnectOptions {
  /** Default 131,072; 0 = as large as the broker takes. */
  readonly frameMax?: number;
  /** Default 20. Twice this and a peer that says nothing is gone. */
  readonly heartbeatS?: number;
  /** How long a connection and an answer may take, at most 10,000 and 15,000, which are the default. */
  readonly answerWithinMs?: number;
  /** The broker stops (reason) or resumes (null) taking messages: memory, disk. */
  onBlocked?(reason: string | null): void;
}

/** Throws `amqp-url-invalid`, `amqp-unreachable`, `amqp-refused`, `tls-refused`, `amqplib-unsupported`. */
export async function connectBroker(url: string, options: ConnectOptions = {}): Promise<Broker> {
  const { frameMax = FRAME_MAX, heartbeatS = HEARTBEAT_S, answerWithinMs, onBlocked } = options;
  checkFrameHook();
  const target = parseUrl(url);
  let model: ChannelModel;
  try {
    model = await amqplib.connect(
      { ...target, heartbeat: heartbeatS, frameMax },
      // Without noDelay every ack-then-ask waits for the peer's delayed TCP ack: 44 ms a fence instead of 1.
      {
        noDelay: true,
        keepAlive: true,
        timeout: Math.min(CONNECT_TIMEOUT_MS, answerWithinMs ?? CONNECT_TIMEOUT_MS),
        clientProperties: { connection_name: 'unbroker' },
      },
    );
  } catch (error) {
    throw connectError(error, placeOf(target));
  }
  model.on('blocked', (reason) => onBlocked?.(String(reason)));
  model.on('unblocked', () => onBlocked?.(null));
  const answered: Answered = (asked, late = silent, maxMs = ANSWER_TIMEOUT_MS) =>
    withinTime(asked, late, Math.min(maxMs, answerWithinMs ?? maxMs));
  return openBroker(model, decodeURIComponent(target.vhost) || '/', target.username, answered);
}

/** The answer, or an error when it takes too long. */
type Answered = <T>(asked: Promise<T>, late?: () => Error, maxMs?: number) => Promise<T>;

function openBroker(model: ChannelModel, vhost: string, user: string, answered: Answered): Broker {
  readFramesInPlace(model.connection as unknown as FramedConnection, decodeFrame);
  let closing = false;
  const lost = new Promise<Error>((resolve) => {
    let reason: Error | undefined;
    model.on('error', (error) => {
      reason = error;
    });
    model.on('close', (error) => {
      if (!closing) resolve(reason ?? error ?? new Error('the broker closed the connection'));
    });
  });
  const { serverProperties } = model.connection;
  let counting: Promise<Channel> | undefined;
  const open = (): Promise<Channel> => answered(model.createChannel().then(heard));
  return {
    cluster: String(serverProperties['cluster_name'] ?? 'unknown'),
    version: String(serverProperties.version),
    vhost,
    user,
    frameMax: (model.connection as unknown as { frameMax: number }).frameMax,
    lost,
    async publisher() {
      const channel = await answered(model.createConfirmChannel().then(heard));
      return openPublisher(channel as unknown as ConfirmingChannel, {
        propertiesOf: ({ properties }) => (properties as KeptProperties).propertyBytes,
        answered,
      });
    },
    hold: async (name) => holdName(await open(), name, answered),
    look: async (queue, max) => lookAtHead(await open(), queue, max, answered),
    async count(queue) {
      counting ??= open();
      const channel = await counting;
      try {
        const asking = channel.checkQueue(queue);
        const { messageCount, consumerCount } = await answered(asking, () => unreachable(queue));
        return { ready: messageCount, consumers: consumerCount };
      } catch (error) {
        // A failed passive declare closes its channel; one that hangs blocks it.
        counting = undefined;
        // 404 also says that a queue's node is down: then it is there, and nobody knows what it holds.
        const { code, message } = error as { code?: number; message: string };
        if (code === 404 && /no queue/.test(message)) return null;
        throw code === 404 ? unreachable(queue, error) : queueError(queue, error);
      }
    },
    consume: async (queue, options) => (options.byGet ? askSource : openSource)(await open(), queue, options),
    async close() {
      closing = true;
      // The client's close never settles when the socket ends before the broker's answer; left alone, a socket whose other
      // end is gone keeps the process.
      await answered(model.close(), silent, CLOSE_TIMEOUT_MS).catch(() => undefined);
      (model.connection as unknown as FramedConnection).stream.destroy();
    },
  };
}

/** A quorum queue without a leader may never answer, and a broker that hangs answers nothing. */
async function withinTime<T>(asked: Promise<T>, late: () => Error, maxMs: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(late()), maxMs);
  });
  asked.catch(() => undefined);
  return Promise.race([asked, timeout]).finally(() => clearTimeout(timer));
}

/** Whoever waits on the channel gets the error; without a listener it would end the process. */
function heard<C extends Channel>(channel: C): C {
  channel.on('error', () => undefined);
  return channel;
}

/** An exclusive queue of that name. */
async function holdName(channel: Channel, name: string, answered: Answered): Promise<boolean> {
  try {
    await answered(channel.assertQueue(name, { exclusive: true, durable: false }));
    return true;
  } catch (error) {
    if ((error as { code?: number }).code === 405) return false;
    throw error;
  }
}

async function lookAtHead(
  channel: Channel,
  queue: string,
  max: number,
  answered: Answered,
): Promise<RawDelivery[]> {
  const seen: RawDelivery[] = [];
  try {
    while (seen.length < max) {
      const message = await answered(channel.get(queue), () => unreachable(queue));
      if (message === false) break;
      seen.push(toDelivery(queue, message));
    }
  } catch (error) {
    throw queueError(queue, error);
  }
  // Closing gives them back together, in their places.
  await answered(channel.close());
  return seen;
}

async function openSource(channel: Channel, queue: string, options: ConsumeOptions): Promise<Source> {
  const end = (reason: Error): void => options.onEnd(reason);
  channel.on('error', end);
  channel.on('close', () => end(new Error(`the channel of ${queue} was closed`)));
  const onMessage = (message: ConsumeMessage | null): void => {
    if (message === null) end(new Error(`the broker ended the consumer of ${queue}`));
    else options.onDelivery(toDelivery(queue, message));
  };
  let consumerTag = '';
  const start = async (prefetch: number): Promise<void> => {
    await channel.prefetch(prefetch);
    try {
      const { exclusive, offset } = options;
      const from = offset === undefined ? {} : { arguments: { 'x-stream-offset': offset } };
      consumerTag = (await channel.consume(queue, onMessage, { exclusive, ...from })).consumerTag;
    } catch (error) {
      throw queueError(queue, error);
    }
  };
  await start(options.prefetch);
  return {
    queue,
    ackThrough(deliveryTag) {
      channel.ack({ fields: { deliveryTag } } as Message, true);
    },
    async fence() {
      return (await channel.checkQueue(queue)).messageCount;
    },
    async setPrefetch(prefetch) {
      await channel.cancel(consumerTag);
      await start(prefetch);
    },
  };
}

/** A source that never becomes a consumer. */
function askSource(channel: Channel, queue: string, options: ConsumeOptions): Source {
  return askForMessages(channel, queue, options, {
    toDelivery: (message: Message) => toDelivery(queue, message),
    ackThrough: (deliveryTag) => channel.ack({ fields: { deliveryTag } } as Message, true),
    explain: (error) => queueError(queue, error),
  });
}

function toDelivery(queue: string, { fields, properties, content }: Message): RawDelivery {
  const { routingKey, redelivered, deliveryTag } = fields;
  const exchange = originalExchange(fields.exchange);
  const { propertyBytes } = properties as unknown as KeptProperties;
  return { queue, exchange, routingKey, redelivered, deliveryTag, propertyBytes, body: content };
}

const requireFrom = createRequire(import.meta.url);
const libraryFolder = dirname(requireFrom.resolve('amqplib'));
/** By path: the package does not export it. Pinned and tested at every start for that reason. */
const { decodeFrame } = requireFrom(join(libraryFolder, 'lib', 'frame.js')) as {
  decodeFrame(frame: CutFrame): unknown;
};

let hookChecked = false;

/** Runs the reader over a delivery, which the client must read alike, and over a header that the client could not read. */
function checkFrameHook(): void {
  if (hookChecked) return;
  const { version } = requireFrom(join(libraryFolder, 'package.json')) as { version: string };
  // Persistent, with one header `n` of tag L.
  const properties = Buffer.from('3000' + '0000000b' + '016e4c' + '0020000000000001' + '02', 'hex');
  const head = Buffer.from('02' + '0001' + '00000000' + '003c' + '0000' + '0000000000000005', 'hex');
  head.writeUInt32BE(PROPERTIES_AT + properties.length, 3);
  // Consumer c, tag 2^32 + 1, redelivered, exchange é, routing key k.
  const deliver = Buffer.from('003c003c' + '0163' + '0000000100000001' + '01' + '02c3a9' + '016b', 'hex');
  const deliverHead = Buffer.from('010001' + '00000000', 'hex');
  deliverHead.writeUInt32BE(deliver.length, 3);
  const end = Buffer.of(0xce);
  const reader: FramedConnection = {
    rest: Buffer.concat([deliverHead, deliver, end, head, properties, end]),
    maxFrameSize: FRAME_MAX,
    recvSinceLastCheck: false,
    stream: { read: () => null, destroy: () => undefined },
    recvFrame: () => undefined,
  };
  let works = false;
  try {
    readFramesInPlace(reader, decodeFrame);
    const own = decodeFrame({ type: 1, channel: 1, payload: deliver });
    const alike = isDeepStrictEqual(reader.recvFrame(), own);
    const read = reader.recvFrame() as { id: number; size: number; fields: KeptProperties };
    const [header] = readProperties(read.fields.propertyBytes).headers;
    works =
      alike &&
      read.id === 60 &&
      read.size === 5 &&
      header?.value.tag === 'L' &&
      header.value.value === 2n ** 53n + 1n;
  } catch {
    // Answered below.
  }
  if (version !== PINNED_AMQPLIB || !works) {
    throw new UnbrokerError(
      'amqplib-unsupported',
      `amqplib ${version} is not the version that headers are read with`,
      {
        hint: `Install amqplib ${PINNED_AMQPLIB} beside unbroker.`,
        exitStatus: EXIT.badInput,
      },
    );
  }
  hookChecked = true;
}

interface ConnectTarget {
  readonly protocol: string;
  readonly hostname: string;
  readonly port?: number;
  readonly username: string;
  readonly password: string;
  /** Percent-encoded: the client decodes it. Empty = `/`. */
  readonly vhost: string;
}

function parseUrl(text: string): ConnectTarget {
  try {
    const url = new URL(text);
    if (url.protocol !== 'amqp:' && url.protocol !== 'amqps:') throw new Error('protocol');
    return {
      protocol: url.protocol.slice(0, -1),
      hostname: url.hostname.replace(/^\[|\]$/g, '') || 'localhost',
      ...(url.port === '' ? {} : { port: Number(url.port) }),
      username: decodeURIComponent(url.username) || 'guest',
      password: decodeURIComponent(url.password) || 'guest',
      vhost: url.pathname.slice(1),
    };
  } catch {
    throw new UnbrokerError('amqp-url-invalid', 'The AMQP URL cannot be read', {
      hint: 'Write amqp://user:password@host:5672/vhost with special characters percent-encoded (a slash in the vhost is %2F).',
      exitStatus: EXIT.badInput,
    });
  }
}

/** The virtual host of an AMQP URL. */
export function vhostOf(url: string): string {
  return decodeURIComponent(parseUrl(url).vhost) || '/';
}

/** Where the management API of the same broker usually is. */
export function managementUrlOf(url: string): string {
  const { protocol, hostname, username, password } = parseUrl(url);
  const host = hostname.includes(':') ? `[${hostname}]` : hostname;
  const credentials = `${encodeURIComponent(username)}:${encodeURIComponent(password)}`;
  return protocol === 'amqps'
    ? `https://${credentials}@${host}:15671`
    : `http://${credentials}@${host}:15672`;
}

/** `localhost:5672`, without user and password. */
function placeOf({ protocol, hostname, port = protocol === 'amqps' ? 5671 : 5672 }: ConnectTarget): string {
  return `${hostname.includes(':') ? `[${hostname}]` : hostname}:${port}`;
}

function connectError(error: unknown, place: string): UnbrokerError {
  const text = error instanceof Error ? error.message : '';
  const code = (error as { code?: unknown }).code;
  if (/ACCESS_REFUSED|access to vhost|NOT_ALLOWED|40[23]|530/.test(text)) {
    return new UnbrokerError('amqp-refused', `The broker at ${place} refused the login or the virtual host`, {
      hint: 'Check user, password and vhost in AMQP_URL.',
      exitStatus: EXIT.badInput,
      cause: error,
    });
  }
  const tls = tlsFailure(error);
  // A broker that is starting may break off a handshake: that can heal. A certificate does not change by itself.
  if (tls !== null && tls.kind !== 'handshake') {
    return new UnbrokerError(
      'tls-refused',
      `No encrypted connection to the broker at ${place}: ${tls.what}`,
      {
        hint:
          tls.kind === 'plain'
            ? 'Name its TLS port (5671 as a rule) in AMQP_URL, or write amqp://.'
            : tls.hint,
        exitStatus: EXIT.badInput,
        cause: error,
      },
    );
  }
  const detail = tls?.what ?? (typeof code === 'string' ? code : 'no AMQP answer');
  return new UnbrokerError('amqp-unreachable', `The broker at ${place} cannot be reached (${detail})`, {
    hint: 'Check that it runs and that AMQP_URL names it; what was imported so far is safe, run again to go on.',
    cause: error,
  });
}

function silent(): UnbrokerError {
  return new UnbrokerError('amqp-silent', 'The broker is connected and does not answer', {
    hint: 'Look at its log and its alarms (rabbitmqctl status), then run again; what is marked or committed is safe.',
  });
}

function unreachable(queue: string, cause?: unknown): UnbrokerError {
  return new UnbrokerError(
    'queue-unreachable',
    `Queue ${queue} does not answer: its node or leader is down`,
    {
      hint: 'Bring the node back, then run again; what the queue holds is unknown until then.',
      cause,
    },
  );
}

function queueError(queue: string, error: unknown): Error {
  const code = (error as { code?: number }).code;
  if (code === 403) {
    return new UnbrokerError(
      'queue-in-use',
      `Queue ${queue} is consumed by somebody else, or not readable for us`,
      {
        hint: 'Stop its consumers; the user needs the read permission (from RabbitMQ 4.3 also configure).',
        cause: error,
      },
    );
  }
  if (code === 405) {
    return new UnbrokerError('queue-exclusive', `Queue ${queue} is exclusive to another connection`, {
      hint: 'Stop the program that owns it; its messages cannot be read from outside.',
      cause: error,
    });
  }
  return error instanceof Error ? error : new Error(String(error));
}
