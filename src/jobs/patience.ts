/**
 * Asks the database with a limit. A connection that does not answer in time (half-open, its server stopped) is thrown
 * away, so that the next question gets another: waiting alone would leave a pool of five deaf after five questions. It
 * refuses to know what is asked, and it asks nothing twice.
 */
import { isDirect } from './direct.js';
import type { Queryable } from './job.js';
import { isUnusable, Prepared } from './prepared.js';
import { within } from './signal.js';
import { isAnswer } from './sqlstate.js';

/** The part of `pg.Pool` that is used when it is there. */
interface Pool extends Queryable {
  connect(): Promise<Client>;
}

/** The part of `pg.PoolClient`. */
interface Client extends Queryable {
  release(destroy?: boolean): void;
  on?(event: 'error', listener: () => void): unknown;
}

/** A database that is asked with a limit. */
export interface Patient extends Queryable {
  /** The same, with the statement prepared on connections of pg's that end at the server itself. */
  readonly keeping: Queryable;
}

/** `db` with every question limited to `maxMs`; `database-slow` after that. */
export function patient(db: Queryable, maxMs: number): Patient {
  if (!isPool(db)) {
    const limited: Queryable = { query: (text, values) => within(db.query(text, values), maxMs) };
    return { ...limited, keeping: limited };
  }
  const ask = async (question: (client: Client) => ReturnType<Queryable['query']>) => {
    const client = await within(db.connect(), maxMs, (late) => late.release());
    listen(client);
    let sound = false;
    try {
      const answer = await within(question(client), maxMs);
      sound = true;
      return answer;
    } catch (error) {
      sound = isAnswer(error);
      throw error;
    } finally {
      client.release(!sound);
    }
  };
  return {
    query: (text, values) => ask((client) => client.query(text, values)),
    keeping: { query: (text, values) => ask((client) => prepared(client, text, values)) },
  };
}

/** Outside a transaction, so what was refused for its name alone is asked again by its text. */
async function prepared(client: Client, text: string, values?: unknown[]): ReturnType<Queryable['query']> {
  if (!(await isDirect(client))) return client.query(text, values);
  try {
    return await new Prepared(client).query(text, values);
  } catch (error) {
    if (isUnusable(error)) return client.query(text, values);
    throw error;
  }
}

const heard = new WeakSet<object>();

/**
 * A pool reports a broken idle connection by an `error` event, and so does each connection in somebody's hands; unheard,
 * either ends the process. Hears them once for each, for as long as they live. A new connection is listened to the
 * moment it is made: its server's farewell may be in the same packet as its welcome, before any promise resolves (seen
 * once in a thousand kills of a server).
 */
export function hearErrors(db: Queryable, onError: (error: unknown) => void): void {
  const { on } = db as { on?: unknown };
  if (typeof on !== 'function' || heard.has(db)) return;
  heard.add(db);
  on.call(db, 'error', onError);
  on.call(db, 'connect', listen);
}

/** What broke is told by the question that was asked. */
function listen(client: Client): void {
  if (heard.has(client)) return;
  heard.add(client);
  client.on?.('error', () => {});
}

function isPool(db: Queryable): db is Pool {
  // pg's Client has `connect` too; only a pool counts its clients.
  return typeof (db as Partial<Pool>).connect === 'function' && 'totalCount' in db;
}
