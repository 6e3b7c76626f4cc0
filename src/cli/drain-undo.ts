/** What `unbroker drain undo` does: gives untouched jobs of the chosen groups back to their queues and prints the books. */
import { compileRules } from '../../adapters/rabbitmq/drain-config.js';
import { findManagement, type Management } from '../../adapters/rabbitmq/management.js';
import { type Survey, survey } from '../../adapters/rabbitmq/survey.js';
import { drainedGroups, type UndoResult, undoGroup } from '../../adapters/rabbitmq/undo.js';
import type { WhenUndoAmbiguous } from '../../adapters/rabbitmq/undo-position.js';
import { invalid, suggestion } from '../check.js';
import { EXIT, UnbrokerError } from '../errors.js';
import { type Context, printable } from './context.js';
import { createProgress } from './drain-progress.js';
import { refuseSecrets } from './drain-survey.js';
import { hearEnd } from './end-signals.js';
import { managementAddress } from './management-url.js';
import { print, printJson, table } from './output.js';
import { rateOption } from './whole-option.js';

export interface UndoCommandOptions {
  readonly group?: string[];
  readonly kind?: string[];
  readonly rate?: string;
  readonly delayed: string;
  readonly via: string;
  readonly whenAmbiguous: string;
  readonly dryRun?: boolean;
}

export async function undoDrain(context: Context, options: UndoCommandOptions): Promise<number> {
  refuseSecrets(process.argv.slice(2));
  const rate = rateOption(options.rate);
  const delayed = oneOf('--delayed', options.delayed, ['return', 'keep'] as const);
  const via = oneOf('--via', options.via, ['own', 'default'] as const);
  const whenAmbiguous = oneOf<WhenUndoAmbiguous>('--when-ambiguous', options.whenAmbiguous, [
    'stop',
    'resend',
    'assume',
  ]);
  const kinds = options.kind?.map((kind) => {
    if (kind === '' || kind.length > 200) throw invalid('--kind', 'a kind of 1 to 200 characters');
    return kind;
  });
  const pool = await context.migratedPool(4);
  const amqpUrl = context.amqpUrl();
  const drained = await drainedGroups(amqpUrl, pool, context.schema);
  const names = chooseNames(drained, options.group);
  const { seen, management } = await lookIfPossible(context, amqpUrl);
  refuseDroppers(seen, names);

  const stop = new AbortController();
  const onSignal = (): void => (stop.signal.aborted ? process.exit(EXIT.interrupted) : stop.abort());
  const hearNoMore = hearEnd(onSignal);
  const results: UndoResult[] = [];
  try {
    for (const group of names) {
      if (stop.signal.aborted) break;
      const progress = createProgress(group, context.json);
      try {
        results.push(
          await undoGroup({
            ...{ amqpUrl, pool, schema: context.schema, group, log: context.log, signal: stop.signal },
            ...{ kinds, delayed, via, rate, whenAmbiguous, dryRun: options.dryRun === true },
            waitQueues: waitQueuesOf(context, seen, drained),
            unacked:
              management === null || seen === null
                ? undefined
                : (queues) => management.unacked(seen.vhost, queues),
            onProgress: (now) => progress.update(now),
          }),
        );
      } finally {
        progress.end();
      }
    }
  } finally {
    hearNoMore();
  }
  report(context, results, frozenQueues(seen, drained));
  if (stop.signal.aborted) return EXIT.interrupted;
  return results.every(({ books }) => books.balanced) ? EXIT.ok : EXIT.unbalanced;
}

/** The way back must not depend on what the way in needed: without a survey, rules say which queues are wait queues. */
export async function lookIfPossible(
  context: Context,
  amqpUrl: string,
): Promise<{ seen: Survey | null; management: Management | null }> {
  const managementUrl = managementAddress(amqpUrl);
  const config = context.config.drain ?? {};
  try {
    const seen = await survey({ amqpUrl, managementUrl, config, rules: compileRules(config.rules) });
    return { seen, management: seen.management };
  } catch (error) {
    if (!(error instanceof UnbrokerError) || !['survey-blind', 'queue-missing'].includes(error.code))
      throw error;
    return { seen: null, management: await findManagement(managementUrl) };
  }
}

function waitQueuesOf(
  context: Context,
  seen: Survey | null,
  drained: readonly { readonly queues: readonly string[] }[],
): ReadonlySet<string> {
  const rules = compileRules(context.config.drain?.rules);
  const byRule = drained
    .flatMap(({ queues }) => queues)
    .filter((queue) => rules.for({ queue }).role === 'wait');
  const surveyed = (seen?.groups ?? []).flatMap(({ queues }) => queues).filter(({ role }) => role === 'wait');
  return new Set([...byRule, ...surveyed.map(({ name }) => name)]);
}

