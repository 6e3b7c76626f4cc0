/**
 * Faults of workers, publishers and their database, judged from outside: the effects sink, the publishers' journals and
 * the audit in the database. `npm run faults -- worker` runs them all; `npm test` a short form of each.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { RetryAfter } from '../../src/jobs/settle.js';
import { auditReport, installAudit } from '../support/audit.js';
import { type Effect, type EffectsSink, startEffectsSink } from '../support/effects-sink.js';
import { type JobsDatabase, jobsDatabase } from '../support/jobs.js';
import { compareBooks, readJournals, type SixNumbers } from '../support/journal.js';
import { newSeed } from '../support/seeded.js';
import { type PostgresServer, startPostgres } from '../support/services.js';
import { until } from '../support/until.js';
import { startWorker } from '../support/workers.js';
import { bundled, Supervised } from './processes.js';
import { endsAndKills } from './worker-ends.js';
import { workerStorm } from './worker-storm.js';

export interface World {
  readonly db: JobsDatabase;
  readonly sink: EffectsSink;
  /** A supervised worker process. */
  worker(env?: Readonly<Record<string, string>>): Promise<Supervised>;
}

/** A fresh audited table, a sink, and whatever was started ended in the end. */
export async function inWorld<T>(
  server: Pick<PostgresServer, 'url'>,
  run: (world: World) => Promise<T>,
): Promise<T> {
  const db = await jobsDatabase({ server });
  const sink = await startEffectsSink();
  const started: Supervised[] = [];
  try {
    await installAudit(db.pool);
    return await run({
      ...{ db, sink },
      async worker(env = {}) {
        const child = new Supervised(await bundled('worker-child'), {
          ...{ DATABASE_URL: db.url, EFFECTS_PORT: String(sink.port) },
          ...env,
        });
        started.push(child);
        return child;
      },
    });
  } finally {
    // Settled, each: a server that did not come back must not hide why.
    await Promise.allSettled(started.map((child) => child.end()));
    await Promise.allSettled([sink.close(), db.close()]);
  }
}

export interface ExpiriesResult {
  /** Leases ended and taken back under a running handler. */
  readonly points: number;
  readonly stale: number;
  readonly problems: readonly string[];
  /** Jobs that never came to their end. */
  readonly lost: number;
}

/** Ends leases under running handlers, by force, until `expiries` have been; their outcomes must all be refused. */
export async function forcedExpiries(server: PostgresServer, expiries: number): Promise<ExpiriesResult> {
  return inWorld(server, async ({ db }) => {
    const jobs = Math.max(60, Math.ceil(expiries / 12));
    await db.put('a', Array(jobs).fill(0), {
      maxAttempts: 1_000,
      retryPolicy: { type: 'fixed', delayMs: 0 },
    });
    let forced = 0;
    const workers = Array.from({ length: 4 }, (_, index) =>
      startWorker({
        url: db.url,
        applicationName: `w${index}`,
        concurrency: 25,
        leaseMs: 60_000,
        handlers: {
          a: async (job) => {
            // While there are leases to end the jobs keep coming back; then they finish.
            await sleep(3 + Math.random() * 25);
            // An ordinary failure would leave each worker one slot, as in an outage.
            if (forced < expiries) throw new RetryAfter(0, `token ${job.leaseToken}`);
            return { token: job.leaseToken };
          },
        },
      }),
    );
    try {
      while (forced < expiries) {
        const { rows } = await db.pool.query<{ id: string }>(
          `with victims as materialized (
             select id from unbroker.jobs where state = 'running' and random() < 0.3 order by id limit 20 for update skip locked
           )
           update unbroker.jobs j set locked_until = clock_timestamp() - interval '1 second'
           from victims where j.id = victims.id returning j.id::text`,
        );
        // The lease itself is an hour: the reaper is told where to look.
        await db.pool.query(`update unbroker.claims set ends_at = clock_timestamp() - interval '1 second'`);
        forced += (await db.store.reap(db.pool, 100)).length;
        // Beside the others again: alone they would come one at a time.
        await db.pool.query(
          `with back as materialized (
             select id from unbroker.jobs where id = any ($1) and solo order by id for update
           )
           update unbroker.jobs j set solo = false from back where j.id = back.id`,
          [rows.map(({ id }) => id)],
        );
        await sleep(5);
      }
      await until('all are done', async () => (await db.states())['done'] === jobs, {
        withinMs: 120_000,
        everyMs: 50,
      });
    } finally {
      await Promise.all(workers.map((worker) => worker.close()));
    }
    const { stale, problems } = await auditReport(db.pool);
    const { done = 0 } = await db.states();
    return { points: forced, stale, problems, lost: jobs - done };
  });
}

