/** What `unbroker drain run` does: drains the chosen groups one after the other and prints their books. */

import type { DelayedResult } from '../../adapters/rabbitmq/delayed-import.js';
import type { DrainResult } from '../../adapters/rabbitmq/drain.js';
import type { Rules } from '../../adapters/rabbitmq/drain-config.js';
import { drainPlanned } from '../../adapters/rabbitmq/drain-plan.js';
import { preflight, type Survey } from '../../adapters/rabbitmq/survey.js';
import type { GroupPlan } from '../../adapters/rabbitmq/topology.js';
import { invalid, suggestion } from '../check.js';
import { EXIT, UnbrokerError } from '../errors.js';
import { type Context, printable } from './context.js';
import {
  checkDelayed,
  type DelayedCommand,
  describeDelayed,
  giveBackDelayed,
  takeDelayed,
} from './drain-delayed.js';
import { createProgress } from './drain-progress.js';
import { lookAround, refuseSecrets } from './drain-survey.js';
import { hearEnd } from './end-signals.js';
import { print, printJson, table } from './output.js';
import { rateOption } from './whole-option.js';

export interface RunOptions {
  readonly group?: string[];
  readonly rate?: string;
  readonly whenAmbiguous: string;
  readonly delayed: string;
}

/** Queues that one line of the report names. */
const MAX_COUNTED = 20;

export async function runDrain(context: Context, options: RunOptions): Promise<number> {
  refuseSecrets(process.argv.slice(2));
  const rate = rateOption(options.rate);
  const whenAmbiguous = checkChoice(options.whenAmbiguous);
  const choice = checkDelayed(options.delayed, options.group);
  const pool = await context.migratedPool(4);
  const { seen, rules, amqpUrl } = await lookAround(context);
  const groups = chooseGroups(seen.groups, options.group);
  refuseObstacles(groups);
  for (const remark of seen.unseen) context.log.warn({}, remark);

  const stop = new AbortController();
  // The second signal ends it at once; a drain survives that, too.
  const onSignal = (): void => (stop.signal.aborted ? process.exit(EXIT.interrupted) : stop.abort());
  const hearNoMore = hearEnd(onSignal);
  const results: DrainResult[] = [];
  let delayed: DelayedResult | undefined;
  try {
    const command = { pool, amqpUrl, seen, rules, signal: stop.signal };
    if (choice === 'release') return await released(context, command);
    // First: what falls due meanwhile is counted with its queue.
    if (choice === 'import') delayed = await takeDelayed(context, command);
    for (const group of groups) {
      if (stop.signal.aborted) break;
      results.push(
        await drainOne(context, pool, amqpUrl, group, seen, rules, {
          rate,
          whenAmbiguous,
          signal: stop.signal,
        }),
      );
    }
  } finally {
    hearNoMore();
  }
  report(context, results, delayed);
  if (stop.signal.aborted) return EXIT.interrupted;
  return results.every(({ books }) => books.balanced) ? EXIT.ok : EXIT.unbalanced;
}

async function drainOne(
  context: Context,
  pool: Awaited<ReturnType<Context['migratedPool']>>,
  amqpUrl: string,
  group: GroupPlan,
  seen: Survey,
  rules: Rules,
  how: { rate: number | undefined; whenAmbiguous: 'stop' | 'keep' | 'absorb'; signal: AbortSignal },
): Promise<DrainResult> {
  const progress = createProgress(group.name, context.json);
  const { management, vhost } = seen;
  try {
    return await drainPlanned(group, {
      ...{ amqpUrl, pool, store: context.store, rules, log: context.log, ...how },
      unacked: management === null ? undefined : (queues) => management.unacked(vhost, queues),
      onProgress: (now) => progress.update(now),
    });
  } finally {
    progress.end();
  }
}

async function released(context: Context, command: DelayedCommand): Promise<number> {
  const given = await giveBackDelayed(context, command);
  if (context.json) printJson({ released: given });
  else print(`${given} delayed messages were given back to their exchanges.`);
  return EXIT.ok;
}

function report(context: Context, results: readonly DrainResult[], delayed: DelayedResult | undefined): void {
  if (context.json) {
    const balanced = results.every(({ books }) => books.balanced);
    printJson({ groups: results, ...(delayed === undefined ? {} : { delayed }), balanced });
    return;
  }
  if (delayed !== undefined) describeDelayed(delayed);
  const head = [
    'group',
    'run',
    'initial',
    'arrived',
    'rows',
    'unmapped',
    'excluded',
    'expired',
    'remaining',
    'absorbed',
    'balance',
  ];
  const rows = results.map(({ group, runId, interrupted, books: b }) => [
    ...[
      group,
      runId,
      b.initial,
      b.arrived,
      b.rows,
      b.unmapped,
      b.excluded,
      b.expired,
      b.remaining,
      b.absorbed,
    ],
    interrupted ? 'interrupted' : b.balanced ? 'yes' : `off by ${b.difference}`,
  ]);
  print(table(head, rows));
  for (const { group, before, interrupted, books } of results) {
    print(`${printable(group)}: ${beforeAndAfter(before, books.remaining)}`);
    for (const remark of books.remarks) print(`${printable(group)}: ${remark}`);
    if (interrupted)
      print(`${printable(group)}: stopped at a batch end; run the same command again to go on.`);
  }
}

function beforeAndAfter(before: DrainResult['before'], remaining: number): string {
  const filled = Object.entries(before).filter(([, ready]) => ready > 0);
  const counts = filled.slice(0, MAX_COUNTED).map(([queue, ready]) => `${printable(queue)} ${ready}`);
  const more = filled.length > MAX_COUNTED ? ` and ${filled.length - MAX_COUNTED} more queues` : '';
  return `before: ${counts.join(', ') || 'nothing'}${more}; after: ${remaining}`;
}

/** By the group's name or by a queue in it. */
export function chooseGroups(
  groups: readonly GroupPlan[],
  wanted: readonly string[] | undefined,
): GroupPlan[] {
  if (wanted === undefined) return [...groups];
  const chosen = wanted.map((name) => {
    if (name === '' || name.length > 255) throw invalid('--group', 'a name of 1 to 255 characters');
    const group = groups.find(
      (each) => each.name === name || each.queues.some((queue) => queue.name === name),
    );
    if (group === undefined) {
      const names = groups.map((each) => each.name);
      throw invalid('--group', `one of ${names.slice(0, 20).join(', ')}${suggestion(name, names)}`);
    }
    return group;
  });
  return [...new Set(chosen)];
}

function refuseObstacles(groups: readonly GroupPlan[]): void {
  const obstacles = groups.flatMap(preflight);
  const [first] = obstacles;
  if (first === undefined) return;
  const more = obstacles.length > 1 ? ` (and ${obstacles.length - 1} more)` : '';
  throw new UnbrokerError('drain-obstacle', `Not as things are: ${first}${more}`, {
    hint: 'unbroker drain survey lists them all; --group drains the others.',
  });
}

function checkChoice(text: string): 'stop' | 'keep' | 'absorb' {
  if (text === 'stop' || text === 'keep' || text === 'absorb') return text;
  throw invalid('--when-ambiguous', 'one of stop, keep, absorb');
}
