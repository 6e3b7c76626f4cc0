/**
 * Through PgBouncer in transaction mode with fewer server connections than clients: migrate, enqueue in transactions, work.
 * `npm run faults -- pgbouncer` runs the suites of the table and the worker through one.
 */
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { enqueue, enqueueMany } from '../../src/enqueue.js';
import type { Queryable } from '../../src/jobs/job.js';
import { migrate } from '../../src/migrate.js';
import { jobsDatabase } from '../support/jobs.js';
import { noPgBouncer, type PgBouncer, startPgBouncer } from '../support/pgbouncer.js';
import { until } from '../support/until.js';
import { startWorker } from '../support/workers.js';

const missing = noPgBouncer();
const db = await jobsDatabase({ migrated: false });
let bouncer: PgBouncer | undefined;
let pool: pg.Pool;
beforeAll(async () => {
  if (missing !== null) return;
  bouncer = await startPgBouncer(db.url, 2);
  pool = new pg.Pool({ connectionString: bouncer.through(db.url), max: 10 });
  pool.on('error', () => {});
});
afterAll(async () => {
  await pool?.end();
  await bouncer?.close();
  await db.close();
});

describe.skipIf(missing !== null)(
  `in transaction mode${missing === null ? '' : `: skipped, ${missing}`}`,
  () => {
    test('sessions are shared: what is said to one is there in another', async () => {
      // Else this file would prove nothing.
      const pids = new Set<number>();
      await Promise.all(
        Array.from({ length: 10 }, async () => {
          const { rows } = await pool.query<{ pid: number }>(
            'select pg_backend_pid() as pid, pg_sleep(0.01)',
          );
          pids.add(rows[0]?.pid ?? 0);
        }),
      );
      expect(pool.totalCount).toBeGreaterThan(2);
      expect(pids.size).toBeLessThanOrEqual(2);
    });

    test('migrates from nothing, twice at once', async () => {
      const results = await Promise.all([migrate(pool), migrate(pool)]);
      expect(results.filter(({ applied }) => applied.length > 0)).toHaveLength(1);
    });

    test('enqueues inside many transactions at once; those that are rolled back leave nothing', async () => {
      await Promise.all(
        Array.from({ length: 40 }, async (_, n) => {
          const client = await pool.connect();
          try {
            await client.query('begin');
            await enqueue(client, 'one', { n }, { dedupeKey: `k${n % 30}` });
            // Not the first of this client: on a direct connection it would be prepared.
            await enqueue(client, 'second', n);
            await enqueueMany(client, [
              { kind: 'many', payload: n },
              { kind: 'many', dedupeKey: `m${n}` },
            ]);
            await client.query(n % 4 === 3 ? 'rollback' : 'commit');
          } finally {
            client.release();
          }
        }),
      );
      const { rows } = await pool.query<{ kind: string; n: number }>(
        'select kind, count(*)::int as n from unbroker.jobs group by kind order by kind',
      );
      expect(rows[0]).toEqual({ kind: 'many', n: 60 });
      expect(rows[1]?.n).toBeLessThanOrEqual(30);
      expect(rows[2]).toEqual({ kind: 'second', n: 30 });
      const names = await Promise.all(
        Array.from({ length: 10 }, () =>
          pool.query('select name from pg_prepared_statements, pg_sleep(0.01)'),
        ),
      );
      expect(names.flatMap((answer) => answer.rows)).toEqual([]);
    });

    test('two workers run, retry, snooze, checkpoint, and are woken by a direct connection', async () => {
      const through = bouncer?.through(db.url) ?? '';
      const listen = async () => {
        const client = new pg.Client({ connectionString: db.url });
        client.on('error', () => undefined);
        await client.connect();
        return client;
      };
      const handlers = {
        one: () => null,
        second: () => null,
        many: async (
          job: { attempt: number; progress: unknown },
          context: { checkpoint(at: number): Promise<void> },
        ) => {
          await context.checkpoint(job.attempt);
          if (job.attempt === 1) throw new Error('again');
        },
      };
      await db.pool.query(`update unbroker.jobs set retry_policy = '{"type": "fixed", "delayMs": 0}'`);
      const workers = [0, 1].map(() =>
        startWorker({
          ...{ url: through, handlers, listen, concurrency: 8 },
          ...{ leaseMs: 3_000, upkeepMs: 50 },
        }),
      );
      try {
        await until('all is done', async () => Object.keys(await db.states()).join() === 'done', {
          withinMs: 60_000,
        });
        const { rows } = await pool.query(
          'select kind, min(attempts) as least, max(attempts) as most from unbroker.jobs group by kind',
        );
        expect(rows).toContainEqual({ kind: 'many', least: 2, most: 2 });
        expect(rows).toContainEqual({ kind: 'one', least: 1, most: 1 });
        expect(workers.flatMap((worker) => worker.errors())).toEqual([]);
        expect(workers.flatMap((worker) => worker.lost())).toEqual([]);
      } finally {
        await Promise.all(workers.map((worker) => worker.close()));
      }
    });

    test('ends that are each a transaction of their own go in one call, whose commits the pooler passes on', async () => {
      const count = 60;
      await enqueueMany(pool, Array(count).fill({ kind: 'each' }));
      let calls = 0;
      const counting: Queryable = {
        query(text, values) {
          if (/\.finish_(one|each)\(/.test(text)) calls += 1;
          return pool.query(text, values);
        },
      };
      const worker = startWorker({
        ...{ url: db.url, db: counting, concurrency: 24, settleBatch: 1 },
        handlers: { each: () => null },
      });
      try {
        await worker.untilEnded(count);
        expect(worker.errors()).toEqual([]);
        expect(worker.lost()).toEqual([]);
        const { rows } = await pool.query(
          `select state, count(*)::int as jobs, count(distinct xmin::text)::int as transactions
           from unbroker.jobs where kind = 'each' group by state`,
        );
        expect(rows).toEqual([{ state: 'done', jobs: count, transactions: count }]);
        expect(calls).toBeLessThan(count);
      } finally {
        await worker.close();
      }
    });
  },
);
