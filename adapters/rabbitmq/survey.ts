/**
 * What is on the broker: every queue of the virtual host, what it is for, and whether it can be drained as things are.
 * It declares passively and reads the management API when there is one; it takes no message, not even to look at it.
 */
import { EXIT, UnbrokerError } from '../../src/errors.js';
import { type Broker, connectBroker, type QueueCount } from './broker.js';
import type { DrainConfig, Rules } from './drain-config.js';
import { findManagement, type Management } from './management.js';
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

/** Throws `amqp-…`, `management-failed`, `survey-blind` when there is neither management API nor configured queue. */
export async function survey(options: SurveyOptions): Promise<Survey> {
  const broker = await connectBroker(options.amqpUrl);
  try {
    const management = await findManagement(options.managementUrl);
    const topology = await readTopology(broker, management, options.config);
    const plan = planDrain(topology, options.config, options.rules);
    return {
      ...plan,
      broker: broker.cluster,
      version: broker.version,
      vhost: broker.vhost,
      unseen: unseenOf(topology, management),
      management,
    };
  } finally {
    await broker.close();
  }
}

async function readTopology(
  broker: Broker,
  management: Management | null,
  config: DrainConfig,
): Promise<Topology> {
  const seen = await management?.topology(broker.vhost);
  const named = Object.values(config.groups ?? {}).flatMap((group) => group.queues);
  if (seen === undefined && named.length === 0) throw blind();
  const known = new Map((seen?.queues ?? []).map((queue) => [queue.name, queue]));
  for (const name of named) if (!known.has(name)) known.set(name, unknownQueue(name));
  if (known.size > MAX_QUEUES) throw tooMany(known.size);
  const queues: QueueInfo[] = [];
  for (const queue of known.values()) {
    // Stats lag by seconds, a passive declare does not. An exclusive queue refuses it.
    const count = queue.exclusive ? undefined : await countOrUnreachable(broker, queue.name);
    if (count === 'unreachable') {
      queues.push({ ...queue, reachable: false, ready: null, consumers: null });
      continue;
    }
    if (count === null) {
      if (seen?.queues.includes(queue)) continue;
      throw missing(queue.name);
    }
    queues.push(count === undefined ? queue : { ...queue, ready: count.ready, consumers: count.consumers });
  }
  queues.sort((a, b) => (a.name < b.name ? -1 : 1));
  return { vhost: broker.vhost, queues, exchanges: seen?.exchanges ?? null, bindings: seen?.bindings ?? [] };
}

async function countOrUnreachable(broker: Broker, queue: string): Promise<QueueCount | null | 'unreachable'> {
  try {
    return await broker.count(queue);
  } catch (error) {
    if (error instanceof UnbrokerError && error.code === 'queue-unreachable') return 'unreachable';
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
    ...{ overflow: null, deliveryLimit: null, ready: null, unacked: null, consumers: null },
  };
  const plain = {
    type: 'classic',
    exclusive: false,
    autoDelete: false,
    reachable: true,
    singleActive: false,
  };
  return { name, ...plain, ...nothing };
}

function unseenOf({ queues, exchanges }: Topology, management: Management | null): string[] {
  const unseen: string[] = [];
  if (management === null) {
    unseen.push(
      'No management API: types, arguments, policies, dead-letter targets and unacknowledged messages are not checked; set RABBITMQ_MANAGEMENT_URL.',
    );
  } else {
    const unknown = queues.filter((queue) => queue.unacked === null).length;
    if (unknown > 0)
      unseen.push(
        `Unacknowledged messages of ${unknown} queues are unknown: their statistics are not there yet.`,
      );
  }
  for (const exchange of exchanges?.filter(({ delayed }) => delayed > 0) ?? []) {
    unseen.push(
      `Exchange ${exchange.name} holds ${exchange.delayed} delayed messages outside every queue: they are not drained; wait until they are due and drain again.`,
    );
  }
  unseen.push(
    'Publishers that are still connected, and messages that they hold in memory, are not checked: stop them first.',
  );
  return unseen;
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

function blind(): UnbrokerError {
  return new UnbrokerError('survey-blind', 'Without the management API nothing lists the queues', {
    hint: 'Set RABBITMQ_MANAGEMENT_URL, or name the queues in the config: drain: { groups: { work: { queues: [...] } } }.',
    exitStatus: EXIT.badInput,
  });
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
