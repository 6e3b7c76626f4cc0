/**
 * What is on the broker: every queue of the virtual host, what it is for, and whether it can be drained as things are.
 * It declares passively and reads the management API, or rabbitmqctl, when there is one; it takes no message, not even to
 * look at it. What it could not see it says.
 */
import { EXIT, UnbrokerError } from '../../src/errors.js';
import { type Broker, connectBroker } from './broker.js';
import { checkSameCluster, ctlDelayed, ctlTopology, ctlVhosts, type RunCtl } from './ctl.js';
import type { DelayedEntry, DelayedTable } from './delayed-table.js';
import type { DrainConfig, Rules } from './drain-config.js';
import { askManagement, isDelaying, type Management, type ManagementAnswer } from './management.js';
import {
  type GroupPlan,
  groupObstacles,
  planDrain,
  type QueueInfo,
  type SurveyPlan,
  type Topology,
} from './topology.js';

export interface SurveyOptions {
  readonly amqpUrl: string;
  readonly managementUrl: string;
  readonly config: DrainConfig;
  readonly rules: Rules;
  /** Runs rabbitmqctl on the broker. */
  readonly ctl?: RunCtl | undefined;
}

export interface Survey extends SurveyPlan {
  readonly broker: string;
  readonly version: string;
  readonly vhost: string;
  /** What could not be seen, one sentence each. */
  readonly unseen: readonly string[];
  /** Null: there is no management API. */
  readonly management: Management | null;
}

const MAX_QUEUES = 5_000;

/**
 * Throws `amqp-…`, `management-failed`, `rabbitmqctl-…`, `survey-blind` when there is neither management API nor
 * rabbitmqctl nor a configured queue.
 */
export async function survey(options: SurveyOptions): Promise<Survey> {
  const broker = await connectBroker(options.amqpUrl);
  try {
    const { ctl } = options;
    const answer = await askManagement(options.managementUrl);
    const management = 'management' in answer ? answer.management : null;
    if (ctl !== undefined) await checkSameCluster(ctl, broker.cluster);
    const topology = await readTopology(broker, answer, ctl, options.config);
    const plan = planDrain(topology, options.config, options.rules);
    return {
      ...plan,
      broker: broker.cluster,
      version: broker.version,
      vhost: broker.vhost,
      unseen: [
        ...unseenOf(topology, management, 'absent' in answer ? answer.absent : '', ctl !== undefined),
        ...(await unseenDelays(topology, ctl)),
        ...(await unseenVhosts(broker.vhost, management, ctl)),
        'Publishers that are still connected, and messages that they hold in memory, are not checked: stop them first.',
      ],
      management,
    };
  } finally {
    await broker.close();
  }
}

async function readTopology(
  broker: Broker,
  answer: ManagementAnswer,
  ctl: RunCtl | undefined,
  config: DrainConfig,
): Promise<Topology> {
  const management = 'management' in answer ? answer.management : null;
  const byShell = ctl === undefined ? undefined : () => ctlTopology(ctl, broker.vhost);
  const seen = await (management?.topology(broker.vhost) ?? byShell?.());
  const named = Object.values(config.groups ?? {}).flatMap((group) => group.queues);
  if (seen === undefined && named.length === 0) throw blind('absent' in answer ? answer.absent : '');
  const known = new Map((seen?.queues ?? []).map((queue) => [queue.name, queue]));
  for (const name of named) if (!known.has(name)) known.set(name, unknownQueue(name));
  if (known.size > MAX_QUEUES) throw tooMany(known.size);
  const queues: QueueInfo[] = [];
  for (const queue of known.values()) {
    const counted = await countQueue(broker, queue);
    if (counted !== null) queues.push(counted);
    else if (!seen?.queues.includes(queue)) throw missing(queue.name);
  }
  queues.sort((a, b) => (a.name < b.name ? -1 : 1));
  return { vhost: broker.vhost, queues, exchanges: seen?.exchanges ?? null, bindings: seen?.bindings ?? [] };
}

