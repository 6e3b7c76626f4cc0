/** What `unbroker drain freeze` and `thaw` do: stop publishers without losing a message, and let them go again. */
import { type Admin, ctlAdmin, managementAdmin } from '../../adapters/rabbitmq/admin.js';
import { type Broker, connectBroker } from '../../adapters/rabbitmq/broker.js';
import { ctlCommand } from '../../adapters/rabbitmq/ctl.js';
import {
  type FreezeResult,
  freezeGroups,
  frozenSteps,
  stepsByHand,
  thaw,
} from '../../adapters/rabbitmq/freeze.js';
import type { GroupPlan } from '../../adapters/rabbitmq/topology.js';
import { invalid } from '../check.js';
import { EXIT, UnbrokerError } from '../errors.js';
import { type Context, printable } from './context.js';
import { chooseGroups } from './drain-run.js';
import { lookAround, refuseSecrets } from './drain-survey.js';
import { managementAddress } from './management-url.js';
import { print, printJson, table } from './output.js';

export interface FreezeCommandOptions {
  readonly group?: string[];
  readonly revoke?: string[];
  readonly close?: boolean;
}

export interface ThawCommandOptions {
  readonly group?: string[];
}

export async function freezeDrain(context: Context, options: FreezeCommandOptions): Promise<number> {
  for (const user of options.revoke ?? []) {
    if (user === '' || user.length > 255) throw invalid('--revoke', "users' names of 1 to 255 characters");
  }
  const pool = await context.migratedPool(2);
  const { seen, amqpUrl } = await lookAround(context);
  const groups = chooseGroups(seen.groups, options.group);
  const broker = await connectBroker(amqpUrl);
  try {
    const admin = await adminOf(amqpUrl, broker);
    if (admin === null) throw byHand(broker, groups);
    const { revoke = [], close = false } = options;
    const result = await freezeGroups({
      ...{ pool, schema: context.schema, broker, admin, groups, revoke, close },
    });
    if (context.json) printJson(result);
    else describe(result);
    return EXIT.ok;
  } finally {
    await broker.close();
  }
}

function describe({ way, done, open, publishers }: FreezeResult): void {
  print(`Through ${way === 'management' ? 'the management API' : 'rabbitmqctl'}, each change verified:`);
  print(
    table(
      ['changed', 'of'],
      done.map(({ step, target }) => [WORDS[step], target]),
    ),
  );
  for (const { queue, reason } of open) {
    print(
      `${printable(queue)} still takes messages: ${printable(reason)}. Revoke its publishers and close their connections.`,
    );
  }
  for (const { name, user, confirms } of publishers) {
    print(
      `Still connected and publishing: ${printable(name)} as ${printable(user)}${confirms ? ', with confirms' : ''}.`,
    );
  }
  print('Next: unbroker drain run. Back: unbroker drain thaw.');
}

const WORDS = {
  policy: 'refuses publishes',
  permission: 'write permission revoked',
  connection: 'connection closed',
} as const;

export async function thawDrain(context: Context, options: ThawCommandOptions): Promise<number> {
  refuseSecrets(process.argv.slice(2));
  const pool = await context.migratedPool(2);
  const amqpUrl = context.amqpUrl();
  const broker = await connectBroker(amqpUrl);
  try {
    const frozen = await frozenSteps(pool, context.schema, broker.vhost);
    if (frozen.length === 0) {
      if (context.json) printJson({ thawed: [] });
      else print('Nothing is frozen on this virtual host.');
      return EXIT.ok;
    }
    const admin = await adminOf(amqpUrl, broker);
    if (admin === null) throw unreachable();
    const thawed = await thaw({ pool, schema: context.schema, broker, admin, groups: options.group });
    if (context.json) printJson({ thawed });
    else if (thawed.length === 0) print('No queue of these groups is frozen by a policy.');
    else {
      print(
        table(
          ['taken back', 'of', 'note'],
          thawed.map(({ step, target, note }) => [BACK[step], target, note]),
        ),
      );
    }
    return EXIT.ok;
  } finally {
    await broker.close();
  }
}

const BACK = {
  policy: 'takes publishes again',
  permission: 'write permission given back',
  connection: 'closed connection (its program connects again)',
} as const;

async function adminOf(amqpUrl: string, broker: Broker): Promise<Admin | null> {
  const url = managementAddress(amqpUrl);
  const shell = process.env['RABBITMQCTL'];
  return (await managementAdmin(url)) ?? (shell ? await ctlAdmin(ctlCommand(shell), broker.vhost) : null);
}

function byHand(broker: Broker, groups: readonly GroupPlan[]): UnbrokerError {
  for (const line of stepsByHand(broker.vhost, groups)) process.stderr.write(`${printable(line)}\n`);
  return unreachable();
}

function unreachable(): UnbrokerError {
  return new UnbrokerError(
    'freeze-unreachable',
    'Neither a management API with an administrator nor RABBITMQCTL reaches this broker',
    {
      hint: 'Set RABBITMQ_MANAGEMENT_URL, or RABBITMQCTL to how rabbitmqctl is run, or take the steps above by hand.',
    },
  );
}
