/**
 * One bridge in a process of its own that can be told to die at a step: SIGKILL to itself right there. SIGTERM ends it in
 * order. Its result is one JSON line.
 */
import pg from 'pg';
import { type BridgeOptions, bridge } from '../../adapters/rabbitmq/bridge.js';
import { compileRules } from '../../adapters/rabbitmq/drain-config.js';
import { UnbrokerError } from '../../src/errors.js';
import { createStore } from '../../src/jobs/store.js';
import { SILENT } from '../../src/log.js';

const env = (name: string): string => process.env[name] ?? '';
/** `committed:3` = at the third time that a batch was committed. */
const [killStep, killNth] = env('KILL_AT').split(':');
let seen = 0;
const stop = new AbortController();
process.on('SIGTERM', () => stop.abort());

const pool = new pg.Pool({ connectionString: env('DATABASE_URL'), max: 4, connectionTimeoutMillis: 5_000 });
pool.on('error', () => {});

try {
  const result = await bridge({
    ...{ amqpUrl: env('AMQP_URL'), pool, store: createStore(), log: SILENT, signal: stop.signal },
    groups: JSON.parse(env('GROUPS')) as BridgeOptions['groups'],
    rules: compileRules([{ match: { queue: '*' }, kind: 'fault.test' }]),
    maxBatch: Number(env('MAX_BATCH') || 50),
    leaseMs: 5_000,
    ...(env('IDLE_EXIT_MS') === '' ? {} : { idleExitMs: Number(env('IDLE_EXIT_MS')) }),
    onStep: (step) => {
      if (step !== killStep) return;
      seen += 1;
      if (seen >= Number(killNth)) process.kill(process.pid, 'SIGKILL');
    },
  });
  process.stdout.write(`${JSON.stringify(result)}\n`);
} catch (error) {
  const known = error instanceof UnbrokerError;
  process.stderr.write(`${known ? `${error.line} [${error.code}]` : String(error)}\n`);
  process.exitCode = known ? error.exitStatus : 1;
}
await pool.end();
