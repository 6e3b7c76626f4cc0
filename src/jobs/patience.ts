/**
 * Asks the database with a limit. A connection that does not answer in time (half-open, its server stopped) is thrown
 * away, so that the next question gets another: waiting alone would leave a pool of five deaf after five questions. It
 * refuses to know what is asked, and it asks nothing twice.
 */
import type { Queryable } from './job.js';
import { within } from './signal.js';

/** The part of `pg.Pool` that is used when it is there. */
interface Pool extends Queryable {
  connect(): Promise<Client>;
}

/** The part of `pg.PoolClient`. */
interface Client extends Queryable {
  release(destroy?: boolean): void;
  on?(event: 'error', listener: () => void): unknown;
  off?(event: 'error', listener: () => void): unknown;
}

/** `db` with every question limited to `maxMs`; `database-slow` after that. */
export function patient(db: Queryable, maxMs: number): Queryable {
  if (!isPool(db)) return { query: (text, values) => within(db.query(text, values), maxMs) };
  return {
    async query(text, values) {
      const client = await within(db.connect(), maxMs, (late) => late.release());
      // A connection that breaks between two answers says so by an event; unheard it would end the process.
      client.on?.('error', ignore);
      let sound = false;
      try {
        const answer = await within(client.query(text, values), maxMs);
        sound = true;
        return answer;
      } catch (error) {
        sound = isAnswer(error);
        throw error;
      } finally {
        client.off?.('error', ignore);
        client.release(!sound);
      }
    },
  };
}

const heard = new WeakSet<object>();

/**
 * A pool reports a broken idle connection by an `error` event, which ends the process when nobody listens. Hears it once
 * for each pool, for as long as the pool lives.
 */
export function hearErrors(db: Queryable, onError: (error: unknown) => void): void {
  const { on } = db as { on?: unknown };
  if (typeof on !== 'function' || heard.has(db)) return;
  heard.add(db);
  on.call(db, 'error', onError);
}

const ignore = (): void => {};

function isPool(db: Queryable): db is Pool {
  // pg's Client has `connect` too; only a pool counts its clients.
  return typeof (db as Partial<Pool>).connect === 'function' && 'totalCount' in db;
}

/**
 * The server refused the statement: the connection is as good as before. Not so after class 57, its farewell, nor when it
 * takes no writes (25006): it was demoted, and the same address leads to the new primary by now.
 */
function isAnswer(error: unknown): boolean {
  const code = typeof error === 'object' && error !== null && 'code' in error ? error.code : undefined;
  return typeof code === 'string' && /^(?!57|08|25006)[0-9A-Z]{5}$/.test(code);
}
