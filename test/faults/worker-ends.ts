/**
 * What a worker was told is written must stay written, however the database dies: kill -9 and immediate stops in the middle of
 * ends that are written many a statement, or each in a transaction of its own with one wait for the disk.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { jobsDatabase } from '../support/jobs.js';
import type { PostgresServer } from '../support/services.js';
import { until } from '../support/until.js';
import { startWorker } from '../support/workers.js';

export interface EndsResult {
  readonly kills: number;
  /** Ends that a worker was told of. */
  readonly told: number;
  /** Of these, jobs that were not done afterwards, or were begun once more. Must be 0. */
  readonly undone: number;
  /** Jobs that did not come to their end. */
  readonly lost: number;
}

/** `settleBatch`: 1 or 1,000. */
export async function endsAndKills(
  server: PostgresServer,
  {
    settleBatch,
    kills,
    jobs,
  }: { readonly settleBatch: number; readonly kills: number; readonly jobs: number },
): Promise<EndsResult> {
  const db = await jobsDatabase({ server });
  await db.put('a', Array(jobs).fill(0));
  const told = new Set<string>();
  const undone = new Set<string>();
  const worker = startWorker({
    ...{ url: db.url, concurrency: 24, settleBatch, leaseMs: 2_000, upkeepMs: 200 },
    handlers: {
      a: ({ id }) => {
        if (told.has(id)) undone.add(id);
        return sleep(Math.random() * 4);
      },
    },
    onEvent: (event) => {
      if (event.type === 'settled') told.add(event.job.id);
    },
  });
  try {
    for (let n = 0; n < kills; n += 1) {
      const before = told.size;
      await until('it works', () => told.size > before + 50 || told.size === jobs, { everyMs: 5 });
      await sleep(Math.random() * 50);
      if (n % 2 === 0) await server.kill();
      else await server.stop('immediate');
      await server.start();
    }
    await until('all are done', async () => (await db.states())['done'] === jobs, { withinMs: 120_000 });
    const { done = 0 } = await db.states();
    const { rows } = await db.pool.query<{ id: string }>(
      `select id::text from unbroker.jobs where id = any ($1) and state <> 'done'`,
      [[...told]],
    );
    for (const { id } of rows) undone.add(id);
    return { kills, told: told.size, undone: undone.size, lost: jobs - done };
  } finally {
    await worker.close();
    await db.close();
  }
}
