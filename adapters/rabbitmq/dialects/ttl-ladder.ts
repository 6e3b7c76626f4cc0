/**
 * Queues that hold a message for their TTL and dead-letter it back. What holds is the queue's argument; a duration in its name
 * is only compared with it, and a difference is written down. Everything else is as in a bare message.
 */
import type { Dialect, MessageView } from './dialect.js';
import { rawJson } from './raw-json.js';

const UNIT_MS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  sec: 1_000,
  m: 60_000,
  min: 60_000,
  h: 3_600_000,
};

/** The durations that a name may mean; a bare number is milliseconds or seconds. Empty when it holds none. */
function namedMs(queue: string): readonly number[] {
  const [, digits, unit] = /(?:^|[._:-])(\d{1,12})(ms|s|sec|m|min|h)?(?:$|[._:-])/.exec(queue) ?? [];
  if (digits === undefined) return [];
  const number = Number(digits);
  return unit === undefined ? [number, number * 1_000] : [number * (UNIT_MS[unit] ?? 1)];
}

function notes(view: MessageView): string[] {
  if (view.role !== 'wait') return [];
  const named = namedMs(view.delivery.queue);
  if (view.ttlMs === null) return view.delivery.properties.expiration === undefined ? ['ttl-unknown'] : [];
  return named.length > 0 && !named.includes(view.ttlMs) ? ['ttl-differs-from-name'] : [];
}

export const ttlLadder: Dialect = {
  name: 'ttl-ladder',
  summary: 'wait queues with a TTL: attempts from a counter or x-death, names only compared',
  claims: ({ role, deaths }) => role === 'wait' || deaths.some((death) => death.reason === 'expired'),
  requests: true,
  fields: { ...rawJson.fields, notes },
};
