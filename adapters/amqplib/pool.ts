/** The pool of who connects with nothing but an address: the database that DATABASE_URL names. */
import pg from 'pg';
import { EXIT, UnbrokerError } from '../../src/errors.js';
import { withTlsModeNamed } from '../../src/tls-mode.js';

/** Throws `database-url-missing`. */
export function environmentPool(): pg.Pool {
  const connectionString = process.env['DATABASE_URL'];
  if (connectionString === undefined || connectionString === '') {
    throw new UnbrokerError('database-url-missing', 'The database URL is not set', {
      hint: 'Set DATABASE_URL, or give connect a pool: connect({ pool }).',
      exitStatus: EXIT.badInput,
    });
  }
  const pool = new pg.Pool({
    connectionString: withTlsModeNamed(connectionString),
    max: 10,
    connectionTimeoutMillis: 5_000,
    keepAlive: true,
  });
  // An idle connection that is lost is replaced; unheard, its event would end the process.
  pool.on('error', () => undefined);
  pool.on('connect', (client) => client.on('error', () => undefined));
  return pool;
}
