/** What `unbroker drain survey` does: every queue of the virtual host in a table that a person reads. */
import { ctlCommand } from '../../adapters/rabbitmq/ctl.js';
import { compileRules, type Rules } from '../../adapters/rabbitmq/drain-config.js';
import { draftConfig, preflight, type Survey, survey } from '../../adapters/rabbitmq/survey.js';
import type { GroupPlan, QueuePlan } from '../../adapters/rabbitmq/topology.js';
import { EXIT, UnbrokerError } from '../errors.js';
import { type Context, printable } from './context.js';
import { managementAddress } from './management-url.js';
import { print, printJson, table } from './output.js';

/** The survey, with what a drain needs besides. */
export async function lookAround(context: Context): Promise<{ seen: Survey; rules: Rules; amqpUrl: string }> {
  refuseSecrets(process.argv.slice(2));
  const config = context.config.drain ?? {};
  const rules = compileRules(config.rules);
  const amqpUrl = context.amqpUrl();
  const managementUrl = managementAddress(amqpUrl);
  const shell = process.env['RABBITMQCTL'];
  const ctl = shell ? ctlCommand(shell) : undefined;
  return { seen: await survey({ amqpUrl, managementUrl, config, rules, ctl }), rules, amqpUrl };
}

/** Every process of the machine can read another's arguments. Throws `secret-in-arguments`. */
export function refuseSecrets(argv: readonly string[]): void {
  if (!argv.some((argument) => /[a-z]+:\/\/[^/\s]*:[^/\s]*@/i.test(argument))) return;
  throw new UnbrokerError('secret-in-arguments', 'An argument holds a URL with a password', {
    hint: 'Put it into the environment (AMQP_URL, DATABASE_URL, RABBITMQ_MANAGEMENT_URL) instead.',
    exitStatus: EXIT.badInput,
  });
}

export async function showSurvey(context: Context): Promise<undefined> {
  const { seen } = await lookAround(context);
  if (context.json) {
    printJson(surveyAsJson(seen));
    return;
  }
  print(
    `RabbitMQ ${printable(seen.version)} ${printable(seen.broker)}, virtual host ${printable(seen.vhost)}`,
  );
  for (const group of seen.groups) print(describeGroup(group));
  if (seen.excluded.length > 0) {
    print(
      `Left alone:\n${table(
        ['queue', 'ready', 'why'],
        seen.excluded.map((q) => [q.name, q.info.ready, q.excluded]),
      )}`,
    );
  }
  for (const remark of seen.unseen) print(`Note: ${printable(remark)}`);
  print('Next: stop what publishes and consumes, then unbroker drain run [--group <name>]');
}

function describeGroup(group: GroupPlan): string {
  const head = [
    'queue',
    'type',
    'role',
    'ready',
    'unacked',
    'consumers',
    'TTL',
    'dead letters to',
    'importable',
    'why not',
  ];
  const refusals = preflight(group);
  const rows = group.queues.map((queue) => [
    queue.name,
    queue.info.type,
    queue.role,
    queue.info.ready ?? 'unknown',
    queue.info.unacked ?? 'unknown',
    queue.info.consumers ?? 'unknown',
    queue.ttlMs === null ? '' : `${queue.ttlMs} ms`,
    deadLettersTo(queue),
    isImportable(queue) ? 'yes' : 'no',
    [...queue.obstacles, ...frozenReasons(queue)].join('; '),
  ]);
  const total = group.queues.reduce((sum, { info }) => sum + (info.ready ?? 0), 0);
  const lines = [
    `Group ${printable(group.name)}: ${total} ${total === 1 ? 'message' : 'messages'} in ${group.queues.length} ${group.queues.length === 1 ? 'queue' : 'queues'}`,
    table(head, rows),
  ];
  for (const queue of group.queues) {
    for (const warning of queue.warnings) lines.push(`  ${printable(queue.name)}: ${warning}`);
  }
  for (const refusal of refusals) lines.push(`  Not as it is: ${printable(refusal)}`);
  return lines.join('\n');
}

function deadLettersTo({ info, edges }: QueuePlan): string {
  if (info.deadLetterExchange === null) return '';
  const exchange = info.deadLetterExchange === '' ? '(default)' : info.deadLetterExchange;
  if (edges.missing !== null) return `${exchange}: missing`;
  return edges.dynamic ? `${exchange}, own key` : `${exchange} → ${edges.targets.join(', ')}`;
}

/** Reasons that go away by stopping services; a drain waits a little for them and then refuses. */
function frozenReasons({ info }: QueuePlan): string[] {
  return [
    ...((info.consumers ?? 0) > 0 ? [`${info.consumers} consumers`] : []),
    ...((info.unacked ?? 0) > 0 ? [`${info.unacked} unacknowledged`] : []),
  ];
}

const isImportable = (queue: QueuePlan): boolean =>
  queue.obstacles.length === 0 && frozenReasons(queue).length === 0;

function surveyAsJson(seen: Survey) {
  const queueAsJson = (queue: QueuePlan) => ({
    ...{ name: queue.name, type: queue.info.type, role: queue.role },
    ...{ ready: queue.info.ready, unacked: queue.info.unacked, consumers: queue.info.consumers },
    ...{
      ttlMs: queue.ttlMs,
      deadLetterExchange: queue.info.deadLetterExchange,
      deadLetterTargets: queue.edges.targets,
    },
    importable: queue.excluded === null && isImportable(queue),
    whyNot: queue.excluded ?? ([...queue.obstacles, ...frozenReasons(queue)].join('; ') || null),
    warnings: queue.warnings,
  });
  return {
    ...{
      broker: seen.broker,
      version: seen.version,
      vhost: seen.vhost,
      management: seen.management !== null,
    },
    groups: seen.groups.map((group) => ({
      name: group.name,
      ready: group.queues.reduce((sum, { info }) => sum + (info.ready ?? 0), 0),
      obstacles: preflight(group),
      queues: group.queues.map(queueAsJson),
    })),
    excluded: seen.excluded.map(queueAsJson),
    unseen: seen.unseen,
    draft: draftConfig(seen),
  };
}
