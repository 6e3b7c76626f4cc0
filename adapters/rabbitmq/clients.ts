/**
 * Database clients that a drain, a bridge or an import borrows from the caller's pool: how they are taken, how long they
 * are waited for, how they go back. It knows no statement.
 */
import type { Queryable } from '../../src/jobs/job.js';
import { within } from '../../src/jobs/signal.js';

/** A pool whose clients can be held for a transaction; at least three. */
export interface DrainPool extends Queryable {
  connect(): Promise<DrainClient>;
}

export interface DrainClient extends Queryable {
  release(destroy?: boolean): void;
  on?(event: 'error', listener: (error: Error) => void): unknown;
  off?(event: 'error', listener: (error: Error) => void): unknown;
}

/** A pool may have no limit of its own, and all of its clients may be busy. */
const CONNECT_WITHIN_MS = 60_000;
const ignore = (): void => undefined;

/** A client of the pool; one that dies in our hands reports it on the query that we wait for. */
export async function borrowClient(pool: DrainPool): Promise<DrainClient> {
  const client = await within(pool.connect(), CONNECT_WITHIN_MS, (late) => late.release());
  client.on?.('error', ignore);
  return client;
}

/** One that goes back to the pool serves others, who listen again; one that is thrown away (not clean) may yet fail. */
export function returnClient(client: DrainClient, clean: boolean): void {
  if (clean) client.off?.('error', ignore);
  client.release(!clean);
}

/**
 * The client with each of its answers limited to `maxMs`; `database-slow` after that. What was asked may have happened all
 * the same: a COMMIT above all, so whoever goes on starts by looking. Such a client must not be used again.
 */
export function patientClient(client: Queryable, maxMs: number): Queryable {
  return {
    query(text, values) {
      if (typeof text === 'string') return within(client.query(text, values), maxMs);
      // A COPY, which the driver itself limits: it settles by its callback and is no promise.
      return client.query(Object.assign(text as object, { query_timeout: maxMs }) as never, values);
    },
  };
}
