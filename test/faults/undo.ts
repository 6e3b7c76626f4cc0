/**
 * Kills the way back again and again, at every step at which a message can be between two places, takes its servers and
 * its connections away, pauses it until another takes over; then compares what was published once with what lies in the
 * queues and in the table. Bodies are unique, twins or neighbours alike, small and large, and carry no ids.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import amqp from 'amqplib';
import { bridge } from '../../adapters/rabbitmq/bridge.js';
import { drainGroup } from '../../adapters/rabbitmq/drain.js';
import { compileRules } from '../../adapters/rabbitmq/drain-config.js';
import type { QueueToDrain } from '../../adapters/rabbitmq/importer.js';
import type { UndoStep } from '../../adapters/rabbitmq/undo-sender.js';
import { createStore } from '../../src/jobs/store.js';
import { SILENT } from '../../src/log.js';
import { migrate } from '../../src/migrate.js';
import { callManagement } from '../support/management.js';
import { type StartedProcess, startScript } from '../support/processes.js';
import {
  type FreshDatabase,
  freshDatabase,
  freshVhost,
  type PostgresServer,
  type RabbitServer,
  startPostgres,
  startRabbit,
} from '../support/services.js';
import { until } from '../support/until.js';
import type { KillResult } from './drain.js';
import { type Bodies, bodiesOf, publish, type Shape } from './drain-publish.js';
import { runToTheEnd, strikeServer } from './server-faults.js';

export interface UndoKillPlan {
  readonly bodies: Bodies;
  readonly shape: Shape;
  readonly messages: number;
  readonly kills: number;
  readonly maxBatch: number;
  /** Bodies on both sides of 4 KiB, where a classic queue keeps them in different files. */
  readonly mixedSizes?: boolean;
  /** What took them from the broker. Default: a drain. */
  readonly by?: 'drain' | 'bridge';
  readonly random: () => number;
}

const STEPS: readonly UndoStep[] = ['claimed', 'published', 'confirmed', 'marked'];
const CHILD = fileURLToPath(new URL('undo-child.ts', import.meta.url));
const CHILD_WITHIN_MS = 180_000;
const LARGE_BYTES = 9_000;

interface Place {
  readonly broker: { readonly url: string };
  readonly database: Pick<FreshDatabase, 'url' | 'pool'>;
}

/** Publishes and drains it all: what an undo finds. */
async function drained(
  { broker, database }: Place,
  plan: Omit<UndoKillPlan, 'kills' | 'random' | 'maxBatch'>,
) {
  const plain = bodiesOf(plan.bodies, plan.messages);
  const bodies = plan.mixedSizes === true ? plain.map(enlarged) : plain;
  // Long waits: this is about the way back, which takes the rest of the delay along.
  const queues = await publish(broker.url, plan.shape, bodies);
  await (plan.by === 'bridge' ? bridgeAll : drainAll)(broker.url, database, queues);
  return { bodies, queues };
}

const enlarged = (body: string, index: number): string =>
  index % 3 === 0 ? body : JSON.stringify({ body, pad: 'x'.repeat(LARGE_BYTES) });

async function drainAll(url: string, database: Place['database'], queues: readonly QueueToDrain[]) {
  const { books } = await drainGroup({
    ...{ amqpUrl: url, pool: database.pool, store: createStore(), log: SILENT },
    group: { name: 'faults', queues },
    rules: compileRules([{ match: { queue: '*' }, kind: 'fault.test' }]),
  });
  if (!books.balanced) throw new Error(`the drain before the undo is off by ${books.difference}`);
}

async function bridgeAll(url: string, database: Place['database'], queues: readonly QueueToDrain[]) {
  const { groups } = await bridge({
    ...{ amqpUrl: url, pool: database.pool, store: createStore(), log: SILENT, idleExitMs: 200 },
    groups: [
      { name: 'faults', queues: queues.map((queue) => ({ ...queue, autoDelete: false, stream: false })) },
    ],
    rules: compileRules([{ match: { queue: '*' }, kind: 'fault.test' }]),
  });
  const doubles = groups.reduce((sum, { counts }) => sum + counts.possibleDoubles, 0);
  if (groups.length !== 1 || doubles > 0)
    throw new Error(`the bridge before the undo wrote ${doubles} doubles`);
}

function environment({ broker, database }: Place, queues: readonly QueueToDrain[], maxBatch: number) {
  return {
    ...{ AMQP_URL: broker.url, DATABASE_URL: database.url, GROUP: 'faults', MAX_BATCH: String(maxBatch) },
    WAIT_QUEUES: queues
      .filter(({ role }) => role === 'wait')
      .map(({ name }) => name)
      .join(','),
  };
}

