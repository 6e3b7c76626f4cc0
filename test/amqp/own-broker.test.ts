/**
 * What needs a broker of its own: the table of a delayed-message exchange (the plugin's when it is there, else a stand-in),
 * and limits that hold for a whole node, a consumer that holds deliveries too long (406) and a memory alarm.
 */
import amqp from 'amqplib';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { connectBroker } from '../../adapters/rabbitmq/broker.js';
import type { RunCtl } from '../../adapters/rabbitmq/ctl.js';
import {
  DELAYED_GROUP,
  type DelayedOptions,
  type DelayedStep,
  importDelayed,
  releaseDelayed,
} from '../../adapters/rabbitmq/delayed-import.js';
import { type DrainOptions, type DrainResult, drainGroup } from '../../adapters/rabbitmq/drain.js';
import { compileRules } from '../../adapters/rabbitmq/drain-config.js';
import { undoGroup } from '../../adapters/rabbitmq/undo.js';
import { verifyDrains } from '../../adapters/rabbitmq/verify.js';
import { SILENT } from '../../src/log.js';
import { type DelayedBroker, startDelayedBroker } from '../support/delayed-exchange.js';
import { type FreshVhost, freshVhost } from '../support/fresh.js';
import { type JobsDatabase, jobsDatabase } from '../support/jobs.js';
import { until } from '../support/until.js';

// Each asks the broker's shell a dozen times: a second each, and ten seconds on a machine with twenty other processes.
vi.setConfig({ testTimeout: 400_000 });

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

