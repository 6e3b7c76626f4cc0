/**
 * Five troubles under a steady load, as in a public benchmark of job queues: the database restarts, its backends are
 * killed, its connections are used up, a worker crashes, workers are killed again and again. Counted is whether the rate
 * is back at 95 % within a minute, in the same process unless its own death is the trouble.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { auditReport, installAudit } from '../support/audit.js';
import { startEffectsSink } from '../support/effects-sink.js';
import { type JobsDatabase, jobsDatabase } from '../support/jobs.js';
import { type PostgresServer, startPostgres } from '../support/services.js';
import { bundled, Supervised } from './processes.js';

const PER_SECOND = 200;
const WINDOW_MS = 3_000;
const RECOVER_WITHIN_MS = 60_000;
/** Few, so that using them up is quick. */
const MAX_CONNECTIONS = 40;

interface Scenario {
  readonly name: string;
  /** The trouble is the death of workers: another process is no failure. */
  readonly kills: boolean;
  act(world: ChaosWorld): Promise<void>;
}

interface ChaosWorld {
  readonly server: PostgresServer;
  readonly db: JobsDatabase;
  readonly workers: readonly Supervised[];
}

const times = async (count: number, everyMs: number, act: () => Promise<unknown>): Promise<void> => {
  for (let i = 0; i < count; i += 1) {
    await act();
    await sleep(everyMs);
  }
};

const SCENARIOS: readonly Scenario[] = [
  {
    name: 'database restart',
    kills: false,
    async act({ server }) {
      await server.stop('fast');
      await sleep(2_000);
      await server.start();
    },
  },
  {
    name: 'backend kill',
    kills: false,
    act: ({ db }) =>
      times(10, 500, () =>
        db.pool.query(
          `select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'chaos-%'`,
        ),
      ),
  },
  {
    name: 'connections used up',
    kills: false,
    async act({ db }) {
      const taken: pg.Client[] = [];
      // Those of the workers, too: whoever reconnects finds no room.
      await db.pool.query(
        `select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'chaos-%'`,
      );
      for (let i = 0; i < MAX_CONNECTIONS; i += 1) {
        const client = new pg.Client({ connectionString: db.url });
        client.on('error', () => {});
        await client
          .connect()
          .then(() => taken.push(client))
          .catch(() => undefined);
      }
      await sleep(5_000);
      await Promise.allSettled(taken.map((client) => client.end()));
    },
  },
  { name: 'worker crash', kills: true, act: async ({ workers }) => workers[0]?.kill() },
  {
    name: 'repeated kills',
    kills: true,
    async act({ workers }) {
      let n = 0;
      await times(6, 1_000, async () => workers[n++ % workers.length]?.kill());
    },
  },
];

export interface ChaosResult {
  readonly points: number;
  readonly recovered: number;
  readonly failed: number;
  readonly lost: number;
  readonly extra: number;
  readonly stale: number;
  readonly scenarios: Readonly<Record<string, { ratio: number; afterMs: number; sameProcess: boolean }>>;
}

/** `npm run faults -- chaos [--long]`; long: each trouble three times. */
export async function faultsChaos({ long }: { readonly long: boolean }): Promise<ChaosResult> {
  const server = await startPostgres({
    controllable: true,
    settings: { max_connections: String(MAX_CONNECTIONS) },
  });
  const scenarios: Record<string, { ratio: number; afterMs: number; sameProcess: boolean }> = {};
  let points = 0;
  let recovered = 0;
  const books = { put: 0, done: 0, stale: 0 };
  try {
    for (let round = 0; round < (long ? 3 : 1); round += 1) {
      for (const scenario of SCENARIOS) {
        const outcome = await runScenario(server, scenario);
        points += 1;
        const { ratio, afterMs, sameProcess } = outcome;
        const good = ratio >= 0.95 && afterMs <= RECOVER_WITHIN_MS && (scenario.kills || sameProcess);
        recovered += good ? 1 : 0;
        books.put += outcome.put;
        books.done += outcome.done;
        books.stale += outcome.stale;
        scenarios[scenario.name] = { ratio, afterMs, sameProcess };
        process.stderr.write(`${scenario.name}: ${JSON.stringify(outcome)}\n`);
      }
    }
    return {
      ...{ points, recovered, failed: points - recovered, scenarios },
      lost: Math.max(0, books.put - books.done),
      extra: Math.max(0, books.done - books.put),
      stale: books.stale,
    };
  } finally {
    await server.close();
  }
}

async function runScenario(server: PostgresServer, scenario: Scenario) {
  const db = await jobsDatabase({ server });
  const sink = await startEffectsSink();
  await installAudit(db.pool);
  const file = await bundled('worker-child');
  const workers = [0, 1].map(
    (n) =>
      new Supervised(file, {
        ...{ DATABASE_URL: db.url, EFFECTS_PORT: String(sink.port), NAME: `chaos-${n}` },
        ...{ LEASE_MS: '3000', UPKEEP_MS: '1000', BUSY_MS: '10+10' },
      }),
  );
  const feed = startFeed(db);
  const done = async (): Promise<number> => (await db.states())['done'] ?? 0;
  /** Finished in a window, patient with a database that is away. */
  const rate = async (): Promise<number> => {
    const before = await done();
    const startedAt = performance.now();
    await sleep(WINDOW_MS);
    return ((await done()) - before) / ((performance.now() - startedAt) / 1_000);
  };
  try {
    await sleep(3_000);
    // What workers that took long to start catch up with is no rate that anything comes back to.
    const before = Math.min(await rate(), PER_SECOND);
    const pids = workers.map((worker) => worker.process.pid);
    await scenario.act({ server, db, workers });
    const endedAt = performance.now();
    let ratio = 0;
    while (ratio < 0.95 && performance.now() - endedAt < RECOVER_WITHIN_MS) {
      ratio = (await rate().catch(() => 0)) / before;
    }
    const afterMs = Math.round(performance.now() - endedAt);
    const put = await feed.stop();
    while ((await done()) < put && performance.now() - endedAt < 2 * RECOVER_WITHIN_MS) await sleep(100);
    const sameProcess = workers.every((worker, n) => worker.deaths === 0 && worker.process.pid === pids[n]);
    const { stale } = await auditReport(db.pool);
    return { ratio: Math.round(ratio * 100) / 100, afterMs, sameProcess, put, done: await done(), stale };
  } finally {
    await feed.stop();
    await Promise.allSettled(workers.map((worker) => worker.end()));
    await Promise.allSettled([sink.close(), db.close()]);
  }
}

/** Puts jobs in at a steady rate; what could not be put in is put in later. */
function startFeed(db: JobsDatabase): { stop(): Promise<number> } {
  const startedAt = performance.now();
  let put = 0;
  let stopped = false;
  const loop = (async () => {
    while (!stopped) {
      const due = Math.floor(((performance.now() - startedAt) / 1_000) * PER_SECOND) - put;
      // By key, so that an answer that was lost makes no second job.
      const keys = Array.from({ length: Math.min(due, 200) }, (_, n) => `k${put + n}`);
      const sent = await Promise.all([
        db.pool.query(
          `insert into unbroker.jobs (kind, payload, dedupe_key) select 'plain', 'null', k from unnest($1::text[]) k on conflict do nothing`,
          [keys],
        ),
      ]).then(
        () => true,
        () => false,
      );
      if (sent) put += keys.length;
      await sleep(20);
    }
  })();
  return {
    async stop() {
      stopped = true;
      await loop;
      return put;
    },
  };
}
