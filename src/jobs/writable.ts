/**
 * Does the database take writes? A standby answers every question, and so does a role whose transactions are read-only, so a
 * program that only asks whether the server is there is ready and does nothing.
 */
import { UnbrokerError } from '../errors.js';
import type { Queryable } from './job.js';
import { within } from './signal.js';

export const TAKES_NO_WRITES = 'the database takes no writes';
export const WHERE_IT_DOES =
  'It may be a standby, or default_transaction_read_only is on: point DATABASE_URL at the primary';

/** Throws `database-read-only`, or what the driver throws. On a standby every transaction is read-only. */
export async function refuseReadOnly(db: Queryable): Promise<void> {
  const { rows } = await db.query(`select current_setting('transaction_read_only') = 'off' as writable`);
  if ((rows[0] as { writable: boolean }).writable) return;
  throw new UnbrokerError('database-read-only', 'The database takes no writes', {
    hint: `${WHERE_IT_DOES}.`,
  });
}

/** False, too, when it does not answer within `maxMs`. */
export function takesWrites(db: Queryable, maxMs = 2_000): Promise<boolean> {
  return within(refuseReadOnly(db), maxMs).then(
    () => true,
    () => false,
  );
}