export interface KillsResult extends SixNumbers {
  readonly points: number;
  /** Rows too many: unexpected and duplicated ones, orders without a job, jobs without an order. */
  readonly extra: number;
  readonly stale: number;
  readonly problems: readonly string[];
  readonly dead: number;
  /** Done without an effect. */
  readonly effectless: number;
  /** Jobs with more starts than they may have. */
  readonly overstarted: number;
  /** Workers and publishers that ended by themselves. */
  readonly crashed: number;
  readonly deaths: { readonly publisher: number; readonly worker: number; readonly database: number };
}

/** kill -9 of publishers, workers and the database, and immediate stops of it, under load, `cycles` times. */
export async function killCycles(server: PostgresServer, cycles: number): Promise<KillsResult> {
  const folder = mkdtempSync(join(tmpdir(), 'unbroker-journals-'));
  try {
    return await inWorld(server, async (world) => {
      const { db, sink } = world;
      await db.pool.query('create table orders (key text primary key)');
      const journals = [0, 1].map((n) => join(folder, `publisher-${n}`));
      const publisher = await bundled('publisher-child');
      const publishers = journals.map(
        (path) => new Supervised(publisher, { DATABASE_URL: db.url, JOURNAL: path }),
      );
      const workers = [await world.worker({ UPKEEP_MS: '500' }), await world.worker({ UPKEEP_MS: '500' })];
      const deaths = { publisher: 0, worker: 0, database: 0 };
      const acknowledged = () => readJournals(journals).acknowledged.size;
      const untilPublished = (count: number) =>
        until(`${count} orders are acknowledged`, () => acknowledged() >= count, {
          withinMs: 120_000,
          everyMs: 100,
        });
      try {
        // On a busy machine a publisher takes seconds to start: all kills would be over before its first order.
        await untilPublished(10);
        for (let cycle = 0; cycle < cycles; cycle += 1) {
          await sleep(100 + Math.random() * 400);
          const victim =
            (['publisher', 'worker', 'worker', 'database'] as const)[Math.floor(Math.random() * 4)] ??
            'worker';
          deaths[victim] += 1;
          if (victim === 'database') {
            if (Math.random() < 0.5) await server.kill();
            else await server.stop('immediate');
            await server.start();
          } else await (victim === 'worker' ? workers : publishers)[cycle % 2]?.kill();
        }
        // After the last one, too.
        await untilPublished(Math.max(acknowledged() + 10, 3 * cycles));
      } finally {
        await Promise.all(publishers.map((child) => child.end()));
      }
      const open = async () => {
        const { ready = 0, running = 0 } = await db.states();
        return ready + running;
      };
      await until('every job has ended', async () => (await open()) === 0, {
        withinMs: 180_000,
        everyMs: 200,
      });
      const crashed = [...workers, ...publishers].reduce((sum, child) => sum + child.crashes, 0);
      return { points: cycles, deaths, crashed, ...(await judge(db, sink.read(), journals)) };
    });
  } finally {
    rmSync(folder, { recursive: true });
  }
}

