/** Jobs that a worker claims before it has a slot for them: begun in turn, given back unharmed, and never those that must not wait. */
import { afterAll, afterEach, beforeEach, expect, test } from 'vitest';
import type { EnqueueOptions } from '../../src/enqueue.js';
import { jobsDatabase } from '../support/jobs.js';
import { until } from '../support/until.js';
import { startWorker, type TestWorker, type TestWorkerOptions } from '../support/workers.js';

const db = await jobsDatabase();
afterAll(() => db.close());
beforeEach(() => db.clear());

const workers: TestWorker[] = [];
function work(options: Omit<TestWorkerOptions, 'url'>): TestWorker {
  const worker = startWorker({ url: db.url, concurrency: 10, ...options });
  workers.push(worker);
  return worker;
}
afterEach(async () => {
  await Promise.all(workers.splice(0).map((worker) => worker.close()));
});

/**
 * Quick jobs of kind `a` until one that never ends is in every slot, and all that ended is written. Answers the worker, and what
 * lets them end. Those on their last attempt begin first: some quick ones may then still wait.
 */
async function full(long: EnqueueOptions = {}): Promise<[TestWorker, () => void]> {
  let end = (): void => {};
  const gate = new Promise<void>((resolve) => {
    end = resolve;
  });
  await db.put('a', Array(300).fill('quick'));
  await db.put('a', Array(100).fill('long'), long);
  const begun = { quick: 0, long: 0 };
  const handle = ({ payload }: { readonly payload: unknown }) => {
    begun[payload === 'long' ? 'long' : 'quick'] += 1;
    return payload === 'long' ? gate : undefined;
  };
  const worker = work({ handlers: { a: handle } });
  await until(
    'every slot is taken',
    () => begun.long === 10 && worker.running === 10 && worker.settled().length === begun.quick,
  );
  return [worker, end];
}

const running = async (): Promise<number> => (await db.states())['running'] ?? 0;

test('what waits for a slot is claimed, never runs beyond the concurrency, and goes back with its attempt when it waits too long', async () => {
  const [worker, end] = await full();
  expect(await running()).toBeLessThanOrEqual(30);
  // Others may have it: only what runs is held.
  await until('it is given back', async () => (await running()) === 10);
  expect(worker.running).toBe(10);
  const { rows } = await db.pool.query(
    `select state, min(attempts)::int as least, max(attempts)::int as most from unbroker.jobs where payload = '"long"' group by state order by state`,
  );
  expect(rows).toEqual([
    { state: 'ready', least: 0, most: 0 },
    { state: 'running', least: 1, most: 1 },
  ]);
  expect(worker.untold()).toHaveLength(10);
  end();
  await worker.untilEnded(400);
  expect(await db.states()).toEqual({ done: 400 });
  expect(worker.lost()).toEqual([]);
  expect(worker.released().length).toBeGreaterThan(0);
  expect(worker.untold()).toEqual([]);
});

test('a worker that stops gives back what waits, attempts included', async () => {
  const [worker, end] = await full();
  const stopped = worker.stop();
  await until('only what runs is held', async () => (await running()) === 10);
  end();
  await stopped;
  expect(await db.states()).toEqual({ done: 310, ready: 90 });
  const { rows } = await db.pool.query(
    `select max(attempts)::int as most from unbroker.jobs where state = 'ready'`,
  );
  expect(rows).toEqual([{ most: 0 }]);
  expect(worker.untold()).toEqual([]);
});

test('what is on its last attempt does not wait: a process that dies would leave it dead without a start', async () => {
  const [worker, end] = await full({ maxAttempts: 1 });
  await until('only what runs is held', async () => (await running()) === 10);
  const { rows } = await db.pool.query(
    `select max(attempts)::int as most from unbroker.jobs where state = 'ready'`,
  );
  expect(rows).toEqual([{ most: 0 }]);
  end();
  await worker.untilEnded(400);
  expect(await db.states()).toEqual({ done: 400 });
  expect(worker.lost()).toEqual([]);
});

test('what is claimed and not begun when its lease ends, because the process was stopped, does not begin: others may run it', async () => {
  const leaseMs = 400;
  const before = new Set<string>();
  const late: string[] = [];
  let stoppedAt = 0;
  await db.put('a', Array(300).fill('quick'));
  await db.put('a', ['stop', ...Array(100).fill('quick')]);
  const worker = work({
    ...{ leaseMs, upkeepMs: 100 },
    handlers: {
      a: ({ id, leaseToken, payload }) => {
        const claim = `${id} under ${leaseToken}`;
        if (before.has(claim) && performance.now() >= stoppedAt + leaseMs) late.push(claim);
        if (payload !== 'stop') return;
        for (const job of worker.claimed()) before.add(`${job.id} under ${job.leaseToken}`);
        stoppedAt = performance.now();
        // Nothing else happens here, as in a process that is stopped.
        while (performance.now() < stoppedAt + 2 * leaseMs);
      },
    },
  });
  // Whatever begins late begins at once, before any timer.
  await until('it was stopped', () => stoppedAt > 0);
  expect(late).toEqual([]);
});

test.each([
  ['a limit of its own', { concurrency: 10 }, {}, []],
  ['jobs that must not run twice unasked', { onLeaseExpired: 'park' as const }, {}, []],
  ['jobs on their last attempt', {}, { maxAttempts: 1 }, []],
  ['a neighbour whose jobs must not run twice unasked', {}, {}, ['p']],
])('a kind with %s has no more claimed than run', async (_what, kind, options, parking) => {
  let most = 0;
  await db.put('a', Array(200).fill(0), options);
  for (const neighbour of parking) await db.put(neighbour, Array(100).fill(0));
  const worker = work({
    handlers: {
      a: { handle: () => undefined, ...kind },
      ...Object.fromEntries(
        parking.map((name) => [name, { handle: () => undefined, onLeaseExpired: 'park' as const }]),
      ),
    },
    onEvent: (event) => {
      if (event.type === 'claimed') most = Math.max(most, event.jobs.length);
    },
  });
  await worker.untilEnded(200 + 100 * parking.length);
  expect(most).toBeLessThanOrEqual(10);
});
