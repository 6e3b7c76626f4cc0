/**
 * A primary that is killed under load while its commits wait for a standby, which then takes its place behind the same
 * address. What was acknowledged must be there; publishers and workers must go on by themselves.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { SixNumbers } from '../support/journal.js';
import { noStandby, PRIMARY_SETTINGS, type Standby, startStandby } from '../support/postgres-standby.js';
import { startPostgres } from '../support/services.js';
import { until } from '../support/until.js';
import { bundled, Supervised } from './processes.js';
import { inWorld, judge, type World } from './worker.js';

/** One address for whoever is the primary. */
async function startSwitch(url: string): Promise<{
  readonly url: string;
  /** Cuts every connection; new ones go to this server. */
  turnTo(url: string): void;
  close(): Promise<void>;
}> {
  let port = Number(new URL(url).port);
  const open = new Set<Socket>();
  const server = createServer((client) => {
    const upstream = connect(port, '127.0.0.1');
    for (const [one, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      open.add(one);
      one.on('error', () => undefined);
      one.on('close', () => {
        open.delete(one);
        other.destroy();
      });
      one.pipe(other);
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const own = new URL(url);
  own.port = String((server.address() as { port: number }).port);
  const cut = (): void => {
    for (const socket of open) socket.destroy();
  };
  return {
    url: own.href,
    turnTo(to) {
      port = Number(new URL(to).port);
      cut();
    },
    async close() {
      cut();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

export interface FailoverResult extends SixNumbers {
  readonly points: number;
  readonly extra: number;
  readonly stale: number;
  readonly failed: number;
  /** Acknowledged before the kill and after the promotion: there was load on both sides. */
  readonly acknowledgedBefore: number;
  readonly acknowledgedAfter: number;
  readonly promotedMs: number;
}

/** `loadMs` of load on each side of the failover. */
export async function failover(loadMs: number): Promise<FailoverResult> {
  const primary = await startPostgres({ controllable: true, settings: PRIMARY_SETTINGS });
  const address = await startSwitch(primary.url);
  let standby: Standby | undefined;
  const folder = mkdtempSync(join(tmpdir(), 'unbroker-failover-'));
  try {
    return await inWorld({ url: address.url }, async (world) => {
      await world.db.pool.query('create table orders (key text primary key)');
      standby = await startStandby(primary.url);
      const second = standby;
      return underLoad(world, folder, async (acknowledged) => {
        await sleep(loadMs);
        const before = await acknowledged();
        // Without it a standby next door has everything in time, waited for or not.
        second.cutOff();
        await sleep(300);
        await primary.kill();
        const killedAt = performance.now();
        await second.promote();
        address.turnTo(second.url);
        const promotedMs = Math.round(performance.now() - killedAt);
        await until('it is acknowledged again', async () => (await acknowledged()) > before, {
          withinMs: 60_000,
        });
        await sleep(loadMs);
        return { before, promotedMs };
      });
    });
  } finally {
    await Promise.allSettled([address.close(), primary.close(), standby?.close()]);
    rmSync(folder, { recursive: true, force: true });
  }
}

async function underLoad(
  { db, sink, worker }: World,
  folder: string,
  act: (acknowledged: () => Promise<number>) => Promise<{ before: number; promotedMs: number }>,
): Promise<FailoverResult> {
  const journals = [0, 1].map((n) => join(folder, `publisher-${n}`));
  const program = await bundled('publisher-child');
  const publishers = journals.map((path) => new Supervised(program, { DATABASE_URL: db.url, JOURNAL: path }));
  const workers = [await worker({ UPKEEP_MS: '500' }), await worker({ UPKEEP_MS: '500' })];
  const acknowledged = async (): Promise<number> =>
    (await db.pool.query<{ n: number }>('select count(*)::int as n from orders').catch(() => null))?.rows[0]
      ?.n ?? 0;
  let acted: { before: number; promotedMs: number };
  try {
    await until('there is load', async () => (await acknowledged()) > 20, { withinMs: 60_000 });
    acted = await act(acknowledged);
  } finally {
    await Promise.all(publishers.map((child) => child.end()));
  }
  const open = async (): Promise<number> => {
    const { ready = 0, running = 0 } = await db.states();
    return ready + running;
  };
  await until('every job has ended', async () => (await open()) === 0, { withinMs: 120_000, everyMs: 100 });
  const { extra, stale, problems, dead, effectless, overstarted, ...six } = await judge(
    db,
    sink.read(),
    journals,
  );
  const crashed = [...workers, ...publishers].reduce((sum, child) => sum + child.crashes, 0);
  return {
    ...{ points: 1, extra, stale, failed: problems.length + dead + effectless + overstarted + crashed },
    ...six,
    acknowledgedBefore: acted.before,
    acknowledgedAfter: (await acknowledged()) - acted.before,
    promotedMs: acted.promotedMs,
  };
}

/** Several times in a row: each finds another moment. */
export async function faultsFailover({ long }: { readonly long: boolean }): Promise<object> {
  const missing = noStandby();
  if (missing !== null) return { skipped: missing };
  const runs: FailoverResult[] = [];
  for (let n = 0; n < (long ? 20 : 3); n += 1) {
    const run = await failover(1_000 + Math.random() * 2_000);
    process.stderr.write(`failover ${n + 1}: ${JSON.stringify(run)}\n`);
    runs.push(run);
  }
  const keys = [
    'points',
    'lost',
    'extra',
    'stale',
    'failed',
    'attempted',
    'acknowledged',
    'recovered',
  ] as const;
  const sums = keys.map((key) => [key, runs.reduce((sum, run) => sum + run[key], 0)]);
  return { ...Object.fromEntries(sums), promotedMs: runs.map(({ promotedMs }) => promotedMs) };
}