export async function judge(db: JobsDatabase, effects: readonly Effect[], journals: readonly string[]) {
  const { rows } = await db.pool.query<{ id: string; key: string; state: string; max: number }>(
    `select id::text, dedupe_key as key, state, max_attempts as max from unbroker.jobs`,
  );
  const unpaired = await db.pool.query<{ n: number }>(
    `select count(*)::int as n from orders full join unbroker.jobs j on j.dedupe_key = orders.key
     where j.id is null or orders.key is null`,
  );
  const six = compareBooks(
    readJournals(journals),
    rows.map(({ key }) => key),
  );
  const effected = new Set(effects.filter(({ what }) => what === 'effect').map(({ job }) => job));
  const starts = new Map<string, Set<string>>();
  for (const { job, token, what } of effects)
    if (what === 'start') starts.set(job, (starts.get(job) ?? new Set()).add(token));
  const { stale, problems } = await auditReport(db.pool);
  return {
    ...six,
    extra: six.unexpected + six.duplicated + (unpaired.rows[0]?.n ?? 0),
    ...{ stale, problems },
    dead: rows.filter(({ state }) => state === 'dead').length,
    effectless: rows.filter(({ id, state }) => state === 'done' && !effected.has(id)).length,
    overstarted: rows.filter(({ id, max }) => (starts.get(id)?.size ?? 0) > max).length,
  };
}

export interface PoisonResult {
  readonly starts: number;
  readonly maxAttempts: number;
  readonly state: string;
  /** Neighbours whose run was cut short, by start of the poison job. */
  readonly disturbed: readonly number[];
  readonly deadNeighbours: number;
  readonly neighbours: number;
}

/** One job that kills its process, among many that do not, in a process that is started again each time. */
export async function poisonJob(
  server: PostgresServer,
  concurrency: number,
  maxAttempts: number,
): Promise<PoisonResult> {
  return inWorld(server, async (world) => {
    const { db, sink } = world;
    const neighbours = 40 * concurrency;
    await db.put('plain', Array(neighbours / 4).fill(0));
    const [poison] = (await db.put('poison', [0], { maxAttempts })) as [string];
    await db.put('plain', Array((neighbours / 4) * 3).fill(0));
    await world.worker({
      CONCURRENCY: String(concurrency),
      BUSY_MS: '40+40',
      LEASE_MS: '1000',
      UPKEEP_MS: '300',
    });
    await until(
      'the poison job is dead and every other done',
      async () => {
        const { dead = 0, done = 0 } = await db.states();
        return dead >= 1 && dead + done === neighbours + 1;
      },
      { withinMs: 120_000, everyMs: 100 },
    );
    const effects = sink.read();
    const { rows } = await db.pool.query<{ id: string; token: string | null }>(
      `select id::text, result ->> 'token' as token from unbroker.jobs where id <> $1`,
      [poison],
    );
    const finished = new Map(rows.map(({ id, token }) => [id, token]));
    const starts = effects.filter(({ job, what }) => job === poison && what === 'start');
    const disturbed = starts.map(({ pid }) => {
      const beside = effects.filter((e) => e.pid === pid && e.what === 'start' && e.job !== poison);
      return beside.filter(({ job, token }) => finished.get(job) !== token).length;
    });
    return {
      ...{ starts: starts.length, maxAttempts, disturbed, neighbours },
      state: (await db.job(poison)).state,
      deadNeighbours: ((await db.states())['dead'] ?? 0) - 1,
    };
  });
}

export interface RerunResult {
  readonly leaseMs: number;
  /** From the kill to the last of its jobs' next starts. */
  readonly slowestMs: number;
  readonly jobs: number;
  readonly stale: number;
}

