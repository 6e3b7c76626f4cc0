/**
 * What a database that runs may do to its workers, under a steady load: its disk is full, its syncs fail, it lets the
 * worker's role in no more or cancels what takes long. Judged by the journal of who enqueues, the effects and the rate.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, renameSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { enqueueMany } from '../../src/enqueue.js';
import { roleSql } from '../../src/roles.js';
import { administer } from '../support/administer.js';
import { failSyncs, mountSmallDisk, noInjection, noMount, type SmallDisk } from '../support/disk-faults.js';
import type { JobsDatabase } from '../support/jobs.js';
import { Journal } from '../support/journal.js';
import { type PostgresServer, startPostgres } from '../support/services.js';
import { until } from '../support/until.js';
import { inWorld, judge, type World } from './worker.js';

const PER_SECOND = 100;
const WINDOW_MS = 3_000;
const FAULT_MS = 5_000;
const BACKLOG = 3_000;
const RECOVER_WITHIN_MS = 60_000;
const ENDED_WITHIN_MS = 120_000;
/** The worker's, which may be limited; whoever enqueues is another. */
const ROLE = 'faulted_worker';

interface Stage {
  readonly server: PostgresServer;
  readonly db: JobsDatabase;
  readonly disk: SmallDisk | undefined;
  readonly feed: Feed;
}

interface Feed {
  /** Puts a backlog in, in one transaction: work for workers while nobody can put in more. */
  backlog(count: number): Promise<void>;
  stop(): Promise<void>;
}

interface Scenario {
  readonly name: string;
  /** What the server's log says of it: a fault that did not bite proves nothing. */
  readonly mark: RegExp;
  /** Why it cannot be done here; null when it can. */
  missing(): Promise<string | null>;
  /** Puts a part of the server on a disk of its own. */
  onto?(server: PostgresServer, disk: SmallDisk, data: string): Promise<void>;
  /** Comes, lasts and is gone when it resolves. */
  act(stage: Stage): Promise<void>;
}

const nothing = async (): Promise<null> => null;

/** A server that gave up is started again by its operator, once there is room. */
async function backAgain(server: PostgresServer): Promise<void> {
  const answers = () =>
    administer(server.url, 'select 1').then(
      () => true,
      () => false,
    );
  for (let asked = 0; asked < 20; asked += 1) {
    if (await answers()) return;
    await sleep(250);
  }
  await server.kill();
  await server.start();
}

const SCENARIOS: readonly Scenario[] = [
  {
    name: 'disk of the tables full',
    mark: /No space left on device/g,
    missing: noMount,
    async onto(server, disk) {
      await administer(server.url, `create tablespace small location '${disk.path}'`);
      await administer(server.url, `alter system set default_tablespace = 'small'`);
      await administer(server.url, 'select pg_reload_conf()');
    },
    async act({ disk, feed }) {
      // Claims and ends need new pages, too; with nothing to do a worker would never ask for one.
      await feed.backlog(BACKLOG);
      await disk?.fill();
      await sleep(FAULT_MS);
      await disk?.free();
    },
  },
  {
    name: 'disk of the WAL full',
    mark: /PANIC:.*No space left on device/g,
    missing: noMount,
    async onto(server, disk, data) {
      await server.stop('fast');
      const own = join(disk.path, 'pg_wal');
      execFileSync('cp', ['-a', join(data, 'pg_wal'), own]);
      renameSync(join(data, 'pg_wal'), join(data, 'pg_wal.old'));
      symlinkSync(own, join(data, 'pg_wal'));
      await server.start();
    },
    async act({ server, disk }) {
      await disk?.fill();
      // Segments that were made ahead are used up first.
      for (let n = 0; n < 20; n += 1) {
        await administer(server.url, 'select pg_switch_wal()').catch(() => undefined);
        await sleep(FAULT_MS / 20);
      }
      await disk?.free();
      await backAgain(server);
    },
  },
  {
    name: 'syncs fail',
    mark: /PANIC:.*could not (fsync|fdatasync)/g,
    missing: noInjection,
    async act({ server, db }) {
      // Crashed and recovered three times: each time those that run then.
      for (let n = 0; n < 3; n += 1) {
        const pids = await db.pool
          .query<{ pid: number }>(
            `select pid from pg_stat_activity where backend_type in ('checkpointer', 'walwriter')
               or backend_type = 'client backend' and pid <> pg_backend_pid()`,
          )
          .then(
            ({ rows }) => rows.map(({ pid }) => pid),
            () => [],
          );
        if (pids.length > 0) {
          const failing = await failSyncs(pids);
          await sleep(FAULT_MS / 3);
          await failing.end();
        }
        await backAgain(server);
      }
    },
  },
  {
    name: 'connection limit',
    mark: /too many connections for role/g,
    missing: nothing,
    async act({ db }) {
      await db.pool.query(`alter role ${ROLE} connection limit 1`);
      await endSessions(db);
      await sleep(FAULT_MS);
      await db.pool.query(`alter role ${ROLE} connection limit -1`);
    },
  },
  {
    name: 'statement timeout',
    mark: /canceling statement due to statement timeout/g,
    missing: nothing,
    async act({ db }) {
      // It stays: a worker that lives with it has its rate whenever the server is not slow.
      await db.pool.query(`alter role ${ROLE} set statement_timeout = '250ms'`);
      await endSessions(db);
      const slow = await db.session();
      for (let n = 0; n < 4; n += 1) {
        await slow.query('begin');
        await slow.query('lock table unbroker.jobs in access exclusive mode');
        await sleep(FAULT_MS / 5);
        await slow.query('commit');
        await sleep(FAULT_MS / 20);
      }
      await slow.end();
    },
  },
];

