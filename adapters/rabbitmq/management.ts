/**
 * Reads RabbitMQ's management API, with a limit on every answer's time and size. It only reads; what the answers mean is
 * topology.ts's to say. Absent numbers stay null: right after a start the API answers without them.
 */
import { UnbrokerError } from '../../src/errors.js';
import { tlsFailure } from '../../src/tls-failure.js';
import type { BindingInfo, ExchangeInfo, QueueInfo, Topology } from './topology.js';

const TIMEOUT_MS = 10_000;
/** About 20,000 queues with the columns that we ask for. */
const MAX_ANSWER_BYTES = 32 * 1_048_576;

const COLUMNS = [
  'name',
  'type',
  'exclusive',
  'auto_delete',
  'arguments',
  'effective_policy_definition',
  'messages',
  'messages_dlx',
  'messages_ready',
  'messages_unacknowledged',
  'consumers',
  ...['state', 'online', 'leader'],
].join(',');

export interface Management {
  /** Tags of its user. */
  readonly tags: readonly string[];
  /** Other virtual hosts that this user sees, with the messages in them; null = their number is not known. */
  otherVhosts(vhost: string): Promise<readonly { readonly name: string; readonly messages: number | null }[]>;
  /** Queues, exchanges and bindings of the virtual host. Throws `management-failed`. */
  topology(vhost: string): Promise<Topology>;
  /** Unacknowledged messages of these queues together; null when any of them is unknown. Seconds behind. */
  unacked(vhost: string, queues: readonly string[]): Promise<number | null>;
  /** Connections that have published, most first; null when this user may not see them. Seconds behind. */
  publishers(vhost: string): Promise<readonly ConnectedPublisher[] | null>;
}

/** A connection with a channel that has published. */
export interface ConnectedPublisher {
  /** The broker's name of it: both addresses. */
  readonly connection: string;
  readonly user: string;
  /** What the client calls itself; null when it does not. */
  readonly name: string | null;
  /** Messages, over its channels. */
  readonly published: number;
}

/** `absent`: why there is none, as half a sentence. */
export type ManagementAnswer = { readonly management: Management } | { readonly absent: string };

/**
 * The API behind `url` (`http://user:password@host:15672`), or why there is none for this user: a broker without the
 * plugin is normal.
 */
export async function askManagement(url: string): Promise<ManagementAnswer> {
  const get = getter(url);
  const { host } = new URL(url);
  let tags: string[];
  try {
    const { tags: given } = (await get('/api/whoami')) as { tags?: unknown };
    // A list since 3.9, before that one text.
    tags = Array.isArray(given) ? given.map(String) : String(given ?? '').split(',');
  } catch (error) {
    return { absent: whyAbsent(error, host) };
  }
  return { management: openManagement(get, tags) };
}

function whyAbsent(error: unknown, host: string): string {
  if (error instanceof UnbrokerError && / 40[13]$/.test(error.message))
    return `the management API at ${host} refuses this user: check its password, and grant it the monitoring tag (rabbitmqctl set_user_tags <user> monitoring)`;
  const tls = tlsFailure(error);
  if (tls !== null) return `no encrypted connection to the management API at ${host}: ${tls.what}`;
  const { code } = ((error as { cause?: unknown } | null)?.cause ?? {}) as { code?: unknown };
  const what = typeof code === 'string' ? ` (${code})` : '';
  return `no management API answers at ${host}${what}: set RABBITMQ_MANAGEMENT_URL, or RABBITMQCTL to how rabbitmqctl is run`;
}

/** The same, where the reason does not matter. */
export async function findManagement(url: string): Promise<Management | null> {
  const answer = await askManagement(url);
  return 'management' in answer ? answer.management : null;
}

