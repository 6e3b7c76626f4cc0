/**
 * One drain of one group in a process of its own that can be told to die at a step: SIGKILL to itself right there, as a
 * machine would. Its result is its exit status (0 balanced, 3 not or ambiguous) and one JSON line.
 */
import pg from 'pg';
import { type DrainOptions, drainGroup } from '../../adapters/rabbitmq/drain.js';
import { compileRules } from '../../adapters/rabbitmq/drain-config.js';
import { UnbrokerError } from '../../src/errors.js';
import { createStore } from '../../src/jobs/store.js';
import { SILENT } from '../../src/log.js';

const env = (name: string): string => process.env[name] ?? '';
/** `committed:3` = at the third time that a batch was committed. */
const [killStep, killNth] = env('KILL_AT').split(':');
let seen = 0;

const pool = new pg.Pool({ connectionString: env('DATABASE_URL'), max: 3, connectionTimeoutMillis: 5_000 });
pool.on('error', () => {});

try {
  const result = await drainGroup({
    amqpUrl: env('AMQP_URL'),
    pool,
    store: createStore(),
    log: SILENT,
    group: JSON.parse(env('GROUP')) as DrainOptions['group'],
    rules: compileRules([{ match: { queue: '*' }, kind: 'fault.test' }]),
    maxBatch: Number(env('MAX_BATCH') || 100),
    rate: env('RATE') === '' ? undefined : Number(env('RATE')),
    leaseMs: 5_000,
    onStep: (step) => {
      if (step !== killStep) return;
      seen += 1;
      if (seen >= Number(killNth)) process.kill(process.pid, 'SIGKILL');
    },
  });
  process.stdout.write(`${JSON.stringify(result)}\n`);
  process.exitCode = result.books.balanced ? 0 : 3;
} catch (error) {
  const known = error instanceof UnbrokerError;
  process.stderr.write(`${known ? `${error.line} [${error.code}]` : String(error)}\n`);
  process.exitCode = known ? error.exitStatus : 1;
}
await pool.end();
