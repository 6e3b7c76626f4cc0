/** A worker process that fires schedules until it is killed. */
import pg from 'pg';
import { createWorker } from '../../src/jobs/worker.js';

const pool = new pg.Pool({ connectionString: process.env['DATABASE_URL'], max: 3 });
pool.on('error', () => {});
createWorker({ db: pool, handlers: { tick: () => undefined } }).start();
process.stdout.write('working\n');
