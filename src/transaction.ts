/** One transaction on one client of a pool: committed with what came of it, or rolled back with what was thrown. */
import type { Queryable } from './jobs/job.js';

/** The part of pg's Pool that it takes. */
export interface TransactionPool extends Queryable {
  connect(): Promise<Queryable & { release(): void }>;
}

export async function inTransaction<T>(
  pool: TransactionPool,
  run: (db: Queryable) => Promise<T>,
): Promise<T> {
  const client = await pool.connect();
  try {
    await client.query('begin');
    const answer = await run(client);
    await client.query('commit');
    return answer;
  } catch (error) {
    await client.query('rollback').catch(() => undefined);
    throw error;
  } finally {
    client.release();
  }
}
