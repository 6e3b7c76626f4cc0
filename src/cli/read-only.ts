/** What a program that runs until it is stopped says when it starts on a database that takes no writes. */
import { UnbrokerError } from '../errors.js';
import type { Queryable } from '../jobs/job.js';
import { within } from '../jobs/signal.js';
import { refuseReadOnly, TAKES_NO_WRITES, WHERE_IT_DOES } from '../jobs/writable.js';
import type { Log } from '../log.js';

const MAX_WAIT_MS = 10_000;

/**
 * `meanwhile`: what becomes of its work. It starts all the same: a failover may be under way. Of a database that is slow, or away
 * by now, it says nothing.
 */
export async function warnOfReadOnly(log: Log, db: Queryable, meanwhile: string): Promise<void> {
  const failed: unknown = await within(refuseReadOnly(db), MAX_WAIT_MS).then(
    () => null,
    (error: unknown) => error,
  );
  if (failed instanceof UnbrokerError && failed.code === 'database-read-only')
    log.warn({}, `${TAKES_NO_WRITES}; until it does ${meanwhile}. ${WHERE_IT_DOES}`);
}
