/**
 * Rascal: a table `rascal` among the headers, written when a message is retried, forwarded or encrypted. A message of its
 * first publish bears no mark. Keys of encryption profiles are not asked for: such a body stays as bytes.
 */
import { findField, integerOf, type Table, textOf } from '../headers.js';
import { type Dialect, firstRoute, headerTable, type MessageView } from './dialect.js';

const NONE: Table = [];
const rascalOf = (view: MessageView): Table => headerTable(view, 'rascal') ?? NONE;

function tableAt(table: Table, path: readonly string[]): Table {
  let found = table;
  for (const name of path) {
    const field = findField(found, name);
    if (field?.tag !== 'F') return NONE;
    found = field.entries;
  }
  return found;
}

const textAt = (view: MessageView, ...path: string[]): string | undefined =>
  textOf(findField(tableAt(rascalOf(view), path.slice(0, -1)), path.at(-1) ?? ''));

const originalQueue = (view: MessageView): string | undefined => textAt(view, 'originalQueue') || undefined;

function recoveries(view: MessageView): number | undefined {
  const all = tableAt(rascalOf(view), ['recovery']);
  const queue = originalQueue(view) ?? view.delivery.queue;
  // Older versions took the dots of a queue's name for a path.
  const candidates = [tableAt(all, [queue]), tableAt(all, queue.split('.'))];
  const own = candidates.find((table) => table.length > 0) ?? NONE;
  const counts = ['republished', 'forwarded'].map((name) => integerOf(findField(own, name)));
  // Without either (an immediate nack replaces both) x-death counts.
  return counts.every((count) => count === undefined)
    ? undefined
    : counts.reduce<number>((sum, count) => sum + (count ?? 0), 0);
}

export const rascal: Dialect = {
  name: 'rascal',
  summary: 'Rascal: rascal.recovery, rascal.error and rascal.encryption among the headers',
  claims: (view) => headerTable(view, 'rascal') !== undefined,
  requests: true,
  fields: {
    route: (view) => {
      const first = firstRoute(view);
      return {
        exchange: textAt(view, 'originalExchange') ?? first.exchange,
        routingKey: textAt(view, 'originalRoutingKey') ?? first.routingKey,
      };
    },
    kind: (view) => (textAt(view, 'originalRoutingKey') ?? firstRoute(view).routingKey) || undefined,
    id: ({ delivery }) => delivery.properties.messageId || undefined,
    attempts: recoveries,
    homeQueue: originalQueue,
    opaque: (view) => {
      const profile = textAt(view, 'encryption', 'name');
      return profile === undefined
        ? undefined
        : { name: 'encrypted', message: `the body is encrypted with Rascal's profile '${profile}'` };
    },
    error: (view) => {
      const message = textAt(view, 'error', 'message');
      return message === undefined ? undefined : { name: textAt(view, 'error', 'code') ?? 'error', message };
    },
    details: (view) => ({
      originalVhost: textAt(view, 'originalVhost'),
      encryptionProfile: textAt(view, 'encryption', 'name'),
      encryptedContentType: textAt(view, 'encryption', 'originalContentType'),
    }),
  },
};
