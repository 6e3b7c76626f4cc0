/**
 * Kills a drain again and again, at every step at which a message can be between two places, and compares what was
 * published with the rows that came to be. Bodies are unique, twins or neighbours alike, and carry no ids; in the last
 * shape a wait queue expires into the main queue while it is drained.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import amqp from 'amqplib';
import type { DrainStep } from '../../adapters/rabbitmq/batch-writer.js';
import type { QueueToDrain } from '../../adapters/rabbitmq/importer.js';
import { migrate } from '../../src/migrate.js';
import { startScript } from '../support/processes.js';
import {
  type FreshDatabase,
  freshDatabase,
  freshVhost,
  startPostgres,
  startRabbit,
} from '../support/services.js';

export type Bodies = 'unique' | 'twins' | 'neighbours';
export type Shape = 'classic' | 'quorum' | 'expiring-group';

export interface KillPlan {
  readonly bodies: Bodies;
  readonly shape: Shape;
  readonly messages: number;
  /** Most kills; fewer when the drain is done before. */
  readonly kills: number;
  readonly maxBatch: number;
  /** In [0, 1): where the next kill falls. */
  readonly random: () => number;
}

export interface KillResult {
  /** Kills that happened. */
  readonly points: number;
  readonly lost: number;
  readonly extra: number;
  /** True: the last drain ended by itself with books that balance. */
  readonly recovered: boolean;
  /** What the last drain printed; for a failure's message. */
  readonly output: string;
}

const STEPS: readonly DrainStep[] = [
  'prepared',
  'imported',
  'recorded',
  'committing',
  'committed',
  'acked',
  'fenced',
  'marked',
];
const CHILD = fileURLToPath(new URL('drain-child.ts', import.meta.url));
const CHILD_WITHIN_MS = 120_000;
/** The last waiting message is let go after this long; a kill and a new start take one to three seconds. */
const WAIT_MS = 10_000;

export function bodiesOf(kind: Bodies, messages: number): string[] {
  return Array.from({ length: messages }, (_, index) => {
    if (kind === 'unique') return JSON.stringify({ n: index });
    if (kind === 'neighbours') return JSON.stringify({ n: Math.floor(index / 3) });
    // 40 % are copies of 20 bodies, spread over the whole queue.
    return index % 5 < 2 ? JSON.stringify({ copy: index % 20 }) : JSON.stringify({ n: index });
  });
}

/** Publishes, drains with kills, drains to the end, compares. */
export async function killAndCompare(
  broker: { readonly url: string },
  database: Pick<FreshDatabase, 'url' | 'pool'>,
  plan: KillPlan,
): Promise<KillResult> {
  const bodies = bodiesOf(plan.bodies, plan.messages);
  const queues = await publish(broker.url, plan.shape, bodies);
  let points = 0;
  for (;;) {
    const { step, nth } = nextKill(plan, points);
    const kill = points < plan.kills ? `${step}:${nth}` : '';
    const child = startScript(CHILD, [], {
      env: {
        AMQP_URL: broker.url,
        DATABASE_URL: database.url,
        GROUP: JSON.stringify({ name: 'faults', queues }),
        MAX_BATCH: String(plan.maxBatch),
        KILL_AT: kill,
      },
    });
    const { signal, code } = await child.waitForExit(CHILD_WITHIN_MS);
    if (signal === 'SIGKILL') {
      points += 1;
      continue;
    }
    const output = `exit ${code}: ${child.stdout}${child.stderr}`.trim();
    return { points, ...(await compare(database, bodies)), recovered: code === 0, output };
  }
}

/** Early batches mostly, so that much is left for the next kill. `marked` comes once, near the end: never as the first. */
function nextKill(plan: KillPlan, points: number): { step: DrainStep; nth: number } {
  const steps = points === 0 ? STEPS.filter((step) => step !== 'marked') : STEPS;
  const step = steps[Math.floor(plan.random() * steps.length)] as DrainStep;
  return { step, nth: step === 'marked' ? 1 : 1 + Math.floor(plan.random() * 3) };
}

