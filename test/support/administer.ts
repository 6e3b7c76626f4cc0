/** One statement to a Postgres that cannot be in a transaction, such as making a database and dropping it. */
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';

/** Two at once may find the template in use for a moment (55006). */
export async function administer(url: string, statement: string): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 60_000 });
    client.on('error', () => {});
    try {
      await client.connect();
      await client.query(statement);
      return;
    } catch (error) {
      if ((error as { code?: string }).code !== '55006' || attempt === 20) throw error;
      await sleep(100);
    } finally {
      await client.end().catch(() => {});
    }
  }
}