const endSessions = (db: JobsDatabase) =>
  db.pool.query(`select pg_terminate_backend(pid) from pg_stat_activity where usename = '${ROLE}'`);

/** Each with a server of its own. */
async function runScenario(scenario: Scenario) {
  const server = await startPostgres({ controllable: true });
  const disk = scenario.onto === undefined ? undefined : mountSmallDisk();
  const folder = mkdtempSync(join(tmpdir(), 'unbroker-database-faults-'));
  try {
    const data = await dataFolder(server);
    if (disk !== undefined) await scenario.onto?.(server, disk, data);
    return await inWorld(server, (world) =>
      underLoad(world, join(folder, 'journal'), join(dirname(data), 'postgres.log'), scenario.mark, (feed) =>
        scenario.act({ server, disk, db: world.db, feed }),
      ),
    );
  } finally {
    await server.close();
    await disk?.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

async function dataFolder(server: PostgresServer): Promise<string> {
  const client = new pg.Client({ connectionString: server.url });
  client.on('error', () => {});
  await client.connect();
  try {
    const { rows } = await client.query<{ data_directory: string }>('show data_directory');
    return rows[0]?.data_directory ?? '';
  } finally {
    await client.end();
  }
}

async function underLoad(
  { db, sink, worker }: World,
  journal: string,
  log: string,
  mark: RegExp,
  act: (feed: Feed) => Promise<void>,
) {
  await db.pool.query('create table orders (key text primary key)');
  // The judge in the database is no part of what the role may do.
  await db.pool.query('alter function audit.judge() security definer');
  for (const statement of roleSql('unbroker', { worker: ROLE }, { create: true }))
    await db.pool.query(statement);
  await db.pool.query(`alter role ${ROLE} login`);
  const url = new URL(db.url);
  url.username = ROLE;
  const env = { DATABASE_URL: url.href, LEASE_MS: '3000', UPKEEP_MS: '1000', BUSY_MS: '10+10' };
  const workers = [await worker(env), await worker(env)];
  const pids = workers.map((one) => one.process.pid);
  const feed = startFeed(db.url, journal);
  const done = async (): Promise<number> => (await db.states())['done'] ?? 0;
  const rate = async (): Promise<number> => {
    const before = await done();
    const startedAt = performance.now();
    await sleep(WINDOW_MS);
    return ((await done()) - before) / ((performance.now() - startedAt) / 1_000);
  };
  let ratio = 0;
  let afterMs = 0;
  try {
    await until('there is load', async () => (await done()) > PER_SECOND, { everyMs: 100 });
    // What workers that took long to start catch up with is no rate that anything comes back to.
    const before = Math.min(await rate(), PER_SECOND);
    await act(feed);
    const endedAt = performance.now();
    while (ratio < 0.95 && performance.now() - endedAt < RECOVER_WITHIN_MS)
      ratio = (await rate().catch(() => 0)) / before;
    afterMs = Math.round(performance.now() - endedAt);
  } finally {
    await feed.stop();
  }
  const open = async (): Promise<number> => {
    const { ready = 0, running = 0 } = await db.states();
    return ready + running;
  };
  await until('every job has ended', async () => (await open()) === 0, {
    ...{ withinMs: ENDED_WITHIN_MS, everyMs: 100 },
  });
  const sameProcess = workers.every((one, n) => one.deaths === 0 && one.process.pid === pids[n]);
  const { problems, dead, effectless, overstarted, ...books } = await judge(db, sink.read(), [journal]);
  return {
    ...books,
    ...{ bites: readFileSync(log, 'utf8').match(mark)?.length ?? 0, sameProcess },
    ...{ ratio: Math.round(ratio * 100) / 100, afterMs },
    failed: problems.length + dead + effectless + overstarted,
  };
}

/** Orders with their jobs at a steady rate, by someone who keeps a journal; what is refused is not put in later. */
function startFeed(url: string, path: string): Feed {
  const pool = new pg.Pool({
    ...{ connectionString: url, max: 2, connectionTimeoutMillis: 2_000, statement_timeout: 5_000 },
  });
  pool.on('error', () => {});
  pool.on('connect', (client) => client.on('error', () => {}));
  const journal = new Journal(path);
  const startedAt = performance.now();
  let offered = 0;
  let stopped = false;
  const put = async (keys: readonly string[]): Promise<void> => {
    for (const key of keys) journal.attempt(key);
    const client = await pool.connect();
    let sound = false;
    try {
      await client.query('begin');
      await client.query('insert into orders select unnest($1::text[])', [keys]);
      const retryPolicy = { type: 'fixed', delayMs: 50 } as const;
      await enqueueMany(
        client,
        keys.map((key) => ({ kind: 'plain', payload: { key }, dedupeKey: key, retryPolicy })),
      );
      await client.query('commit');
      for (const key of keys) journal.acknowledge(key);
      sound = true;
    } finally {
      client.release(!sound);
    }
  };
  const loop = (async () => {
    while (!stopped) {
      const due = Math.floor(((performance.now() - startedAt) / 1_000) * PER_SECOND) - offered;
      const keys = Array.from({ length: due }, (_, n) => `k${offered + n}`);
      offered += due;
      if (due > 0) await put(keys).catch(() => undefined);
      await sleep(40);
    }
    await pool.end();
    journal.close();
  })();
  return {
    backlog: (count) => put(Array.from({ length: count }, (_, n) => `b${n}`)),
    async stop() {
      stopped = true;
      await loop;
    },
  };
}

/** `npm run faults -- database [--long]`; long: each three times. What cannot be done here is named and counted. */
export async function faultsDatabase({ long }: { readonly long: boolean }): Promise<object> {
  const scenarios: Record<string, object> = {};
  const skipped: string[] = [];
  const sums = {
    ...{ points: 0, attempted: 0, acknowledged: 0, lost: 0, unexpected: 0, duplicated: 0, recovered: 0 },
    ...{ extra: 0, stale: 0, failed: 0 },
  };
  for (const scenario of SCENARIOS) {
    const missing = await scenario.missing();
    if (missing !== null) {
      skipped.push(`${scenario.name}: ${missing}`);
      continue;
    }
    for (let round = 0; round < (long ? 3 : 1); round += 1) {
      const outcome = await runScenario(scenario);
      const { ratio, afterMs, sameProcess, bites } = outcome;
      const good = ratio >= 0.95 && afterMs <= RECOVER_WITHIN_MS + WINDOW_MS && sameProcess && bites > 0;
      for (const key of ['attempted', 'acknowledged', 'lost', 'unexpected', 'duplicated'] as const)
        sums[key] += outcome[key];
      for (const key of ['recovered', 'extra', 'stale', 'failed'] as const) sums[key] += outcome[key];
      sums.points += 1;
      sums.failed += good ? 0 : 1;
      scenarios[scenario.name] = { ratio, afterMs, sameProcess, bites };
      process.stderr.write(`${scenario.name}: ${JSON.stringify(outcome)}
`);
    }
  }
  return { ...sums, scenarios, skipped };
}
