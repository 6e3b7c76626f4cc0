/**
 * Kills a bridge again and again while publishers go on: messages with ids into one queue, without into another, twins
 * among both. Afterwards each confirmed message is compared with the rows that came to be: none lost, none doubled with
 * ids, and without no more doubled than the bridge says.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import amqp, { type ConfirmChannel } from 'amqplib';
import type { DrainStep } from '../../adapters/rabbitmq/batch-writer.js';
import type { BridgeResult, GroupToBridge } from '../../adapters/rabbitmq/bridge.js';
import { migrate } from '../../src/migrate.js';
import { startScript } from '../support/processes.js';
import {
  type FreshDatabase,
  freshDatabase,
  freshVhost,
  startPostgres,
  startRabbit,
} from '../support/services.js';

const CHILD = fileURLToPath(new URL('bridge-child.ts', import.meta.url));
const STEPS: readonly DrainStep[] = [
  ...(['prepared', 'imported', 'recorded', 'committing', 'committed', 'acked', 'fenced'] as const),
];
const NAMED = 'late.named';
const BARE = 'late.bare';
const CHILD_WITHIN_MS = 120_000;

export interface BridgePlan {
  readonly kills: number;
  readonly maxBatch: number;
  /** Messages a second, into each of the two queues. */
  readonly rate: number;
  /** In [0, 1). */
  readonly random: () => number;
}

export interface BridgeFaults {
  readonly points: number;
  readonly messages: number;
  readonly lost: number;
  /** Rows beyond the messages that have ids. */
  readonly extra: number;
  /** Rows beyond the messages that have none, and how many the bridge said there could be. */
  readonly doubled: number;
  readonly said: number;
  readonly again: number;
  readonly recovered: boolean;
  readonly output: string;
}

export async function killBridge(
  broker: { readonly url: string },
  database: Pick<FreshDatabase, 'url' | 'pool'>,
  plan: BridgePlan,
): Promise<BridgeFaults> {
  const connection = await amqp.connect(broker.url, { noDelay: true });
  connection.on('error', () => {});
  const channel = await connection.createConfirmChannel();
  channel.on('error', () => {});
  for (const queue of [NAMED, BARE]) await channel.assertQueue(queue, { durable: true });
  const publishers = startPublishers(channel, plan.rate);
  let points = 0;
  while (points < plan.kills) {
    const step = STEPS[Math.floor(plan.random() * STEPS.length)] as DrainStep;
    const child = startBridge(broker, database, plan, {
      KILL_AT: `${step}:${1 + Math.floor(plan.random() * 4)}`,
    });
    const { signal } = await child.waitForExit(CHILD_WITHIN_MS);
    if (signal !== 'SIGKILL') throw new Error(`the bridge ended by itself: ${child.stdout}${child.stderr}`);
    points += 1;
  }
  const sent = await publishers.stop();
  const last = startBridge(broker, database, plan, { IDLE_EXIT_MS: '1000' });
  const { code } = await last.waitForExit(CHILD_WITHIN_MS);
  await connection.close();
  const output = `exit ${code}: ${last.stdout}${last.stderr}`.trim();
  const counts = code === 0 ? countsOf(last.stdout) : { said: 0, again: 0 };
  const { lost: lostNamed, extra } = await compare(database, NAMED, sent.named);
  const { lost: lostBare, extra: doubled } = await compare(database, BARE, sent.bare);
  const messages = sent.named.length + sent.bare.length;
  return {
    ...{ points, messages, lost: lostNamed + lostBare, extra, doubled, ...counts },
    ...{ recovered: code === 0, output },
  };
}

function startBridge(
  broker: { readonly url: string },
  database: Pick<FreshDatabase, 'url'>,
  { maxBatch }: BridgePlan,
  env: Readonly<Record<string, string>>,
) {
  const groups: GroupToBridge[] = [NAMED, BARE].map((name) => ({
    name,
    queues: [
      {
        ...{ name, role: 'main', ttlMs: null, feeders: [] },
        ...{ singleActive: false, autoDelete: false, stream: false },
      },
    ],
  }));
  return startScript(CHILD, [], {
    env: {
      ...{ AMQP_URL: broker.url, DATABASE_URL: database.url, GROUPS: JSON.stringify(groups) },
      ...{ MAX_BATCH: String(maxBatch), ...env },
    },
  });
}

