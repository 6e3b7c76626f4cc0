/**
 * Does a connection end at the Postgres server itself? Only there may a statement be prepared under a name: a pooler in
 * transaction mode may have the next transaction on a server connection that does not know it. Asked of pg's clients, once
 * each, and believed only when the server sees both the process and the port that the client sees. It knows nothing of jobs.
 */
import type { Queryable } from './job.js';

/** What pg's Client tells of its connection, by what the server said at login and by its own socket. */
interface Ends {
  readonly pid: number;
  readonly port: number;
}

/** `once`: used for one job so far. A connection that lives for one job only is not asked: that costs a round trip. */
const known = new WeakMap<Queryable, 'once' | boolean>();

/** The first time of a client: false. Throws what the connection throws. */
export function isDirect(tx: Queryable): boolean | Promise<boolean> {
  const answer = known.get(tx);
  if (typeof answer === 'boolean') return answer;
  const ends = endsOf(tx);
  if (ends === undefined) return false;
  if (answer === 'once') return ask(tx, ends);
  known.set(tx, 'once');
  return false;
}

/** Whoever discards what its sessions have prepared gets an error for it once; from then on it is not prepared there. */
export function forgetsPlans(tx: Queryable): void {
  known.set(tx, false);
}

async function ask(tx: Queryable, ends: Ends): Promise<boolean> {
  const { rows } = await tx.query('select pg_backend_pid() as pid, inet_client_port() as port');
  const server = rows[0] as { readonly pid: unknown; readonly port: unknown };
  // A pooler gives its clients numbers of its own and connects from ports of its own. On a socket file there is no port.
  const direct = String(server.pid) === String(ends.pid) && String(server.port) === String(ends.port);
  known.set(tx, direct);
  return direct;
}

function endsOf(tx: Queryable): Ends | undefined {
  const { processID, connection } = tx as {
    readonly processID?: unknown;
    readonly connection?: { readonly stream?: { readonly localPort?: unknown } };
  };
  const port = connection?.stream?.localPort;
  return typeof processID === 'number' && typeof port === 'number' ? { pid: processID, port } : undefined;
}
