/**
 * Takes the servers away from a running drain, or pauses the drain until another takes over, and compares. The drain
 * may recover by itself or end and be run again; it may also stop as ambiguous where the broker itself lost count.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { migrate } from '../../src/migrate.js';
import { type StartedProcess, startScript } from '../support/processes.js';
import { freshDatabase, freshVhost, type PostgresServer, type RabbitServer } from '../support/services.js';
import { until } from '../support/until.js';
import type { KillResult } from './drain.js';
import { bodiesOf, compare, publish } from './drain-publish.js';
import { runToTheEnd, strikeServer } from './server-faults.js';

export const SERVER_FAULTS = [
  'broker killed',
  'broker stopped',
  'database killed',
  'database stopped at once',
  'drain paused and replaced',
] as const;
export type DrainFault = (typeof SERVER_FAULTS)[number];

const CHILD = fileURLToPath(new URL('drain-child.ts', import.meta.url));
const MESSAGES = 2_000;
/** Slow enough that the fault falls into the middle. */
const RATE = 400;
/** A paused client is dropped after two missed heartbeats of 20 s, its open transaction after 20 s. */
const UNTIL_DROPPED_MS = 65_000;

export async function faultAndCompare(
  fault: DrainFault,
  postgres: PostgresServer,
  rabbit: RabbitServer,
): Promise<KillResult> {
  const [database, vhost] = await Promise.all([freshDatabase(postgres), freshVhost(rabbit)]);
  try {
    await migrate(database.pool);
    const bodies = bodiesOf('twins', MESSAGES);
    const queues = await publish(vhost.url, 'classic', bodies);
    await rabbit.persistDeclarations();
    const env = {
      AMQP_URL: vhost.url,
      DATABASE_URL: database.url,
      GROUP: JSON.stringify({ name: 'faults', queues }),
      MAX_BATCH: '50',
      RATE: String(RATE),
    };
    const start = (): StartedProcess => startScript(CHILD, [], { env });
    const first = start();
    await until(
      'the drain is in the middle',
      async () => {
        const { rows } = await database.pool.query(
          'select count(*)::int as batches from unbroker.drain_batches',
        );
        return (rows[0] as { batches: number }).batches >= 6;
      },
      { withinMs: 60_000 },
    );
    await strike(fault, postgres, rabbit, first);
    const { code, output } = await runToTheEnd(first, start, fault === 'drain paused and replaced');
    const { lost, extra } = await compare(database, bodies);
    const ambiguous = code === 3 && output.includes('drain-ambiguous');
    // Stopped as ambiguous, the rest is still in the broker: only rows made twice would be wrong.
    return { points: 1, lost: ambiguous ? 0 : lost, extra, recovered: code === 0, ambiguous, output };
  } finally {
    await Promise.all([database.close(), vhost.close()]);
  }
}

async function strike(
  fault: DrainFault,
  postgres: PostgresServer,
  rabbit: RabbitServer,
  drain: StartedProcess,
): Promise<void> {
  if (fault !== 'drain paused and replaced') return strikeServer(fault, postgres, rabbit);
  drain.signal('SIGSTOP');
  await sleep(UNTIL_DROPPED_MS);
}
