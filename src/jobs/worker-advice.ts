/**
 * What a worker says of its options when it starts: they are taken, and are mostly not what was meant. What cannot be meant is
 * refused (worker-options.ts). Pure: it opens no connection and writes no line.
 */
import { suggestion } from '../check.js';
import type { Queryable } from './job.js';

/** A line of the log. */
export interface Advice {
  readonly level: 'warn' | 'info';
  readonly fields: object;
  readonly text: string;
}

/** One claims, one writes what ended, one is left for leases, ordering keys and upkeep. */
export const MIN_CONNECTIONS = 3;

export function adviceOn(
  db: Queryable,
  handlers: ReadonlyMap<string, unknown>,
  limits: ReadonlyMap<string, unknown>,
): Advice[] {
  return [...adviceOnConnections(db), ...adviceOnLimits([...handlers.keys()], [...limits.keys()])];
}

/** Known of pg's pools and clients; whatever else has `query` is not asked. */
function adviceOnConnections(db: Queryable): Advice[] {
  const { connect, options } = db as { connect?: unknown; options?: { max?: unknown } };
  if (typeof connect !== 'function') return [];
  const wait = 'claims, ends, leases and upkeep wait for each other';
  const give = `Give this worker a pg.Pool of its own with max: ${MIN_CONNECTIONS} or more`;
  // Only a pool counts its clients, and only a client knows its server's process.
  if (!('totalCount' in db))
    return 'processID' in db
      ? [warning({}, `db is one connection: ${wait}, and once it is lost this worker works no more. ${give}`)]
      : [];
  const max = options?.max;
  if (typeof max !== 'number' || max >= MIN_CONNECTIONS) return [];
  return [warning({ max }, `db is a pool with too few connections: ${wait}. ${give}`)];
}

/** Another worker may serve the kind, so it is a warning only where a handler without a limit has nearly that name. */
function adviceOnLimits(handlers: readonly string[], limits: readonly string[]): Advice[] {
  const unlimited = handlers.filter((kind) => !limits.includes(kind));
  const passedOver = limits.filter((kind) => !handlers.includes(kind));
  return passedOver.map((kind) => {
    const near = suggestion(kind, unlimited);
    const text = `kinds has limits of a kind without a handler here, which this worker passes over${near}`;
    return near === '' ? { level: 'info', fields: { kind }, text } : warning({ kind }, text);
  });
}

function warning(fields: object, text: string): Advice {
  return { level: 'warn', fields, text };
}
