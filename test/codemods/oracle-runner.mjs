/**
 * Runs a fixture's `place` once and dies right after its nth statement: a reply of Postgres, or a confirm of the
 * broker, whichever comes nth. Without a death it ends with 0. It is started by oracle.test.ts.
 */
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const { FOLDER, DATABASE_URL, AMQP_URL, KILL_AFTER, CUSTOMER } = process.env;
const load = createRequire(join(FOLDER, 'package.json'));
const pg = load('pg');
const amqp = load('amqplib');
const killAfter = Number(KILL_AFTER);
let counting = false;
let statements = 0;

/** Hands a reply on, unless it is the last thing this process gets. */
const after =
  (next) =>
  (...reply) => {
    if (counting && ++statements === killAfter) {
      process.kill(process.pid, 'SIGKILL');
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
    }
    return next?.(...reply);
  };

const { query } = pg.Client.prototype;
pg.Client.prototype.query = function counted(config, values, callback) {
  if (typeof values === 'function') return query.call(this, config, after(values));
  if (typeof callback === 'function') return query.call(this, config, values, after(callback));
  return query.call(this, config, values).then(after((result) => result));
};

const pool = new pg.Pool({ connectionString: DATABASE_URL, max: 2 });
const connection = await amqp.connect(AMQP_URL);
const channel = await connection.createConfirmChannel();
const publish = channel.publish.bind(channel);
channel.publish = (exchange, key, content, options, confirmed) =>
  publish(exchange, key, content, options, after(confirmed));

const { Bus } = await import(pathToFileURL(join(FOLDER, 'src', 'bus.mjs')).href);
const { place } = await import(pathToFileURL(join(FOLDER, 'src', 'place.mjs')).href);
counting = true;
await place(pool, new Bus(channel), CUSTOMER);
counting = false;
await connection.close();
await pool.end();
