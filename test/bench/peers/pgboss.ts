/**
 * pg-boss with its documented settings for throughput: batches of 1,000, fetching on while batches come back full, two
 * fetchers, its shortest poll, and LISTEN/NOTIFY.
 */
import type pg from 'pg';
import { type Contender, KIND, type Payload } from '../contender.js';

/** What is used of it; the package is there only once the bench has installed it (peers.ts). */
interface Boss {
  on(event: 'error', listener: (error: Error) => void): void;
  start(): Promise<unknown>;
  stop(options: object): Promise<void>;
  createQueue(name: string, options: object): Promise<void>;
  insert(name: string, jobs: readonly object[]): Promise<unknown>;
  send(name: string, data: object, options: object): Promise<unknown>;
  work(
    name: string,
    options: object,
    handler: (jobs: readonly { readonly data: Payload }[]) => Promise<void>,
  ): Promise<string>;
}

const packageName: string = 'pg-boss';
const { PgBoss } = (await import(packageName)) as { PgBoss: new (options: object) => Boss };

async function start(url: string): Promise<Boss> {
  const boss = new PgBoss({ connectionString: url, useListenNotify: true });
  boss.on('error', (error) => console.error(`pg-boss: ${error.message}`));
  await boss.start();
  return boss;
}

const stop = (boss: Boss): Promise<void> => boss.stop({ graceful: true, timeout: 10_000 });

export const pgboss: Contender = {
  unfinished: `select exists (select from pgboss.job where name = '${KIND}' and state < 'completed') as unfinished`,

  async install(url) {
    const boss = await start(url);
    await boss.createQueue(KIND, { notify: true });
    await stop(boss);
  },

  async enqueuer(url) {
    const boss = await start(url);
    return {
      enqueue(client: pg.ClientBase, payload) {
        const db = { executeSql: (text: string, values?: unknown[]) => client.query(text, values) };
        return boss.send(KIND, payload, { db });
      },
      enqueueMany: (payloads) =>
        boss.insert(
          KIND,
          payloads.map((data) => ({ data })),
        ),
      close: () => stop(boss),
    };
  },

  async work(url, _profile, onJob) {
    const boss = await start(url);
    const options = {
      batchSize: 1_000,
      burstWhenBatchFull: true,
      localConcurrency: 2,
      pollingIntervalSeconds: 0.5,
    };
    await boss.work(KIND, options, async (jobs) => {
      for (const job of jobs) onJob(job.data);
    });
    return { stop: () => stop(boss) };
  },
};
