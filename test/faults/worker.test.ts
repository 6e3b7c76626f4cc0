/**
 * The short form of `npm run faults -- worker` and `-- chaos`: a few points of each group. The counts are smaller, what
 * is asserted is the same.
 */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { jobsDatabase } from '../support/jobs.js';
import { withSeed } from '../support/seeded.js';
import { type PostgresServer, startPostgres } from '../support/services.js';
import { forcedExpiries, killCycles, pausedWorker, poisonJob, rerunAfterKill } from './worker.js';
import { workerStorm } from './worker-storm.js';

let server: PostgresServer;
beforeAll(async () => {
  server = await startPostgres({ controllable: true });
});
afterAll(() => server.close());

test('leases ended under running handlers, 400 of the 10,000: no stale outcome is written, every job ends', async () => {
  const result = await forcedExpiries(server, 400);
  expect(result.points).toBeGreaterThanOrEqual(400);
  expect(result).toMatchObject({ stale: 0, problems: [], lost: 0 });
}, 300_000);

test('kill -9 of publishers, workers and the database, 8 of the 200: nothing acknowledged is lost, nothing is doubled', async () => {
  const result = await killCycles(server, 8);
  expect(result.acknowledged).toBeGreaterThan(20);
  expect(result).toMatchObject({
    lost: 0,
    extra: 0,
    stale: 0,
    problems: [],
    dead: 0,
    effectless: 0,
    overstarted: 0,
    crashed: 0,
  });
}, 240_000);

test('a job that kills its process: as many starts as allowed, its first disturbs its batch, later ones nobody', async () => {
  const result = await poisonJob(server, 10, 3);
  expect(result).toMatchObject({ starts: 3, state: 'dead', deadNeighbours: 0 });
  expect(result.disturbed[0]).toBeLessThan(10);
  expect(result.disturbed.slice(1)).toEqual([0, 0]);
}, 300_000);

test('a worker that is killed: its jobs run again within the lease and seconds', async () => {
  const { slowestMs, leaseMs, stale } = await rerunAfterKill(server, 1_500);
  expect(slowestMs).toBeGreaterThan(0);
  // Six on a machine with nothing else to do: `npm run faults -- worker`. Here others may have both cores for a while.
  expect(slowestMs).toBeLessThanOrEqual(leaseMs + 30_000);
  expect(stale).toBe(0);
}, 300_000);

test('a worker that is stopped for longer than its leases: what it finishes late is refused, and it works on', async () => {
  expect(await pausedWorker(server)).toEqual({ stale: 0, problems: [], alive: true, done: 40 });
}, 300_000);

test(
  'workers that come and go in a backlog of everything, one seed of the 20: none twice at once, none lost, attempts are ends',
  () =>
    withSeed(async (seed) => {
      const db = await jobsDatabase({ server });
      try {
        const { problems, stops } = await workerStorm(db, { seed, jobs: 300, rounds: 3 });
        expect(problems).toEqual([]);
        expect(stops).toBeGreaterThan(2);
      } finally {
        await db.close();
      }
    }),
  300_000,
);
