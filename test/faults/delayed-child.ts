/**
 * One import of delayed messages in a process of its own that dies at a step, or stops there, says so and goes on when it
 * is told. Its result is its exit status and one JSON line.
 */
import { readSync, writeSync } from 'node:fs';
import pg from 'pg';
import { ctlCommand } from '../../adapters/rabbitmq/ctl.js';
import { importDelayed } from '../../adapters/rabbitmq/delayed-import.js';
import { compileRules } from '../../adapters/rabbitmq/drain-config.js';
import { createStore } from '../../src/jobs/store.js';
import { SILENT } from '../../src/log.js';

const env = (name: string): string => process.env[name] ?? '';
const [way, wanted, nth] = env('AT').split(':');
let seen = 0;

const pool = new pg.Pool({ connectionString: env('DATABASE_URL'), max: 4, connectionTimeoutMillis: 5_000 });
pool.on('error', () => {});
try {
  const result = await importDelayed({
    ...{ amqpUrl: env('AMQP_URL'), pool, store: createStore(), log: SILENT, leaseMs: 8_000 },
    ctl: ctlCommand(env('RABBITMQCTL')),
    rules: compileRules([{ match: { queue: '*' }, kind: 'fault.test' }]),
    factsOf: (name) => ({ name, role: 'main', ttlMs: null, feeders: [] }),
    page: Number(env('PAGE')),
    onStep: (step) => {
      if (step !== wanted || ++seen !== Number(nth)) return;
      if (way === 'kill') process.kill(process.pid, 'SIGKILL');
      writeSync(1, 'AT\n');
      readSync(0, Buffer.alloc(1));
    },
  });
  process.stdout.write(`${JSON.stringify(result)}\n`);
} catch (error) {
  process.stderr.write(`${String(error)}\n`);
  process.exitCode = 1;
}
await pool.end();
