/**
 * What the queues of a virtual host are for and which belong together, worked out from their arguments, the exchanges
 * and the bindings. Pure. Groups err on the large side: a queue too many costs a wider freeze, one too few costs a
 * message.
 */
import type { DrainConfig, QueueRole, Rules } from './drain-config.js';
import type { QueueFacts } from './mapping.js';

export interface QueueInfo {
  readonly name: string;
  /** classic, quorum, stream or a plugin's. */
  readonly type: string;
  readonly exclusive: boolean;
  readonly autoDelete: boolean;
  /** Of arguments and policies together, the smaller where both give one. */
  readonly ttlMs: number | null;
  readonly deadLetterExchange: string | null;
  readonly deadLetterRoutingKey: string | null;
  readonly maxLength: number | null;
  readonly maxLengthBytes: number | null;
  /** drop-head, reject-publish, reject-publish-dlx; null = drop-head. */
  readonly overflow: string | null;
  readonly deliveryLimit: number | null;
  /** Deleted after so long without use, with what is in it. */
  readonly expiresMs: number | null;
  /** False: its node or leader is down. A queue without a leader says that it holds 0. */
  readonly reachable: boolean;
  /** False: this user may not read it. */
  readonly readable: boolean;
  /** One consumer at a time gets messages, the others wait. */
  readonly singleActive: boolean;
  /** Null = unknown, never zero. */
  readonly ready: number | null;
  readonly unacked: number | null;
  readonly consumers: number | null;
  /**
   * Dead-lettered at least once (a quorum queue's strategy) and not yet taken by the target. Neither ready nor unacked, so
   * nobody can read them. Absent or null: none, or not known.
   */
  readonly leaving?: number | null;
}

export interface ExchangeInfo {
  readonly name: string;
  readonly type: string;
  /** Messages that a delayed-message exchange holds outside every queue; null = it may, but nobody says how many. */
  readonly delayed: number | null;
  /** Where it sends what it cannot route. */
  readonly alternate: string | null;
}

export interface BindingInfo {
  readonly exchange: string;
  readonly destination: string;
  readonly destinationType: 'queue' | 'exchange';
  readonly routingKey: string;
}

export interface Topology {
  readonly vhost: string;
  readonly queues: readonly QueueInfo[];
  /** Null: they could not be read, so dead-letter targets are unknown. */
  readonly exchanges: readonly ExchangeInfo[] | null;
  readonly bindings: readonly BindingInfo[];
}

export interface DeadLetterEdges {
  readonly targets: readonly string[];
  /** Each message's own routing key decides, so `targets` are all that may be meant. */
  readonly dynamic: boolean;
  /** Messages that leave the queue would vanish. */
  readonly missing: 'exchange' | 'binding' | 'queue' | null;
}

const NO_EDGES: DeadLetterEdges = { targets: [], dynamic: false, missing: null };

/** Where the dead letters of a queue go. */
export function deadLetterEdges(queue: QueueInfo, topology: Topology): DeadLetterEdges {
  const { deadLetterExchange: exchange, deadLetterRoutingKey: key } = queue;
  if (exchange === null) return NO_EDGES;
  const names = topology.queues.map((each) => each.name);
  if (exchange === '') {
    // Any queue may be meant. Other wait queues are not: what is let go goes to where it is worked.
    if (key === null) {
      const targets = topology.queues.filter((each) => each.name !== queue.name && !holdsBack(each));
      return { targets: targets.map((each) => each.name), dynamic: true, missing: null };
    }
    const there = names.includes(key);
    return {
      targets: there ? [key] : [],
      dynamic: false,
      missing: there || topology.exchanges === null ? null : 'queue',
    };
  }
  if (topology.exchanges === null) return { targets: [], dynamic: true, missing: null };
  if (!topology.exchanges.some((each) => each.name === exchange)) {
    return { targets: [], dynamic: false, missing: 'exchange' };
  }
  const targets = route(exchange, key, topology).filter((name) => names.includes(name));
  return { targets, dynamic: key === null, missing: targets.length === 0 ? 'binding' : null };
}

