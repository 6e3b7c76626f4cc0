/**
 * Every kind of death at every point at which a message can be between two places. The drain stops at the point and says
 * so; then it, a server or a connection dies, and the drain or its successor goes on. All of its traffic goes through two
 * fault proxies, so that a COMMIT's answer or an acknowledgement can be lost as well.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { DrainStep } from '../../adapters/rabbitmq/batch-writer.js';
import { migrate } from '../../src/migrate.js';
import { type FaultProxy, startFaultProxy } from '../support/fault-proxy.js';
import { type StartedProcess, startProcess } from '../support/processes.js';
import { freshDatabase, freshVhost, type PostgresServer, type RabbitServer } from '../support/services.js';
import { type Bodies, bodiesOf, compare, publish, type Shape } from './drain-publish.js';

export const POINTS = [
  'before insert',
  'before commit',
  'commit reply lost',
  'before ack',
  'ack lost',
  'after ack',
  'after fence',
] as const;
export type Point = (typeof POINTS)[number];

export const DEATHS = [
  'kill -9',
  'broker connection cut',
  'database connections cut',
  'SIGSTOP, replaced',
  'database stopped at once',
  'broker stopped',
  'broker killed',
] as const;
export type Death = (typeof DEATHS)[number];

/** Where the drain stops, and what must happen when it goes on from there. */
const AT: Readonly<
  Record<
    Point,
    { readonly step: DrainStep; readonly until?: 'commit is lost' | 'ack is lost' | 'ack has arrived' }
  >
> = {
  'before insert': { step: 'prepared' },
  'before commit': { step: 'recorded' },
  'commit reply lost': { step: 'recorded', until: 'commit is lost' },
  'before ack': { step: 'committed' },
  'ack lost': { step: 'committed', until: 'ack is lost' },
  'after ack': { step: 'committed', until: 'ack has arrived' },
  'after fence': { step: 'fenced' },
};

export interface Strike {
  readonly death: Death;
  readonly point: Point;
}

export interface World {
  readonly shape: Shape;
  readonly bodies: Bodies;
  /** What the network is like all the while. */
  readonly network?: 'slow' | 'slow farewells';
}

export interface PointsResult {
  readonly struck: readonly Strike[];
  /** Not reached: the drain was done before, or stopped as ambiguous. */
  readonly left: readonly Strike[];
  readonly lost: number;
  readonly extra: number;
  readonly balanced: boolean;
  readonly ambiguous: boolean;
  /** The last words of the last drain. */
  readonly output: string;
}

export interface PointsOptions {
  readonly postgres: PostgresServer;
  readonly rabbit: RabbitServer;
  /** drain-child.ts, bundled. */
  readonly child: string;
  readonly strikes: readonly Strike[];
  readonly world: World;
  /** In [0, 1). */
  readonly random: () => number;
}

const MAX_BATCH = 50;
/** A strike comes at the first or the second batch, or three later, and two more may be on their way. */
const MESSAGES_A_STRIKE = 6 * MAX_BATCH;
const SPARE_MESSAGES = 400;
const WITHIN_MS = 60_000;
const MAX_RUNS_WITHOUT_A_STRIKE = 8;
const SLOW_MS = 3;
const FAREWELL_MS = 2_000;

/** Publishes, drains with these strikes one after the other, drains to the end, compares. */
export async function strikeAndCompare(options: PointsOptions): Promise<PointsResult> {
  const { postgres, rabbit, strikes, world } = options;
  const [database, vhost] = await Promise.all([freshDatabase(postgres), freshVhost(rabbit)]);
  const [toDatabase, toBroker] = await Promise.all([
    startFaultProxy(database.url),
    startFaultProxy(vhost.url),
  ]);
  try {
    await migrate(database.pool);
    const bodies = bodiesOf(world.bodies, SPARE_MESSAGES + strikes.length * MESSAGES_A_STRIKE);
    const queues = await publish(vhost.url, world.shape, bodies);
    if (strikes.some(({ death }) => death === 'broker killed' || death === 'broker stopped'))
      await rabbit.persistDeclarations();
    if (world.network === 'slow') for (const proxy of [toDatabase, toBroker]) proxy.delay(SLOW_MS);
    if (world.network === 'slow farewells') toBroker.slowClose(FAREWELL_MS);
    const env = {
      AMQP_URL: toBroker.url,
      DATABASE_URL: toDatabase.url,
      GROUP: JSON.stringify({ name: 'faults', queues }),
      MAX_BATCH: String(MAX_BATCH),
    };
    const scene = new Scene(options, env, toDatabase, toBroker);
    const { code, output } = await scene.play();
    const ambiguous = code === 3 && output.includes('drain-ambiguous');
    const { lost, extra } = await compare(database, bodies);
    return {
      ...{ struck: scene.struck, left: strikes.slice(scene.struck.length), extra, ambiguous, output },
      // Stopped as ambiguous, the rest is still in the broker: only rows made twice would be wrong.
      lost: ambiguous ? 0 : lost,
      balanced: code === 0,
    };
  } finally {
    await Promise.all([toDatabase.close(), toBroker.close()]);
    await Promise.all([database.close(), vhost.close()]);
  }
}