/** Drains, gives back with kills, gives back to the end, compares. */
export async function killUndoAndCompare(place: Place, plan: UndoKillPlan): Promise<KillResult> {
  const { bodies, queues } = await drained(place, plan);
  const env = environment(place, queues, plan.maxBatch);
  let points = 0;
  for (;;) {
    const KILL_AT = points < plan.kills ? nextKill(plan) : '';
    const child = startScript(CHILD, [], { env: { ...env, KILL_AT } });
    const { signal, code } = await child.waitForExit(CHILD_WITHIN_MS);
    if (signal === 'SIGKILL') {
      points += 1;
      continue;
    }
    const output = `exit ${code}: ${child.stdout}${child.stderr}`.trim();
    const compared = await compareUndone(place, queues, bodies);
    return { points, ...compared, recovered: code === 0, ambiguous: false, output };
  }
}

/** Within the first two batches, so that much is left; a handed-over batch may have gone out in part a moment later. */
function nextKill({ random }: UndoKillPlan): string {
  const step = STEPS[Math.floor(random() * STEPS.length)] as UndoStep;
  const nth = 1 + Math.floor(random() * 2);
  return step === 'published' && random() < 0.8
    ? `${step}:${nth}:${Math.floor(random() * 12)}`
    : `${step}:${nth}`;
}

/** What lies in the queues, taken out, and what waits in the table, against what was published. */
async function compareUndone(
  { broker, database }: Place,
  queues: readonly QueueToDrain[],
  bodies: readonly string[],
): Promise<{ lost: number; extra: number }> {
  const found = new Map<string, number>();
  const add = (body: string): void => void found.set(body, (found.get(body) ?? 0) + 1);
  const connection = await amqp.connect(broker.url, { noDelay: true });
  connection.on('error', () => {});
  const channel = await connection.createChannel();
  channel.on('error', () => {});
  try {
    // The wait queue first: what expires meanwhile is in the main queue then, not counted twice.
    for (const { name } of queues) {
      for (;;) {
        const message = await channel.get(name, { noAck: true });
        if (message === false) break;
        add(message.content.toString());
      }
    }
  } finally {
    await connection.close().catch(() => {});
  }
  const { rows } = await database.pool.query<{ body: string }>(
    `select convert_from(l.body, 'UTF8') as body from unbroker.drain_ledger l join unbroker.jobs j on j.id = l.job
     where j.state <> 'cancelled'`,
  );
  for (const { body } of rows) add(body);
  let lost = 0;
  let extra = 0;
  const wanted = new Map<string, number>();
  for (const body of bodies) wanted.set(body, (wanted.get(body) ?? 0) + 1);
  for (const body of new Set([...wanted.keys(), ...found.keys()])) {
    const difference = (found.get(body) ?? 0) - (wanted.get(body) ?? 0);
    if (difference < 0) lost -= difference;
    else extra += difference;
  }
  return { lost, extra };
}

export const UNDO_FAULTS = [
  'broker killed',
  'broker killed, mixed sizes',
  'broker stopped',
  'database killed',
  'database stopped at once',
  'connections closed',
  'undo paused and replaced',
] as const;
export type UndoFault = (typeof UNDO_FAULTS)[number];

const MESSAGES = 3_000;
/** A paused publisher is dropped after two missed heartbeats of 10 s. */
const UNTIL_DROPPED_MS = 40_000;

/** Gives back in the middle of a fault of the servers, to the end, and compares. */
export async function faultUndoAndCompare(
  fault: UndoFault,
  postgres: PostgresServer,
  rabbit: RabbitServer,
): Promise<KillResult> {
  const [database, broker] = await Promise.all([freshDatabase(postgres), freshVhost(rabbit)]);
  const place = { broker, database };
  try {
    await migrate(database.pool);
    const mixedSizes = fault.endsWith('mixed sizes');
    const { bodies, queues } = await drained(place, {
      ...{ bodies: 'twins', shape: 'classic', messages: MESSAGES, mixedSizes },
    });
    await rabbit.persistDeclarations();
    const env = environment(place, queues, 200);
    const start = (): StartedProcess => startScript(CHILD, [], { env });
    const first = start();
    await until('the undo is in the middle', () => isMoving(database), { withinMs: 60_000, everyMs: 5 });
    await strike(fault, postgres, rabbit, first);
    const { code, output } = await runToTheEnd(first, start, fault === 'undo paused and replaced');
    const { lost, extra } = await compareUndone(place, queues, bodies);
    const ambiguous = code === 3 && output.includes('undo-ambiguous');
    return { points: 1, lost: ambiguous ? 0 : lost, extra, recovered: code === 0, ambiguous, output };
  } finally {
    await Promise.all([database.close(), broker.close()]);
  }
}