const holdsBack = (queue: QueueInfo): boolean => queue.ttlMs !== null && queue.deadLetterExchange !== null;

/** Queues that a message may reach; `key` null: with any routing key. Headers and plugin exchanges count as "any". */
function route(start: string, key: string | null, topology: Topology): string[] {
  const reached = new Set<string>();
  const seen = new Set<string>();
  const visit = (exchange: string): void => {
    if (seen.has(exchange)) return;
    seen.add(exchange);
    const type = topology.exchanges?.find((each) => each.name === exchange)?.type ?? '';
    for (const binding of topology.bindings) {
      if (binding.exchange !== exchange || (key !== null && !matches(type, binding.routingKey, key)))
        continue;
      if (binding.destinationType === 'exchange') visit(binding.destination);
      else reached.add(binding.destination);
    }
  };
  visit(start);
  return [...reached];
}

function matches(type: string, pattern: string, key: string): boolean {
  if (type === 'direct') return pattern === key;
  if (type === 'topic') return topicMatches(pattern.split('.'), key.split('.'));
  return true;
}

/** AMQP topic patterns: `*` is one word, `#` any number. */
function topicMatches(pattern: readonly string[], words: readonly string[]): boolean {
  const [head, ...rest] = pattern;
  if (head === undefined) return words.length === 0;
  if (head === '#') {
    return topicMatches(rest, words) || (words.length > 0 && topicMatches(pattern, words.slice(1)));
  }
  return words.length > 0 && (head === '*' || head === words[0]) && topicMatches(rest, words.slice(1));
}

/** Queues that are not a job's: temporary replies, events, plugin internals. The text is the reason. */
const NOT_JOBS: readonly (readonly [RegExp, string])[] = [
  [/^amq\.gen-/, 'temporary queue with a name made by the broker'],
  [/^amq\.rabbitmq\./, 'reply pseudo-queue'],
  [/^celeryev\.|\.celery\.pidbox$/, 'Celery events or control'],
  [/^mqtt-subscription-/, 'MQTT subscription'],
  [/^federation: /, 'federation internal'],
  [/\.response\.queue$/, 'replies'],
];

const DEAD_NAME =
  /(^|[._:-])(dlq|dlx|dead|dead-?letters?|deadletter|errors?|failed|failures?|parked|parking|parking-?lot|poison|manual-review|quarantine|skipped|xq)($|[._:-])|dead-letter|_error$|_skipped$/i;
const WAIT_NAME = /(^|[._:-])(wait(ing)?|delay(ed|s)?|backoff|later|retry)($|[._:-])/i;

/** What the queue is for: as a rule says, else from its arguments and place, else from its name. */
export function roleOf(queue: QueueInfo, topology: Topology, rules: Rules): QueueRole {
  const { role } = rules.for({ queue: queue.name });
  if (role !== undefined) return role;
  if (holdsBack(queue)) return 'wait';
  if (DEAD_NAME.test(queue.name)) return 'dead';
  if (queue.deadLetterExchange !== null && WAIT_NAME.test(queue.name)) return 'wait';
  // What a work queue rejects ends here, and from here nothing goes on.
  const endsHere =
    queue.deadLetterExchange === null &&
    topology.queues.some(
      (each) => !holdsBack(each) && deadLetterEdges(each, topology).targets.includes(queue.name),
    );
  return endsHere ? 'dead' : 'main';
}

export interface QueuePlan extends QueueFacts {
  readonly info: QueueInfo;
  readonly edges: DeadLetterEdges;
  /** Why it is left alone (not a job's queue, or by a rule); null = it is drained. */
  readonly excluded: string | null;
  /** Why it cannot be drained as things are. */
  readonly obstacles: readonly string[];
  /** What to know, without being an obstacle. */
  readonly warnings: readonly string[];
}

