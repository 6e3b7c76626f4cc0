/**
 * A slot fires once, whoever is at it: two schedulers on one slot, one that dies in the middle, several that are paused,
 * resumed and cut off at random. Who waits for whom is seen in pg_blocking_pids; time is told, not waited for.
 */
import { join } from 'node:path';
import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises';
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import { Firing } from '../../src/jobs/firing.js';
import type { Queryable } from '../../src/jobs/job.js';
import { parseRule, slotsAfter } from '../../src/jobs/schedule.js';
import type { DueRow, Move } from '../../src/jobs/schedule-store.js';
import { createWorker } from '../../src/jobs/worker.js';
import { createSchedules } from '../../src/schedules.js';
import { jobsDatabase } from '../support/jobs.js';
import { startScript } from '../support/processes.js';
import { seeded } from '../support/seeded.js';
import { until } from '../support/until.js';

const db = await jobsDatabase();
afterAll(() => db.close());
beforeEach(() => db.clear());

const { schedule, findSchedule, pauseSchedule, scheduleHistory } = createSchedules();

const NINE = '2025-07-01T09:00:00.000Z';
const NOW_MS = Date.parse(NINE) + 250;

/** A daily schedule whose nine o'clock slot is due. */
async function daily(name = 'daily'): Promise<string> {
  const { id } = await schedule(db.pool, { name, kind: 'k', cron: '0 9 * * *', misfire: 'all' });
  await db.pool.query('update unbroker.jobs set run_at = $2, slots_until = $2 where id = $1', [id, NINE]);
  return id;
}

/** What a scheduler read and decided; it may be late with it. */
async function plan(name = 'daily'): Promise<Move[]> {
  const rows = await db.store.dueSchedules(db.pool, 100, [], new Date(NOW_MS));
  const names = await db.pool.query<{ id: string }>('select id from unbroker.jobs where dedupe_key = $1', [
    `schedule:${name}`,
  ]);
  const row = rows.find(({ id }) => id === names.rows[0]?.id) as DueRow;
  return [{ row, slotsMs: [row.runAtMs], nextMs: row.runAtMs + 86_400_000 }];
}

const fire = (session: Queryable, moves: readonly Move[]) =>
  db.store.fireSchedules(session, moves, NOW_MS, 'test');
const jobs = async (name = 'daily'): Promise<number> => (await scheduleHistory(db.pool, name)).length;
const next = async (name = 'daily') => (await findSchedule(db.pool, name))?.nextRunAt?.toISOString();

describe('two schedulers, one slot', () => {
  test('the second passes the row that the first holds, and finds it moved afterwards', async () => {
    await daily();
    const [first, second] = [await db.session(), await db.session()];
    const [one, two] = [await plan(), await plan()];
    await first.query('begin');
    expect((await fire(first, one))[0]?.jobs).toHaveLength(1);
    await second.query(`set statement_timeout = '5s'`);
    expect(await fire(second, two)).toEqual([]);
    await first.query('commit');
    expect(await fire(second, two)).toEqual([]);
    expect([await jobs(), await next()]).toEqual([1, '2025-07-02T09:00:00.000Z']);
  });

  test('after the first rolls back, the second fires it', async () => {
    await daily();
    const first = await db.session();
    await first.query('begin');
    await fire(first, await plan());
    await first.query('rollback');
    expect(await fire(db.pool, await plan())).toHaveLength(1);
    expect(await jobs()).toBe(1);
  });

  test('a slot that is already somebody’s job is not made again: the second waits for its key, then goes on', async () => {
    const id = await daily();
    const elsewhere = await db.session();
    await elsewhere.query('begin');
    await elsewhere.query('insert into unbroker.jobs (kind, dedupe_key, source) values ($1, $2, $3)', [
      'k',
      `slot:${id}:${NINE}`,
      'schedule:daily',
    ]);
    const scheduler = await db.session();
    const fired = fire(scheduler, await plan());
    await scheduler.untilBlocked();
    await elsewhere.query('commit');
    expect((await fired)[0]).toMatchObject({ name: 'daily', jobs: [] });
    expect([await jobs(), await next()]).toEqual([1, '2025-07-02T09:00:00.000Z']);
  });

  test('a run_at set back by hand does not fire its slot again', async () => {
    const id = await daily();
    await fire(db.pool, await plan());
    await db.pool.query('update unbroker.jobs set run_at = $2 where id = $1', [id, NINE]);
    expect((await fire(db.pool, await plan()))[0]?.jobs).toEqual([]);
    expect(await jobs()).toBe(1);
  });

  test('decided under a rule that was changed meanwhile: not fired', async () => {
    await daily();
    const late = await plan();
    await db.pool.query(`update unbroker.jobs set cron = '0 10 * * *'`);
    expect(await fire(db.pool, late)).toEqual([]);
    await db.pool.query(`update unbroker.jobs set cron = '0 9 * * *', time_zone = 'Asia/Tokyo'`);
    expect(await fire(db.pool, late)).toEqual([]);
    await db.pool.query(`update unbroker.jobs set time_zone = 'UTC'`);
    await pauseSchedule(db.pool, 'daily');
    expect(await fire(db.pool, late)).toEqual([]);
    expect(await jobs()).toBe(0);
  });

  test('a schedule that an open transaction holds keeps no other waiting', async () => {
    await daily('held');
    await daily('free');
    const holder = await db.session();
    await holder.query('begin');
    await pauseSchedule(holder, 'held');
    const firing = new Firing({ store: db.store, db: db.pool, clock: () => new Date(NOW_MS) });
    // Nothing else is due: it does not ask again at once.
    expect(await firing.sweep()).toBe(1_000);
    expect([await jobs('held'), await jobs('free')]).toEqual([0, 1]);
    await holder.query('rollback');
    await firing.sweep();
    expect(await jobs('held')).toBe(1);
  });
});