/** With counts of this moment; null = it is gone. */
async function countQueue(broker: Broker, queue: QueueInfo): Promise<QueueInfo | null> {
  // What is known to be down would answer 0, and that is not what it holds.
  if (!queue.reachable) return { ...queue, ready: null, consumers: null };
  // An exclusive queue refuses to be declared.
  if (queue.exclusive) return queue;
  try {
    // Statistics lag by seconds, a passive declare does not.
    const count = await broker.count(queue.name);
    if (count === null) return null;
    // Of a stream it says 0, whatever is in it.
    const ready = queue.type === 'stream' ? queue.ready : count.ready;
    return { ...queue, ready, consumers: count.consumers };
  } catch (error) {
    if (!(error instanceof UnbrokerError)) throw error;
    if (error.code === 'queue-unreachable')
      return { ...queue, reachable: false, ready: null, consumers: null };
    if (error.code === 'queue-in-use') return { ...queue, readable: false };
    if (error.code === 'queue-exclusive') return { ...queue, exclusive: true };
    throw error;
  }
}

function unknownQueue(name: string): QueueInfo {
  const nothing = {
    ...{
      ttlMs: null,
      deadLetterExchange: null,
      deadLetterRoutingKey: null,
      maxLength: null,
      maxLengthBytes: null,
    },
    ...{ overflow: null, deliveryLimit: null, expiresMs: null },
    ...{ ready: null, unacked: null, consumers: null },
  };
  const plain = {
    type: 'classic',
    exclusive: false,
    autoDelete: false,
    reachable: true,
    readable: true,
    singleActive: false,
  };
  return { name, ...plain, ...nothing };
}

function unseenOf(
  { queues }: Topology,
  management: Management | null,
  absent: string,
  shell: boolean,
): string[] {
  if (management === null && !shell) {
    return [
      `No management API: types, arguments, policies, dead-letter targets and unacknowledged messages are not checked, and a quorum queue without a leader looks empty; ${absent}.`,
    ];
  }
  const unseen: string[] = [];
  if (management === null) {
    unseen.push(
      `No management API, so rabbitmqctl was asked: unacknowledged messages are known only as of now, publishers not at all; ${absent}.`,
    );
  } else if (!management.tags.some((tag) => tag === 'monitoring' || tag === 'administrator')) {
    unseen.push(
      'The user lacks the monitoring tag: connections and virtual hosts of others are not seen (rabbitmqctl set_user_tags <user> monitoring).',
    );
  }
  const unknown = queues.filter((queue) => queue.unacked === null && queue.reachable).length;
  if (unknown > 0)
    unseen.push(
      `Unacknowledged messages of ${unknown} queues are unknown: their statistics are not there yet.`,
    );
  return unseen;
}

/** Messages that delayed-message exchanges hold outside every queue, and the ways on. */
async function unseenDelays({ vhost, exchanges }: Topology, ctl: RunCtl | undefined): Promise<string[]> {
  const delaying = (exchanges ?? []).filter(({ type }) => isDelaying(type));
  if (delaying.length === 0) return [];
  const tables = ctl === undefined ? null : await ctlDelayed(ctl);
  const unseen = delaying.flatMap(({ name, delayed }) => {
    const entries = entriesOf(tables, vhost, name);
    const due = entries?.map(({ dueMs }) => dueMs) ?? null;
    const count = due === null ? delayed : due.length;
    if (count === 0) return [];
    const range =
      due === null || due.length === 0
        ? ''
        : `, due from ${new Date(Math.min(...due)).toISOString()} to ${new Date(Math.max(...due)).toISOString()}`;
    const held = entries?.filter((entry) => entry.held).length ?? 0;
    const unfinished =
      held === 0
        ? ''
        : ` ${held} of them are held by an import that has not ended: run it again, or give them back with --delayed release.`;
    return [
      `Exchange ${name} delays messages outside every queue, where no consumer reaches them: ${count ?? 'an unknown number'} now${range}.${unfinished}`,
    ];
  });
  const failing = (tables ?? []).filter(({ more }) => more).length;
  if (failing > 0)
    unseen.push('The delayed-message table is longer than was read: due times may lie beyond.');
  if (unseen.length === 0) return [];
  const otherWays =
    'stop the publishers and wait until they are due (49.7 days at most), then drain; or run unbroker bridge until none is left';
  const ways =
    ctl === undefined
      ? `Ways on: set RABBITMQCTL, then unbroker drain run --delayed import; or ${otherWays}.`
      : `Ways on: unbroker drain run --delayed import; or ${otherWays}.`;
  return [...unseen, `${ways} Do not disable the plugin before: that deletes them.`];
}