describe('delayed messages', () => {
  test('a row for each queue, due to the millisecond; what nobody would get is in the ledger; all of it gone from the table', async () => {
    const before = Date.now();
    await broker.delay(vhost.url, [
      { key: 'both', delayMs: HOUR, body: '{"n":1}', messageId: 'm1' },
      { key: 'mail', delayMs: 2 * HOUR, body: '{"n":2}' },
      { key: 'mail', delayMs: 2 * HOUR, body: '{"n":3}' },
      { key: 'nobody', delayMs: HOUR, body: '{"n":4}' },
      // Beyond what a timer of ours would take.
      { key: 'mail', delayMs: 3_000_000_000, body: '{"n":5}' },
    ]);
    const after = Date.now();
    const rules = compileRules([
      { match: { queue: 'audit' }, exclude: 'not jobs' },
      { match: { queue: '*' }, kind: '{queue}' },
    ]);
    const result = await importDelayed(options({ rules }));
    expect(result).toMatchObject({ interrupted: false, entries: 5, remaining: 0 });
    expect(result.totals).toMatchObject({ rows: 4, excluded: 2, unmapped: 0 });
    const rows = await jobs();
    expect(rows.map(({ kind, n }) => [kind, n])).toEqual([
      ['mail', 1],
      ['mail', 2],
      ['mail', 3],
      ['mail', 5],
    ]);
    for (const { n, runAt } of rows) {
      const dueMs = n === 1 ? HOUR : n === 5 ? 3_000_000_000 : 2 * HOUR;
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
    expect(ledger.some(({ dueAt, runAt }) => runAt !== null && dueAt.getTime() === runAt.getTime())).toBe(
      true,
    );
    expect(await broker.count()).toEqual({ timed: 0, held: 0 });

    const connected = await connectBroker(vhost.url);
    onTestFinished(() => connected.close());
    const [proof] = await verifyDrains({
      ...{ pool: database.pool, schema: database.schema, broker: connected, mayLook: () => false },
      rules,
      factsOf: (name) => ({ name, role: 'main', ttlMs: null, feeders: [] }),
    });
    expect(proof).toMatchObject({ group: DELAYED_GROUP, excluded: 2, findings: [], balanced: true });

    const undo = async (): Promise<unknown> => {
      const { books } = await undoGroup({
        ...{ amqpUrl: vhost.url, pool: database.pool, schema: database.schema, log: SILENT },
        group: DELAYED_GROUP,
      });
      return { moved: books.moved, states: await database.states() };
    };
    // In a queue it would be worked hours too early.
    expect(await undo()).toEqual({ moved: 0, states: { ready: 4 } });
    // An hour later, by the clock of the database: the job that is due goes, what has no due time of its own waits for the last.
    await database.pool.query(`with due as (
      update unbroker.jobs set run_at = now() where payload ->> 'n' = '1' returning id
    ) update unbroker.drain_ledger l set written_by = pg_current_xact_id()::xid from due where l.job = due.id`);
    expect(await undo()).toEqual({ moved: 1, states: { ready: 3, cancelled: 1 } });
    expect((await connected.count('audit'))?.ready).toBe(0);
    await database.pool.query('update unbroker.drain_delayed set due_at = now()');
    expect(await undo()).toEqual({ moved: 1, states: { ready: 3, cancelled: 1 } });
    const given = await Promise.all(['mail', 'audit'].map((queue) => connected.look(queue, 5)));
    expect(given.map((messages) => messages.map(({ body }) => body.toString()))).toEqual([
      ['{"n":1}'],
      ['{"n":1}'],
    ]);
  });

  class Killed extends Error {}
  const killedAt =
    (wanted: DelayedStep) =>
    (step: DelayedStep): void => {
      if (step === wanted) throw new Killed();
    };

  test('killed with some held and some written: what has no row is given back by a release, what has one is not; then each once', async () => {
    // Twins; due in the same millisecond they have one key and are held together.
    const delays = [HOUR, HOUR, 2 * HOUR, 3 * HOUR, 4 * HOUR];
    await broker.delay(
      vhost.url,
      delays.map((delayMs) => ({ key: 'mail', delayMs, body: JSON.stringify({ n: delayMs / HOUR }) })),
    );
    await expect(importDelayed(options({ page: 1, onStep: killedAt('committed') }))).rejects.toThrow(Killed);
    const [{ count: written } = { count: 0 }] = await database.pool
      .query<{ count: number }>('select count(*)::int as count from unbroker.drain_delayed')
      .then(({ rows }) => rows);
    await expect(importDelayed(options({ page: written + 1, onStep: killedAt('held') }))).rejects.toThrow(
      Killed,
    );
    const { timed, held } = await broker.count();
    expect(held).toBeGreaterThan(written);
    expect(await releaseDelayed(options())).toBe(held - written);
    expect(await importDelayed(options())).toMatchObject({
      ...{ interrupted: false, remaining: 0, entries: timed + held - written },
    });
    expect((await jobs()).map(({ n }) => n)).toEqual([1, 1, 2, 3, 4]);
    expect(await broker.count()).toEqual({ timed: 0, held: 0 });
  });
});

describe('limits of a node', () => {
  const MESSAGES = 40;
  const SOON = { withinMs: 60_000 };
  let connection: amqp.ChannelModel;
  let channel: amqp.ConfirmChannel;
  let blocked = false;
  beforeAll(async () => {
    connection = await amqp.connect(vhost.url, { noDelay: true });
    connection.on('error', () => {});
    connection.on('blocked', () => {
      blocked = true;
    });
    channel = await connection.createConfirmChannel();
    channel.on('error', () => {});
  });
  afterAll(async () => {
    await connection?.close().catch(() => {});
  });
  beforeEach(async () => {
    await channel.assertQueue('work', { durable: true });
    await channel.assertQueue('late', { durable: true });
    // Twins without ids: only counting tells what came back.
    for (let n = 0; n < MESSAGES; n += 1)
      channel.publish('', 'work', Buffer.from(JSON.stringify({ n: Math.floor(n / 2) })), {
        persistent: true,
      });
    await channel.waitForConfirms();
  });

  const drain = (options: Partial<DrainOptions> = {}): Promise<DrainResult> =>
    drainGroup({
      ...{ amqpUrl: vhost.url, pool: database.pool, store: database.store, log: SILENT },
      rules: compileRules([{ match: { queue: '*' }, kind: 'k' }]),
      group: {
        name: 'work',
        queues: [{ name: 'work', role: 'main', ttlMs: null, feeders: [], singleActive: false }],
      },
      ...options,
    });

  async function expectTwins(): Promise<void> {
    const { rows } = await database.pool.query(
      `select (payload ->> 'n')::int as n, count(*)::int as count from unbroker.jobs group by 1 order by 1`,
    );
    expect(rows).toEqual(Array.from({ length: MESSAGES / 2 }, (_, n) => ({ n, count: 2 })));
  }

  const limits = (timeoutMs: number, tickMs: number): Promise<string> =>
    broker.rabbit.ctl([
      'eval',
      `application:set_env(rabbit, consumer_timeout, ${timeoutMs}), application:set_env(rabbit, channel_tick_interval, ${tickMs}).`,
    ]);

  test('held longer than the broker waits for an ack (406 closes the channel): resumed, nothing lost or doubled', async () => {
    await limits(300, 100);
    let mended: Promise<unknown> | undefined;
    const warnings: string[] = [];
    const log = {
      ...SILENT,
      warn: (fields: object) => {
        warnings.push(JSON.stringify(fields));
        mended ??= limits(1_800_000, 60_000);
      },
    };
    // Sixteen are in hand from the start, and at this rate the last of them waits for a second.
    const { books } = await drain({ log, rate: 20 });
    await mended;
    expect(warnings.join()).toContain('"code":"406"');
    expect(books).toMatchObject({ initial: MESSAGES, rows: MESSAGES, remaining: 0, balanced: true });
    await expectTwins();
  });

  test('a memory alarm stops whoever publishes, an undo too, and not a drain', async () => {
    await broker.rabbit.ctl(['set_vm_memory_high_watermark', '0']);
    try {
      let confirmed = false;
      // The first publish under an alarm is what the broker stops a connection for.
      await until(
        'the publisher is stopped',
        () => {
          if (blocked) return true;
          channel.publish('', 'elsewhere', Buffer.from('x'));
          return false;
        },
        SOON,
      );
      channel.publish('', 'late', Buffer.from('late'), { persistent: true }, () => {
        confirmed = true;
      });
      const { books } = await drain();
      expect(books).toMatchObject({ initial: MESSAGES, rows: MESSAGES, remaining: 0, balanced: true });
      await expectTwins();
      expect(confirmed).toBe(false);
      const said: object[] = [];
      const giving = undoGroup({
        ...{ amqpUrl: vhost.url, pool: database.pool, schema: database.schema, group: 'work' },
        log: { ...SILENT, warn: (fields: object) => void said.push(fields) },
      });
      await until('the undo says why it waits', () => JSON.stringify(said).includes('low on memory'), SOON);
      await broker.rabbit.ctl(['set_vm_memory_high_watermark', '0.6']);
      await until('it goes on', () => confirmed, SOON);
      expect((await giving).books).toMatchObject({ moved: MESSAGES, balanced: true });
      expect((await channel.checkQueue('work')).messageCount).toBe(MESSAGES);
    } finally {
      await broker.rabbit.ctl(['set_vm_memory_high_watermark', '0.6']);
      await channel.purgeQueue('work');
    }
  });
});