describe('there is no moment between the job and the next slot', () => {
  /** Stops a firing in its middle: the row is moved, its job waits for the key that another transaction holds. */
  async function halfway() {
    const id = await daily();
    const holder = await db.session();
    await holder.query('begin');
    await holder.query('insert into unbroker.jobs (kind, dedupe_key) values ($1, $2)', [
      'k',
      `slot:${id}:${NINE}`,
    ]);
    const scheduler = await db.session();
    const fired = fire(scheduler, await plan()).catch(() => 'died');
    await scheduler.untilBlocked();
    return { holder, scheduler, fired };
  }

  test('its server process dies there: neither happened, and the next sweep does both', async () => {
    const { holder, scheduler, fired } = await halfway();
    await db.pool.query('select pg_terminate_backend($1)', [scheduler.pid]);
    expect(await fired).toBe('died');
    await holder.query('rollback');
    // Its client hears of the end a moment before its locks are free.
    await untilGone(scheduler.pid);
    expect([await jobs(), await next()]).toEqual([0, NINE]);
    await fire(db.pool, await plan());
    expect([await jobs(), await next()]).toEqual([1, '2025-07-02T09:00:00.000Z']);
  });

  test('its own process dies there (kill -9 cuts the connection): both happened or neither', async () => {
    const { holder, scheduler } = await halfway();
    const { connection } = scheduler.client as unknown as { connection: { stream: { destroy(): void } } };
    connection.stream.destroy();
    await holder.query('rollback');
    await untilGone(scheduler.pid);
    const moved = (await next()) !== NINE;
    expect(await jobs()).toBe(moved ? 1 : 0);
    await fire(db.pool, (await next()) === NINE ? await plan() : []);
    expect([await jobs(), await next()]).toEqual([1, '2025-07-02T09:00:00.000Z']);
  });
});

function untilGone(pid: number): Promise<unknown> {
  return until('the server process is gone', async () => {
    const { rows } = await db.pool.query('select from pg_stat_activity where pid = $1', [pid]);
    return rows.length === 0;
  });
}

