/** What `--delayed import` and `--delayed release` of `unbroker drain run` do, and how their result reads. */
import { ctlCommand } from '../../adapters/rabbitmq/ctl.js';
import {
  DELAYED_GROUP,
  type DelayedOptions,
  type DelayedResult,
  importDelayed,
  releaseDelayed,
} from '../../adapters/rabbitmq/delayed-import.js';
import type { Rules } from '../../adapters/rabbitmq/drain-config.js';
import { asQueue } from '../../adapters/rabbitmq/drain-plan.js';
import type { Survey } from '../../adapters/rabbitmq/survey.js';
import { invalid } from '../check.js';
import { EXIT, UnbrokerError } from '../errors.js';
import type { Context } from './context.js';
import { createProgress } from './drain-progress.js';
import { print } from './output.js';

export type DelayedChoice = 'leave' | 'import' | 'release';

export function checkDelayed(text: string, groups: readonly string[] | undefined): DelayedChoice {
  if (text !== 'leave' && text !== 'import' && text !== 'release') {
    throw invalid('--delayed', 'one of leave, import, release');
  }
  // An exchange sends to queues of any group.
  if (text !== 'leave' && groups !== undefined) throw invalid('--delayed', 'leave, beside --group');
  return text;
}

export interface DelayedCommand {
  readonly pool: Awaited<ReturnType<Context['migratedPool']>>;
  readonly amqpUrl: string;
  readonly seen: Survey;
  readonly rules: Rules;
  readonly signal: AbortSignal;
}

export async function takeDelayed(context: Context, command: DelayedCommand): Promise<DelayedResult> {
  const progress = createProgress(DELAYED_GROUP, context.json);
  try {
    return await importDelayed({
      ...optionsOf(context, command),
      onProgress: (now) => progress.update(now),
    });
  } finally {
    progress.end();
  }
}

export const giveBackDelayed = (context: Context, command: DelayedCommand): Promise<number> =>
  releaseDelayed(optionsOf(context, command));

function optionsOf(context: Context, { pool, amqpUrl, seen, rules, signal }: DelayedCommand): DelayedOptions {
  const shell = process.env['RABBITMQCTL'];
  if (!shell) throw shellMissing();
  const plans = [...seen.groups.flatMap(({ queues }) => queues), ...seen.excluded];
  const known = new Map(plans.map((plan) => [plan.name, plan]));
  return {
    ...{ amqpUrl, pool, rules, signal, ctl: ctlCommand(shell), store: context.store, log: context.log },
    factsOf: (name) => {
      const plan = known.get(name);
      if (plan === undefined) return { name, role: 'main', ttlMs: null, feeders: [] };
      return plan.excluded === null ? asQueue(plan) : { leftAlone: plan.excluded };
    },
  };
}

export function describeDelayed({ entries, totals, remaining, interrupted }: DelayedResult): void {
  const { rows, unmapped, excluded, expired } = totals;
  const made = `${rows} jobs, ${unmapped} unmapped, ${expired} expired, ${excluded} without a job`;
  print(`Delayed messages: ${entries} imported (${made}: one for each queue), ${remaining} left.`);
  if (interrupted) print('Delayed messages: stopped, nothing is held; run the same command again to go on.');
}

function shellMissing(): UnbrokerError {
  return new UnbrokerError('rabbitmqctl-missing', 'No API tells what a delayed-message exchange holds', {
    hint: 'Set RABBITMQCTL to how rabbitmqctl is run, for instance `docker exec broker rabbitmqctl`.',
    exitStatus: EXIT.badInput,
  });
}