async function publish(url: string, shape: Shape, bodies: readonly string[]): Promise<QueueToDrain[]> {
  const connection = await amqp.connect(url, { noDelay: true });
  const channel = await connection.createConfirmChannel();
  const main = 'faults.main';
  const wait = 'faults.wait';
  await channel.assertQueue(main, {
    durable: true,
    ...(shape === 'quorum' ? { arguments: { 'x-queue-type': 'quorum' } } : {}),
  });
  const queues: QueueToDrain[] = [
    { name: main, role: 'main', ttlMs: null, feeders: [wait], singleActive: false },
  ];
  if (shape === 'expiring-group') {
    await channel.assertQueue(wait, {
      durable: true,
      arguments: { 'x-message-ttl': 60_000, 'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': main },
    });
    queues.unshift({ name: wait, role: 'wait', ttlMs: 60_000, feeders: [], singleActive: false });
  }
  bodies.forEach((body, index) => {
    const waits = shape === 'expiring-group' && index % 2 === 0;
    channel.publish('', waits ? wait : main, Buffer.from(body), {
      persistent: true,
      headers: { a: index % 2, b: 'same' },
      // Falling due one after the other while drains start and die: a batch that comes back comes partly here, partly there.
      ...(waits ? { expiration: String(1_000 + Math.round((index / bodies.length) * WAIT_MS)) } : {}),
    });
  });
  await channel.waitForConfirms();
  await connection.close();
  return queues;
}

async function compare(database: Pick<FreshDatabase, 'pool'>, bodies: readonly string[]) {
  const wanted = countBy(bodies);
  const { rows } = await database.pool.query<{ text: string; count: number }>(
    `select payload::text as text, count(*)::int as count from unbroker.jobs where kind = 'fault.test' group by payload`,
  );
  const found = new Map(rows.map(({ text, count }) => [text.replaceAll(' ', ''), count]));
  let lost = 0;
  let extra = 0;
  for (const body of new Set([...wanted.keys(), ...found.keys()])) {
    const difference = (found.get(body) ?? 0) - (wanted.get(body) ?? 0);
    if (difference < 0) lost -= difference;
    else extra += difference;
  }
  return { lost, extra };
}

function countBy(bodies: readonly string[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const body of bodies) counts.set(body, (counts.get(body) ?? 0) + 1);
  return counts;
}

export interface FaultsResult {
  readonly points: number;
  readonly lost: number;
  readonly extra: number;
  /** Scenarios that ended with balanced books, of `scenarios`. */
  readonly recovered: number;
  readonly scenarios: number;
}

/** `npm run faults -- drain [--long]`: every kind of bodies in every shape; long: ≥ 200 kills. */
export async function faultsDrain({ long }: { readonly long: boolean }): Promise<FaultsResult> {
  const [postgres, rabbit] = await Promise.all([startPostgres(), startRabbit({ controllable: true })]);
  const total = { points: 0, lost: 0, extra: 0, recovered: 0, scenarios: 0 };
  try {
    for (let round = 0; round < (long ? 3 : 1); round += 1) {
      for (const shape of ['classic', 'quorum', 'expiring-group'] as const) {
        for (const bodies of ['unique', 'twins', 'neighbours'] as const) {
          const database = await freshDatabase(postgres);
          const vhost = await freshVhost(rabbit);
          await migrate(database.pool);
          const plan = { bodies, shape, messages: long ? 3_000 : 700, kills: long ? 12 : 4, maxBatch: 100 };
          const result = await killAndCompare(vhost, database, { ...plan, random: Math.random });
          total.scenarios += 1;
          total.points += result.points;
          total.lost += result.lost;
          total.extra += result.extra;
          total.recovered += result.recovered ? 1 : 0;
          process.stderr.write(
            `${shape} ${bodies}: ${result.points} kills, ${result.lost} lost, ${result.extra} extra${result.recovered ? '' : `, NOT RECOVERED (${result.output})`}\n`,
          );
          await Promise.all([database.close(), vhost.close()]);
          await sleep(0);
        }
      }
    }
    return total;
  } finally {
    await Promise.all([postgres.close(), rabbit.close()]);
  }
}