async function isMoving({ pool }: Pick<FreshDatabase, 'pool'>): Promise<boolean> {
  const { rows } = await pool.query(
    `select exists (select from unbroker.drain_moves where state = 'moving')
        and exists (select from unbroker.drain_moves where state = 'moved') as moving`,
  );
  return (rows[0] as { moving: boolean }).moving;
}

async function strike(
  fault: UndoFault,
  postgres: PostgresServer,
  rabbit: RabbitServer,
  undo: StartedProcess,
): Promise<void> {
  switch (fault) {
    case 'broker killed, mixed sizes':
      return strikeServer('broker killed', postgres, rabbit);
    case 'connections closed':
      return closeConnections(rabbit, undo);
    case 'undo paused and replaced':
      undo.signal('SIGSTOP');
      return sleep(UNTIL_DROPPED_MS);
    default:
      return strikeServer(fault, postgres, rabbit);
  }
}

/** Again and again while it runs: the statistics name a connection seconds after it is there. */
async function closeConnections({ managementUrl }: RabbitServer, undo: StartedProcess): Promise<void> {
  const deadline = performance.now() + 15_000;
  while (undo.running && managementUrl !== null && performance.now() < deadline) {
    const found = (await callManagement(managementUrl, 'GET', '/connections')) as { name: string }[];
    for (const { name } of found) {
      await callManagement(managementUrl, 'DELETE', `/connections/${encodeURIComponent(name)}`).catch(
        () => {},
      );
    }
    await sleep(200);
  }
}

export interface UndoFaultServers {
  readonly postgres: PostgresServer;
  readonly rabbit: RabbitServer;
  add(name: string, result: KillResult): void;
}

/** Part of `npm run faults -- drain [--long]`: kills in every shape; long: more of them, and faults of the servers. */
export async function undoScenarios(
  { postgres, rabbit, add }: UndoFaultServers,
  long: boolean,
): Promise<void> {
  for (const shape of ['classic', 'quorum', 'expiring-group'] as const) {
    for (const bodies of ['unique', 'twins', 'neighbours'] as const) {
      const [database, broker] = await Promise.all([freshDatabase(postgres), freshVhost(rabbit)]);
      await migrate(database.pool);
      const plan = { bodies, shape, messages: long ? 2_000 : 600, kills: long ? 12 : 3, maxBatch: 100 };
      const mixedSizes = bodies === 'unique';
      const result = await killUndoAndCompare(
        { broker, database },
        { ...plan, mixedSizes, random: Math.random },
      );
      add(`undo, ${shape} ${bodies}`, result);
      await Promise.all([database.close(), broker.close()]);
    }
  }
  const bridged = { bodies: 'twins', shape: 'classic', by: 'bridge', random: Math.random } as const;
  const [database, broker] = await Promise.all([freshDatabase(postgres), freshVhost(rabbit)]);
  await migrate(database.pool);
  const sizes = { messages: long ? 2_000 : 600, kills: long ? 12 : 3, maxBatch: 100 };
  add('undo of a bridge, twins', await killUndoAndCompare({ broker, database }, { ...bridged, ...sizes }));
  await Promise.all([database.close(), broker.close()]);
  if (!long) return;
  for (const fault of UNDO_FAULTS) add(`undo, ${fault}`, await faultUndoAndCompare(fault, postgres, rabbit));
}

/** `npm run faults -- undo [--long]`: the same by itself, on servers of its own. */
export async function faultsUndo({ long }: { readonly long: boolean }) {
  const [postgres, rabbit] = await Promise.all([
    startPostgres({ controllable: true }),
    startRabbit({ controllable: true }),
  ]);
  const total = { points: 0, lost: 0, extra: 0, recovered: 0, ambiguous: 0, failed: 0, scenarios: 0 };
  const add = (name: string, result: KillResult): void => {
    total.scenarios += 1;
    for (const count of ['points', 'lost', 'extra'] as const) total[count] += result[count];
    const end = result.recovered ? 'recovered' : result.ambiguous ? 'ambiguous' : 'failed';
    total[end] += 1;
    const { points, lost, extra, output } = result;
    const why = end === 'failed' ? ` (${output})` : '';
    process.stderr.write(`${name}: ${points} points, ${lost} lost, ${extra} extra, ${end}${why}\n`);
  };
  try {
    await undoScenarios({ postgres, rabbit, add }, long);
    return total;
  } finally {
    await Promise.all([postgres.close(), rabbit.close()]);
  }
}
