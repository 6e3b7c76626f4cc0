/** The pool of who connects with nothing but an address: the database that DATABASE_URL names. */
import type { Pool } from 'pg';
import { EXIT, UnbrokerError } from '../../src/errors.js';
import { withTlsModeNamed } from '../../src/tls-mode.js';

/** Rejects with `database-url-missing`, `driver-unreadable`. */
export async function environmentPool(): Promise<Pool> {
  const connectionString = process.env['DATABASE_URL'];
  if (connectionString === undefined || connectionString === '') {
    throw new UnbrokerError('database-url-missing', 'The database URL is not set', {
      hint: 'Set DATABASE_URL, or give connect a pool: connect({ pool }).',
      exitStatus: EXIT.badInput,
    });
  }
  const { Pool } = await driver();
  const pool = new Pool({
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

/** Loaded by who needs it: pg asks for Node's modules by require, which an ESM bundle with pg in it has not. */
async function driver(): Promise<{ readonly Pool: typeof Pool }> {
  try {
    return (await import('pg')).default;
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new UnbrokerError('driver-unreadable', `pg cannot be loaded: ${why}`, {
      hint: 'Leave pg out of an ESM bundle (esbuild --external:pg), or give connect a pool: connect({ pool }).',
      ...{ exitStatus: EXIT.badInput, cause: error },
    });
  }
}
