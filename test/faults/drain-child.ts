/**
 * One drain of one group in a process of its own that can be told to die at a step: SIGKILL to itself right there, as a
 * machine would. Or to stop at one, all of it, say so, and go on when it is told (`p`: and pass the next ones): what
 * happens meanwhile is up to whoever reads it. Its result is its exit status (0 balanced, 3 not or ambiguous) and one JSON line.
 */
import { readSync, writeSync } from 'node:fs';
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
/** Steps to stop at, one after the other, counted from the one before. */
const pauses = env('PAUSE_AT')
  .split(',')
  .filter((pause) => pause !== '')
  .map((pause) => pause.split(':') as [step: string, nth: string]);
let paused = 0;
let since = 0;
/** Fences that pass before the next stop. */
let passing = 0;
/**
 * By then what it was sent on to do, a COMMIT or an ack, is on the wire: the first may be the fence of a batch before. Batches
 * that are prepared would not do: on a connection that is gone they come to nothing, and on the next one several are
 * prepared before the first ack, so that it stopped with nothing sent and its watcher waited for ever.
 */
const FENCES_TO_PASS = 2;

function pauseAt(step: string): void {
  if (passing > 0) {
    if (step === 'fenced') passing -= 1;
    return;
  }
  const [wanted, nth] = pauses[paused] ?? [];
  if (step !== wanted) return;
  since += 1;
  if (since < Number(nth)) return;
  since = 0;
  writeSync(1, `AT ${paused}\n`);
  paused += 1;
  // Blocks the whole process: nothing goes on behind the step.
  const told = Buffer.alloc(1);
  readSync(0, told);
  if (told.toString() === 'p') passing = FENCES_TO_PASS;
}

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
      pauseAt(step);
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