function entriesOf(
  tables: readonly DelayedTable[] | null,
  vhost: string,
  exchange: string,
): readonly DelayedEntry[] | null {
  if (tables === null || tables.every(({ entries }) => entries === null)) return null;
  return tables
    .flatMap(({ entries }) => entries ?? [])
    .filter((entry) => entry.vhost === vhost && entry.exchange === exchange);
}

const MAX_VHOSTS = 20;

/** A connection sees one virtual host; the others are named, so that nobody takes them for drained. */
async function unseenVhosts(
  vhost: string,
  management: Management | null,
  ctl: RunCtl | undefined,
): Promise<string[]> {
  const others =
    (await management?.otherVhosts(vhost).catch(() => null)) ?? (ctl && (await ctlVhosts(ctl, vhost)));
  if (!others) return ['Whether there are other virtual hosts is not known.'];
  const filled = others.filter(({ messages }) => messages === null || messages > 0);
  if (filled.length === 0) return [];
  const list = filled
    .slice(0, MAX_VHOSTS)
    .map(({ name, messages }) => `${name} (${messages ?? 'unknown'} messages)`);
  const more = filled.length > MAX_VHOSTS ? ` and ${filled.length - MAX_VHOSTS} more` : '';
  return [
    `Other virtual hosts are surveyed and drained one by one, with their name in AMQP_URL: ${list.join(', ')}${more}.`,
  ];
}

/** Why this group cannot be drained as things are; empty = go ahead. Consumers are looked at when the drain counts. */
export function preflight(group: GroupPlan): string[] {
  return [
    ...group.queues.flatMap((queue) => queue.obstacles.map((obstacle) => `${queue.name}: ${obstacle}`)),
    ...groupObstacles(group),
  ];
}

/** The drain section that would give these groups, for the config file. */
export function draftConfig(plan: SurveyPlan): DrainConfig {
  const groups = plan.groups.map(
    (group) => [group.name, { queues: group.queues.map(({ name }) => name) }] as const,
  );
  return { groups: Object.fromEntries(groups) };
}

function blind(absent: string): UnbrokerError {
  return new UnbrokerError(
    'survey-blind',
    `Nothing lists the queues: rabbitmqctl is not named, and ${absent}`,
    {
      hint: 'Mend that, or name the queues in the config: drain: { groups: { work: { queues: [...] } } }.',
      exitStatus: EXIT.badInput,
    },
  );
}

function missing(queue: string): UnbrokerError {
  return new UnbrokerError('queue-missing', `Queue ${queue} of the config is not on this broker`, {
    hint: 'Correct drain.groups, or the virtual host in AMQP_URL.',
    exitStatus: EXIT.badInput,
  });
}

function tooMany(count: number): UnbrokerError {
  return new UnbrokerError(
    'survey-too-large',
    `${count} queues are more than the ${MAX_QUEUES} that one survey looks at`,
    {
      hint: 'Name the queues to drain under drain.groups in the config.',
      exitStatus: EXIT.badInput,
    },
  );
}