/** A worker full of jobs is killed; another, with upkeep as it comes, has to run them again. */
export async function rerunAfterKill(server: PostgresServer, leaseMs: number): Promise<RerunResult> {
  return inWorld(server, async (world) => {
    const { db, sink } = world;
    const jobs = 10;
    const lost = await world.worker({ LEASE_MS: String(leaseMs) });
    await db.put('long', Array(jobs).fill(0));
    await until('all run', async () => (await db.states())['running'] === jobs, { withinMs: 60_000 });
    await world.worker({ LEASE_MS: String(leaseMs) });
    await sleep(500);
    const killedAt = Date.now();
    await lost.kill();
    await until('all are done', async () => (await db.states())['done'] === jobs, {
      withinMs: leaseMs + 60_000,
    });
    const again = sink.read().filter(({ what, attempt }) => what === 'start' && attempt === 2);
    const { stale } = await auditReport(db.pool);
    return { leaseMs, jobs, slowestMs: Math.max(...again.map(({ at }) => at)) - killedAt, stale };
  });
}

/** The same with a backlog of short jobs, of which more are claimed than run, beside another worker with its slots full. */
export async function rerunOfBacklog(server: PostgresServer, leaseMs: number): Promise<RerunResult> {
  return inWorld(server, async ({ db, sink, worker }) => {
    const done = async (): Promise<number> => (await db.states())['done'] ?? 0;
    const env = { LEASE_MS: String(leaseMs), CONCURRENCY: '24', BUSY_MS: '1+2' };
    await db.put('plain', Array(10_000).fill(0));
    const lost = await worker(env);
    await until('it works', async () => (await done()) > 500);
    await worker(env);
    const before = await done();
    await until('both work', async () => (await done()) > before + 1_000);
    const { pid } = lost.process;
    const killedAt = Date.now();
    await lost.kill();
    const { rows } = await db.pool.query<{ id: string }>(
      `select id::text from unbroker.jobs where state = 'running' and locked_by like '%:' || $1 || ':%'`,
      [String(pid)],
    );
    const held = new Set(rows.map(({ id }) => id));
    await until(
      'its jobs are done',
      async () => {
        const { rowCount } = await db.pool.query(
          `select from unbroker.jobs where id = any ($1) and state = 'done'`,
          [[...held]],
        );
        return rowCount === held.size;
      },
      { withinMs: leaseMs + 60_000 },
    );
    const again = sink
      .read()
      .filter(({ job, what, at }) => what === 'start' && held.has(job) && at > killedAt);
    const { stale } = await auditReport(db.pool);
    const slowestMs = Math.max(0, ...again.map(({ at }) => at)) - killedAt;
    return { leaseMs, jobs: held.size, slowestMs, stale };
  });
}

export interface PausedResult {
  readonly stale: number;
  readonly problems: readonly string[];
  /** The paused process is the one that was started, and works. */
  readonly alive: boolean;
  readonly done: number;
}

/** A worker is stopped (a paused machine, a long garbage collection) for longer than its leases, and resumed. */
export async function pausedWorker(server: PostgresServer): Promise<PausedResult> {
  return inWorld(server, async (world) => {
    const { db, sink } = world;
    const paused = await world.worker({ LEASE_MS: '1000', UPKEEP_MS: '200', BUSY_MS: '700+0' });
    const { pid } = paused.process;
    await db.put('plain', Array(20).fill(0));
    await until('it runs', async () => (await db.states())['running'] === 10, { withinMs: 60_000 });
    paused.process.signal('SIGSTOP');
    const other = await world.worker({ LEASE_MS: '1000', UPKEEP_MS: '200', BUSY_MS: '5+5' });
    await until('another has done its jobs', async () => (await db.states())['done'] === 20, {
      withinMs: 60_000,
    });
    paused.process.signal('SIGCONT');
    // Beside the other one, which is quicker, it might get none of them. Ended, not killed: a killed one starts again.
    await other.end();
    await db.put('plain', Array(20).fill(0));
    await until('all are done', async () => (await db.states())['done'] === 40, { withinMs: 60_000 });
    const { stale, problems } = await auditReport(db.pool);
    const workedAfter = sink.read().some((e) => e.pid === pid && e.what === 'start' && Number(e.job) > 20);
    return { stale, problems, alive: paused.deaths === 0 && workedAfter, done: 40 };
  });
}