function openManagement(get: Get, tags: readonly string[]): Management {
  return {
    tags,
    async otherVhosts(vhost) {
      const found = await list(get, '/api/vhosts?columns=name,messages');
      return found
        .filter(({ name }) => name !== vhost)
        .map((each) => ({ name: String(each['name']), messages: numberOf(each['messages']) }));
    },
    async topology(vhost) {
      const name = encodeURIComponent(vhost);
      const queues = await list(get, `/api/queues/${name}?columns=${COLUMNS}`);
      const exchanges = await list(get, `/api/exchanges/${name}`);
      const bindings = await list(get, `/api/bindings/${name}`);
      return {
        vhost,
        queues: queues.map(readQueue),
        exchanges: exchanges.map(readExchange),
        bindings: bindings.map(readBinding).filter((binding) => binding.exchange !== ''),
      };
    },
    async unacked(vhost, names) {
      const wanted = new Set(names);
      const path = `/api/queues/${encodeURIComponent(vhost)}?columns=name,messages_unacknowledged`;
      const found = (await list(get, path)).filter((queue) => wanted.has(String(queue['name'])));
      const counts = found.map((queue) => numberOf(queue['messages_unacknowledged']));
      return counts.some((count) => count === null)
        ? null
        : counts.reduce<number>((sum, count) => sum + (count ?? 0), 0);
    },
    async publishers(vhost) {
      const name = encodeURIComponent(vhost);
      try {
        const channels = await list(get, `/api/vhosts/${name}/channels`);
        const connections = await list(get, `/api/vhosts/${name}/connections`);
        return readPublishers(channels, connections);
      } catch {
        return null;
      }
    },
  };
}

export type Fields = Readonly<Record<string, unknown>>;
type Get = (path: string) => Promise<unknown>;

