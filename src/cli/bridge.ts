/** `unbroker bridge`: the drain kept running for late publishers, until it is told to stop or nothing comes any more. */
import { Command } from 'commander';
import type { BridgeResult } from '../../adapters/rabbitmq/bridge.js';
import type { LateFinding } from '../../adapters/rabbitmq/bridge-ledger.js';
import type { QueueStanding } from '../../adapters/rabbitmq/intake.js';
import type { ConnectedPublisher } from '../../adapters/rabbitmq/management.js';
import type { GroupPlan, QueuePlan } from '../../adapters/rabbitmq/topology.js';
import { EXIT } from '../errors.js';
import { createBridgeMetrics } from './bridge-metrics.js';
import { type Context, printable, run } from './context.js';
import { hearEnd } from './end-signals.js';
import { type MetricsFlags, openMetrics, withMetricsFlags } from './metrics.js';
import { print, printJson, table } from './output.js';
import { rateOption, wholeOption } from './whole-option.js';

interface BridgeFlags extends MetricsFlags {
  readonly group?: string[];
  readonly rate?: string;
  readonly idleExitMs?: string;
}

export function bridgeCommand(): Command {
  const command = new Command('bridge')
    .description('import late messages into the jobs table as they come; names who still publishes')
    .option('--group <name...>', 'only these groups, as drain survey names them (default: all)')
    .option('--rate <n>', 'messages per second at most')
    .option('--idle-exit-ms <n>', 'end when nothing came for so long and every queue is empty');
  return withMetricsFlags(command).action(run(runBridge));
}

const MAX_IDLE_MS = 7 * 24 * 3_600_000;
/** Publishers that the report lists one by one. */
const MAX_LISTED = 50;
const PUBLISHERS_EVERY_MS = 3_000;

async function runBridge(context: Context, flags: BridgeFlags): Promise<number> {
  // Loaded here: the broker client is for those who ask for it.
  const { bridge } = await import('../../adapters/rabbitmq/bridge.js');
  const { asQueue } = await import('../../adapters/rabbitmq/drain-plan.js');
  const { chooseGroups } = await import('./drain-run.js');
  const { lookAround } = await import('./drain-survey.js');
  const { createBridgeProgress } = await import('./bridge-progress.js');
  const rate = rateOption(flags.rate);
  const idleExitMs = checkIdle(flags.idleExitMs);
  const pool = await context.migratedPool(4);
  const { seen, rules, amqpUrl } = await lookAround(context);
  const groups = chooseGroups(seen.groups, flags.group);
  for (const remark of seen.unseen) context.log.warn({}, remark);
  for (const remark of groups.flatMap(remarksOf)) context.log.warn({}, remark);

  const stop = new AbortController();
  let status: number = EXIT.ok;
  const end = (how: number): void => {
    // The second signal ends it at once; a bridge survives that, too.
    if (stop.signal.aborted) process.exit(EXIT.interrupted);
    status = how;
    stop.abort();
  };
  const interrupt = (): void => end(EXIT.interrupted);
  const terminate = (): void => end(EXIT.ok);
  const hearNoMore = hearEnd(interrupt, terminate);

  const progress = createBridgeProgress(context.json);
  const watch = watchPublishers(context, () => seen.management?.publishers(seen.vhost));
  const metrics = createBridgeMetrics();
  const server = await openMetrics(context, flags, metrics, () => metrics.last.connected);
  try {
    const result = await bridge({
      ...{ amqpUrl, pool, store: context.store, rules, log: context.log, rate, idleExitMs },
      groups: groups
        .map(({ name, queues }) => ({ name, queues: queues.filter(isReadable).map(asQueue) }))
        .filter(({ queues }) => queues.length > 0),
      signal: stop.signal,
      onProgress: (now) => {
        metrics.last = now;
        progress.update(now);
        watch.note(now.messages);
      },
      onPublisher: (publisher) => context.log.warn({ ...publisher }, 'a late message: somebody publishes'),
      onStanding: (standing) => sayStanding(context, standing),
    });
    progress.end();
    await watch.look();
    report(context, result, watch.seen());
    return status;
  } finally {
    progress.end();
    watch.end();
    hearNoMore();
    await server?.close();
  }
}

const isReadable = ({ info }: QueuePlan): boolean =>
  !info.exclusive && ['classic', 'quorum', 'stream'].includes(info.type);

function remarksOf(group: GroupPlan): string[] {
  return group.queues.flatMap((queue) => [
    ...(isReadable(queue)
      ? []
      : [
          `${queue.name}: BLOCKED with ${queue.info.ready ?? 'an unknown number of'} messages; only its owner can read it`,
        ]),
    ...queue.obstacles.filter(() => isReadable(queue)).map((obstacle) => `${queue.name}: ${obstacle}`),
  ]);
}

