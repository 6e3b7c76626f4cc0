/**
 * Batches are written side by side on two connections. However slow one of them is, jobs are claimed, and messages go
 * back, in the order of their queue, each as it was sent: what waits is not written over.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type DrainWorld, drainWorld } from './drain-world.js';

const MESSAGES = 400;
/** Long enough that a batch fills several of the buffers that rows are written into. */
const textOf = (n: number): string => String(n).padStart(4, '0').repeat(10_000);
let world: DrainWorld;
beforeAll(async () => {
  world = await drainWorld();
});
afterAll(async () => {
  await world?.close();
});

test.each(['begin; set local', 'int8send(nextval', 'insert into "unbroker".drain_batches'])(
  'one connection is slow to answer %s',
  async (statement) => {
    await world.channel.assertQueue('work', { durable: true });
    await Promise.all(
      Array.from({ length: MESSAGES }, (_, n) => world.publish('', 'work', { n, text: textOf(n) })),
    );
    const pool = new pg.Pool({ connectionString: world.database.url, max: 6 });
    const slowed = new Map<pg.PoolClient, number>();
    pool.on('connect', (client) => {
      client.on('error', () => {});
      // Every second connection.
      if (slowed.size % 2 === 0) slowDown(client, statement, () => count(slowed, client));
      slowed.set(client, 0);
    });
    try {
      const [result] = await world.drain({
        ...{ config: { rules: [{ match: { queue: '*' }, kind: 'k' }] }, maxBatch: 50 },
        pool,
      });
      expect(result?.books).toMatchObject({ rows: MESSAGES, remaining: 0 });
      expect([...slowed.values()].reduce((a, b) => a + b, 0)).toBeGreaterThan(1);
      const inOrder = Array.from({ length: MESSAGES }, (_, n) => n);
      for (const order of ['run_at, id', 'id']) {
        const jobs = await world.rows<{ n: number }>(
          `select (payload ->> 'n')::int as n from unbroker.jobs order by ${order}`,
        );
        expect(jobs.map(({ n }) => n)).toEqual(inOrder);
      }
      const ledger = await world.rows<{ n: number }>(
        `select (j.payload ->> 'n')::int as n from unbroker.drain_ledger l join unbroker.jobs j on j.id = l.job
         order by l.batch, l.position`,
      );
      expect(ledger.map(({ n }) => n)).toEqual(inOrder);
      const [whole] = await world.rows<{ jobs: number; bodies: number }>(
        `select count(*) filter (where j.payload ->> 'text' = repeat(lpad(j.payload ->> 'n', 4, '0'), 10000))::int as jobs,
                count(*) filter (where convert_from(l.body, 'UTF8')::jsonb = j.payload)::int as bodies
         from unbroker.drain_ledger l join unbroker.jobs j on j.id = l.job`,
      );
      expect(whole).toEqual({ jobs: MESSAGES, bodies: MESSAGES });
    } finally {
      await pool.end();
      await world.database.pool.query(
        'truncate unbroker.jobs, unbroker.drain_ledger, unbroker.drain_batches, unbroker.drain_runs cascade',
      );
    }
  },
);

function count(seen: Map<pg.PoolClient, number>, client: pg.PoolClient): void {
  seen.set(client, (seen.get(client) ?? 0) + 1);
}

/** The other connection has all the time to go first; that it does not is what is tested. */
function slowDown(client: pg.PoolClient, statement: string, onSlow: () => void): void {
  const query = client.query.bind(client) as (...args: unknown[]) => Promise<unknown>;
  const slow = async (...args: unknown[]): Promise<unknown> => {
    onSlow();
    await sleep(60);
    return query(...args);
  };
  Object.assign(client, {
    query: (...args: unknown[]) => {
      const [text] = args;
      return typeof text === 'string' && text.includes(statement) ? slow(...args) : query(...args);
    },
  });
}
