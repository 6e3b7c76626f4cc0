/**
 * A server that is there and says nothing: a network that drops packets one way, a broker or a database that hangs. A
 * drain does not wait for ever; what it had sent may have happened, and that is worked out, not guessed.
 */

import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { DrainResult } from '../../adapters/rabbitmq/drain.js';
import { SILENT } from '../../src/log.js';
import { type FaultProxy, type Side, startFaultProxy } from '../support/fault-proxy.js';
import { type DrainWorld, drainWorld } from './drain-world.js';

let world: DrainWorld;
let toBroker: FaultProxy;
let toDatabase: FaultProxy;
let pool: pg.Pool;
beforeAll(async () => {
  world = await drainWorld();
  [toBroker, toDatabase] = await Promise.all([
    startFaultProxy(world.vhost.url),
    startFaultProxy(world.database.url),
  ]);
});
afterAll(async () => {
  await Promise.all([toBroker?.close(), toDatabase?.close()]);
  await world?.close();
});

const MESSAGES = 400;
beforeEach(async () => {
  pool = new pg.Pool({ connectionString: toDatabase.url, max: 4 });
  pool.on('error', () => {});
  pool.on('connect', (client) => client.on('error', () => {}));
  await world.channel.assertQueue('work', { durable: true });
  await world.channel.purgeQueue('work');
  await world.database.pool.query(
    'truncate unbroker.jobs, unbroker.drain_ledger, unbroker.drain_batches, unbroker.drain_runs cascade',
  );
  // Each body twice, without ids: only counting tells what came back.
  await Promise.all(
    Array.from({ length: MESSAGES }, (_, n) => world.publish('', 'work', { n: Math.floor(n / 2) })),
  );
});
afterEach(async () => {
  toBroker.heal();
  toDatabase.heal();
  toDatabase.cut();
  await pool.end();
});

interface Warning {
  readonly code?: string;
}

async function drain(
  options: Parameters<DrainWorld['drain']>[0],
): Promise<{ books: DrainResult['books']; warnings: Warning[] }> {
  const warnings: Warning[] = [];
  const warn = (fields: object): void => void warnings.push(fields);
  const [result] = await world.drain({
    ...{ config: { rules: [{ match: { queue: '*' }, kind: 'k' }] }, maxBatch: 50 },
    ...{ amqpUrl: toBroker.url, pool, log: { ...SILENT, warn } },
    ...options,
  });
  return { books: (result as DrainResult).books, warnings };
}

async function expectTwins(): Promise<void> {
  const rows = await world.rows<{ n: number; count: number }>(
    `select (payload ->> 'n')::int as n, count(*)::int as count from unbroker.jobs group by 1 order by 1`,
  );
  expect(rows).toEqual(Array.from({ length: MESSAGES / 2 }, (_, n) => ({ n, count: 2 })));
}

/** Once, in the middle: some batches are acked, some are not. */
function onceAt(step: string, nth: number, act: () => void): (now: string) => void {
  let seen = 0;
  return (now) => {
    if (now === step && ++seen === nth) act();
  };
}

const HEARS_NOTHING: [what: string, side: Side] = [
  'because it hears nothing: our acks and heartbeats do not arrive',
  'client',
];

describe('a broker that is silent', () => {
  test.each<[what: string, side: Side]>([
    ['and takes what we send: its deliveries, answers and heartbeats do not come', 'server'],
    // In the long form: the two differ in who notices.
    ...(process.env['UNBROKER_TEST_LONG'] ? [HEARS_NOTHING] : []),
  ])(
    '%s: noticed after two heartbeats; resumed, nothing is lost or doubled',
    { timeout: 180_000 },
    async (_what, side) => {
      const { books, warnings } = await drain({
        heartbeatS: 1,
        onStep: onceAt('committed', 3, () => toBroker.silence(side)),
      });
      expect(warnings.length).toBeGreaterThan(0);
      expect(books).toMatchObject({ initial: MESSAGES, rows: MESSAGES, remaining: 0, balanced: true });
      await expectTwins();
    },
  );
});

test.skipIf(!process.env['UNBROKER_TEST_LONG'])(
  'a broker that stays silent, to new connections too: it ends with the next step, and the next run goes on',
  { timeout: 180_000 },
  async () => {
    const ended = drain({
      ...{ heartbeatS: 1, answerWithinMs: 1_000 },
      onStep: onceAt('committed', 3, () => toBroker.blackHole()),
    });
    await expect(ended).rejects.toMatchObject({
      ...{ code: 'amqp-unreachable', exitStatus: 1 },
      hint: expect.stringContaining('run again to go on'),
    });
    toBroker.heal();
    const { books } = await drain({});
    expect(books).toMatchObject({ initial: MESSAGES, rows: MESSAGES, remaining: 0, balanced: true });
    await expectTwins();
  },
);

describe('a database that is silent', () => {
  test('after a COMMIT was sent: the wait ends, the commit is found, nothing is lost or doubled', {
    timeout: 180_000,
  }, async () => {
    const { books, warnings } = await drain({
      answerWithinMs: 3_000,
      onStep: onceAt('committing', 3, () => toDatabase.silence('server')),
    });
    expect(warnings.map(({ code }) => code)).toContain('database-slow');
    expect(books).toMatchObject({ initial: MESSAGES, rows: MESSAGES, remaining: 0, balanced: true });
    // The batch whose COMMIT nobody heard of came back and was known.
    expect(books.absorbed).toBeGreaterThan(0);
    await expectTwins();
  });

  test.skipIf(!process.env['UNBROKER_TEST_LONG'])(
    'in the middle of a COPY: the wait ends, too',
    {
      timeout: 180_000,
    },
    async () => {
      const { books, warnings } = await drain({
        answerWithinMs: 3_000,
        onStep: onceAt('prepared', 3, () => toDatabase.silence('server')),
      });
      expect(warnings.length).toBeGreaterThan(0);
      expect(books).toMatchObject({ initial: MESSAGES, rows: MESSAGES, remaining: 0, balanced: true });
      await expectTwins();
    },
  );
});
