/**
 * Gives claimed jobs back as they were, attempts included. Their rows may be locked for a moment, by a checkpoint or by an
 * extension of their own leases that is still under way; so what was not to be had is asked for again, for a while.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { ClaimedJob, Queryable } from './job.js';
import { isHeldBy } from './recheck.js';
import { isConflict } from './sqlstate.js';
import type { Store } from './store.js';

/** Whoever stops waits for it: a row that an operator's open transaction holds is left to the reaper after that. */
const MAX_RELEASE_MS = 2_000;
const MAX_PAUSE_MS = 100;

/** Throws what the database throws. */
export async function releaseJobs(store: Store, db: Queryable, jobs: readonly ClaimedJob[]): Promise<void> {
  const until = performance.now() + MAX_RELEASE_MS;
  let left = await releaseFree(store, db, jobs);
  for (let tries = 1; left.length > 0 && performance.now() < until; tries += 1) {
    await sleep(Math.min(tries * 10, MAX_PAUSE_MS) * (0.5 + Math.random()));
    left = await releaseFree(store, db, left);
  }
}

/** Answers those that are still ours. */
async function releaseFree(
  store: Store,
  db: Queryable,
  jobs: readonly ClaimedJob[],
): Promise<readonly ClaimedJob[]> {
  try {
    const released = new Set(await store.release(db, jobs));
    const missing = jobs.filter(({ id }) => !released.has(id));
    if (missing.length === 0) return [];
    const ids = missing.map(({ id }) => id);
    const rows = new Map((await store.rowsNow(db, ids)).map((row) => [row.id, row]));
    return missing.filter((job) => isHeldBy(job, rows.get(job.id)));
  } catch (error) {
    if (isConflict(error)) return jobs;
    throw error;
  }
}
