/**
 * What a delayed-message exchange holds, into rows: exact due times, a row for each queue, nothing of it left in the
 * broker, nothing twice whatever is killed. On the plugin itself when it is there, else on its stand-in.
 */
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import type { RunCtl } from '../../adapters/rabbitmq/ctl.js';
import {
  type DelayedOptions,
  type DelayedStep,
  importDelayed,
  releaseDelayed,
} from '../../adapters/rabbitmq/delayed-import.js';
import { compileRules } from '../../adapters/rabbitmq/drain-config.js';
import { SILENT } from '../../src/log.js';
import { type DelayedBroker, startDelayedBroker } from '../support/delayed-exchange.js';
import { type FreshVhost, freshVhost } from '../support/fresh.js';
import { type JobsDatabase, jobsDatabase } from '../support/jobs.js';

const HOUR = 3_600_000;

/** Whose shell it is does not change: a second saved for each import. */
const named = new Map<string, Promise<string>>();
const ctl: RunCtl = (args) => {
  const asked = args.join(' ');
  if (!asked.includes('cluster_name')) return broker.rabbit.ctl(args);
  const answer = named.get(asked) ?? broker.rabbit.ctl(args);
  named.set(asked, answer);
  return answer;
};

let broker: DelayedBroker;
let database: JobsDatabase;
let vhost: FreshVhost;
beforeAll(async () => {
  [broker, database] = await Promise.all([startDelayedBroker(), jobsDatabase()]);
  vhost = await freshVhost(broker.rabbit);
  await broker.declare(vhost.url, [
    ['mail', 'both'],
    ['audit', 'both'],
    ['mail', 'mail'],
  ]);
});
afterAll(async () => {
  await database?.close();
  await broker?.rabbit.close();
});
beforeEach(async () => {
  await database.pool.query(
    'truncate unbroker.jobs, unbroker.drain_ledger, unbroker.drain_batches, unbroker.drain_runs, unbroker.drain_delayed cascade',
  );
});

const options = (more: Partial<DelayedOptions> = {}): DelayedOptions => ({
  ...{ amqpUrl: vhost.url, pool: database.pool, store: database.store, ctl, log: SILENT },
  rules: compileRules([{ match: { queue: '*' }, kind: '{queue}' }]),
  factsOf: (name) => ({ name, role: 'main', ttlMs: null, feeders: [] }),
  ...more,
});

interface Row {
  readonly kind: string;
  readonly n: number;
  readonly runAt: Date;
}
const jobs = async (): Promise<Row[]> =>
  (
    await database.pool.query<Row>(
      `select kind, (payload ->> 'n')::int as n, run_at as "runAt" from unbroker.jobs order by n, kind`,
    )
  ).rows;

test('a row for each queue, due to the millisecond; what nobody would get is in the ledger; all of it gone from the table', {
  timeout: 60_000,
}, async () => {
  const before = Date.now();
  await broker.delay(vhost.url, [
    { key: 'both', delayMs: HOUR, body: '{"n":1}', messageId: 'm1' },
    { key: 'mail', delayMs: 2 * HOUR, body: '{"n":2}' },
    { key: 'mail', delayMs: 2 * HOUR, body: '{"n":3}' },
    { key: 'nobody', delayMs: HOUR, body: '{"n":4}' },
  ]);
  const after = Date.now();
  const result = await importDelayed(options({ page: 2 }));
  expect(result).toMatchObject({ interrupted: false, entries: 4, remaining: 0 });
  expect(result.totals).toMatchObject({ rows: 4, excluded: 1, unmapped: 0 });
  const rows = await jobs();
  expect(rows.map(({ kind, n }) => [kind, n])).toEqual([
    ['audit', 1],
    ['mail', 1],
    ['mail', 2],
    ['mail', 3],
  ]);
  for (const { n, runAt } of rows) {
    const dueMs = (n === 1 ? 1 : 2) * HOUR;
    expect(runAt.getTime()).toBeGreaterThanOrEqual(before + dueMs);
    expect(runAt.getTime()).toBeLessThanOrEqual(after + dueMs);
  }
  const { rows: ledger } = await database.pool.query(
    `select distinct l.queue, l.note, d.due_at as "dueAt", j.run_at as "runAt" from unbroker.drain_ledger l
     join unbroker.drain_delayed d on d.batch = l.batch left join unbroker.jobs j on j.id = l.job
     where l.message_id = 'm1' or l.job is null order by l.queue`,
  );
  expect(ledger.map(({ queue, note }) => [queue, note])).toContainEqual([
    '',
    'unrouted: no binding takes it',
  ]);
  // The job is due when the entry was.
  expect(ledger.some(({ dueAt, runAt }) => runAt !== null && dueAt.getTime() === runAt.getTime())).toBe(true);
  expect(await broker.count()).toEqual({ timed: 0, held: 0 });
});

class Killed extends Error {}
const killedAt =
  (wanted: DelayedStep) =>
  (step: DelayedStep): void => {
    if (step === wanted) throw new Killed();
  };

test('killed after each step, it goes on: each entry once', { timeout: 120_000 }, async () => {
  const bodies = Array.from({ length: 8 }, (_, n) => n);
  // Twins, and all of a millisecond: only their keys tell them apart.
  await broker.delay(
    vhost.url,
    bodies.map((n) => ({ key: 'mail', delayMs: HOUR, body: JSON.stringify({ n: Math.floor(n / 2) }) })),
  );
  const steps: DelayedStep[] = ['held', 'recorded', 'committed', 'deleted'];
  for (const wanted of steps) {
    const killed = importDelayed(options({ page: 2, onStep: killedAt(wanted) }));
    await expect(killed, wanted).rejects.toThrow(Killed);
  }
  const result = await importDelayed(options());
  expect(result).toMatchObject({ entries: 8, remaining: 0, totals: { rows: 8 } });
  expect((await jobs()).map(({ n }) => n)).toEqual(bodies.map((n) => Math.floor(n / 2)));
  expect(await broker.count()).toEqual({ timed: 0, held: 0 });
});

test('released, what has no row is given back with its due time, what has one is removed; it can be imported again', {
  timeout: 120_000,
}, async () => {
  await broker.delay(
    vhost.url,
    // Apart: what is due in the same millisecond has one key and is held together.
    [1, 2, 3].map((n) => ({ key: 'mail', delayMs: n * HOUR, body: JSON.stringify({ n }) })),
  );
  await expect(importDelayed(options({ page: 1, onStep: killedAt('committed') }))).rejects.toThrow(Killed);
  await expect(importDelayed(options({ page: 2, onStep: killedAt('held') }))).rejects.toThrow(Killed);
  expect(await broker.count()).toEqual({ timed: 1, held: 2 });
  expect(await releaseDelayed(options())).toBe(1);
  expect(await broker.count()).toEqual({ timed: 2, held: 0 });

  const stop = new AbortController();
  const onStep = (step: DelayedStep): void => void (step === 'committed' && stop.abort());
  const stopped = await importDelayed(options({ page: 1, signal: stop.signal, onStep }));
  expect(stopped).toMatchObject({ interrupted: true, entries: 1, remaining: 1 });
  expect(await broker.count()).toEqual({ timed: 1, held: 0 });
  expect(await importDelayed(options())).toMatchObject({ remaining: 0, interrupted: false });
  expect((await jobs()).map(({ n }) => n)).toEqual([1, 2, 3]);
});
