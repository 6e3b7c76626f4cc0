/** What a program that runs until it is stopped says when it starts on a database that takes no writes. */
import type { Queryable } from '../jobs/job.js';
import { TAKES_NO_WRITES, takesWrites, WHERE_IT_DOES } from '../jobs/writable.js';
import type { Log } from '../log.js';

/** `meanwhile`: what becomes of its work. It starts all the same: a failover may be under way. */
export async function warnOfReadOnly(log: Log, db: Queryable, meanwhile: string): Promise<void> {
  if (!(await takesWrites(db)))
    log.warn({}, `${TAKES_NO_WRITES}; until it does ${meanwhile}. ${WHERE_IT_DOES}`);
}
