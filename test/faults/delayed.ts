/**
 * Kills an import of delayed messages after each of its steps, and the broker under it, and compares what was published
 * with the rows that came to be. Some of what was published falls due meanwhile: that may be in a queue instead, but not
 * in both.
 */
import amqp from 'amqplib';
import type { DelayedStep } from '../../adapters/rabbitmq/delayed-import.js';
import { migrate } from '../../src/migrate.js';
import { type DelayedBroker, startDelayedBroker } from '../support/delayed-exchange.js';
import { startProcess } from '../support/processes.js';
import { type FreshDatabase, freshDatabase, freshVhost, startPostgres } from '../support/services.js';
import { bundled } from './processes.js';

const STEPS: readonly DelayedStep[] = [
  ...(['held', 'prepared', 'imported', 'recorded', 'committing', 'committed', 'deleted'] as const),
];
const LAST_STEP = 'deleted';
const WITHIN_MS = 120_000;
const MAX_RUNS = 8;
const HOUR_MS = 3_600_000;
const PAGE = 5;

interface Result {
  readonly points: number;
  readonly lost: number;
  readonly extra: number;
  readonly failed: number;
  /** True: the plugin itself. */
  readonly plugin: boolean;
}

export async function faultsDelayed({ long }: { readonly long: boolean }): Promise<Result> {
  const [broker, postgres] = await Promise.all([startDelayedBroker(), startPostgres({ controllable: true })]);
  const total = { points: 0, lost: 0, extra: 0, failed: 0, plugin: broker.plugin };
  const child = await bundled('delayed-child');
  try {
    for (let round = 0; round < (long ? 4 : 1); round += 1) {
      for (const death of ['import killed', 'broker killed'] as const) {
        const [database, vhost] = await Promise.all([freshDatabase(postgres), freshVhost(broker.rabbit)]);
        await migrate(database.pool);
        const scene = { broker, database, url: vhost.url, child };
        const { points, lost, extra, output } = await killAtEachStep(scene, death, 1 + (round % 2));
        total.points += points;
        total.lost += lost;
        total.extra += extra;
        total.failed += output === null ? 0 : 1;
        process.stderr.write(`${death}: ${points} points, ${lost} lost, ${extra} extra${output ?? ''}\n`);
        await Promise.all([database.close(), vhost.close()]);
      }
    }
    return total;
  } finally {
    await Promise.all([broker.rabbit.close(), postgres.close()]);
  }
}

interface Scene {
  readonly broker: DelayedBroker;
  readonly database: FreshDatabase;
  readonly url: string;
  readonly child: string;
}

async function killAtEachStep(scene: Scene, death: 'import killed' | 'broker killed', nth: number) {
  const { broker, url } = scene;
  await broker.declare(url, [
    ['mail', 'mail'],
    ['mail', 'both'],
    ['audit', 'both'],
  ]);
  const count = STEPS.length * PAGE * (nth + 1);
  // Twins; some are due in one millisecond; with the plugin some fall due while this goes on.
  const messages = Array.from({ length: count }, (_, n) => ({
    key: n % 4 === 0 ? 'both' : 'mail',
    delayMs: broker.plugin && n % 5 === 0 ? 2_000 + n * 200 : HOUR_MS + (n % 7),
    body: JSON.stringify({ n: Math.floor(n / 2) }),
  }));
  await broker.delay(url, messages);
  await broker.rabbit.persistDeclarations();
  const wanted = new Map<string, number>();
  for (const { key, body } of messages)
    for (const queue of key === 'both' ? ['mail', 'audit'] : ['mail']) add(wanted, `${queue} ${body}`);
  let points = 0;
  for (const step of STEPS) {
    const at = `${death === 'import killed' ? 'kill' : 'pause'}:${step}:${nth}`;
    if (await run(scene, at, death)) points += 1;
  }
  let output: string | null = 'never ended';
  for (let again = 0; output !== null && again < MAX_RUNS; again += 1) output = await runToTheEnd(scene);
  const found = await everythingOf(scene);
  const { timed, held } = await broker.count();
  if (timed + held > 0) output = `${timed + held} are left in the table`;
  let lost = 0;
  let extra = 0;
  for (const name of new Set([...wanted.keys(), ...found.keys()])) {
    const difference = (found.get(name) ?? 0) - (wanted.get(name) ?? 0);
    if (difference < 0) lost -= difference;
    else extra += difference;
  }
  return { points, lost, extra, output: output === null ? null : `, NOT RECOVERED (${output})` };
}

const start = ({ broker, database, url, child }: Scene, at: string) =>
  startProcess(process.execPath, [child], {
    env: {
      ...broker.rabbit.shell?.env,
      ...{ AMQP_URL: url, DATABASE_URL: database.url, PAGE: String(PAGE), AT: at },
      RABBITMQCTL: broker.rabbit.shell?.command,
    },
  });

/** True: it came to the step and met its death there. */
async function run(scene: Scene, at: string, death: 'import killed' | 'broker killed'): Promise<boolean> {
  const started = start(scene, at);
  if (death === 'import killed') return (await started.waitForExit(WITHIN_MS)).signal === 'SIGKILL';
  const there = await started.waitFor(/^AT$/m, WITHIN_MS).then(
    () => true,
    () => false,
  );
  if (!there) return false;
  const { rabbit } = scene.broker;
  await rabbit.kill();
  await rabbit.start();
  await scene.broker.revive();
  // One goes on by itself and ends it all; the others leave something for the next step.
  if (!at.includes(LAST_STEP)) await started.kill('SIGKILL');
  else started.write('\n');
  await started.waitForExit(WITHIN_MS);
  return true;
}

/** Null when it ended well. */
async function runToTheEnd(scene: Scene): Promise<string | null> {
  const started = start(scene, '');
  const { code } = await started.waitForExit(WITHIN_MS);
  return code === 0 ? null : started.stderr.slice(-500);
}

/** Rows, and what fell due before it was held. */
async function everythingOf({ database, url }: Scene): Promise<Map<string, number>> {
  const found = new Map<string, number>();
  const { rows } = await database.pool.query<{ queue: string; text: string }>(
    `select l.queue, j.payload::text as text from unbroker.jobs j join unbroker.drain_ledger l on l.job = j.id`,
  );
  for (const { queue, text } of rows) add(found, `${queue} ${text.replaceAll(' ', '')}`);
  const connection = await amqp.connect(url);
  connection.on('error', () => {});
  const channel = await connection.createChannel();
  channel.on('error', () => {});
  for (const queue of ['mail', 'audit']) {
    for (;;) {
      const message = await channel.get(queue, { noAck: true });
      if (message === false) break;
      add(found, `${queue} ${message.content.toString()}`);
    }
  }
  await connection.close();
  return found;
}

function add(counts: Map<string, number>, name: string): void {
  counts.set(name, (counts.get(name) ?? 0) + 1);
}
