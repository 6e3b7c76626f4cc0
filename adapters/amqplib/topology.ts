/**
 * Which queues a message goes to, as RabbitMQ decides it: direct, fanout, topic and headers exchanges, exchanges bound to
 * exchanges. Pure: exchanges and bindings come in, names of queues go out.
 */

export type ExchangeType = 'direct' | 'fanout' | 'topic' | 'headers';

export interface Binding {
  readonly source: string;
  readonly destination: string;
  readonly toExchange: boolean;
  readonly routingKey: string;
  readonly arguments: Readonly<Record<string, unknown>>;
}

export interface Topology {
  readonly exchanges: ReadonlyMap<string, ExchangeType>;
  readonly queues: ReadonlyMap<string, Readonly<Record<string, unknown>>>;
  readonly bindings: readonly Binding[];
}

/** There without being asserted. The nameless one is apart: its routing keys are queues. */
export const STANDARD: ReadonlyMap<string, ExchangeType> = new Map([
  ['amq.direct', 'direct'],
  ['amq.fanout', 'fanout'],
  ['amq.topic', 'topic'],
  ['amq.headers', 'headers'],
  ['amq.match', 'headers'],
]);

/** Each queue once, in order of the bindings; null: there is no such exchange. */
export function route(
  topology: Topology,
  exchange: string,
  routingKey: string,
  headers: Readonly<Record<string, unknown>>,
): string[] | null {
  if (exchange === '') return topology.queues.has(routingKey) ? [routingKey] : [];
  if (typeOf(topology, exchange) === undefined) return null;
  const queues = new Set<string>();
  const seen = new Set([exchange]);
  const waiting = [exchange];
  for (let source = waiting.shift(); source !== undefined; source = waiting.shift()) {
    const type = typeOf(topology, source);
    for (const binding of topology.bindings) {
      if (binding.source !== source || !fits(type, binding, routingKey, headers)) continue;
      if (!binding.toExchange) queues.add(binding.destination);
      else if (!seen.has(binding.destination)) {
        seen.add(binding.destination);
        waiting.push(binding.destination);
      }
    }
  }
  return [...queues].filter((queue) => topology.queues.has(queue));
}

export function typeOf({ exchanges }: Pick<Topology, 'exchanges'>, name: string): ExchangeType | undefined {
  return exchanges.get(name) ?? STANDARD.get(name);
}

function fits(
  type: ExchangeType | undefined,
  binding: Binding,
  routingKey: string,
  headers: Readonly<Record<string, unknown>>,
): boolean {
  switch (type) {
    case 'direct':
      return binding.routingKey === routingKey;
    case 'topic':
      return topicFits(binding.routingKey.split('.'), routingKey.split('.'));
    case 'headers':
      return headersFit(binding.arguments, headers);
    default:
      return true;
  }
}

/** `*` is one word, `#` any number. Row by row, so that no pattern takes long. */
export function topicFits(pattern: readonly string[], words: readonly string[]): boolean {
  let row = [true, ...words.map(() => false)];
  for (const part of pattern) {
    const next = row.map(() => false);
    if (part === '#') next[0] = row[0] ?? false;
    for (let i = 1; i <= words.length; i += 1) {
      const before = row[i - 1] ?? false;
      next[i] =
        part === '#'
          ? (row[i] ?? false) || before || (next[i - 1] ?? false)
          : before && (part === '*' || part === words[i - 1]);
    }
    row = next;
  }
  return row[words.length] ?? false;
}

/** `x-match`: all (default) or any; names that begin with x- are not compared unless it ends with -with-x. */
function headersFit(
  wanted: Readonly<Record<string, unknown>>,
  headers: Readonly<Record<string, unknown>>,
): boolean {
  const { 'x-match': match = 'all', ...rest } = wanted;
  const withX = String(match).endsWith('-with-x');
  const entries = Object.entries(rest).filter(([name]) => withX || !name.startsWith('x-'));
  const same = ([name, value]: [string, unknown]): boolean =>
    Object.hasOwn(headers, name) && (value === null || value === undefined || headers[name] === value);
  return String(match).startsWith('any') ? entries.some(same) : entries.every(same);
}
