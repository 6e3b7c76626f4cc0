/**
 * A broker's own shell, `rabbitmqctl`, where there is no management API, and for what no API tells: the table of a
 * delayed-message exchange. All but `ctlTakeDelayed` only read. How the command is run is RABBITMQCTL's to say (`docker exec broker
 * rabbitmqctl`); without that variable nothing is run.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { EXIT, UnbrokerError } from '../../src/errors.js';
import {
  type DelayedTable,
  delayedTableExpression,
  readDelayedTables,
  readTakenPages,
  type TakenPage,
  type TakeRequest,
  takeExpression,
} from './delayed-table.js';
import { readErlangTerm } from './erlang-terms.js';
import { type Fields, readExchange, readQueue } from './management.js';
import type { BindingInfo, Topology } from './topology.js';

/** Runs rabbitmqctl with these arguments; answers its output. */
export type RunCtl = (args: readonly string[]) => Promise<string>;

const TIMEOUT_MS = 60_000;
/** A page of delayed messages in Base64; one of RabbitMQ's largest messages, 128 MiB, still fits. */
const MAX_OUTPUT_BYTES = 256 * 1_048_576;
const MAX_SHOWN = 300;
const run = promisify(execFile);

/** `command`: words separated by blanks; no shell sees them. */
export function ctlCommand(command: string): RunCtl {
  const [program = '', ...before] = command.trim().split(/\s+/);
  return async (args) => {
    try {
      const options = { timeout: TIMEOUT_MS, maxBuffer: MAX_OUTPUT_BYTES };
      return (await run(program, [...before, '--quiet', ...args], options)).stdout;
    } catch (error) {
      throw failed(`${args[0]} failed`, error);
    }
  };
}

const COLUMNS = [
  ...['name', 'type', 'exclusive', 'auto_delete', 'arguments', 'policy', 'messages', 'messages_ready'],
  ...['messages_unacknowledged', 'consumers', 'state', 'online', 'leader'],
];

/** Queues, exchanges and bindings of a virtual host, with policies applied. Throws `rabbitmqctl-failed`. */
export async function ctlTopology(ctl: RunCtl, vhost: string): Promise<Topology> {
  const ask = async (command: string, columns: readonly string[] = []): Promise<Fields[]> =>
    listOf(await ctl([command, '--vhost', vhost, '--formatter', 'json', ...columns]), command);
  const policies = new Map<string, Fields>();
  for (const policy of await ask('list_policies')) {
    policies.set(String(policy['name']), parsed(policy['definition']));
  }
  const queues = await ask('list_queues', COLUMNS);
  const exchanges = await ask('list_exchanges', ['name', 'type', 'arguments', 'policy']);
  const bindings = await ask('list_bindings');
  const whole = (fields: Fields): Fields => ({
    ...fields,
    // Absent values are printed as an empty text.
    leader: fields['leader'] === '' ? null : fields['leader'],
    arguments: readArguments(fields['arguments']),
    effective_policy_definition: policies.get(String(fields['policy'])) ?? {},
  });
  return {
    vhost,
    queues: queues.map((queue) => readQueue(whole(queue))),
    exchanges: exchanges.map((exchange) => readExchange(whole(exchange))),
    bindings: bindings.map(readCtlBinding).filter(({ exchange }) => exchange !== ''),
  };
}

/** The other virtual hosts; how much is in them it does not say. */
export async function ctlVhosts(
  ctl: RunCtl,
  vhost: string,
): Promise<readonly { readonly name: string; readonly messages: null }[]> {
  const found = listOf(await ctl(['list_vhosts', '--formatter', 'json', 'name']), 'list_vhosts');
  return found
    .map((each) => ({ name: String(each['name']), messages: null }))
    .filter((each) => each.name !== vhost);
}

/** Null: the node does not answer as expected. */
export async function ctlDelayed(ctl: RunCtl): Promise<readonly DelayedTable[] | null> {
  return readDelayedTables(await ctl(['eval', delayedTableExpression()]))?.nodes ?? null;
}

/**
 * One step of an import out of the delayed-message tables; nodes without the plugin are left out. Throws
 * `rabbitmqctl-failed` when a node of the cluster is down or answers something else: what it holds is then unknown.
 */
export async function ctlTakeDelayed(ctl: RunCtl, request: TakeRequest): Promise<readonly TakenPage[]> {
  const printed = await ctl(['eval', takeExpression(request)]);
  const read = readTakenPages(printed);
  if (read === null) {
    const start = printed
      .slice(0, MAX_SHOWN)
      .replace(/<<[^>]*>>/g, '<<…>>')
      .replace(/\s+/g, ' ');
    throw failed(`the delayed-message table is not in the form that we know (${start})`);
  }
  if (read.down.length > 0) throw failed(`${read.down.join(', ')} of the cluster do not run`);
  return read.nodes;
}

/** Throws `rabbitmqctl-elsewhere`: a command of this machine may well speak to another broker. */
export async function checkSameCluster(ctl: RunCtl, cluster: string): Promise<void> {
  const name = readErlangTerm((await ctl(['eval', 'rabbit_nodes:cluster_name().'])).trim());
  const found = name?.type === 'binary' ? name.bytes.toString() : 'unknown';
  if (found === cluster) return;
  throw new UnbrokerError(
    'rabbitmqctl-elsewhere',
    `RABBITMQCTL speaks to cluster ${found}, AMQP_URL to ${cluster}`,
    { hint: 'Correct one of the two, or unset RABBITMQCTL.', exitStatus: EXIT.badInput },
  );
}

function listOf(output: string, command: string): Fields[] {
  try {
    const list: unknown = JSON.parse(output);
    if (Array.isArray(list)) return list as Fields[];
  } catch {
    // Answered below.
  }
  throw failed(`${command} answered something that is no list`);
}

/** `[["x-message-ttl","long",1000]]`, or an object in newer versions. */
function readArguments(value: unknown): Fields {
  if (!Array.isArray(value)) return typeof value === 'object' && value !== null ? (value as Fields) : {};
  const entries = value.filter((entry): entry is unknown[] => Array.isArray(entry));
  return Object.fromEntries(entries.map(([name, , content]) => [String(name), content]));
}

function parsed(text: unknown): Fields {
  if (typeof text !== 'string') return typeof text === 'object' && text !== null ? (text as Fields) : {};
  try {
    return JSON.parse(text) as Fields;
  } catch {
    return {};
  }
}

function readCtlBinding(binding: Fields): BindingInfo {
  return {
    exchange: String(binding['source_name']),
    destination: String(binding['destination_name']),
    destinationType: binding['destination_kind'] === 'exchange' ? 'exchange' : 'queue',
    routingKey: String(binding['routing_key']),
  };
}

function failed(what: string, cause?: unknown): UnbrokerError {
  return new UnbrokerError('rabbitmqctl-failed', `rabbitmqctl: ${what}`, {
    hint: 'Run it by hand the way RABBITMQCTL says: it needs the cookie of the broker, or root.',
    cause,
  });
}