/** So many storms, each in a fresh table, with seeds that follow one another. */
async function workerStorms(server: PostgresServer, count: number) {
  const firstSeed = newSeed();
  const sums = { count, firstSeed, starts: 0, stops: 0, neverStarted: 0 };
  const problems: string[] = [];
  for (let seed = firstSeed; seed < firstSeed + count; seed += 1) {
    const db = await jobsDatabase({ server });
    try {
      const storm = await workerStorm(db, { seed, jobs: 1_500, rounds: 14, hostile: seed % 2 === 1 });
      for (const sum of ['starts', 'stops', 'neverStarted'] as const) sums[sum] += storm[sum];
      problems.push(...storm.problems.map((problem) => `seed ${seed}: ${problem}`));
    } finally {
      await db.close();
    }
  }
  return { ...sums, problems };
}

/** `npm run faults -- worker [--long]`. */
export async function faultsWorker({ long }: { readonly long: boolean }): Promise<Record<string, unknown>> {
  const server = await startPostgres({ controllable: true });
  const say = (name: string, result: unknown): void =>
    void process.stderr.write(`${name}: ${JSON.stringify(result)}\n`);
  try {
    const expiries = await forcedExpiries(server, 10_000);
    say('forced expiries', expiries);
    const poison = [];
    for (const concurrency of [10, 100]) {
      poison.push(await poisonJob(server, concurrency, 4));
      say(`poison, concurrency ${concurrency}`, poison.at(-1));
    }
    const rerun = await rerunAfterKill(server, 5_000);
    say('run again after a kill', rerun);
    const backlog = await rerunOfBacklog(server, 5_000);
    say('run again after a kill in a backlog', backlog);
    const paused = await pausedWorker(server);
    say('paused', paused);
    const ends = [];
    for (const settleBatch of [1, 1_000]) {
      ends.push(
        await endsAndKills(server, { settleBatch, kills: long ? 100 : 10, jobs: long ? 60_000 : 8_000 }),
      );
      say(`ends told and the database killed, ${settleBatch} a write`, ends.at(-1));
    }
    const storms = await workerStorms(server, long ? 200 : 20);
    say('storms', storms);
    const kills = await killCycles(server, long ? 1_000 : 200);
    say('kill cycles', kills);
    const poisonGood = poison.filter(
      (p) =>
        p.starts === p.maxAttempts &&
        p.state === 'dead' &&
        p.deadNeighbours === 0 &&
        p.disturbed.slice(1).every((n) => n === 0),
    );
    return {
      points: kills.points,
      lost: kills.lost + expiries.lost + ends.reduce((sum, { lost, undone }) => sum + lost + undone, 0),
      extra: kills.extra,
      stale: expiries.stale + kills.stale + rerun.stale + backlog.stale + paused.stale,
      failed: kills.crashed + kills.dead + kills.effectless + kills.overstarted + storms.problems.length,
      recovered: kills.recovered,
      expiries: expiries.points,
      ...{
        attempted: kills.attempted,
        acknowledged: kills.acknowledged,
        unexpected: kills.unexpected,
        duplicated: kills.duplicated,
      },
      ...{
        dead: kills.dead,
        effectless: kills.effectless,
        overstarted: kills.overstarted,
        deaths: kills.deaths,
      },
      problems: [...expiries.problems, ...kills.problems, ...paused.problems, ...storms.problems],
      storms: { count: storms.count, starts: storms.starts, stops: storms.stops },
      poison: `${poisonGood.length} of ${poison.length}`,
      poisonDisturbed: poison.map(({ disturbed }) => disturbed),
      rerunMs: Math.max(rerun.slowestMs, backlog.slowestMs),
      endsTold: ends.map(({ told }) => told),
      rerunLimitMs: rerun.leaseMs + 6_000,
      pausedAlive: paused.alive,
    };
  } finally {
    await server.close();
  }
}