export interface GroupPlan {
  readonly name: string;
  /** Wait queues first, then dead, main last: a wait queue's tail expires into a main queue while its head is taken. */
  readonly queues: readonly QueuePlan[];
}

export interface SurveyPlan {
  readonly groups: readonly GroupPlan[];
  readonly excluded: readonly QueuePlan[];
}

/** Plans every queue of the topology. */
export function planDrain(topology: Topology, config: DrainConfig, rules: Rules): SurveyPlan {
  const edges = new Map(topology.queues.map((queue) => [queue.name, deadLetterEdges(queue, topology)]));
  const plans = topology.queues.map((info): QueuePlan => {
    const role = roleOf(info, topology, rules);
    const own = edges.get(info.name) ?? NO_EDGES;
    const rule = rules.for({ queue: info.name });
    return {
      name: info.name,
      role,
      ttlMs: rule.ttlMs ?? info.ttlMs,
      feeders: [...edges].filter(([, each]) => each.targets.includes(info.name)).map(([feeder]) => feeder),
      info,
      edges: own,
      excluded: rule.exclude ?? NOT_JOBS.find(([pattern]) => pattern.test(info.name))?.[1] ?? null,
      obstacles: obstaclesOf(info, role, own),
      warnings: [...warningsOf(info, role, own), ...unroutableInto(info, topology)],
    };
  });
  const drained = plans.filter((plan) => plan.excluded === null);
  return { groups: groupsOf(drained, config), excluded: plans.filter((plan) => plan.excluded !== null) };
}

/** Quorum queues with less room than this for lost deliveries could drop messages when a drain is killed a few times. */
const LEAST_DELIVERY_LIMIT = 10;

function obstaclesOf(queue: QueueInfo, role: QueueRole, edges: DeadLetterEdges): string[] {
  const obstacles: string[] = [];
  if (!queue.reachable) obstacles.push('its node or leader is down: what it holds is unknown');
  if (!queue.readable)
    obstacles.push('not readable for this user: grant read on it (from RabbitMQ 4.3 also configure)');
  if ((queue.leaving ?? 0) > 0) {
    obstacles.push(
      `${queue.leaving} dead letters wait for their target to take them, and nobody can read them: bind or mend it first`,
    );
  }
  if (queue.exclusive) obstacles.push('exclusive: only its own connection can read it; stop the owner');
  if (!['classic', 'quorum', 'stream'].includes(queue.type))
    obstacles.push(`queue type ${queue.type} is not supported`);
  if (role === 'wait' && edges.missing !== null) {
    obstacles.push(
      `its dead-letter target is missing (${edges.missing}): ${queue.ready ?? 'its'} messages would vanish when due`,
    );
  }
  if (queue.ttlMs !== null && queue.deadLetterExchange === null) {
    obstacles.push('a TTL without a dead-letter exchange: messages vanish while they are counted');
  }
  if (
    queue.deliveryLimit !== null &&
    queue.deliveryLimit >= 0 &&
    queue.deliveryLimit < LEAST_DELIVERY_LIMIT
  ) {
    obstacles.push(
      `delivery limit ${queue.deliveryLimit}: raise it by a policy to ${LEAST_DELIVERY_LIMIT} or more first`,
    );
  }
  return obstacles;
}

function warningsOf(queue: QueueInfo, role: QueueRole, edges: DeadLetterEdges): string[] {
  const warnings: string[] = [];
  if (role !== 'wait' && edges.missing !== null) {
    warnings.push(`its dead-letter target is missing (${edges.missing}): what is rejected vanishes`);
  }
  if (edges.dynamic && role === 'wait') warnings.push("dead-letters by each message's own routing key");
  if (queue.expiresMs !== null) {
    warnings.push(
      `deleted with what it holds after ${queue.expiresMs} ms without use: a drain that runs keeps it, an interrupted one does not`,
    );
  }
  if (queue.autoDelete) {
    warnings.push('auto-delete: goes with its last consumer, so it is read without becoming one');
  }
  if (queue.maxLength !== null || queue.maxLengthBytes !== null) {
    warnings.push('length-limited: do not let anything publish into it while it is drained');
  }
  return warnings;
}