/** A length-limited queue that drops its oldest would lose what it holds, or what comes back. */
function refuseDroppers(seen: Survey | null, names: readonly string[]): void {
  const limited = (seen?.groups ?? [])
    .filter(({ name }) => names.includes(name))
    .flatMap(({ queues }) => queues)
    .find(
      ({ info }) =>
        (info.maxLength !== null || info.maxLengthBytes !== null) &&
        (info.overflow ?? 'drop-head') === 'drop-head',
    );
  if (limited === undefined) return;
  throw new UnbrokerError(
    'undo-obstacle',
    `Queue ${limited.name} drops its oldest messages at a length limit: giving back could lose some`,
    {
      hint: 'Set its overflow to reject-publish by a policy, or raise the limit and give back with --group the others first.',
    },
  );
}

/** By group: queues that a freeze keeps from taking anything, what comes back included. */
function frozenQueues(
  seen: Survey | null,
  drained: readonly { readonly group: string; readonly queues: readonly string[] }[],
): ReadonlyMap<string, readonly string[]> {
  const closed = (seen?.groups ?? [])
    .flatMap(({ queues }) => queues)
    .filter(({ info }) => info.maxLength === 0 && info.overflow?.startsWith('reject-publish'))
    .map(({ name }) => name);
  return new Map(drained.map(({ group, queues }) => [group, closed.filter((name) => queues.includes(name))]));
}

/** By the group's name or by a queue in it. */
export function chooseNames(
  drained: readonly { readonly group: string; readonly queues: readonly string[] }[],
  wanted: readonly string[] | undefined,
): string[] {
  const names = drained.map(({ group }) => group);
  if (wanted === undefined) return names;
  const chosen = wanted.map((name) => {
    if (name === '' || name.length > 255) throw invalid('--group', 'a name of 1 to 255 characters');
    const found = drained.find(({ group, queues }) => group === name || queues.includes(name));
    if (found !== undefined) return found.group;
    const known = names.slice(0, 20).map(printable).join(', ');
    throw invalid(
      '--group',
      known === '' ? 'a group that was drained; none was' : `one of ${known}${suggestion(name, names)}`,
    );
  });
  return [...new Set(chosen)];
}

function report(
  context: Context,
  results: readonly UndoResult[],
  frozen: ReadonlyMap<string, readonly string[]>,
): void {
  if (context.json) {
    const balanced = results.every(({ books }) => books.balanced);
    printJson({
      groups: results,
      balanced,
      frozen: results.flatMap(({ group, books, dryRun }) => closedTo(books, dryRun, frozen.get(group))),
    });
    return;
  }
  if (results.length === 0) {
    print('Nothing was drained from this broker: there is nothing to give back.');
    return;
  }
  const rows = results.map(({ group, runId, dryRun, interrupted, books: b }) => [
    ...[group, runId ?? (dryRun ? 'dry run' : 'nothing to do'), b.initial, b.moved, b.remaining],
    b.kept.reduce((sum, { count }) => sum + count, 0),
    Object.entries(b.stripped)
      .map(([word, count]) => `${word} ${count}`)
      .join(', '),
    interrupted ? 'interrupted' : b.balanced ? 'yes' : `off by ${b.difference}`,
  ]);
  const head = [
    'group',
    'undo',
    'initial',
    'given back',
    'in the queues',
    'jobs that stay',
    'changed',
    'balance',
  ];
  print(table(head, rows));
  for (const { group, books, interrupted, dryRun } of results) {
    const name = printable(group);
    for (const remark of books.remarks) print(`${name}: ${remark}`);
    for (const { reason, jobs, count } of books.kept) {
      if (reason === 'pruned' || reason === 'left') continue;
      print(`${name}: ${reason}: jobs ${jobs.join(', ')}${count > jobs.length ? ', …' : ''}`);
    }
    for (const [reason, count] of Object.entries(books.refused)) {
      print(`${name}: ${count} messages stay: ${reason.replaceAll('-', ' ')}.`);
    }
    for (const queue of closedTo(books, dryRun, frozen.get(group))) {
      print(
        `${name}: ${printable(queue)} is frozen and takes nothing back: unbroker drain thaw --group ${name}, then undo again.`,
      );
    }
    if (dryRun) print(`${name}: a dry run; nothing was published, nothing was written.`);
    if (interrupted) print(`${name}: stopped at a batch end; run the same command again to go on.`);
  }
}

/** The survey may be behind: after a real run only a refusal proves it. */
function closedTo(
  { refused }: UndoResult['books'],
  dryRun: boolean,
  frozen: readonly string[] = [],
): readonly string[] {
  return dryRun || (refused['its-queue-takes-no-more'] ?? 0) > 0 ? frozen : [];
}

function oneOf<Choice extends string>(flag: string, text: string, choices: readonly Choice[]): Choice {
  const found = choices.find((choice) => choice === text);
  if (found === undefined) throw invalid(flag, `one of ${choices.join(', ')}`);
  return found;
}