function getter(url: string): Get {
  const base = new URL(url);
  const credentials = `${decodeURIComponent(base.username)}:${decodeURIComponent(base.password)}`;
  const authorization = `Basic ${Buffer.from(credentials).toString('base64')}`;
  base.username = '';
  base.password = '';
  const prefix = base.href.replace(/\/+$/, '');
  return async (path) => {
    const answer = await fetch(`${prefix}${path}`, {
      headers: { authorization },
      redirect: 'error',
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    if (!answer.ok) throw failed(`${path.split('?')[0]} answered ${answer.status}`);
    return JSON.parse(await readLimited(answer));
  };
}

async function readLimited(answer: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of answer.body ?? []) {
    bytes += chunk.length;
    if (bytes > MAX_ANSWER_BYTES) throw failed(`an answer is larger than ${MAX_ANSWER_BYTES} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

async function list(get: Get, path: string): Promise<Fields[]> {
  let answer: unknown;
  try {
    answer = await get(path);
  } catch (error) {
    if (error instanceof UnbrokerError) throw error;
    throw failed(`${path.split('?')[0]} could not be read`, error);
  }
  if (!Array.isArray(answer)) throw failed(`${path.split('?')[0]} answered something that is no list`);
  return answer as Fields[];
}

function failed(what: string, cause?: unknown): UnbrokerError {
  return new UnbrokerError('management-failed', `RabbitMQ's management API: ${what}`, {
    hint: 'Check RABBITMQ_MANAGEMENT_URL and that the user has the monitoring tag, or name the queues under drain.groups in the config.',
    cause,
  });
}

/** A queue as the API and rabbitmqctl describe it. */
export function readQueue(queue: Fields): QueueInfo {
  const own = fieldsOf(queue['arguments']);
  const policy = fieldsOf(queue['effective_policy_definition']);
  // An argument wins over a policy, except limits, where the broker takes the smaller.
  const text = (name: string): string | null => textOf(own[`x-${name}`]) ?? textOf(policy[name]);
  const least = (name: string): number | null => {
    const values = [numberOf(own[`x-${name}`]), numberOf(policy[name])].filter((value) => value !== null);
    return values.length === 0 ? null : Math.min(...values);
  };
  return {
    name: String(queue['name']),
    type: textOf(queue['type']) ?? textOf(own['x-queue-type']) ?? 'classic',
    exclusive: queue['exclusive'] === true,
    autoDelete: queue['auto_delete'] === true,
    ttlMs: least('message-ttl'),
    deadLetterExchange: text('dead-letter-exchange'),
    deadLetterRoutingKey: text('dead-letter-routing-key'),
    maxLength: least('max-length'),
    maxLengthBytes: least('max-length-bytes'),
    overflow: text('overflow'),
    deliveryLimit: least('delivery-limit'),
    expiresMs: least('expires'),
    reachable: isUp(queue),
    readable: true,
    singleActive: own['x-single-active-consumer'] === true,
    ready: numberOf(queue['messages_ready']),
    unacked: numberOf(queue['messages_unacknowledged']),
    consumers: numberOf(queue['consumers']),
    leaving: leavingOf(queue),
  };
}

/** `messages_dlx` where it is told, else what is counted and neither ready nor unacknowledged. Null: none, or not known. */
function leavingOf(queue: Fields): number | null {
  if (queue['type'] !== 'quorum') return null;
  const [all, ready, unacked] = ['messages', 'messages_ready', 'messages_unacknowledged'].map((name) =>
    numberOf(queue[name]),
  );
  const left = numberOf(queue['messages_dlx']) ?? (all ?? 0) - (ready ?? 0) - (unacked ?? 0);
  return left > 0 ? left : null;
}

/** Replicated queues without a leader, or with nobody online, answer 0 to whoever counts. Absent fields say nothing. */
function isUp(queue: Fields): boolean {
  const { state, online, leader } = queue;
  if (state === 'down' || state === 'stopped' || state === 'crashed') return false;
  if (queue['type'] === 'classic' || queue['type'] === undefined) return true;
  return leader !== null && !(Array.isArray(online) && online.length === 0);
}

export function readExchange(exchange: Fields): ExchangeInfo {
  return {
    name: String(exchange['name']),
    type: String(exchange['type']),
    delayed: numberOf(exchange['messages_delayed']) ?? (isDelaying(exchange['type']) ? null : 0),
    alternate:
      textOf(fieldsOf(exchange['arguments'])['alternate-exchange']) ??
      textOf(fieldsOf(exchange['effective_policy_definition'])['alternate-exchange']) ??
      null,
  };
}

/** The plugin's type. */
export const isDelaying = (type: unknown): boolean => type === 'x-delayed-message';

function readBinding(binding: Fields): BindingInfo {
  return {
    exchange: String(binding['source']),
    destination: String(binding['destination']),
    destinationType: binding['destination_type'] === 'exchange' ? 'exchange' : 'queue',
    routingKey: String(binding['routing_key']),
  };
}

/**
 * The name of a channel's connection, '' where nothing tells it. The details of a connection may come some seconds after those
 * of its channels (met once in some hundred runs: a publisher that nobody could close); the channel's own name is its
 * connection's and a number.
 */
export function connectionOf(channel: Fields): string {
  const { name } = fieldsOf(channel['connection_details']);
  return textOf(name) || (textOf(channel['name']) ?? '').replace(/ \(\d+\)$/, '');
}

function readPublishers(channels: readonly Fields[], connections: readonly Fields[]): ConnectedPublisher[] {
  const found = new Map<string, ConnectedPublisher>();
  for (const channel of channels) {
    const published = numberOf(fieldsOf(channel['message_stats'])['publish']) ?? 0;
    const connection = connectionOf(channel);
    if (published === 0 || connection === '') continue;
    const known = found.get(connection);
    const whole = connections.find((each) => each['name'] === connection) ?? {};
    found.set(connection, {
      connection,
      user: textOf(channel['user']) ?? '',
      name: textOf(fieldsOf(whole['client_properties'])['connection_name']),
      published: published + (known?.published ?? 0),
    });
  }
  return [...found.values()].sort((a, b) => b.published - a.published);
}

const fieldsOf = (value: unknown): Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Fields) : {};
const textOf = (value: unknown): string | null => (typeof value === 'string' ? value : null);
const numberOf = (value: unknown): number | null => (typeof value === 'number' && value >= 0 ? value : null);
