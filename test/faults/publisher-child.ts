/**
 * A publisher process for the fault runs: commits orders, each with its job, one transaction after the other on a few
 * connections, and keeps a journal of what it meant and what it was told. Some it rolls back on purpose.
 */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { enqueue } from '../../src/enqueue.js';
import { Journal } from '../support/journal.js';

const env = (name: string): string => process.env[name] ?? '';
const pool = new pg.Pool({ connectionString: env('DATABASE_URL'), max: 4, connectionTimeoutMillis: 2_000 });
pool.on('error', () => {});
pool.on('connect', (client) => client.on('error', () => {}));
const journal = new Journal(env('JOURNAL'));
const pauseMs = Number(env('PAUSE_MS') || '5');
let ending = false;
process.on('SIGTERM', () => {
  ending = true;
});

async function publish(): Promise<void> {
  const key = randomUUID();
  const client = await pool.connect();
  let sound = false;
  try {
    const taken = Math.random() < 0.9;
    if (taken) journal.attempt(key);
    await client.query('begin');
    await client.query('insert into orders (key) values ($1)', [key]);
    await enqueue(client, 'plain', { key }, { dedupeKey: key, retryPolicy: { type: 'fixed', delayMs: 50 } });
    await client.query(taken ? 'commit' : 'rollback');
    if (taken) journal.acknowledge(key);
    sound = true;
  } finally {
    client.release(!sound);
  }
}

async function loop(): Promise<void> {
  while (!ending) {
    // A database that is away answers neither yes nor no: the journal keeps the question.
    await publish().catch(() => undefined);
    await new Promise((resolve) => setTimeout(resolve, pauseMs * (0.5 + Math.random())));
  }
}

await Promise.all([loop(), loop(), loop()]);
await pool.end();
journal.close();
