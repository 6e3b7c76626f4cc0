/**
 * Kills a drain again and again, at every step at which a message can be between two places, and compares what was
 * published with the rows that came to be. Bodies are unique, twins or neighbours alike, and carry no ids; in the last
 * shape a wait queue expires into the main queue while it is drained.
 */
import { fileURLToPath } from 'node:url';
import type { DrainStep } from '../../adapters/rabbitmq/batch-writer.js';
import { migrate } from '../../src/migrate.js';
import { startScript } from '../support/processes.js';
import { seeded } from '../support/seeded.js';
import {
  type FreshDatabase,
  freshDatabase,
  freshVhost,
  type PostgresServer,
  type RabbitServer,
  startPostgres,
  startRabbit,
} from '../support/services.js';
import { DEATHS, type Death, POINTS, type Strike, strikeAndCompare, type World } from './drain-points.js';
import { type Bodies, bodiesOf, compare, publish, type Shape } from './drain-publish.js';
import { faultAndCompare, SERVER_FAULTS } from './drain-servers.js';
import { bundled } from './processes.js';
import { undoScenarios } from './undo.js';

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
  /** True: it stopped because counts could not decide, having written no row twice. */
  readonly ambiguous: boolean;
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
    return { points, ...(await compare(database, bodies)), recovered: code === 0, ambiguous: false, output };
  }
}

/** Early batches mostly, so that much is left for the next kill. `marked` comes once, near the end: never as the first. */
function nextKill(plan: KillPlan, points: number): { step: DrainStep; nth: number } {
  const steps = points === 0 ? STEPS.filter((step) => step !== 'marked') : STEPS;
  const step = steps[Math.floor(plan.random() * steps.length)] as DrainStep;
  return { step, nth: step === 'marked' ? 1 : 1 + Math.floor(plan.random() * 3) };
}

export interface FaultsResult {
  /** Kills, cuts and server faults. */
  readonly points: number;
  readonly lost: number;
  readonly extra: number;
  /** Scenarios that ended with balanced books, of `scenarios`; `ambiguous` ones stopped and said so. */
  readonly recovered: number;
  readonly ambiguous: number;
  /** The others: ended with an error, or with books that do not balance. */
  readonly failed: number;
  readonly scenarios: number;
}

type Add = (name: string, result: KillResult) => void;

/** `npm run faults -- drain [--long]`: every kind of bodies in every shape, every death at every point; then the way back. */
export async function faultsDrain({ long }: { readonly long: boolean }): Promise<FaultsResult> {
  const [postgres, rabbit] = await Promise.all([
    startPostgres({ controllable: true }),
    startRabbit({ controllable: true }),
  ]);
  const total = { points: 0, lost: 0, extra: 0, recovered: 0, ambiguous: 0, failed: 0, scenarios: 0 };
  const add: Add = (name, result) => {
    total.scenarios += 1;
    total.points += result.points;
    total.lost += result.lost;
    total.extra += result.extra;
    total.recovered += result.recovered ? 1 : 0;
    total.ambiguous += result.ambiguous ? 1 : 0;
    total.failed += result.recovered || result.ambiguous ? 0 : 1;
    const end = result.recovered
      ? 'balanced'
      : result.ambiguous
        ? 'AMBIGUOUS'
        : `NOT RECOVERED (${result.output})`;
    process.stderr.write(
      `${name}: ${result.points} points, ${result.lost} lost, ${result.extra} extra, ${end}\n`,
    );
  };
  const seed = Number(process.env['UNBROKER_FAULTS_SEED'] ?? Date.now() % 2 ** 31);
  process.stderr.write(`seed ${seed} (UNBROKER_FAULTS_SEED)\n`);
  try {
    await killsByChance({ postgres, rabbit }, add, long, seeded(seed));
    await everyPoint({ postgres, rabbit }, add, long, seeded(seed));
    if (long) {
      for (const fault of SERVER_FAULTS) add(fault, await faultAndCompare(fault, postgres, rabbit));
    }
    await undoScenarios({ postgres, rabbit, add }, long);
    return total;
  } finally {
    await Promise.all([postgres.close(), rabbit.close()]);
  }
}

interface Servers {
  readonly postgres: PostgresServer;
  readonly rabbit: RabbitServer;
}

const SHAPES: readonly Shape[] = ['classic', 'quorum', 'expiring-group'];
const BODIES: readonly Bodies[] = ['unique', 'twins', 'neighbours'];

async function killsByChance({ postgres, rabbit }: Servers, add: Add, long: boolean, random: () => number) {
  for (const shape of SHAPES) {
    for (const bodies of BODIES) {
      const [database, vhost] = await Promise.all([freshDatabase(postgres), freshVhost(rabbit)]);
      await migrate(database.pool);
      const plan = { bodies, shape, messages: long ? 3_000 : 700, kills: long ? 12 : 4, maxBatch: 100 };
      add(`${shape} ${bodies}`, await killAndCompare(vhost, database, { ...plan, random }));
      await Promise.all([database.close(), vhost.close()]);
    }
  }
}

/** Those that leave the servers alone cost two seconds each. */
const CHEAP: readonly Death[] = ['kill -9', 'broker connection cut', 'database connections cut'];
const MAX_WORLDS_AGAIN = 3;

/** Long: each cheap death at each point in each world, each other in one; short: each in one. */
export async function everyPoint(
  servers: Servers,
  add: Add,
  long: boolean,
  random: () => number,
): Promise<void> {
  const child = await bundled('drain-child');
  const worlds = SHAPES.flatMap((shape) => BODIES.map((bodies) => ({ shape, bodies })));
  const visit = async (world: World, strikes: readonly Strike[], name: string): Promise<void> => {
    let left = strikes;
    for (let again = 0; left.length > 0 && again < MAX_WORLDS_AGAIN; again += 1) {
      const result = await strikeAndCompare({ ...servers, child, world, strikes: left, random });
      add(name, { ...result, points: result.struck.length, recovered: result.balanced });
      left = result.left;
    }
  };
  let next = 0;
  for (const death of DEATHS) {
    const rounds = long && CHEAP.includes(death) ? worlds.length : 1;
    for (let round = 0; round < rounds; round += 1) {
      const world = worlds[next % worlds.length] as World;
      next += 4;
      // Not always in the order in which they come: some follow on what another left behind.
      const strikes = shuffled(POINTS, random).map((point) => ({ death, point }));
      const network = round === 1 ? ('slow' as const) : round === 2 ? ('slow farewells' as const) : undefined;
      const name = `${death}, ${world.shape} ${world.bodies}${network === undefined ? '' : `, ${network}`}`;
      await visit(network === undefined ? world : { ...world, network }, strikes, name);
    }
  }
}

function shuffled<T>(items: readonly T[], random: () => number): T[] {
  return items
    .map((item) => ({ item, key: random() }))
    .sort((a, b) => a.key - b.key)
    .map(({ item }) => item);
}