test.each([1, 2, 3, 4, 5, 6])(
  'three schedulers paused, resumed and cut off at random: every slot once, none missing (seed %i)',
  async (seed) => {
    const chance = seeded(seed);
    const startMs = Date.parse('2025-03-30T00:00:00Z');
    const endMs = startMs + 12 * 3_600_000;
    const rules = [
      ['* * * * *', 'UTC'],
      ['*/7 * * * *', 'Europe/Paris'],
      ['*/20 2-4 * * *', 'Europe/Paris'],
      ['30 2 * * *', 'Europe/Paris'],
      ['@every 90s', 'UTC'],
      ['15 * * * *', 'America/St_Johns'],
    ] as const;
    const named = rules.flatMap(([cron, timeZone]) =>
      [0, 1].map((copy) => ({ name: `${cron} ${timeZone} ${copy}`, cron, timeZone })),
    );
    for (const one of named) await schedule(db.pool, { ...one, kind: 'k', misfire: 'all' });
    for (const { name, cron, timeZone } of named) {
      const [first] = slotsAfter(parseRule(cron, timeZone), startMs, 1, null);
      await db.pool.query(
        `update unbroker.jobs set run_at = $2, slots_until = $3 where dedupe_key = 'schedule:' || $1`,
        [name, new Date(first as number), new Date(startMs)],
      );
    }
    let nowMs = startMs;
    /** Before and after each statement it may rest for long, never send it, or lose the answer. */
    const shaky: Queryable = {
      async query(text, values) {
        const rest = async () => {
          for (let left = chance() < 0.3 ? chance() * 60 : 0; left > 0; left -= 1) await turn();
        };
        await rest();
        if (chance() < 0.03) throw new Error('not sent');
        const answer = await db.pool.query(text, values);
        await rest();
        if (chance() < 0.03) throw new Error('answer lost');
        return answer;
      },
    };
    const scheduler = async (): Promise<void> => {
      const firing = new Firing({ store: db.store, db: shaky, clock: () => new Date(nowMs) });
      while (nowMs < endMs) {
        await firing.sweep().catch(() => 0);
        nowMs = Math.min(nowMs + chance() * 600_000, endMs);
      }
    };
    await Promise.all([scheduler(), scheduler(), scheduler()]);
    const last = new Firing({ store: db.store, db: db.pool, clock: () => new Date(endMs) });
    while ((await last.sweep()) === 0);

    for (const { name, cron, timeZone } of named) {
      const slots = slotsAfter(parseRule(cron, timeZone), startMs, 10_000, endMs + 1);
      const fired = (await scheduleHistory(db.pool, name, { limit: 1_000 })).map(({ runAt }) =>
        runAt.getTime(),
      );
      expect({ name, slots: fired.sort((a, b) => a - b) }).toEqual({ name, slots });
    }
  },
  180_000,
);

test('workers stopped, continued and killed at random: every second of them all has its job, once', async () => {
  await schedule(db.pool, { name: 'second', kind: 'tick', cron: '* * * * * *', misfire: 'all' });
  const madeS = Math.floor(Date.now() / 1_000);
  const child = () =>
    startScript(join(import.meta.dirname, 'schedules-worker.ts'), [], { env: { DATABASE_URL: db.url } });
  const workers = [child(), child()];
  try {
    await Promise.all(workers.map((worker) => worker.waitFor('working', 60_000)));
    for (let round = 0; round < 5; round += 1) {
      const victim = workers[round % 2] as ReturnType<typeof child>;
      victim.signal('SIGSTOP');
      await sleep(200 + Math.random() * 800);
      if (round < 4) victim.signal('SIGCONT');
      await sleep(Math.random() * 500);
    }
    // The stopped one never continues; the other one dies at once.
    await Promise.all(workers.map((worker) => worker.kill()));
  } finally {
    await Promise.all(workers.map((worker) => worker.kill()));
  }
  const endS = Math.floor(Date.now() / 1_000);
  const firing = new Firing({ store: db.store, db: db.pool });
  while ((await firing.sweep()) === 0);
  const slots = (await scheduleHistory(db.pool, 'second', { limit: 1_000 })).map(
    ({ runAt }) => runAt.getTime() / 1_000,
  );
  const firstAt = Math.min(...slots);
  expect(slots.sort((a, b) => a - b)).toEqual(slots.map((_, i) => firstAt + i));
  expect(firstAt).toBeLessThanOrEqual(madeS + 1);
  expect(firstAt + slots.length - 1).toBeGreaterThanOrEqual(endS);
}, 180_000);

test('a worker fires a schedule within a second of its time, and one made meanwhile too; its job runs at once', async () => {
  const late: number[] = [];
  const worker = createWorker({
    db: db.pool,
    // Nothing that is found by a poll is on time.
    pollMs: 60_000,
    handlers: {
      tick: (job) => {
        late.push(Date.now() - job.runAtMs);
      },
    },
  });
  worker.start();
  try {
    await schedule(db.pool, { name: 'second', kind: 'tick', cron: '* * * * * *' });
    await until('three have run', () => late.length >= 3);
  } finally {
    await worker.stop();
  }
  // The least: a busy machine is late for some.
  expect(Math.min(...late)).toBeLessThan(2_000);
  expect(Math.max(...late)).toBeLessThan(30_000);
  expect(Math.min(...late)).toBeGreaterThanOrEqual(-50);
});