const STANDINGS: Readonly<Record<Exclude<QueueStanding['standing'], 'consumed'>, string>> = {
  missing: 'is not there (yet)',
  waiting: 'WAITING: another consumer is the single active one, so nothing comes; that is not empty',
  'in-use': 'is consumed by somebody else, or not readable for us: stop its consumers',
  blocked: 'BLOCKED: exclusive to another connection; only its owner can read it',
  unknown: 'UNKNOWN: its node or leader is down',
};

function sayStanding({ log }: Context, { queue, standing, ready }: QueueStanding): void {
  if (standing === 'consumed') log.info({ queue, ready }, 'consuming');
  else log.warn({ queue, ready }, `the queue ${STANDINGS[standing]}`);
}

/** Connections that publish, asked of the management API while late messages come. */
function watchPublishers(
  { log }: Context,
  ask: () => Promise<readonly ConnectedPublisher[] | null> | undefined,
) {
  const seen = new Map<string, ConnectedPublisher>();
  let askedAt = Number.NEGATIVE_INFINITY;
  let counted = 0;
  let asking: Promise<void> | undefined;
  const look = async (): Promise<void> => {
    askedAt = performance.now();
    const found = await Promise.resolve(ask()).catch(() => null);
    for (const publisher of found ?? []) {
      if (!seen.has(publisher.connection) && seen.size < MAX_LISTED)
        log.warn({ ...publisher }, 'a connection publishes');
      if (seen.has(publisher.connection) || seen.size < MAX_LISTED) seen.set(publisher.connection, publisher);
    }
  };
  const timer = setInterval(() => {
    if (counted > 0) note(counted);
  }, PUBLISHERS_EVERY_MS);
  timer.unref();
  const note = (messages: number): void => {
    counted = messages;
    if (messages === 0 || performance.now() - askedAt < PUBLISHERS_EVERY_MS || asking !== undefined) return;
    asking = look().finally(() => {
      asking = undefined;
    });
  };
  return { note, look, seen: () => [...seen.values()], end: () => clearInterval(timer) };
}

function checkIdle(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  return wholeOption(text, '--idle-exit-ms', 100, MAX_IDLE_MS, 'a whole number of milliseconds');
}

function report(context: Context, result: BridgeResult, connections: readonly ConnectedPublisher[]): void {
  if (context.json) {
    printJson({ ...result, connections });
    return;
  }
  const heads = [
    'group',
    'run',
    'late',
    'rows',
    'unmapped',
    'excluded',
    'expired',
    'again',
    'could be doubles',
  ];
  const rows = result.groups.map(({ group, runId, counts, totals }) => [
    ...[group, runId, counts.messages, totals.rows, totals.unmapped, totals.excluded, totals.expired],
    ...[counts.again, counts.possibleDoubles],
  ]);
  if (rows.length > 0) print(table(heads, rows));
  for (const { group, books } of result.groups) {
    for (const remark of books.remarks) print(`${printable(group)}: ${remark}`);
  }
  const findings = result.groups.flatMap((each) => each.findings);
  if (findings.length > 0) print(`Who publishes, by their messages:\n${describeFindings(findings)}`);
  if (connections.length > 0) {
    const list = connections.map((each) => [each.connection, each.user, each.name ?? '', each.published]);
    print(`Connections that publish:\n${table(['connection', 'user', 'client', 'published'], list)}`);
  }
  for (const { queue, standing, ready } of result.standings) {
    if (standing !== 'consumed' && standing !== 'missing')
      print(`${printable(queue)} (${ready ?? 'unknown'} messages) ${STANDINGS[standing]}`);
  }
  if (!result.finished) {
    print(
      'Stopped while a server was away: what is committed is safe; start the bridge again to close its books.',
    );
  }
}

function describeFindings(findings: readonly LateFinding[]): string {
  const heads = ['queue', 'exchange', 'routing key', 'user', 'application', 'messages', 'first', 'last'];
  const rows = findings
    .slice(0, MAX_LISTED)
    .map((each) => [
      ...[each.queue, each.exchange, each.routingKey, each.userId ?? '', each.appId ?? '', each.messages],
      ...[each.firstAt.toISOString(), each.lastAt.toISOString()],
    ]);
  const more = findings.length > MAX_LISTED ? `\nand ${findings.length - MAX_LISTED} more` : '';
  return `${table(heads, rows)}${more}`;
}
