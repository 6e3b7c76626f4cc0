/**
 * From an enqueue to the start of its handler, twenty jobs a second, nothing else to do; and how many notifications are
 * sent while there is a backlog: each would hold the lock that all commits with one share.
 */

import pg from 'pg';
import { freshDatabase } from '../support/services.js';
import type { BenchOptions, BenchResult } from './bench.js';
import { ContenderClient } from './contender-client.js';
import type { WorkReport } from './contender-process.js';
import { measurePaced, type Paced } from './paced.js';
import { interleave, median, range, round } from './rounds.js';
import { say } from './say.js';
import { table } from './table.js';

const PER_SECOND = 20;

export async function benchLatency(options: BenchOptions): Promise<BenchResult> {
  const jobs = options.quick ? 60 : 500;
  const figures = await interleave(options.contenders, options.rounds, async (name, at) => {
    const figure = await measurePaced(name, { ...options, jobs, perSecond: PER_SECOND, profile: 'idle' });
    say(`round ${at + 1} of ${options.rounds}: ${name} p50 ${round(figure.p50Ms, 2)} ms`);
    return figure;
  });
  const summary = (paced: readonly Paced[]) => ({
    p50Ms: round(median(paced.map((f) => f.p50Ms)), 2),
    p99Ms: round(median(paced.map((f) => f.p99Ms)), 2),
    postgresCpu: round(median(paced.map((f) => f.postgresCpu ?? Number.NaN)), 3),
  });
  const notifies = options.contenders.includes('unbroker') ? await countNotifies(options) : null;
  const peers = options.contenders.filter((name) => name !== 'unbroker');
  return {
    json: {
      ...(figures.unbroker ? summary(figures.unbroker) : {}),
      peers: Object.fromEntries(peers.map((name) => [name, summary(figures[name])])),
      jobs,
      perSecond: PER_SECOND,
      saturated: notifies,
    },
    text: `${table(
      ['', 'p50 ms', 'p99 ms', 'Postgres, % of a core'],
      options.contenders.map((name) => [
        name,
        range(
          figures[name].map((f) => f.p50Ms),
          2,
        ),
        range(
          figures[name].map((f) => f.p99Ms),
          2,
        ),
        range(
          figures[name].map((f) => (f.postgresCpu ?? Number.NaN) * 100),
          1,
        ),
      ]),
    )}\nsaturated: ${notifies?.sent ?? 0} enqueues, ${notifies?.notifications ?? 0} notifications`,
  };
}

/** A worker that listens, a backlog that outlasts the sending, and single enqueues beside it. */
async function countNotifies({ server, node, quick }: BenchOptions) {
  const database = await freshDatabase(server);
  const producer = await ContenderClient.start('unbroker', node);
  const worker = await ContenderClient.start('unbroker', node);
  const listener = new pg.Client({ connectionString: database.url });
  listener.on('error', () => {});
  let notifications = 0;
  // For all that sleep, or for two by name: not a worker that asks whether notifications come back.
  listener.on('notification', ({ payload = '' }) => {
    notifications += payload === '' || payload.includes(' ') ? 1 : 0;
  });
  try {
    const { url } = database;
    const backlog = quick ? 20_000 : 100_000;
    const sent = quick ? 400 : 2_000;
    await producer.ask({ do: 'install', url });
    await producer.ask({ do: 'enqueue-many', url, jobs: backlog });
    await listener.connect();
    await listener.query('listen "jobs:unbroker"');
    await worker.ask({ do: 'work', url, profile: 'steady', jobs: backlog + sent });
    await producer.ask({
      do: 'send-paced',
      url,
      perSecond: 400,
      jobs: sent,
      priorities: 1,
      lateCounts: true,
    });
    const { handled } = await worker.ask<WorkReport>({ do: 'stop' });
    await listener.query('select 1');
    return { sent, notifications, backlogLeft: backlog + sent - handled };
  } finally {
    await listener.end();
    await Promise.all([producer.close(), worker.close()]);
    await database.close();
  }
}