/** Publishes until it is stopped; answers the bodies that were confirmed. */
function startPublishers(channel: ConfirmChannel, rate: number) {
  const sent = { named: [] as string[], bare: [] as string[] };
  let going = true;
  let next = 0;
  const publish = (queue: string, n: number, list: string[]): Promise<void> => {
    // A third of the messages have a twin.
    const body = JSON.stringify({ n: n % 3 === 2 ? n - 1 : n });
    const options = { persistent: true, ...(queue === NAMED ? { messageId: randomUUID() } : {}) };
    return new Promise((resolve, reject) => {
      channel.publish('', queue, Buffer.from(body), options, (error) => {
        if (error) reject(error);
        else {
          list.push(body);
          resolve();
        }
      });
    });
  };
  const loop = (async () => {
    while (going) {
      const burst = Array.from({ length: Math.max(1, Math.round(rate / 20)) }, () => next++);
      await Promise.all(burst.flatMap((n) => [publish(NAMED, n, sent.named), publish(BARE, n, sent.bare)]));
      await sleep(50);
    }
  })();
  return {
    async stop() {
      going = false;
      await loop;
      return sent;
    },
  };
}

function countsOf(stdout: string): { said: number; again: number } {
  const { groups } = JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as BridgeResult;
  const sum = (of: (each: BridgeResult['groups'][number]) => number): number =>
    groups.reduce((total, each) => total + of(each), 0);
  return { said: sum(({ counts }) => counts.possibleDoubles), again: sum(({ counts }) => counts.again) };
}

async function compare(database: Pick<FreshDatabase, 'pool'>, queue: string, bodies: readonly string[]) {
  const { rows } = await database.pool.query<{ n: number; count: number }>(
    `select (payload ->> 'n')::int as n, count(*)::int as count from unbroker.jobs
     where source like '%/' || $1 || '#%' group by 1`,
    [queue],
  );
  const difference = new Map(rows.map(({ n, count }) => [n, count]));
  for (const body of bodies) {
    const { n } = JSON.parse(body) as { n: number };
    difference.set(n, (difference.get(n) ?? 0) - 1);
  }
  const values = [...difference.values()];
  return {
    lost: values.filter((value) => value < 0).reduce((sum, value) => sum - value, 0),
    extra: values.filter((value) => value > 0).reduce((sum, value) => sum + value, 0),
  };
}

/** `npm run faults -- bridge [--long]`: 12 kills, or 60, each at a step by chance. */
export async function faultsBridge({ long }: { readonly long: boolean }) {
  const [postgres, rabbit] = await Promise.all([startPostgres({}), startRabbit({})]);
  const total = { points: 0, messages: 0, lost: 0, extra: 0, doubled: 0, said: 0, again: 0, failed: 0 };
  try {
    for (let round = 0; round < (long ? 5 : 1); round += 1) {
      const [database, vhost] = await Promise.all([freshDatabase(postgres), freshVhost(rabbit)]);
      await migrate(database.pool);
      const plan = { kills: 12, maxBatch: 50, rate: 300, random: Math.random };
      const { recovered, output, ...numbers } = await killBridge(vhost, database, plan);
      for (const [name, value] of Object.entries(numbers)) total[name as keyof typeof numbers] += value;
      if (!recovered || numbers.doubled > numbers.said) total.failed += 1;
      if (!recovered) process.stderr.write(`NOT RECOVERED: ${output}\n`);
      process.stderr.write(`round ${round + 1}: ${JSON.stringify(numbers)}\n`);
      await Promise.all([database.close(), vhost.close()]);
    }
    return total;
  } finally {
    await Promise.all([postgres.close(), rabbit.close()]);
  }
}