function unroutableInto(queue: QueueInfo, topology: Topology): string[] {
  return (topology.exchanges ?? [])
    .filter(({ alternate }) => alternate !== null && route(alternate, null, topology).includes(queue.name))
    .map(
      ({ name }) => `holds what exchange ${name} could not route: no consumer of its own may have known it`,
    );
}

/** Obstacles that only show when a group is seen as a whole. */
export function groupObstacles(group: GroupPlan): string[] {
  const total = group.queues.reduce((sum, queue) => sum + (queue.info.ready ?? 0), 0);
  return group.queues
    .filter(({ info }) => info.maxLength !== null && (info.overflow ?? 'drop-head') === 'drop-head')
    .filter(({ info }) => total > (info.maxLength as number))
    .map(
      ({ info }) =>
        `${info.name}: max-length ${info.maxLength} is below the group's ${total} messages; expiring ones would push others out. Raise it by a policy`,
    );
}

/** Configured groups as they are; the rest by who dead-letters into whom. */
function groupsOf(plans: readonly QueuePlan[], config: DrainConfig): GroupPlan[] {
  const byName = new Map(plans.map((plan) => [plan.name, plan]));
  const taken = new Set<string>();
  const groups: GroupPlan[] = [];
  for (const [name, { queues }] of Object.entries(config.groups ?? {})) {
    const members = queues.map((queue) => byName.get(queue)).filter((plan) => plan !== undefined);
    for (const queue of queues) taken.add(queue);
    if (members.length > 0) groups.push({ name, queues: inDrainOrder(members) });
  }
  const rest = plans.filter((plan) => !taken.has(plan.name));
  for (const members of connected(rest))
    groups.push({ name: groupName(members), queues: inDrainOrder(members) });
  return groups;
}

/** Sets of queues joined by dead-letter edges, in either direction. */
function connected(plans: readonly QueuePlan[]): QueuePlan[][] {
  const root = new Map(plans.map((plan) => [plan.name, plan.name]));
  const find = (name: string): string => {
    let at = name;
    while (root.get(at) !== at) at = root.get(at) as string;
    root.set(name, at);
    return at;
  };
  for (const plan of plans) {
    for (const target of plan.edges.targets) {
      // A parked or dead queue that a wait queue only might reach does not tie two groups together.
      const plausible = !plan.edges.dynamic || plan.role !== 'wait' || isWorked(target, plans);
      if (root.has(target) && plausible) root.set(find(plan.name), find(target));
    }
  }
  const sets = new Map<string, QueuePlan[]>();
  for (const plan of plans) {
    const set = sets.get(find(plan.name)) ?? [];
    set.push(plan);
    sets.set(find(plan.name), set);
  }
  return [...sets.values()];
}

const isWorked = (name: string, plans: readonly QueuePlan[]): boolean =>
  plans.some((plan) => plan.name === name && plan.role === 'main');

/** After its first main queue by name, which outlives the wait queues that come and go. */
function groupName(members: readonly QueuePlan[]): string {
  const mains = members.filter((plan) => plan.role === 'main');
  return (mains.length > 0 ? mains : members).map((plan) => plan.name).sort()[0] as string;
}

const ORDER: Readonly<Record<QueueRole, number>> = { wait: 0, dead: 1, main: 2 };

function inDrainOrder(members: readonly QueuePlan[]): QueuePlan[] {
  return members.toSorted((a, b) => ORDER[a.role] - ORDER[b.role] || (a.name < b.name ? -1 : 1));
}
