/**
 * One undo of one group in a process of its own that can be told to die at a step, or a few milliseconds after it: SIGKILL
 * to itself, as a machine would. Its result is its exit status (0 balanced, 3 not or ambiguous) and one JSON line.
 */
import pg from 'pg';
import { undoGroup } from '../../adapters/rabbitmq/undo.js';
import { UnbrokerError } from '../../src/errors.js';
import { SILENT } from '../../src/log.js';

const env = (name: string): string => process.env[name] ?? '';
/** `published:3:7` = 7 ms after the third time that a batch was handed to the client. */
const [killStep, killNth, killAfterMs] = env('KILL_AT').split(':');
let seen = 0;
const die = (): void => void process.kill(process.pid, 'SIGKILL');

const pool = new pg.Pool({ connectionString: env('DATABASE_URL'), max: 4, connectionTimeoutMillis: 5_000 });
pool.on('error', () => {});
pool.on('connect', (client) => client.on('error', () => {}));

try {
  const result = await undoGroup({
    ...{ amqpUrl: env('AMQP_URL'), pool, schema: 'unbroker', group: env('GROUP'), log: SILENT },
    waitQueues: new Set(env('WAIT_QUEUES').split(',').filter(Boolean)),
    maxBatch: Number(env('MAX_BATCH') || 100),
    rate: env('RATE') === '' ? undefined : Number(env('RATE')),
    leaseMs: 5_000,
    onStep: (step) => {
      if (step !== killStep) return;
      seen += 1;
      if (seen < Number(killNth)) return;
      if (killAfterMs === undefined) die();
      else setTimeout(die, Number(killAfterMs));
    },
  });
  process.stdout.write(`${JSON.stringify(result)}\n`);
  process.exitCode = result.books.balanced ? 0 : 3;
} catch (error) {
  const known = error instanceof UnbrokerError;
  process.stderr.write(`${known ? `${error.line} [${error.code}]` : String((error as Error).stack)}\n`);
  process.exitCode = known ? error.exitStatus : 1;
}
await pool.end();
