/** The connection pool and the one transaction helper. */
import { readFile } from 'node:fs/promises';
import pg from 'pg';

export function createPool(connectionString: string): pg.Pool {
  const pool = new pg.Pool({ connectionString, max: 10, application_name: 'orders' });
  pool.on('error', (error) => console.error(`orders: database: ${error.message}`));
  return pool;
}

export async function migrate(pool: pg.Pool): Promise<void> {
  await pool.query(await readFile(new URL('../schema.sql', import.meta.url), 'utf8'));
}

export async function withTransaction<T>(
  pool: pg.Pool,
  work: (client: pg.PoolClient) => Promise<T>,
): Promise<T> {
  const client = await pool.connect();
  try {
    await client.query('BEGIN');
    const result = await work(client);
    await client.query('COMMIT');
    return result;
  } catch (error) {
    await client.query('ROLLBACK').catch(() => {});
    throw error;
  } finally {
    client.release();
  }
}