class Scene {
  readonly struck: Strike[] = [];
  readonly #paused: StartedProcess[] = [];
  readonly #woken: StartedProcess[] = [];

  constructor(
    private readonly options: PointsOptions,
    private readonly env: Readonly<Record<string, string>>,
    private readonly toDatabase: FaultProxy,
    private readonly toBroker: FaultProxy,
  ) {}

  async play(): Promise<{ code: number | null; output: string }> {
    for (let idle = 0; idle < MAX_RUNS_WITHOUT_A_STRIKE; idle += 1) {
      const before = this.struck.length;
      const drain = this.#start();
      const replaced = await this.#strikeAsItGoes(drain);
      if (this.struck.length > before) idle = -1;
      if (replaced) continue;
      const { code, signal } = await drain.waitForExit(WITHIN_MS);
      this.#wakeTheReplaced();
      await Promise.all(this.#woken.splice(0).map((woken) => woken.waitForExit(WITHIN_MS)));
      if (code === 0 || code === 3) {
        return { code, output: `exit ${code}: ${drain.stdout}${drain.stderr}`.trim().slice(-2_000) };
      }
      // It could not go on by itself: whoever looks after it starts it again.
      if (signal === null && idle === MAX_RUNS_WITHOUT_A_STRIKE - 1) {
        return { code, output: `exit ${code}: ${drain.stderr}` };
      }
      if (signal === null) await sleep(500);
    }
    return { code: null, output: 'it never came to an end' };
  }

  #start(): StartedProcess {
    const { strikes, child, random } = this.options;
    const pauses = strikes
      .slice(this.struck.length)
      .map(({ point }) => `${AT[point].step}:${random() < 0.5 ? 1 : 2}`);
    return startProcess(process.execPath, [child], { env: { ...this.env, PAUSE_AT: pauses.join(',') } });
  }

  /** Until it ends, or is dead or replaced. True: it is paused and another must take its place. */
  async #strikeAsItGoes(drain: StartedProcess): Promise<boolean> {
    const { strikes } = this.options;
    for (let index = 0; ; index += 1) {
      const strike = strikes[this.struck.length];
      if (strike === undefined) return false;
      const ended = await Promise.race([
        drain.exit.then(() => true),
        drain.waitFor(new RegExp(`AT ${index}\\n`), WITHIN_MS).then(
          () => false,
          () => true,
        ),
      ]);
      if (ended) return false;
      // A successor works: the one that it replaced wakes up and must not write.
      this.#wakeTheReplaced();
      this.struck.push(strike);
      const gone = await this.#goOn(strike.point, drain);
      await this.#strike(strike.death, drain, gone);
      if (strike.death === 'SIGSTOP, replaced') return true;
      if (strike.death === 'kill -9') return false;
      if (!gone && strike.death !== 'broker stopped') drain.write('\n');
    }
  }

  /** Lets it go on until that has happened. False: it still stands at the point. */
  async #goOn(point: Point, drain: StartedProcess): Promise<boolean> {
    const { until } = AT[point];
    if (until === undefined) return false;
    const happened = {
      'commit is lost': () => this.toDatabase.dropReply(/^commit/i),
      'ack is lost': () => this.toBroker.dropAck(),
      'ack has arrived': () => this.toBroker.passAck(),
    }[until]();
    drain.write('p');
    await withinTime(`${point}: ${until}`, Promise.race([happened, drain.exit]));
    return true;
  }

  async #strike(death: Death, drain: StartedProcess, gone: boolean): Promise<void> {
    const { postgres, rabbit } = this.options;
    switch (death) {
      case 'kill -9':
        await drain.kill('SIGKILL');
        return;
      case 'SIGSTOP, replaced':
        drain.signal('SIGSTOP');
        // What heartbeats and time limits would come to in the end.
        this.toBroker.cut();
        this.toDatabase.cut();
        this.#paused.push(drain);
        return;
      case 'broker connection cut':
        this.toBroker.cut();
        return;
      case 'database connections cut':
        this.toDatabase.cut();
        return;
      case 'database stopped at once':
        await postgres.stop('immediate');
        await postgres.start();
        return;
      case 'broker stopped': {
        // It waits for its clients to answer, so one that stands still would hold it up: it goes on meanwhile.
        const stopping = rabbit.stop();
        if (!gone) drain.write('\n');
        await stopping;
        await rabbit.start();
        return;
      }
      case 'broker killed':
        await rabbit.kill();
        await rabbit.start();
    }
  }

  #wakeTheReplaced(): void {
    for (const drain of this.#paused.splice(0)) {
      drain.signal('SIGCONT');
      drain.endInput();
      this.#woken.push(drain);
    }
  }
}

/** A watcher that waits for what will not happen says so. */
async function withinTime(what: string, waiting: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: not within ${WITHIN_MS} ms`)), WITHIN_MS);
  });
  await Promise.race([waiting, late]).finally(() => clearTimeout(timer));
}
