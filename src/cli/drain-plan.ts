/** What `unbroker drain plan` does: shows which rows the messages at the head of each queue would become. */
import { connectBroker } from '../../adapters/rabbitmq/broker.js';
import { type GroupSample, planSamples, type QueueSample } from '../../adapters/rabbitmq/plan.js';
import { type Context, printable } from './context.js';
import { chooseGroups } from './drain-run.js';
import { lookAround } from './drain-survey.js';
import { print, printJson, table } from './output.js';
import { wholeOption } from './whole-option.js';

export interface PlanCommandOptions {
  readonly group?: string[];
  readonly sample: string;
  readonly showPayload?: boolean;
}

const MAX_SAMPLE = 100;

export async function planDrain(context: Context, options: PlanCommandOptions): Promise<undefined> {
  const sample = wholeOption(options.sample, '--sample', 1, MAX_SAMPLE, 'a whole number of messages');
  const { seen, rules, amqpUrl } = await lookAround(context);
  const groups = chooseGroups(seen.groups, options.group);
  const broker = await connectBroker(amqpUrl);
  try {
    const samples = await planSamples({
      ...{ broker, rules, groups, sample, showPayload: options.showPayload === true },
    });
    if (context.json) printJson({ vhost: broker.vhost, groups: samples });
    else for (const each of samples) describe(each);
  } finally {
    await broker.close();
  }
  return undefined;
}

function describe({ group, queues }: GroupSample): void {
  print(`Group ${printable(group)}`);
  const rows = queues.map(({ queue, role, ready, looked, redelivered, kinds, refused }) => [
    ...[queue, role, ready ?? 'unknown', looked, redelivered],
    refused ??
      Object.entries(kinds)
        .map(([kind, count]) => `${kind} ${count}`)
        .join(', '),
  ]);
  print(
    table(['queue', 'role', 'ready', 'looked at', 'redelivered', 'would become, or why not looked at'], rows),
  );
  for (const queue of queues) describeQueue(queue);
}

/** What to know about a queue beside the rows. */
export function notesOf({ queue, refused, otherWay, redelivered, kinds }: QueueSample): string[] {
  const notes: string[] = [];
  if (refused !== null && otherWay !== null) notes.push(`look with ${otherWay}`);
  if (redelivered > 0) {
    notes.push(
      `${redelivered} were delivered before and came back: to a consumer that died or said no, or to an earlier look. It says nothing about attempts.`,
    );
  }
  if ((kinds['unmapped'] ?? 0) > 0) {
    notes.push(
      `some have no kind and would wait as dead jobs of kind unmapped. Add a rule under drain.rules, for example { match: { exchange: 'shop' }, kind: '{routingKey}' }, or for this queue { match: { queue: '${queue}' }, kind: 'your.kind' }`,
    );
  }
  return notes;
}

function describeQueue(sample: QueueSample): void {
  const { queue, rows } = sample;
  for (const note of notesOf(sample)) print(`  ${printable(queue)}: ${printable(note)}`);
  if (rows.length === 0) return;
  const shown = rows.some(({ payload }) => payload !== undefined);
  const head = [
    'kind',
    'state',
    'attempts',
    'due',
    'priority',
    'id',
    'bytes',
    'note',
    ...(shown ? ['payload'] : []),
  ];
  const cells = rows.map((row) => [
    ...[row.kind ?? row.outcome, row.state, row.attempts],
    row.runAt === null ? 'now' : `${row.runAt}${row.runAtExact ? '' : ' at the latest'}`,
    ...[row.priority, row.messageId, row.bodyBytes, row.note],
    ...(shown ? [row.payload] : []),
  ]);
  print(table(head, cells));
}
